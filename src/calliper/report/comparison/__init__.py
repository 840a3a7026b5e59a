"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.report.comparison._check import Check
from calliper.report.comparison._compare import LEVELS, Comparison, compare
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._measures import Record
from calliper.report.comparison._points import Points
from calliper.report.comparison._verdict import Verdict

__all__ = [
    "LEVELS",
    "Answer",
    "Check",
    "Comparison",
    "Points",
    "Record",
    "Verdict",
    "compare",
]
