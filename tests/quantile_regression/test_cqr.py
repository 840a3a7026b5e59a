"""Conformalised quantile regression, the score and the models together, and its peers."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from calliper import CalliperError, ConformalRegressor, QuantileModel, Split, guarantees, quantile
from calliper.calibrators import MADSplit
from calliper.declarations import Uses
from calliper.scores import QuantileError
from cases.quantile_models import (
    LINEAR,
    VARIANTS,
    X_CAL,
    X_NEW,
    X_TRAIN,
    Y_CAL,
    Y_NEW,
    Y_TRAIN,
    X,
    Y,
    fixed_quantiles,
    regressor,
)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
def test_cqr_in_one_line():
    boosted = HistGradientBoostingRegressor(loss="quantile", max_iter=15)
    model = ConformalRegressor(
        QuantileModel(boosted), Split(), score_function=QuantileError(), random_state=0
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


@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
def test_the_median_is_the_prediction():
    pair = QuantileModel(LINEAR, [0.05, 0.5, 0.95])
    model = ConformalRegressor(pair, Split(), score_function=QuantileError("median")).fit(X, Y)
    np.testing.assert_array_equal(
        model.predict(X_NEW), np.sort(model.estimator_.predict(X_NEW), axis=1)[:, 1]
    )


def test_training_targets_and_scores_reach_calibrators_that_name_them():
    class Curious(Split):
        uses = Uses("training", "errors", "targets")

    model = regressor("plain", Curious())
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    seen = model.calibrators_[0]._training
    np.testing.assert_array_equal(seen.targets, Y_TRAIN)
    assert len(seen.Z) == 200
    np.testing.assert_array_equal(
        seen.scores, QuantileError().measure(Y_TRAIN, fixed_quantiles(2)(X_TRAIN))
    )
    model.calibrate(X_CAL, Y_CAL)
    assert model.calibrators_[0]._training is None
    fitted = ConformalRegressor(Ridge(), Curious(), random_state=0).fit(X, Y)
    assert len(fitted.calibrators_[0]._training.targets) == 450
    with pytest.raises(CalliperError, match=r"MADSplit does not support QuantileError"):
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
    rng, levels, n, n_draws = np.random.default_rng(1), [0.5, 0.8, 0.9], 40, 120
    covered = np.empty((n_draws, 3))
    for draw in range(n_draws):
        x = rng.uniform(0.5, 1.5, size=(n + 400, 1))
        y = x[:, 0] * rng.gamma(2.0, size=n + 400)
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
        QuantileModel(LINEAR),
        QuantileModel(LINEAR, [0.05, 0.5, 0.95]),
        ConformalRegressor(
            QuantileModel(LINEAR), Split(), score_function=QuantileError(), random_state=0
        ),
        ConformalRegressor(
            QuantileModel(LINEAR),
            Split(),
            score_function=QuantileError("asymmetric"),
            random_state=0,
        ),
    ],
    ids=repr,
)
def test_scikit_learn_grammar(estimator):
    one = "of sparse rows this check wants one prediction a row, and a pair has two"
    sparse = dict.fromkeys(("check_estimator_sparse_matrix", "check_estimator_sparse_array"), one)
    pair = isinstance(estimator, QuantileModel)
    check_estimator(estimator, expected_failed_checks=sparse if pair else None)


@pytest.mark.parametrize(("variant", "symmetric"), [("plain", True), ("asymmetric", False)])
def test_mapie_agrees_on_cqr(variant, symmetric):
    """Equal where quantiles do not cross; MAPIE (1.6) leaves crossing quantiles as they are."""
    mapie = pytest.importorskip("mapie.regression")
    three = QuantileModel(LINEAR, [0.1, 0.5, 0.9]).fit(X_TRAIN, Y_TRAIN)
    low, middle, high = three.estimator_.values()
    apart = (np.diff(three.predict(X), axis=1) > 0).all(axis=1)
    assert apart[200:].mean() > 0.9
    pair = QuantileModel(LINEAR, [0.1, 0.9]).fit(X_TRAIN, Y_TRAIN)
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
