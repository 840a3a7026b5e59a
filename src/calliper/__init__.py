"""Adaptive prediction intervals for any regression model, with proven coverage.

The most common names are here; everything else is in the submodules, one per topic.
"""

from typing import TYPE_CHECKING

from calliper._handlers import on_demand
from calliper._version import __version__ as __version__
from calliper.calibrators import FullRescaled, Split
from calliper.exceptions import CalliperError
from calliper.intervals import Boxes, Intervals
from calliper.kernels import KNN, RBF
from calliper.models import Layer, PredictWith, QuantileModel
from calliper.regressor import ConformalRegressor
from calliper.scores import AbsoluteError, DistributionError, JointError, QuantileError, SignedError
from calliper.space import ErrorModel

if TYPE_CHECKING:
    from calliper.calibrators import JackknifeRescaled
    from calliper.files import load, save
    from calliper.lab import metrics as metrics
    from calliper.lab.comparison import compare
    from calliper.lab.evaluation import evaluate
    from calliper.targets import MultiTargetRegressor

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
    "monitoring",
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
    "DistributionError",
    "ErrorModel",
    "FullRescaled",
    "Intervals",
    "JackknifeRescaled",
    "JointError",
    "Layer",
    "MultiTargetRegressor",
    "PredictWith",
    "QuantileError",
    "QuantileModel",
    "SignedError",
    "Split",
    "compare",
    "evaluate",
    "load",
    "save",
]

__getattr__ = on_demand(
    __name__,
    {
        "JackknifeRescaled": "calibrators",
        "MultiTargetRegressor": "targets",
        "compare": "lab.comparison",
        "evaluate": "lab.evaluation",
        "load": "files",
        "metrics": "lab",
        "save": "files",
        **dict(zip(_SUBMODULES, _SUBMODULES, strict=True)),
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES, "metrics", "__version__"])
