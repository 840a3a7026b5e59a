"""What is tried: every calibrator, kernel, statistic, shrinkage and rule, each by a name."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyRegressor

from calliper import KNN, RBF, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import (
    LCP,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    as_calibrator,
)
from calliper.kernels import ForestProximity, GradedKNN, Mahalanobis, TunedKNN, TunedRBF
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.scale import Cells
from calliper.scores import QuantileError, SignedError


class Nearest(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The target of the nearest training row, the smallest among ties: quick and unstable."""

    def fit(self, X: Any, y: Any) -> Nearest:
        """Keep the rows in the order of their targets."""
        order = np.argsort(y, kind="stable")
        self.X_, self.y_ = X[order, 0], y[order]
        return self

    def predict(self, X: Any) -> Any:
        """The target of the nearest."""
        return self.y_[np.abs(X[:, :1] - self.X_).argmin(axis=1)]


class Mean(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The mean of all targets, to the last bit the same in any order."""

    def fit(self, X: Any, y: Any) -> Mean:
        """Take the mean."""
        self.mean_ = fsum(y) / len(y)
        return self

    def predict(self, X: Any) -> Any:
        """The mean for each row."""
        return np.full(len(X), self.mean_)


def halves(Z: Any) -> Any:
    """Which side of a half the first input is on."""
    return np.asarray(Z)[:, :1] > 0.5


#: Scales are learnt elsewhere, or not at all: the law given the calibration set is known.
WITH_LAW: dict[str, Any] = {
    "Split": Split(),
    "MADSplit(KNN)": MADSplit(KNN(3)),
    "MADSplit(RBF)": MADSplit(RBF(0.3), offset=0.01),
    "NormalizedKNN": NormalizedKNN(3),
    "NormalizedKNN(labels)": NormalizedKNN(3, difficulty="labels"),
    "NormalizedKNN(residuals, exp)": NormalizedKNN(3, difficulty="residuals", form="exp"),
    "RCP(KNN)": RCP(kernel=KNN(8)),
    "SLCP(KNN)": SLCP(KNN(8)),
    "SLCP(RBF)": SLCP(RBF(0.3)),
}

FULL: dict[str, Any] = {
    "FullRescaled": FullRescaled(),
    "FullRescaled(KNN 1)": FullRescaled(KNN(1)),
    "FullRescaled(KNN 3)": FullRescaled(KNN(3)),
    "FullRescaled(KNN 3, rms)": FullRescaled(KNN(3), statistic="rms"),
    "FullRescaled(KNN 3, quantile)": FullRescaled(KNN(3), statistic="quantile"),
    "FullRescaled(KNN 3, shrinkage)": FullRescaled(KNN(3), shrinkage=0.3),
    "FullRescaled(KNN 3, rms, shrinkage)": FullRescaled(KNN(3), statistic="rms", shrinkage=0.6),
    "FullRescaled(KNN 3, quantile, shrinkage)": FullRescaled(
        KNN(3), statistic="quantile", shrinkage=0.3
    ),
    "FullRescaled(KNN 3, offset)": FullRescaled(KNN(3), offset=0.1),
    "FullRescaled(KNN 2, cityblock)": FullRescaled(KNN(2, metric="cityblock")),
    "FullRescaled(shrinkage 1)": FullRescaled(KNN(3), shrinkage=1.0),
    "FullRescaled(RBF)": FullRescaled(RBF(0.5)),
    "FullRescaled(RBF, rms)": FullRescaled(RBF(0.5), statistic="rms"),
    "FullRescaled(RBF, smoothing)": FullRescaled(RBF(0.3, smoothing=1.0)),
    "FullRescaled(RBF, shrinkage)": FullRescaled(RBF(0.5), shrinkage=0.3),
    "FullRescaled(RBF, step)": FullRescaled(RBF(0.5, smoothing=1.0, step=0.5)),
    "FullRescaled(GradedKNN)": FullRescaled(GradedKNN(1)),
    "FullRescaled(GradedKNN, rms, shrinkage)": FullRescaled(
        GradedKNN(1), statistic="rms", shrinkage=0.5
    ),
    "FullRescaled(KNN 2, cells)": FullRescaled(KNN(2, cells=Cells(4, n_probes=1, random_state=0))),
    "FullRescaled(KNN 2, learnt cells, shrinkage)": FullRescaled(
        KNN(2, cells=Cells(3, n_probes=2, random_state=0)), shrinkage=0.3
    ),
    "FullRescaled(ForestProximity)": FullRescaled(ForestProximity()),
    "FullRescaled(Mahalanobis)": FullRescaled(Mahalanobis(KNN(3), max_iter=3), random_state=0),
    "FullRescaled(TunedKNN)": FullRescaled(TunedKNN(n_neighbors=(1, 3)), random_state=0),
    "FullRescaled(TunedRBF)": FullRescaled(TunedRBF(length_scales=(0.3, 1.0)), random_state=0),
}

OTHERS: dict[str, Any] = {
    "JackknifeRescaled": JackknifeRescaled(),
    "JackknifeRescaled(KNN 1)": JackknifeRescaled(KNN(1)),
    "JackknifeRescaled(KNN 2)": JackknifeRescaled(KNN(2)),
    "JackknifeRescaled(RBF)": JackknifeRescaled(RBF(0.5)),
    "JackknifeRescaled(KNN 2, offset)": JackknifeRescaled(KNN(2), offset=0.1),
    "JackknifeRescaled(TunedKNN)": JackknifeRescaled(TunedKNN(n_neighbors=(1, 3)), random_state=0),
    "JackknifeRescaled(TunedRBF)": JackknifeRescaled(
        TunedRBF(length_scales=(0.3, 1.0)), random_state=0
    ),
    "JackknifeMinmaxRescaled(KNN 1)": JackknifeMinmaxRescaled(KNN(1)),
    "JackknifeMinmaxRescaled(KNN 3)": JackknifeMinmaxRescaled(KNN(3)),
    "JackknifeMinmaxRescaled(RBF)": JackknifeMinmaxRescaled(RBF(0.5)),
    "LCP(exponential)": LCP(bandwidth=0.5),
    "LCP(gaussian)": LCP("gaussian", bandwidth=0.7),
    "LCP(neighbors)": LCP("neighbors", bandwidth=2),
    "RLCP": RLCP(0.5, random_state=0),
    "LoCart": LoCart(random_state=0),
    "ConditionalCalibration": ConditionalCalibration(),
    "ConditionalCalibration(groups)": ConditionalCalibration(basis=halves),
}

CALIBRATORS = WITH_LAW | FULL | OTHERS

#: Takers of weights, of signs (for a distribution), and of groups (any; these stand for all).
WEIGHTED = (
    "Split",
    "MADSplit(KNN)",
    "NormalizedKNN",
    "RCP(KNN)",
    "SLCP(KNN)",
    "FullRescaled",
    "FullRescaled(KNN 1)",
    "FullRescaled(KNN 3, rms)",
    "FullRescaled(KNN 3, quantile)",
    "FullRescaled(KNN 3, shrinkage)",
    "FullRescaled(RBF)",
    "JackknifeRescaled(KNN 1)",
    "JackknifeRescaled(RBF)",
)
SIGNED = (
    "Split",
    "MADSplit(KNN)",
    "NormalizedKNN",
    "RCP(KNN)",
    "FullRescaled",
    "FullRescaled(KNN 1)",
    "FullRescaled(KNN 3, shrinkage)",
    "FullRescaled(RBF, rms)",
)
GROUPED = ("Split", "FullRescaled", "FullRescaled(KNN 1)", "JackknifeRescaled(KNN 1)")

REFITTED: dict[str, Any] = {
    "JackknifePlus": JackknifePlus(Nearest()),
    "JackknifePlus(minmax)": JackknifePlus(Nearest(), minmax=True),
    "CVPlus": CVPlus(Nearest(), 3),
    "CVPlus(minmax)": CVPlus(Nearest(), 3, minmax=True),
    "JackknifeAfterBootstrap": JackknifeAfterBootstrap(Nearest(), 10),
}


#: Attacked, too: tiny models and, where a method draws, so few rows that all draws are tried.
TINY: dict[str, Any] = {
    "JackknifePlus(mean)": JackknifePlus(Mean()),
    "JackknifePlus(constant)": JackknifePlus(DummyRegressor(strategy="constant", constant=0.0)),
}
FOLDED: dict[str, Any] = {
    "CVPlus(2 folds)": CVPlus(Nearest(), 2, random_state=0),
    "CVPlus(2 folds, mean)": CVPlus(Mean(), 2, random_state=0),
    "CVPlus(2 folds, minmax)": CVPlus(Nearest(), 2, minmax=True, random_state=0),
    "CVPlus(2 folds, mean, minmax)": CVPlus(Mean(), 2, minmax=True, random_state=0),
}
BOOTSTRAPPED: dict[str, Any] = {
    "JackknifeAfterBootstrap(1)": JackknifeAfterBootstrap(Nearest(), 1),
    "JackknifeAfterBootstrap(1, mean)": JackknifeAfterBootstrap(Mean(), 1),
}


def zero(X: Any) -> Any:
    """A model that predicts nothing."""
    return np.zeros(len(X))


def quantiles(X: Any) -> Any:
    """A model of three quantiles, far from the truth."""
    return np.column_stack([X[:, 0] - 1.0, X[:, 0], X[:, 0] + 0.5])


def outer(X: Any) -> Any:
    """The first and the last of them."""
    return quantiles(X)[:, [0, 2]]


REGRESSORS: dict[str, Any] = {
    "ConformalRegressor": ConformalRegressor(zero),
    "ConformalRegressor(SignedError)": ConformalRegressor(
        zero, FullRescaled(KNN(3)), score_function=SignedError()
    ),
    "ConformalRegressor(SignedError, upper)": ConformalRegressor(
        zero, FullRescaled(KNN(3)), score_function=SignedError("upper")
    ),
    "ConformalRegressor(SignedError, lower)": ConformalRegressor(
        zero, JackknifeRescaled(KNN(3)), score_function=SignedError("lower")
    ),
    **{
        f"ConformalRegressor(QuantileError, {variant})": ConformalRegressor(
            quantiles if variant == "median" else outer,
            Split(),
            score_function=QuantileError(variant),
        )
        for variant in ("plain", "ratio", "median", "asymmetric")
    },
}

#: Methods whose features are the numbers of leaves.
OF_LEAVES = ("FullRescaled(ForestProximity)",)

#: What the default rule of FullRescaled is told, where it is told anything.
RULES: dict[str, dict[str, Any]] = {
    "FullRescaled(length_scale)": {"length_scale": 0.3},
    "FullRescaled(left-out errors)": {"left_out": True},
}
CALIBRATORS |= {name: FullRescaled(random_state=0) for name in RULES}


def told(name: str, method: Any, Z: Any, errors: Any) -> dict[str, Any]:
    """What ``fit`` is told beyond calibration rows, made of rows apart from them."""
    needed = "learnt cells" in name or "training" in as_calibrator(method).uses.needs
    given: dict[str, Any] = {"training": (Z, np.abs(errors), errors)} if needed else {}
    rule = dict(RULES.get(name, {}))
    if rule.pop("left_out", False):
        given |= {"left_out": (Z, np.abs(errors))}
    return given | rule
