"""Distributions, groups, weights, further rows and several targets, together."""

import pickle
from copy import copy

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from calliper import (
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    Split,
)
from calliper.calibrators import RCP, Grouped, MADSplit, NormalizedKNN
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, RBF, GradedKNN

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
METHODS = [
    FullRescaled(KNN(4)),
    FullRescaled(GradedKNN(1), shrinkage=0.3, statistic="rms"),
    FullRescaled(RBF(0.8)),
    FullRescaled(shrinkage=1.0),
    Split(),
    MADSplit(KNN(3)),
    RCP(),
    NormalizedKNN(3),
]


def first_input(X):
    """A model that predicts rows alone as beside others, to the last bit."""
    return X[:, 0]


def rows(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) + np.array([shift, 0])
    return X, X[:, 0] + np.exp(X[:, 0] / 2) * (rng.exponential(size=n) - 1)


def heavier(X):
    return np.exp(np.asarray(X)[:, 0] - 0.5)


def side(X):
    return np.where(np.asarray(X)[:, 1] > 0, "up", "down")


MODEL = LinearRegression().fit(*rows(300, seed=9))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_weighted_distribution_is_its_definition(method):
    """Weights of points below and at y, the row's own at τ; quantiles by cumulated weights."""
    X, y = rows(40)
    known = dict(zip(("X_train", "y_train"), rows(200, seed=8), strict=True))
    model = ConformalRegressor(MODEL, method).calibrate(X, y, weights=heavier, **known)
    new, target = rows(12, seed=3, shift=0.5)
    found = model.predict_distribution(new)
    points, own, w = found._points(slice(None)), heavier(new), found._shares.calibration
    own = own / heavier(X).max()
    assert np.allclose(np.sort(w), np.sort(heavier(X) / heavier(X).max()))
    for i in range(len(new)):
        total, order = w.sum() + own[i], np.argsort(points[i])
        reached = np.append(np.cumsum(w[order]), np.inf)
        at = np.append(points[i][order], np.inf)
        for p in (0.2, 0.5, 0.8):
            expected = at[np.argmax(reached >= p * total - 1e-12)]
            assert found.quantile(p)[i] == pytest.approx(expected)
            mirrored = np.append(np.cumsum(w[order[::-1]]), np.inf)
            lowest = np.append(points[i][order[::-1]], -np.inf)
            expected = lowest[np.argmax(mirrored >= (1 - p) * total - 1e-12)]
            assert found.quantile(p, side="lower")[i] == pytest.approx(expected)
        low, high = (band[i] for band in found.cdf_band(target))
        assert low == pytest.approx(w[points[i] < target[i]].sum() / total)
        assert high == pytest.approx((w[points[i] <= target[i]].sum() + own[i]) / total)
        gaps, mass = np.abs(points[i][:, None] - points[i]), w / w.sum()
        crps = mass @ np.abs(points[i] - target[i]) - mass @ gaps @ mass / 2
        assert found.crps(target)[i] == pytest.approx(crps)


@pytest.mark.long
def test_weighted_place_of_targets_is_uniform_under_shift_over_draws():
    place, unweighted = [], []
    for seed in range(500):
        X, y = rows(40, seed=seed)
        new, target = rows(4, seed=10_000 + seed, shift=1.0)
        y, target = y - X[:, 0], target - new[:, 0]
        for weights, found in ((heavier(X), place), (None, unweighted))[: 2 - seed % 2]:
            full = FullRescaled(KNN(5)).fit(X, abs(y), signs=np.sign(y), weights=weights)
            how = {} if weights is None else {"weights": heavier(new)}
            made = full.predict_distribution(new, np.zeros(4), **how)
            found.append(made.pit(target, random_state=seed)[0])
    share, rough = (np.histogram(found, 5, (0, 1))[0] / len(found) for found in (place, unweighted))
    assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.16 / 500)
    assert share.std() < 2 * rough.std()


@pytest.mark.parametrize("method", [FullRescaled(KNN(4)), Split()], ids=repr)
def test_each_group_has_its_own_distribution(method):
    X, y = rows(120)
    new, target = rows(30, seed=4)
    model = ConformalRegressor(MODEL, method).calibrate(X, y, groups=side)
    bounds = y.min(), y.max()
    found = model.predict_distribution(new, bounds=bounds)
    for label in ("up", "down"):
        own, at = side(X) == label, side(new) == label
        alone = ConformalRegressor(MODEL, method).calibrate(X[own], y[own])
        expected = alone.predict_distribution(new[at], bounds=bounds)
        np.testing.assert_allclose(found.quantile([0.2, 0.9])[at], expected.quantile([0.2, 0.9]))
        np.testing.assert_allclose(found.interval(0.8).lower[at], expected.interval(0.8).lower)
        np.testing.assert_allclose(found.cdf(target)[at], expected.cdf(target[at]))
        np.testing.assert_allclose(found.cdf([[0.0, 1.0]])[at], expected.cdf([[0.0, 1.0]]))
        np.testing.assert_allclose(found.crps(target)[at], expected.crps(target[at]))
    assert found.sample(3, random_state=0).shape == (30, 3) and len(found.to_frame()) == 30
    assert ((found.pit(target, random_state=0) > 0) & (found.pit(target) < 1)).all()
    with pytest.raises(CalliperError, match=r"1 of 1 groups .*for example 'there'"):
        model.predict_distribution(new, groups=["there"] * 30)


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("how", ["groups", "weights", "groups weights"])
@pytest.mark.parametrize("method", [FullRescaled(), Split(), JackknifeRescaled(KNN(3))], ids=repr)
def test_further_rows_with_groups_and_weights_are_as_calibrated_anew(method, how, window):
    how = {name: {"groups": side, "weights": heavier}[name] for name in how.split()}
    (X, y), (new, _) = rows(160), rows(20, seed=5)
    grown = ConformalRegressor(first_input, method).calibrate(X[:130], y[:130], **how)
    grown.extend(X[130:], y[130:], window=window)
    kept = slice(None if window is None else -window, None)
    anew = ConformalRegressor(first_input, method).calibrate(X[kept], y[kept], **how)
    same = [each.predict_interval(new, coverage=[0.5, 0.8]) for each in (grown, anew)]
    np.testing.assert_array_equal(same[0].upper, same[1].upper)
    if getattr(method, "has_distribution", False):
        same = [each.predict_distribution(new).quantile([0.3, 0.8]) for each in (grown, anew)]
        np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("joint", [True, False])
def test_several_targets_take_further_rows_groups_and_weights(joint):
    (X, y), (new, _) = rows(160), rows(6, seed=5)
    Y = np.column_stack([y, 3 * y + X[:, 1]])
    how = {"groups": side, "weights": heavier}
    made = MultiTargetRegressor(lambda X: X * [1, 3], Split(), joint=joint, units=[1, 3])
    grown = copy(made).calibrate(X[60:110], Y[60:110], **how).extend(X[110:], Y[110:])
    anew = copy(made).calibrate(X[60:], Y[60:], **how)
    boxes = [each.predict_interval(new, coverage=0.7) for each in (grown, anew)]
    np.testing.assert_array_equal(boxes[0].width, boxes[1].width)
    if joint:
        with pytest.raises(CalliperError, match="joint=False"):
            grown.predict_distribution(new)
    else:
        medians = {
            name: each.quantile(0.5) for name, each in grown.predict_distribution(new).items()
        }
        assert [*medians] == [0, 1] and medians[1].shape == (6,)


def test_what_was_not_known_of_each_point_is_refused_later():
    X, y = rows(30)
    split = Split().fit(X, abs(y), signs=np.sign(y))
    with pytest.raises(CalliperError, match="signs passed to fit, but not to extend"):
        split.extend(X, abs(y))
    with pytest.raises(CalliperError, match="weights passed to extend, but not to fit"):
        split.extend(X, abs(y), signs=np.sign(y), weights=np.ones(30))
    with pytest.raises(CalliperError, match="weights passed to extend, but not to fit"):
        Grouped(Split()).fit(X, abs(y), groups=side(X)).extend(
            X, abs(y), groups=side(X), weights=np.ones(30)
        )
    with pytest.raises(CalliperError, match="was fitted without weights"):
        split.predict_distribution(X, y, weights=np.ones(30))
    with pytest.raises(CalliperError, match="not support predictive distributions"):
        Grouped(JackknifeRescaled()).fit(X, abs(y), groups=side(X)).predict_distribution(X, y)


def test_all_of_it_is_pickled():
    (X, y), (new, _) = rows(80), rows(5, seed=5)
    model = ConformalRegressor(MODEL).calibrate(X, y, groups=side, weights=heavier)
    again = pickle.loads(pickle.dumps(model))
    expected = model.predict_distribution(new).quantile(0.5)
    np.testing.assert_array_equal(again.predict_distribution(new).quantile(0.5), expected)
    made = pickle.loads(pickle.dumps(model.predict_distribution(new)))
    np.testing.assert_array_equal(made.quantile(0.5), expected)
