"""Many methods on many problems: the same splits for all, tidy records, the paper's table."""

from calliper.exceptions import FailedTrialsWarning, TornStoreWarning
from calliper.lab.evaluation._evaluate import evaluate
from calliper.lab.evaluation._problems import Method, Problem
from calliper.lab.evaluation._records import Records
from calliper.lab.evaluation._summary import Summary, last_digit, one_sigma, summarise

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
