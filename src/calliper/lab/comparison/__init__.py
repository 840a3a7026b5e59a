"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.lab.comparison._compare import LEVELS, compare
from calliper.lab.comparison._comparison import Answer, Check, Comparison, Points, Record, Verdict

__all__ = ["LEVELS", "Answer", "Check", "Comparison", "Points", "Record", "Verdict", "compare"]
