"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.comparison._answers import Answer
from calliper.comparison._checks import Check
from calliper.comparison._compare import LEVELS, Comparison, compare
from calliper.comparison._points import Points
from calliper.comparison._tables import Record
from calliper.comparison._verdict import Verdict
from calliper.comparison._words import listed as listed
from calliper.comparison._words import number as number
from calliper.comparison._words import percent as percent
from calliper.comparison._words import percent_down as percent_down
from calliper.comparison._words import seconds as seconds
from calliper.comparison._words import with_error as with_error

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
