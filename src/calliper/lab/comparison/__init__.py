"""Methods compared on one calibration set and one test set: numbers, warnings, verdict."""

from calliper.lab.comparison._answers import Answer
from calliper.lab.comparison._checks import Check
from calliper.lab.comparison._compare import LEVELS, Comparison, compare
from calliper.lab.comparison._points import Points
from calliper.lab.comparison._tables import Record
from calliper.lab.comparison._verdict import Verdict
from calliper.lab.comparison._words import listed as listed
from calliper.lab.comparison._words import number as number
from calliper.lab.comparison._words import percent as percent
from calliper.lab.comparison._words import percent_down as percent_down
from calliper.lab.comparison._words import seconds as seconds
from calliper.lab.comparison._words import with_error as with_error

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
