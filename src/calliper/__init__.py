"""Honest, locally adaptive prediction intervals around any regression model."""

from calliper import datasets, evaluation, guarantees, metrics, tuning
from calliper._quantile_pair import QuantilePair
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    JackknifeMinmaxRescaled,
    JackknifeRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    Split,
)
from calliper.embedding import Layer
from calliper.evaluation import Problem, evaluate, summarise
from calliper.exceptions import (
    CalliperError,
    EmbeddingWarning,
    SmallCalibrationWarning,
    UnscaledFeaturesWarning,
    ZeroScaleWarning,
)
from calliper.information import mutual_information
from calliper.intervals import Intervals
from calliper.kernels import KNN, RBF, ForestProximity, Mahalanobis, TunedKNN, TunedRBF
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.regressor import ConformalRegressor
from calliper.scores import AbsoluteError, QuantileError, SignedError

__all__ = [
    "KNN",
    "LCP",
    "LVD",
    "RBF",
    "RCP",
    "RLCP",
    "SLCP",
    "AbsoluteError",
    "CVPlus",
    "CalliperError",
    "ConditionalCalibration",
    "ConformalRegressor",
    "EmbeddingWarning",
    "ForestProximity",
    "FullRescaled",
    "Intervals",
    "JackknifeAfterBootstrap",
    "JackknifeMinmaxRescaled",
    "JackknifePlus",
    "JackknifeRescaled",
    "Layer",
    "LoCart",
    "MADSplit",
    "Mahalanobis",
    "NormalizedKNN",
    "Problem",
    "QuantileError",
    "QuantilePair",
    "SignedError",
    "SmallCalibrationWarning",
    "Split",
    "TunedKNN",
    "TunedRBF",
    "UnscaledFeaturesWarning",
    "ZeroScaleWarning",
    "datasets",
    "evaluate",
    "evaluation",
    "guarantees",
    "metrics",
    "mutual_information",
    "summarise",
    "tuning",
]
__version__ = "0.1.0"
