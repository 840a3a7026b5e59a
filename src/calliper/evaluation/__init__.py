"""Many methods on many problems: the same splits for all, tidy records, the paper's table."""

from calliper.evaluation._evaluate import evaluate
from calliper.evaluation._problem import Method, Problem
from calliper.evaluation._records import Records
from calliper.evaluation._summary import Summary, last_digit, one_sigma, summarise
from calliper.exceptions import FailedTrialsWarning, TornStoreWarning

__all__ = [
    "FailedTrialsWarning",
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
