"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.lab.comparison._compare import LEVELS, compare
from calliper.lab.comparison._comparison import Comparison, Points

__all__ = ["LEVELS", "Comparison", "Points", "compare"]
