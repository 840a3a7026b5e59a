"""Rows added to a calibrated object: bit for bit as if calibrated anew on all of them."""

import pickle
import warnings
from copy import copy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    SignedError,
    Split,
)
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.exceptions import CalliperError, SharedRowsWarning
from calliper.kernels import GradedKNN
from calliper.kernels._knn import BagKNN

LEVELS = [0.3, 0.6, 0.8]


@pytest.fixture
def grown(monkeypatch):
    """How often a bag grew, and how often it was made anew instead."""
    count, extended = [0, 0], BagKNN.extended

    def counted(self, *rows):
        found = extended(self, *rows)
        count[found is None] += 1
        return found

    monkeypatch.setattr(BagKNN, "extended", counted)
    return count


def rows(n, d, kind, seed):
    """Rows and scores with ties of some kind, and places to ask at, among them the rows."""
    rng = np.random.default_rng(seed)
    Z, scores = rng.normal(size=(n, d)), np.abs(rng.normal(size=n))
    if kind == "lattice":
        Z, scores = np.round(Z), np.round(scores, 1)
    elif kind == "coarse":
        Z = np.round(Z, 1)
    elif kind == "copies":
        Z, scores[rng.random(n) < 0.3] = Z[rng.integers(0, max(1, n // 2), n)], 0.0
    new = np.vstack([rng.normal(size=(8, d)), Z[rng.integers(0, n, 8)], np.round(Z[:4])])
    return Z, scores, new


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("kept", [9, 6])
def test_scores_are_sorted_again_after_they_were_asked_for(kept, weighs):
    Z, new, scores = np.zeros((9, 1)), np.zeros((2, 1)), np.array([5.0, 1, 4, 2, 3, 9, 7, 8, 6])

    def weights(rows):
        return {"weights": np.arange(1.0, 10.0)[rows]} if weighs else {}

    def radius(split):
        return split.predict_radius(new, [0.3, 0.6], **weights(slice(2)))

    split = Split().fit(Z[:5], scores[:5], **weights(slice(5)))
    radius(split)
    split.extend(Z[5:], scores[5:], window=kept, **weights(slice(5, 9)))
    last = slice(9 - kept, 9)
    anew = Split().fit(Z[last], scores[last], **weights(last))
    np.testing.assert_array_equal(split.scores_, np.sort(scores[last]))
    np.testing.assert_array_equal(radius(split), radius(anew))
    below = (scores[last] < 3.5).sum() / (kept + 1)
    np.testing.assert_array_equal(split.share_below(new, np.full(2, 3.5)), below)


def assert_same(extended, anew, new):
    assert extended.n_calibration_ == anew.n_calibration_
    if anew._rows.signs is not None:
        same = [each.predict_distribution(new, np.zeros(len(new))) for each in (extended, anew)]
        np.testing.assert_array_equal(*(each.quantile([0.4, 0.7]) for each in same))
        np.testing.assert_array_equal(*(each.crps(np.ones(len(new))) for each in same))
    np.testing.assert_array_equal(
        extended.predict_radius(new, LEVELS), anew.predict_radius(new, LEVELS)
    )


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(3, 60),
    added=st.integers(1, 4),
    d=st.integers(1, 3),
    kind=st.sampled_from(["plain", "lattice", "coarse", "copies"]),
    k=st.integers(1, 9),
    graded=st.booleans(),
    statistic=st.sampled_from(["mean", "rms", "quantile"]),
    metric=st.sampled_from(["euclidean", "euclidean", "cityblock"]),
    shrinkage=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 10**6),
)
def test_full_rescaled_with_neighbours_is_as_fitted_anew(
    n, added, d, kind, k, graded, statistic, metric, shrinkage, seed
):
    Z, scores, new = rows(n + added, d, kind, seed)
    kernel = GradedKNN if graded and statistic != "quantile" else KNN
    method = FullRescaled(kernel(k, metric=metric), statistic=statistic, shrinkage=shrinkage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signs = np.sign(scores) * np.random.default_rng(seed).choice([-1, 1], len(scores))
        if statistic == "quantile":
            signs = None
        of = [
            {} if signs is None else {"signs": signs[part]} for part in (slice(n), slice(n, None))
        ]
        anew = clone(method).fit(Z, scores, signs=signs)
        at_once = clone(method).fit(Z[:n], scores[:n], **of[0]).extend(Z[n:], scores[n:], **of[1])
        one_by_one = clone(method).fit(Z[:n], scores[:n], **of[0])
        for row in range(n, n + added):
            known = {} if signs is None else {"signs": signs[row : row + 1]}
            one_by_one.extend(Z[row : row + 1], scores[row : row + 1], **known)
        for extended in (at_once, one_by_one):
            assert_same(extended, anew, new)


@pytest.mark.parametrize("kind", ["plain", "coarse", "copies"])
@pytest.mark.parametrize("d", [1, 2, 40])
def test_bags_of_every_engine_grow(kind, d, grown):
    """A line, a tree and wide rows."""
    n = 1010 if d == 40 else 160
    Z, scores, new = rows(n + 30, d, kind, seed=d)
    method = FullRescaled(KNN(6), shrinkage=0.2).fit(Z[:n], scores[:n])
    assert method.bag_.bag.search.engine == {1: "tree", 2: "tree", 40: "brute"}[d]
    for row in range(n, n + 30):
        method.extend(Z[row : row + 1], scores[row : row + 1])
    assert_same(method, FullRescaled(KNN(6), shrinkage=0.2).fit(Z, scores), new)
    assert grown[0] >= 25


def test_tree_takes_over_where_a_fit_would_have_one(grown):
    Z, scores, new = rows(140, 2, "coarse", seed=0)
    method = FullRescaled(KNN(5)).fit(Z[:120], scores[:120])
    assert method.bag_.search.engine == "brute"
    for row in range(120, 140):
        method.extend(Z[row : row + 1], scores[row : row + 1])
    assert method.bag_.search.engine == "tree"
    assert_same(method, FullRescaled(KNN(5)).fit(Z, scores), new)
    assert grown[0] > 15


@pytest.mark.parametrize(("far", "large"), [(1e120, 1), (1, 1e30), (1, 4)])
def test_extremes_of_features_and_scores_are_as_fitted_anew(far, large):
    Z, scores, new = rows(121, 2, "plain", seed=1)
    Z[120], scores[120] = far * Z[120], large * scores.max()
    method = FullRescaled(KNN(4)).fit(Z[:120], scores[:120]).extend(Z[120:], scores[120:])
    assert_same(method, FullRescaled(KNN(4)).fit(Z, scores), new)


@pytest.mark.parametrize("n", [38, 300, 1499])
@pytest.mark.parametrize("length_scale", [None, 0.5])
def test_default_locality_is_that_of_the_new_number_of_points(n, length_scale):
    Z, scores, new = rows(n + 6, 2, "plain", seed=2)
    left_out = {"left_out": (Z[:80] + 0.01, scores[:80])}
    for known in ({}, left_out):
        extended = FullRescaled(random_state=0)
        extended.fit(Z[:n], scores[:n], length_scale=length_scale, **known)
        shorter = None if length_scale is None else 0.9 * length_scale
        for row in range(n, n + 6):
            extended.extend(Z[row : row + 1], scores[row : row + 1], length_scale=shorter)
        anew = FullRescaled(random_state=0).fit(Z, scores, length_scale=shorter, **known)
        assert_same(extended, anew, new)
        assert extended.locality_.describe() == anew.locality_.describe()


METHODS = [
    LCP(bandwidth=1.0),
    LVD(),
    RCP(kernel=KNN(20)),
    RLCP(length_scale=1.0, random_state=0),
    SLCP(),
    ConditionalCalibration(),
    FullRescaled(RBF(0.5)),
    JackknifeMinmaxRescaled(),
    JackknifeRescaled(),
    LoCart(random_state=0),
    MADSplit(),
    NormalizedKNN(),
    Split(),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("window", [None, 50])
def test_every_method_is_as_fitted_anew(method, window):
    Z, scores, new = rows(120, 2, "coarse", seed=3)
    known = {"training": (Z + 0.05, scores[::-1], Z[:, 0])}
    known = {name: known[name] for name in known if name in method.uses}
    kept = slice(None if window is None else max(0, 120 - window), None)
    extended = clone(method).fit(Z[:100], scores[:100], **known)
    extended.extend(Z[100:110], scores[100:110]).extend(Z[110:], scores[110:], window=window)
    assert_same(extended, clone(method).fit(Z[kept], scores[kept], **known), new)


def test_basis_of_conditional_calibration_is_evaluated_at_new_rows():
    Z, scores, new = rows(90, 1, "plain", seed=4)

    def halves(X):
        return np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)

    method = ConditionalCalibration(basis=halves).fit(Z[:60], scores[:60])
    assert method.extend(Z[60:], scores[60:]).basis is halves
    assert_same(method, ConditionalCalibration(basis=halves).fit(Z, scores), new)


def test_names_of_columns_stay_and_pickles_grow():
    Z, scores, new = rows(60, 2, "plain", seed=5)
    frame = pd.DataFrame(Z, columns=["a", "b"])
    for method in (Split(), FullRescaled(KNN(5)), FullRescaled()):
        method.fit(frame[:50], scores[:50]).extend(frame[50:55], scores[50:55])
        method = pickle.loads(pickle.dumps(method)).extend(frame[55:], scores[55:])
        assert method.feature_names_in_.tolist() == ["a", "b"]
        assert_same(method, clone(method).fit(frame, scores), pd.DataFrame(new, columns=["a", "b"]))


def test_one_sided_magnitudes_are_joined():
    Z, sizes, new = rows(80, 2, "plain", seed=6)
    scores = sizes * (Z[:, 0] > 0)
    method = FullRescaled(KNN(5)).fit(Z[:70], scores[:70], magnitudes=sizes[:70])
    method.extend(Z[70:], scores[70:], magnitudes=sizes[70:])
    assert_same(method, FullRescaled(KNN(5)).fit(Z, scores, magnitudes=sizes), new)
    with pytest.raises(CalliperError, match="magnitudes must equal scores"):
        method.extend(Z[:1], [1.0], magnitudes=[2.0])


def test_what_is_refused_changes_nothing():
    Z, scores, new = rows(400, 2, "plain", seed=7)  # so many that the bag would grow
    scores[0] = 9e301  # in whose unit slightly more is no further power of two
    method = FullRescaled(KNN(5)).fit(Z, scores)
    before = method.predict_radius(new)
    for arguments, how, words in [
        ((Z[:2], [1.0]), {}, "scores must .* got 1 values for 2 rows"),
        ((Z[:1], [-1.0]), {}, "scores must not be negative"),
        ((Z[:1], [np.nan]), {}, "scores must be finite"),
        ((Z[:1, :1], [1.0]), {}, "features"),
        ((Z[:0], []), {}, "minimum of 1 is required"),
        ((Z[:1], [1.0]), {"window": 0}, "window must be an integer of at least 1; got 0"),
        ((Z[:1], [1.0]), {"window": 2.5}, "window must be an integer"),
        ((Z[:1], [1e305]), {}, "at most 1e\\+302"),
        ((Z[:1], [1.2e302]), {}, "at most 1e\\+302"),
    ]:
        with pytest.raises(ValueError, match=words):
            method.extend(*arguments, **how)
        np.testing.assert_array_equal(method.predict_radius(new), before)
    with pytest.raises(TypeError, match="Split does not support magnitudes"):
        Split().fit(Z, scores).extend(Z, scores, magnitudes=scores)
    with pytest.raises(ValueError, match="not fitted yet"):
        Split().extend(Z, scores)


def regression(n=400):
    rng = np.random.default_rng(8)
    X = rng.uniform(size=(n, 3))
    return X, X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=n)


@pytest.mark.parametrize("window", [None, 90])
@pytest.mark.parametrize("calibrator", [None, FullRescaled(KNN(7)), Split(), MADSplit()])
@pytest.mark.parametrize("score", [None, SignedError()])
def test_regressor_is_as_calibrated_anew(calibrator, score, window):
    X, y = regression()
    forest = RandomForestRegressor(20, random_state=0).fit(X[:200], y[:200])
    train = {"X_train": X[:200], "y_train": y[:200]}

    def around():
        return ConformalRegressor(forest, calibrator, score_function=score, random_state=0)

    extended = around().calibrate(X[200:300], y[200:300], **train)
    extended.extend(X[300:320], y[300:320]).extend(X[320:350], y[320:350], window=window)
    first = 200 if window is None else 350 - window
    anew = around().calibrate(X[first:350], y[first:350], **train)
    mine, other = (each.predict_interval(X[350:], LEVELS) for each in (extended, anew))
    np.testing.assert_allclose(mine.lower, other.lower, rtol=1e-12)
    np.testing.assert_allclose(mine.upper, other.upper, rtol=1e-12)
    assert extended.guarantee(0.9).describe() == anew.guarantee(0.9).describe()


def test_regressor_keeps_model_space_and_names():
    X, y = regression()
    frame = pd.DataFrame(X, columns=list("abc"))
    model = ConformalRegressor(DecisionTreeRegressor(max_depth=3), random_state=0).fit(
        frame[:300], y[:300]
    )
    before = model.estimator_, model.embedding_
    model.extend(frame[300:], y[300:])
    assert (model.estimator_, model.embedding_) == before
    assert "175 rows" in repr(model)
    assert len(model.predict_interval(frame[:5]).lower) == 5


def test_regressor_refuses_and_points_out_rows_it_was_trained_on():
    X, y = regression()
    model = ConformalRegressor(DecisionTreeRegressor(max_depth=3), shuffle=False).fit(X, y)
    with pytest.raises(ValueError, match="X has 2 rows and y 3"):
        model.extend(X[:2], y[:3])
    with pytest.raises(CalliperError, match="window must be"):
        model.extend(X[:2], y[:2], window=-1)
    with pytest.raises(CalliperError, match="also training rows"):
        model.extend(X[:100], y[:100])
    assert model.calibrator_.n_calibration_ == 100 and model.no_guarantee_ is None
    fresh = np.random.default_rng(9).uniform(size=(50, 3))
    with pytest.warns(SharedRowsWarning, match="The guarantee no longer holds"):
        model.extend(np.vstack([X[:50], fresh]), np.append(y[:50], fresh[:, 0]))
    assert model.guaranteed_coverage(0.9) == 0
    with pytest.raises(ValueError, match="not calibrated yet"):
        ConformalRegressor(DecisionTreeRegressor()).extend(X, y)


def test_a_foreign_calibrator_is_fitted_anew():
    class Largest(BaseEstimator):
        def fit(self, Z, scores):
            self.largest_ = np.max(scores)
            return self

        def predict_radius(self, Z, coverage):
            return np.full((len(Z), len(coverage)), self.largest_)

    X, y = regression()
    model = ConformalRegressor(DecisionTreeRegressor(max_depth=3), Largest()).fit(X, y)
    n = model.calibrator_.n_calibration_
    model.extend(X[:2], model.predict(X[:2]) + 1e6)
    assert model.calibrator_.n_calibration_ == n + 2
    assert model.predict_interval(X[:1]).width[0] == pytest.approx(2e6)


def test_rows_without_names_get_none():
    method = Split().fit(np.zeros((9, 1)), np.arange(9.0)).extend(np.zeros((1, 1)), [9.0])
    assert not hasattr(method, "feature_names_in_") and method.n_calibration_ == 10


def test_signs_that_do_not_belong_to_their_scores_are_refused():
    Z, scores, _ = rows(400, 1, "plain", seed=1)
    method = FullRescaled(KNN(5)).fit(Z, scores, signs=np.ones(400))
    for signs in ([0.0], [2.0], [np.nan]):
        with pytest.raises(CalliperError, match="signs"):
            method.extend(Z[:1], [1.0], signs=signs)
    assert method.extend(Z[:1], [1.0], signs=[-1.0]).n_calibration_ == 401


def drawn(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


@pytest.mark.parametrize("n", [200, 500])
def test_rows_that_are_added_twice_are_pointed_out(n):
    """With n = 500 some of them teach."""
    X, y = drawn(n + 500)
    model = ConformalRegressor(lambda X: X[:, 0], embed="prediction", random_state=0)
    model.calibrate(X[:n], y[:n])
    with warnings.catch_warnings():
        warnings.simplefilter("error", SharedRowsWarning)
        copy(model).extend(X[n:], y[n:])
        copy(model).extend(X[n : n + 50], y[n : n + 50], window=100)
    late = np.append(np.arange(n, n + 450), np.arange(50))
    with pytest.warns(SharedRowsWarning, match=f"{n} of the {n} new rows have the same errors"):
        copy(model).extend(X[:n], y[:n])
    with pytest.warns(SharedRowsWarning, match="50 of the 500 new rows have the same errors"):
        copy(model).extend(X[late], y[late])
    few = slice(n, n + 50)
    model.extend(X[few], y[few])
    with pytest.warns(SharedRowsWarning, match="50 of the 50 new rows have the same errors"):
        model.extend(X[few], y[few])


@pytest.mark.parametrize("digits", [2, 3, 12])
@pytest.mark.parametrize(("n", "more"), [(200, 5000), (5000, 5000), (5000, 200)])
def test_errors_that_coincide_by_chance_are_not_pointed_out(n, more, digits):
    """Rounded errors, and very many of them."""
    _, errors = drawn(n + more)
    errors = np.abs(errors).round(digits)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SharedRowsWarning)
        Split().fit(np.zeros((n, 1)), errors[:n]).warn_if_known(errors[n:])
