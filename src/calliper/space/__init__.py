"""Where nearness is judged: from inputs to the space where the error lives."""

from calliper.space._embedding import (
    RAW,
    UNTOUCHED,
    Embedding,
    fit_embedding,
    refuse_changing,
    warn_if_poor,
)
from calliper.space._error_model import ErrorModel, Expected
from calliper.space._learnt_error import Learnt, learn_errors
from calliper.space._left_out import (
    LeftOut,
    Refits,
    Training,
    left_out,
)
from calliper.space._network import Layer

__all__ = [
    "RAW",
    "UNTOUCHED",
    "Embedding",
    "ErrorModel",
    "Expected",
    "Layer",
    "Learnt",
    "LeftOut",
    "Refits",
    "Training",
    "fit_embedding",
    "learn_errors",
    "left_out",
    "refuse_changing",
    "warn_if_poor",
]
