"""Conformalised quantile regression: the score, the pair of models, and both together."""

import pickle
import warnings

import numpy as np
import pytest
import refit_oracles
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor, Ridge, SGDRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from calliper import (
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    MADSplit,
    Split,
    guarantees,
    quantile,
)
from calliper.quantile_pair import QuantilePair
from calliper.scores import QuantileCrossingWarning, QuantileError

VARIANTS = ["plain", "ratio", "median", "asymmetric"]
rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=600)
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:400], X[400:]
Y_TRAIN, Y_CAL, Y_NEW = Y[:200], Y[200:400], Y[400:]
LINEAR = QuantileRegressor(alpha=0)
numbers = st.floats(-1e3, 1e3)


@pytest.fixture(autouse=True)
def one_thread():
    """Boosted trees on so few rows lose more to their threads than they gain."""
    with threadpool_limits(1):
        yield


def fixed_quantiles(columns):
    """A model whose quantiles are a simple function of the first input."""

    def predict(X):
        x = np.asarray(X)[:, 0]
        return np.stack([x - x, x, 3 * x][:: 2 if columns == 2 else 1], axis=1)

    return predict


def regressor(variant, calibrator=None):
    score = QuantileError(variant)
    model = fixed_quantiles(score.n_outputs)
    return ConformalRegressor(model, calibrator or Split(), score_function=score)


# --- the score -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::calliper.scores.QuantileCrossingWarning")
@given(y=numbers, row=st.lists(numbers, min_size=3, max_size=3), radius=st.floats(-100, 1e3))
@pytest.mark.parametrize("variant", VARIANTS)
def test_measure_and_invert_belong_together(variant, y, row, radius):
    """y is inside exactly when its score is at most the radius, rounding and empty sets apart."""
    score = QuantileError(variant, offset=0.1)
    y_pred, target = np.array([row[: score.n_outputs]]), np.array([y])
    measured = score.measure(target, y_pred).reshape(1, -1)
    radii = np.full((1, score.n_tails), radius)
    lower, upper = score.invert(y_pred, radii if score.n_tails == 2 else radii[:, 0])
    slack = 1e-7 * (1 + abs(y) + np.abs(row).max() + abs(radius) * 2e3)
    assert lower <= upper
    if (measured <= radius - slack).all():
        assert lower <= y <= upper
    if (measured > radius + slack).any() and lower < upper:
        assert not lower <= y <= upper
    assert (score.magnitude(target, y_pred) >= measured.max()).all()


@pytest.mark.filterwarnings("ignore::calliper.scores.QuantileCrossingWarning")
@pytest.mark.filterwarnings("ignore::calliper.SmallCalibrationWarning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_definition(variant):
    """Random small problems with ties, crossings, empty sets and too few points."""
    crossed = empty = infinite = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        score = QuantileError(variant, offset=0.25)
        n, k = int(rng.integers(1, 15)), score.n_outputs
        draw = rng.integers if seed % 2 else rng.uniform
        y = np.asarray(draw(-2, 3, n), float)
        rows = np.asarray(draw(-4, 5, (n + 4, k)), float)
        coverage = str(rng.choice(["0.1", "0.3", "0.5", "0.75", "0.8", "0.9"]))
        inputs = np.arange(n + 4.0)[:, None]
        model = ConformalRegressor(
            lambda X, rows=rows: rows[np.asarray(X)[:, 0].astype(int)],
            Split(),
            score_function=score,
        ).calibrate(inputs[:n], y)
        found = model.predict_interval(inputs[n:], float(coverage))
        expected = [
            refit_oracles.quantile_interval(y, rows[:n], row, coverage, variant, 0.25)
            for row in rows[n:]
        ]
        np.testing.assert_allclose(np.stack(list(found), axis=1), expected, atol=1e-12)
        crossed += (np.diff(rows, axis=1) < 0).any()
        empty += (found.width == 0).any()
        infinite += np.isinf(found.width).any()
    assert crossed > 20 and empty > 5 and infinite > 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_levels_broadcast(variant):
    model = regressor(variant).calibrate(X_CAL, Y_CAL)
    many = model.predict_interval(X_NEW, [0.3, 0.8, 0.9])
    assert many.lower.shape == (200, 3)
    for level in (0.3, 0.8, 0.9):
        np.testing.assert_array_equal(
            many.at(level).lower, model.predict_interval(X_NEW, level).lower
        )
    np.testing.assert_array_equal(many.width, np.sort(many.width, axis=1))


def test_an_empty_interval_is_a_point():
    quantiles = np.array([[0.0, 1.0, 4.0]])
    for radius in (-2.5, -np.inf):
        for variant, point in [("plain", 2.0), ("ratio", 2.0), ("median", 1.0)]:
            score = QuantileError(variant)
            columns = quantiles if variant == "median" else quantiles[:, [0, 2]]
            lower, upper = score.invert(columns, np.array([radius]))
            assert lower == upper == pytest.approx(point, abs=1e-5)
    score = QuantileError("asymmetric")
    lower, upper = score.invert(quantiles[:, [0, 2]], np.array([[-6.0, 0.0]]))
    assert lower == upper == 5.0
    lower, upper = score.invert(quantiles[:, [0, 2]], np.array([[-np.inf, 0.0]]))
    assert lower == upper == 2.0


def test_quantiles_that_cross_are_put_in_order():
    score, y = QuantileError(), np.array([0.5, 2.0, -1.0])
    crossed, ordered = (
        np.array([[1.0, 0.0], [1, 1], [1, 0.5]]),
        np.array([[0.0, 1], [1, 1], [0.5, 1]]),
    )
    with pytest.warns(QuantileCrossingWarning, match=r"at 2 of 3 calibration points, by up to 1:"):
        found = score.measure(y, crossed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(found, score.measure(y, ordered))
        for one, other in zip(
            score.invert(crossed, np.ones(3)), score.invert(ordered, np.ones(3)), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(score.centre(crossed), score.centre(ordered))
    model = ConformalRegressor(lambda X: np.tile([1.0, -1.0], (len(X), 1)), Split())
    model.set_params(score_function=score)
    with pytest.warns(QuantileCrossingWarning, match="at 200 of 200"):
        model.calibrate(X_CAL, Y_CAL)
    assert np.isfinite(model.predict_interval(X_NEW).width).all()


def test_bad_scores():
    with pytest.raises(ValueError, match=r"variant must be one of 'plain', 'ratio', .*got 'r'"):
        regressor("plain").set_params(score_function=QuantileError("r")).calibrate(X_CAL, Y_CAL)
    for shape, expected in [((5,), 2), ((5, 1), 2), ((5, 3), 2), ((5, 2), 3)]:
        score = QuantileError("median" if expected == 3 else "plain")
        with pytest.raises(CalliperError, match=rf"shape \(n, {expected}\); got shape"):
            score.measure(np.zeros(5), np.zeros(shape))
    for offset in (0, -1.0, np.inf):
        with pytest.raises(ValueError, match="offset must be"):
            QuantileError("ratio", offset=offset).measure(np.zeros(2), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda X: np.zeros(len(X)), r"takes 2 predictions for each row, .* gave shape \(200,\)"),
        (lambda X: np.zeros((len(X), 1)), r"shape \(n, 2\); the model gave shape \(200, 1\)"),
        (lambda X: np.zeros((len(X), 3)), r"shape \(n, 2\); the model gave shape \(200, 3\)"),
        (lambda X: np.zeros((3, 2)), "column 0 of predictions has 3 values for 200 rows"),
        (lambda X: np.full((len(X), 2), np.inf), "column 0 of predictions must be finite"),
    ],
)
def test_bad_predictions(predict, message):
    model = ConformalRegressor(predict, Split(), score_function=QuantileError())
    with pytest.raises(CalliperError, match=message):
        model.calibrate(X_CAL, Y_CAL)


def test_absolute_errors_refuse_two_columns():
    with pytest.raises(CalliperError, match="predictions must have one value for each row"):
        ConformalRegressor(fixed_quantiles(2)).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize("calibrator", [FullRescaled(), JackknifeRescaled(), None], ids=repr)
def test_methods_that_rescale_refuse(calibrator):
    model = ConformalRegressor(fixed_quantiles(2), calibrator, score_function=QuantileError())
    with pytest.raises(CalliperError, match=r"Negative values in scores.*use Split"):
        model.calibrate(X_CAL, Y_CAL)


# --- the pair of models --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (LINEAR, "quantile"),
        (HistGradientBoostingRegressor(loss="quantile", max_iter=2), "quantile"),
        (GradientBoostingRegressor(loss="quantile", n_estimators=5, random_state=0), "alpha"),
        (make_pipeline(StandardScaler(), LINEAR), "quantileregressor__quantile"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("median", [False, True])
def test_pair_is_one_clone_for_each_quantile(estimator, name, median):
    pair = QuantilePair(estimator, 0.8, median=median).fit(X_TRAIN, Y_TRAIN)
    levels = (0.1, 0.5, 0.9) if median else (0.1, 0.9)
    assert pair.quantiles_ == levels
    for level, column in zip(levels, pair.predict(X_NEW).T, strict=True):
        model = clone(estimator).set_params(**{name: level}).fit(X_TRAIN, Y_TRAIN)
        np.testing.assert_array_equal(column, model.predict(X_NEW))


class Forest(BaseEstimator):
    """Predicts any quantile of all training targets, as quantile forests do near x."""

    def fit(self, X, y):
        self.y_ = np.sort(y)
        return self

    def predict(self, X, quantiles=None):
        return np.tile(np.quantile(self.y_, quantiles), (len(X), 1))


class Booster(BaseEstimator):
    """The grammar of other libraries of boosted trees."""

    def __init__(self, objective="quantile", alpha=0.9, quantile_alpha=None):
        self.objective, self.alpha, self.quantile_alpha = objective, alpha, quantile_alpha

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.full(len(X), self.alpha if self.objective == "quantile" else self.quantile_alpha)


def test_other_grammars_of_quantiles():
    forest = QuantilePair(Forest(), 0.5, median=True).fit(X, Y)
    np.testing.assert_array_equal(forest.predict(X[:2])[1], np.quantile(Y, [0.25, 0.5, 0.75]))
    assert len(forest.estimators_) == 1
    for booster in (Booster(), Booster("reg:quantileerror")):
        np.testing.assert_array_equal(
            QuantilePair(booster, 0.9).fit(X, Y).predict(X[:1]), [[0.05, 0.95]]
        )


@pytest.mark.parametrize(
    "estimator",
    [Ridge(), HistGradientBoostingRegressor(), SGDRegressor(), Booster("l2"), np.mean, "Ridge"],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_without_a_quantile(estimator):
    with pytest.raises(
        CalliperError, match=r"one parameter for the quantile to learn.*it has none"
    ):
        QuantilePair(estimator).fit(X, Y)


def test_bad_pairs():
    both = make_pipeline(clone(LINEAR), clone(LINEAR))
    with pytest.raises(CalliperError, match="it has several: "):
        QuantilePair(both).fit(X, Y)
    for coverage in (1.5, 0, "high"):
        with pytest.raises(CalliperError, match="coverage must"):
            QuantilePair(LINEAR, coverage).fit(X, Y)
    with pytest.raises(CalliperError, match="a pair is trained for one level"):
        QuantilePair(LINEAR, [0.8, 0.9]).fit(X, Y)
    with pytest.raises(CalliperError, match="y must be finite"):
        QuantilePair(LINEAR).fit(X, np.full(600, np.nan))
    with pytest.raises(ValueError, match="1 features"):
        QuantilePair(LINEAR).fit(X, Y).predict(X[:, :1])


# --- together ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::calliper.scores.QuantileCrossingWarning")
def test_cqr_in_one_line():
    boosted = HistGradientBoostingRegressor(loss="quantile", max_iter=15)
    model = ConformalRegressor(
        QuantilePair(boosted), Split(), score_function=QuantileError(), random_state=0
    ).fit(X, Y)
    intervals = model.predict_interval(X_NEW, 0.9)
    assert intervals.contains(Y_NEW).mean() > 0.85
    slim, wide = X_NEW[:, 0] < 0.2, X_NEW[:, 0] > 0.8
    assert intervals.width[wide].mean() > 2 * intervals.width[slim].mean()
    np.testing.assert_allclose(
        model.predict(X_NEW), model.estimator_.predict(X_NEW).mean(axis=1), rtol=1e-12
    )
    assert model.score(X, Y) > 0
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_interval(X_NEW).lower, intervals.lower)
    linear = clone(model).set_params(estimator__estimator=LINEAR)
    assert cross_val_score(linear, X, Y, cv=3).shape == (3,)


@pytest.mark.filterwarnings("ignore::calliper.scores.QuantileCrossingWarning")
def test_the_median_is_the_prediction():
    pair = QuantilePair(LINEAR, median=True)
    model = ConformalRegressor(pair, Split(), score_function=QuantileError("median")).fit(X, Y)
    np.testing.assert_array_equal(
        model.predict(X_NEW), np.sort(model.estimator_.predict(X_NEW), axis=1)[:, 1]
    )


def test_training_targets_and_scores_reach_calibrators_that_name_them():
    class Curious(Split):
        def fit(self, Z, scores, *, Z_train=None, scores_train=None, y_train=None):
            super().fit(Z, scores)
            self.seen_ = Z_train, scores_train, y_train
            return self

    model = regressor("plain", Curious())
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    Z_train, scores_train, y_train = model.calibrators_[0].seen_
    np.testing.assert_array_equal(y_train, Y_TRAIN)
    assert len(Z_train) == 200
    np.testing.assert_array_equal(
        scores_train, QuantileError().measure(Y_TRAIN, fixed_quantiles(2)(X_TRAIN))
    )
    model.calibrate(X_CAL, Y_CAL)
    assert model.calibrators_[0].seen_ == (None, None, None)
    fitted = ConformalRegressor(Ridge(), Curious(), random_state=0).fit(X, Y)
    assert len(fitted.calibrators_[0].seen_[2]) == 450
    with pytest.raises(CalliperError, match="Negative values"):
        regressor("plain", MADSplit()).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)


def test_guarantee():
    plain = regressor("plain").calibrate(X_CAL, Y_CAL)
    assert plain.guaranteed_coverage(0.9) == guarantees.conformal_coverage(0.9, 200)
    assert "Split" in plain.guarantee(0.9).describe()
    two = regressor("asymmetric").calibrate(X_CAL, Y_CAL)
    per_tail = guarantees.conformal_coverage(0.95, 200)
    assert two.guaranteed_coverage(0.9) == pytest.approx(1 - 2 * (1 - per_tail))
    assert len(two.calibrators_) == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_coverage_over_draws(variant):
    """Without ties coverage is Q/(N+1) exactly with one radius, at least 1−α with two."""
    rng, levels, n, n_draws = np.random.default_rng(1), [0.5, 0.8, 0.9], 40, 500
    covered = np.empty((n_draws, 3))
    for draw in range(n_draws):
        x = rng.uniform(0.5, 1.5, size=(n + 50, 1))
        y = x[:, 0] * rng.gamma(2.0, size=n + 50)
        model = regressor(variant).calibrate(x[:n], y[:n])
        covered[draw] = model.predict_interval(x[n:], levels).contains(y[n:]).mean(axis=0)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(n_draws)
    proved = model.guaranteed_coverage(levels)
    assert (mean > proved - 4 * error).all(), (mean, proved)
    if variant != "asymmetric":
        np.testing.assert_array_less(np.abs(mean - proved), 4 * error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [
        QuantilePair(LINEAR),
        QuantilePair(LINEAR, median=True),
        ConformalRegressor(
            QuantilePair(LINEAR), Split(), score_function=QuantileError(), random_state=0
        ),
        ConformalRegressor(
            QuantilePair(LINEAR),
            Split(),
            score_function=QuantileError("asymmetric"),
            random_state=0,
        ),
    ],
    ids=repr,
)
def test_scikit_learn_grammar(estimator):
    check_estimator(estimator)


# --- peers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "symmetric"), [("plain", True), ("asymmetric", False)])
def test_mapie_agrees_on_cqr(variant, symmetric):
    """Equal where quantiles do not cross; MAPIE (1.6) leaves crossing quantiles as they are."""
    mapie = pytest.importorskip("mapie.regression")
    three = QuantilePair(LINEAR, 0.8, median=True).fit(X_TRAIN, Y_TRAIN)
    low, middle, high = three.estimators_
    apart = (np.diff(three.predict(X), axis=1) > 0).all(axis=1)
    assert apart[200:].mean() > 0.9
    pair = QuantilePair(LINEAR, 0.8).fit(X_TRAIN, Y_TRAIN)
    ours = ConformalRegressor(pair, Split(), score_function=QuantileError(variant))
    for n in (49, 50, 97, 180):
        x, y, new = X_CAL[apart[200:400]][:n], Y_CAL[apart[200:400]][:n], X_NEW[apart[400:]]
        peer = mapie.ConformalizedQuantileRegressor([low, high, middle], 0.8, prefit=True)
        peer.conformalize(x, y)
        _, theirs = peer.predict_interval(new, symmetric_correction=symmetric)
        found = ours.calibrate(x, y).predict_interval(new, 0.8)
        np.testing.assert_allclose(found.lower, theirs[:, 0, 0], atol=1e-9)
        np.testing.assert_allclose(found.upper, theirs[:, 1, 0], atol=1e-9)


@pytest.mark.filterwarnings("ignore:the no. of calibration")
@pytest.mark.parametrize("n", [9, 19, 50, 97, 180])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_mapie_and_crepes_agree_on_split(n, coverage):
    """crepes (0.9) computes ⌊(1−c)(n+1)⌋ in floating point: one too little where that is whole.

    It then takes the next larger error: still valid, wider than need be, and unbounded for nine
    errors at 0.9, whose largest is a valid radius.
    """
    mapie = pytest.importorskip("mapie.regression")
    crepes = pytest.importorskip("crepes")
    model = Ridge().fit(X_TRAIN, Y_TRAIN)
    x, y, centre = X_CAL[:n], Y_CAL[:n], model.predict(X_NEW)
    ours = ConformalRegressor(model, Split()).calibrate(x, y).predict_interval(X_NEW, coverage)
    if 1 / (1 - coverage) < n:  # MAPIE refuses fewer
        peer = mapie.SplitConformalRegressor(model, coverage).conformalize(x, y)
        _, theirs = peer.predict_interval(X_NEW)
        np.testing.assert_allclose(np.stack(list(ours), 1), theirs[..., 0])
    errors = np.abs(y - model.predict(x))
    beyond = int(float(1 - coverage) * (n + 1))
    exact = n + 1 - quantile.conformal_rank(coverage, n)
    assert (beyond == exact) != ((n, coverage) in [(9, 0.8), (9, 0.9), (19, 0.8), (19, 0.9)])
    radius = np.append(np.sort(errors), np.inf)[n - beyond]
    other = crepes.ConformalRegressor()
    other.fit(y - model.predict(x))
    theirs = other.predict_int(centre, confidence=coverage)
    np.testing.assert_allclose(theirs, np.stack([centre - radius, centre + radius], axis=1))
    if beyond == exact:
        np.testing.assert_allclose(np.stack(list(ours), 1), theirs)
