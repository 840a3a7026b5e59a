"""Honest, locally adaptive prediction intervals around any regression model."""

from calliper import datasets, guarantees, metrics, tuning
from calliper.calibrators import FullRescaled, JackknifeRescaled, MADSplit, Split
from calliper.exceptions import (
    CalliperError,
    SmallCalibrationWarning,
    UnscaledFeaturesWarning,
    ZeroScaleWarning,
)
from calliper.intervals import Intervals
from calliper.kernels import KNN, RBF, TunedKNN, TunedRBF
from calliper.mutual_information import mutual_information
from calliper.regressor import ConformalRegressor
from calliper.scores import AbsoluteError, SignedError

__all__ = [
    "KNN",
    "RBF",
    "AbsoluteError",
    "CalliperError",
    "ConformalRegressor",
    "FullRescaled",
    "Intervals",
    "JackknifeRescaled",
    "MADSplit",
    "SignedError",
    "SmallCalibrationWarning",
    "Split",
    "TunedKNN",
    "TunedRBF",
    "UnscaledFeaturesWarning",
    "ZeroScaleWarning",
    "datasets",
    "guarantees",
    "metrics",
    "mutual_information",
    "tuning",
]
__version__ = "0.1.0"
