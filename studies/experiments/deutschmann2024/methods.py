"""The methods by the names that records, tables and figures use.

Kernels are named, never left to defaults, except where a row says "default".
"""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator

from calliper import KNN, RBF, CalliperError, FullRescaled, JackknifeRescaled, QuantileError, Split
from calliper.calibrators import LCP, LVD, RLCP, SLCP, MADSplit
from calliper.kernels import TunedRBF
from calliper.lab.evaluation import Method, Problem
from studies.experiments.deutschmann2024.config import NEIGHBOURS
from studies.experiments.deutschmann2024.lvd import learnt_once
from studies.experiments.deutschmann2024.whole import Whole

#: The paper's names of its rows, and ours.
OURS = "JackknifeRescaled"
MAD_KNN, MAD_MEDIAN = "MADSplit, KNN", "MADSplit, Median"
LVD_TUNED, LVD_BASE = "LVD, tuned", "LVD, base"
TUNED_MSE, TUNED_MI = "JackknifeRescaled, tuned (mse)", "JackknifeRescaled, tuned (MI)"
FULL, RMS, QUANTILE = "FullRescaled", "FullRescaled, rms", "FullRescaled, quantile"
DEFAULT, WHOLE = "FullRescaled, default", "ConformalRegressor, default"
SPLIT, CQR = "Split", "CQR"
PAPER_METHODS = (OURS, MAD_KNN, MAD_MEDIAN, LVD_TUNED, LVD_BASE)

#: Where a tuned kernel leaves out folds: for every N with mutual information, else above this N.
FOLDS, MOST_LEFT_OUT_SINGLY = 10, 2000
#: Principal components whose mutual information with the score is summed; the paper has 2 to 4.
COMPONENTS = 4
#: Of ten neighbours no 95 % quantile can be told from the largest.
QUANTILE_NEIGHBOURS = 30


def quick_to_predict(problem: Problem) -> dict[str, Any]:
    """The paper's methods, ours with the full guarantee, and plain split."""
    near = KNN(NEIGHBOURS)
    return {
        SPLIT: Split(),
        OURS: JackknifeRescaled(near),
        FULL: FullRescaled(near),
        RMS: FullRescaled(near, statistic="rms"),
        MAD_KNN: MADSplit(near),
        MAD_MEDIAN: MADSplit(RBF("median")),
        **learnt(problem),
    }


def learnt(problem: Problem) -> dict[str, Any]:
    """LVD, its metric learnt once from the training rows."""
    Z_train, y_train = problem.Z_train, problem.y_train
    if Z_train is None or y_train is None:
        raise CalliperError(f"{problem.name!r} has no training rows to learn a metric from.")
    metric = learnt_once(Z_train, y_train)
    return {
        LVD_TUNED: LVD(metric=metric, tuned=True),
        LVD_BASE: LVD(metric=metric),
    }


def slow_to_predict() -> dict[str, Any]:
    """Methods that sort or weigh all calibration or training errors for every new point."""
    return {
        QUANTILE: FullRescaled(KNN(QUANTILE_NEIGHBOURS), statistic="quantile"),
        "LCP": LCP(),
        "SLCP": SLCP(KNN(4 * NEIGHBOURS)),
        "RLCP": RLCP(),
    }


def tuned(n: int, *, columns: int) -> dict[str, Any]:
    """JackknifeRescaled with a length scale chosen on calibration rows."""
    components = COMPONENTS if columns > COMPONENTS else None
    mse = TunedRBF("mse", n_folds=None if n <= MOST_LEFT_OUT_SINGLY else FOLDS)
    mi = TunedRBF("mi", n_folds=FOLDS, n_components=components)
    return {TUNED_MSE: JackknifeRescaled(mse), TUNED_MI: JackknifeRescaled(mi)}


def default() -> dict[str, Any]:
    """What ``FullRescaled()`` does when it is told nothing."""
    return {DEFAULT: FullRescaled()}


def whole(model: Any, X_train: Any, y_train: Any) -> dict[str, Any]:
    """``ConformalRegressor`` around a fitted model, told nothing but its training rows."""
    return {WHOLE: Whole(FrozenEstimator(model), X_train, y_train)}


def quantile_regression() -> dict[str, Any]:
    """CQR, on problems that have predicted quantiles."""
    return {CQR: Method(Split(), score_function=QuantileError(), outputs="quantiles")}
