"""Methods that ask or refit the model itself, which a file of predictions cannot do."""

from __future__ import annotations

from calliper.cli._methods import Description

PYTHON_ONLY = (
    Description(
        "CQR",
        "that of two predicted quantiles, plus a constant",
        "1−α",
        "a model of quantiles",
        "a fit of each quantile; O(N log N + M)",
        "if the model can be trained for quantiles: QuantileError and Split",
        "QuantileError and Split",
    ),
    Description(
        "JackknifePlus",
        "nearly the same width everywhere",
        "1−2α",
        "a model to refit",
        "n fits of the model, n M predictions",
        "if rows are too few to set some aside",
        "JackknifePlus",
    ),
    Description(
        "CVPlus",
        "nearly the same width everywhere",
        "1−2α−√(2/n)",
        "a model to refit",
        "a fit for each fold, and M predictions by each",
        "as JackknifePlus, if n fits take too long",
        "CVPlus",
    ),
    Description(
        "JackknifeAfterBootstrap",
        "nearly the same width everywhere",
        "1−2α",
        "a model to refit",
        "a fit for each bootstrap, and M predictions by each",
        "as JackknifePlus, if the model is a bagged ensemble",
        "JackknifeAfterBootstrap",
    ),
)
