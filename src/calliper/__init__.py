"""Honest, locally adaptive prediction intervals around any regression model.

What a few lines need is here; everything else is in the submodules, each a topic of its own.
"""

from importlib import import_module
from typing import Any

from calliper._boxes import Boxes
from calliper._quantile_pair import QuantilePair
from calliper._targets import MultiTargetRegressor
from calliper._version import __version__ as __version__
from calliper.calibrators import FullRescaled, JackknifeRescaled, Split
from calliper.exceptions import CalliperError
from calliper.files import load, save
from calliper.intervals import Intervals
from calliper.kernels import KNN, RBF
from calliper.lab.comparison import compare
from calliper.lab.evaluation import evaluate
from calliper.regressor import ConformalRegressor
from calliper.scores import AbsoluteError, JointError, QuantileError, SignedError
from calliper.space import ErrorModel, Layer

#: Topics, loaded when first asked for.
_SUBMODULES = (
    "calibrators",
    "distribution",
    "exceptions",
    "files",
    "guarantees",
    "information",
    "kernels",
    "lab",
    "metrics",
    "online",
    "refitting",
    "scale",
    "scores",
    "shift",
)

__all__ = [
    "KNN",
    "RBF",
    "AbsoluteError",
    "Boxes",
    "CalliperError",
    "ConformalRegressor",
    "ErrorModel",
    "FullRescaled",
    "Intervals",
    "JackknifeRescaled",
    "JointError",
    "Layer",
    "MultiTargetRegressor",
    "QuantileError",
    "QuantilePair",
    "SignedError",
    "Split",
    "compare",
    "evaluate",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"calliper.{name}")
    raise AttributeError(f"module 'calliper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES, "__version__"])
