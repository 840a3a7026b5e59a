"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.lab.comparison._answers import Answer, Points
from calliper.lab.comparison._checks import Check
from calliper.lab.comparison._compare import LEVELS, Comparison, compare
from calliper.lab.comparison._tables import Record
from calliper.lab.comparison._verdict import Verdict

__all__ = ["LEVELS", "Answer", "Check", "Comparison", "Points", "Record", "Verdict", "compare"]
