"""Many methods on many problems: the same splits for all, tidy records, the paper's table."""

from calliper.evaluation._evaluate import FailedCellsWarning, evaluate
from calliper.evaluation._last_digit import last_digit, one_sigma
from calliper.evaluation._measures import DEFAULT_MEASURES, Context, Measure
from calliper.evaluation._problem import Method, Problem
from calliper.evaluation._records import Records
from calliper.evaluation._store import TornStoreWarning
from calliper.evaluation._summary import Summary, summarise

__all__ = [
    "DEFAULT_MEASURES",
    "Context",
    "FailedCellsWarning",
    "Measure",
    "Method",
    "Problem",
    "Records",
    "Summary",
    "TornStoreWarning",
    "evaluate",
    "last_digit",
    "one_sigma",
    "summarise",
]
