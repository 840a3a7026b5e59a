"""Rounding loses no tie: a target as wrong as the threshold allows is inside.

Constant and discrete data make ties the rule, and numbers such as 0.1 and 1/3 make every product
and sum inexact; a radius rounded inward would then cover nothing.
"""

import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.tree import DecisionTreeRegressor

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
from calliper.kernels import KNN, RBF
from calliper.quantile import conformal_rank
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.scores import AbsoluteError, QuantileError, SignedError

#: Units in which every score is a multiple that is not exact.
UNITS = [0.1, 0.3, 1 / 3, 1.1, 1e-17, 1e300 / 7]
LEVELS = [0.1, 0.5, 0.8, 0.9]

RESCALED_BY_OTHERS = [
    MADSplit(random_state=0),
    MADSplit(RBF(0.2)),
    MADSplit(LinearRegression(), offset=0.1),
    RCP(kernel=KNN(7), random_state=0),
    RCP(kernel=KNN(7), offset=0.1, random_state=0),
    RCP(QuantileRegressor(alpha=0), offset=0.1),
    NormalizedKNN(7),
    NormalizedKNN(7, form="exp"),
    NormalizedKNN(7, difficulty="labels"),
    NormalizedKNN(7, difficulty="residuals", gamma=0.1),
    NormalizedKNN(7, difficulty="distance+labels", form="exp", gamma=3.0),
    SLCP(KNN(7), random_state=0),
    SLCP(RBF(0.2)),
    JackknifeMinmaxRescaled(KNN(7), random_state=0),
    JackknifeMinmaxRescaled(RBF(0.2)),
]
METHODS = [
    *RESCALED_BY_OTHERS,
    Split(),
    LoCart(random_state=0),
    LCP(bandwidth=0.3),
    LCP("neighbors", bandwidth=30, random_state=0),
    RLCP(0.3, random_state=0),
    LVD(max_iter=20, random_state=0),
    ConditionalCalibration(),
    JackknifeRescaled(KNN(7), random_state=0),
    JackknifeRescaled(RBF(0.2)),
    FullRescaled(random_state=0),
    FullRescaled(KNN(7), shrinkage=0.3, random_state=0),
    FullRescaled(KNN(7), statistic="rms", random_state=0),
    FullRescaled(KNN(7), statistic="quantile", random_state=0),
    FullRescaled(RBF(0.2)),
]
#: Equal scores have equal scales, but for the difficulty of the inputs themselves.
EQUAL_SCALES = [method for method in METHODS if not isinstance(method, NormalizedKNN)]


def in_units(methods):
    """Each method with each unit; the solver of linear programs fails at the largest."""
    return [
        (method, unit)
        for method in methods
        for unit in UNITS
        if unit < 1e100 or not isinstance(getattr(method, "quantile_regressor", 0), BaseEstimator)
    ]


def fit(method, rng, draw, multiple=1, n=59):
    """Fitted on scores that ``draw(n)`` gives; training scores are a multiple of such."""
    Z, train = rng.uniform(size=(n, 2)), rng.uniform(size=(80, 2))
    training = train, multiple * draw(80), rng.normal(size=80)
    scores = draw(n)
    needed = training if method.uses.needs else None
    return method.fit(Z, scores, training=needed), Z, scores


@pytest.mark.parametrize(("method", "unit"), in_units(EQUAL_SCALES), ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_constant_error_is_covered_everywhere(method, unit):
    """All scores are equal, so each has rank one at worst and is covered with probability one."""
    rng = np.random.default_rng(0)
    for multiple in (1, 4, 7):
        fitted, Z, _ = fit(method, rng, lambda n: np.full(n, unit), multiple)
        new = np.vstack([Z, rng.uniform(size=(40, 2))])
        assert np.all(fitted.predict_radius(new, LEVELS) >= unit)


@pytest.mark.parametrize(("method", "unit"), in_units(RESCALED_BY_OTHERS), ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_threshold_covers_the_points_that_it_was_found_on(method, unit):
    """Where scales come from elsewhere, Q of N scores are at most the threshold by its meaning."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        fitted, Z, scores = fit(method, rng, lambda n, rng=rng: unit * rng.integers(1, 10, n))
        radius = fitted.predict_radius(Z, LEVELS)
        covered = (scores[:, None] <= radius).sum(axis=0)
        assert np.all(covered >= [conformal_rank(level, len(Z)) for level in LEVELS])


def test_a_large_scale_does_not_lose_digits_of_a_small_score():
    """Ratios below the range of normal numbers keep few digits, and a large scale shows that."""
    rng = np.random.default_rng(0)
    method = NormalizedKNN(3, form="exp", gamma=1e6)
    fitted, Z, scores = fit(method, rng, lambda n: 1e-17 / rng.integers(1, 10, n))
    covered = (scores[:, None] <= fitted.predict_radius(Z, LEVELS)).sum(axis=0)
    assert np.all(covered >= [conformal_rank(level, len(Z)) for level in LEVELS])


#: Quotients of these are numbers above 0, though some have lost digits.
FINITE = st.floats(-1e140, 1e140).filter(lambda x: x == 0 or abs(x) > 1e-175)
AWKWARD = st.one_of(
    st.builds(lambda k, unit: k * unit, st.integers(-40, 40), st.sampled_from(UNITS[:5])), FINITE
)
ONE_PREDICTION = [AbsoluteError(), SignedError(), SignedError("lower"), SignedError("upper")]
QUANTILES = [
    QuantileError(),
    QuantileError("ratio"),
    QuantileError("ratio", offset=0.1),
    QuantileError("median"),
    QuantileError("median", offset=1 / 3),
    QuantileError("asymmetric"),
]


def is_inside(score, y, y_pred, radius):
    """Whether the inverse holds y, at a radius for each tail, (1, 1) or (1, 1, 2)."""
    of_tails = np.reshape(radius, (1, 1, 2) if score.n_tails == 2 else (1, 1))
    lower, upper = score.invert(y_pred[:, None], of_tails)
    return bool(lower[0, 0] <= y[0] <= upper[0, 0])


@pytest.mark.parametrize("score", ONE_PREDICTION, ids=repr)
@given(y=AWKWARD, y_pred=AWKWARD)
@example(y=0.3, y_pred=0.1)
def test_the_inverse_holds_what_was_measured(score, y, y_pred):
    y, y_pred = np.array([y]), np.array([y_pred])
    assert is_inside(score, y, y_pred, score.measure(y, y_pred))


@pytest.mark.parametrize("score", QUANTILES, ids=repr)
@given(y=AWKWARD, quantiles=st.tuples(AWKWARD, AWKWARD, AWKWARD))
@example(y=0.3, quantiles=(0.1, 0.2, 0.7))
@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
def test_the_inverse_holds_what_was_measured_outside_quantiles(score, y, quantiles):
    y, y_pred = np.array([y]), np.array([quantiles[: score.n_outputs]])
    assert is_inside(score, y, y_pred, score.measure(y, y_pred))


REFITTED = [
    JackknifePlus,
    CVPlus,
    lambda estimator: CVPlus(estimator, cv=4, random_state=0),
    lambda estimator: JackknifePlus(estimator, minmax=True),
    lambda estimator: JackknifeAfterBootstrap(estimator, 20, random_state=0),
    lambda estimator: JackknifeAfterBootstrap(estimator, 20, aggregate="median", random_state=0),
]
NAMES = ["jackknife", "cv", "cv4", "minmax", "bootstrap mean", "bootstrap median"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("make", REFITTED, ids=NAMES)
@pytest.mark.parametrize("model", [DummyRegressor(), DecisionTreeRegressor(), LinearRegression()])
def test_a_constant_target_is_covered_by_methods_that_refit(make, model, unit):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(size=(40, 2)), rng.uniform(size=(200, 2))
    lower, upper = make(model).fit(X, np.full(40, unit)).predict_interval(new, [0.6, 0.8, 0.9])
    assert np.all((lower <= unit) & (unit <= upper))


def left_out_exactly(method, new):
    """μ₋ᵢ(x) of each new row, (m, n), in rational arithmetic."""
    per_model = [[Fraction(value) for value in model.predict(new)] for model in method.models_]
    if hasattr(method, "fold_"):
        return [[per_model[k][row] for k in method.fold_] for row in range(len(new))]
    unseen = [np.flatnonzero(~method.in_bag_[:, i]) for i in range(method.in_bag_.shape[1])]
    average = statistics.median if method.aggregate == "median" else statistics.mean
    return [
        [average([per_model[b][row] for b in models]) for models in unseen]
        for row in range(len(new))
    ]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("make", [*REFITTED[:3], *REFITTED[4:]], ids=[*NAMES[:3], *NAMES[4:]])
def test_a_target_is_missed_only_if_it_is_more_wrong_than_enough_rows(make, unit):
    """In exact arithmetic: at the end of an interval, its error is that of a row."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(40, 1)).astype(float)
    y = unit * (rng.integers(0, 5, 40) + X[:, 0])
    method = make(DecisionTreeRegressor(random_state=0)).fit(X, y)
    of_rows, new = left_out_exactly(method, X), np.arange(4.0)[:, None]
    residual = [abs(Fraction(y[i]) - of_rows[i][i]) for i in range(40)]
    rank = conformal_rank(0.8, 40)
    lower, upper = method.predict_interval(new, 0.8)
    for row, low, high in zip(left_out_exactly(method, new), lower, upper, strict=True):
        highest = sorted(m + r for m, r in zip(row, residual, strict=True))[rank - 1]
        lowest = sorted(m - r for m, r in zip(row, residual, strict=True))[40 - rank]
        assert Fraction(low) <= lowest and highest <= Fraction(high)
