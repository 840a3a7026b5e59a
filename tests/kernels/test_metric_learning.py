"""Metric learning: the loss and its gradient from the definition, and what is learnt."""

import inspect
import pickle
import re

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from calliper import CalliperError
from calliper.kernels import _learnt, learn_metric, loss_and_gradient
from oracles import localized as oracles


def problem(seed, n=12, d=2, p=3):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, p)) * 1.0 if seed % 2 else rng.normal(size=(n, p))
    y = rng.integers(0, 3, n) * 1.0 if seed % 3 == 0 else rng.normal(size=n)
    return rng.normal(size=(d, p)) * rng.choice([0.1, 1.0]), X, y


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_loss_and_gradient(seed, smoothing):
    A, X, y = problem(seed)
    loss, gradient = loss_and_gradient(A, X, y, smoothing)
    assert loss == pytest.approx(oracles.mlkr_loss(A, X, y, smoothing), rel=1e-10)
    step = 1e-5
    for place in np.ndindex(A.shape):
        up, down = A.copy(), A.copy()
        up[place] += step
        down[place] -= step
        above = oracles.mlkr_loss(up, X, y, smoothing)
        slope = (above - oracles.mlkr_loss(down, X, y, smoothing)) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_without_smoothing_no_weight_vanishes():
    A, X, y = problem(0)
    loss, gradient = loss_and_gradient(1e4 * A, X, y, 0.0)
    assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_it_converges_to_a_minimum():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 4))
    y = np.sin(2 * Z[:, 0]) + 0.1 * rng.normal(size=200)
    metric = learn_metric(Z, y, random_state=0)
    assert metric.converged and 1 < metric.n_iter < 500
    X, labels = (Z - Z.mean(axis=0)) / Z.std(axis=0), (y - y.mean()) / y.std()
    loss, gradient = loss_and_gradient(metric.matrix, X, labels, 1.0)
    assert loss == pytest.approx(metric.loss) and loss < 0.3
    assert abs(gradient).max() < 1e-4
    weight_of_feature = np.square(metric.matrix).sum(axis=0)
    assert weight_of_feature[0] > 20 * weight_of_feature[1:].max()


def test_transform_is_the_kernel_of_the_definition():
    rng = np.random.default_rng(1)
    for n_directions in (1, 3, 10):
        Z = rng.normal(5, 2, size=(40, 3))
        metric = learn_metric(Z, Z[:, 0], n_directions=n_directions, random_state=0)
        assert metric.matrix.shape == (n_directions, 3)
        moved, X = metric.transform(Z), (Z - Z.mean(axis=0)) / Z.std(axis=0)
        for i, j in [(0, 1), (2, 30), (7, 7)]:
            expected = oracles.metric_exponent(metric.matrix, X[i], X[j])
            assert np.square(moved[i] - moved[j]).sum() == pytest.approx(expected, abs=1e-12)


def test_features_without_spread_are_left_out():
    rng = np.random.default_rng(2)
    Z = np.column_stack([np.full(50, 7.0), rng.normal(size=50), 1e-5 * rng.normal(size=50)])
    metric = learn_metric(Z, Z[:, 1], random_state=0)
    np.testing.assert_array_equal(metric.kept, [1])
    moved = Z.copy()
    moved[:, [0, 2]] += 100
    np.testing.assert_array_equal(metric.transform(moved), metric.transform(Z))
    with pytest.raises(CalliperError, match=r"no feature of Z_train .* Rescale"):
        learn_metric(Z[:, [0, 2]], Z[:, 1])


def test_units_of_features_and_labels_do_not_matter():
    rng = np.random.default_rng(3)
    Z, y = rng.normal(size=(80, 2)), rng.normal(size=80)
    plain = learn_metric(Z, y, random_state=0)
    other = learn_metric(Z * [10.0, 1000.0] + 3, 1e6 * y - 5, random_state=0)
    np.testing.assert_allclose(other.matrix, plain.matrix, rtol=1e-3, atol=1e-3)


def test_many_rows_are_sampled_and_seeds_repeat():
    rng = np.random.default_rng(4)
    Z, y = rng.normal(size=(2500, 2)), rng.normal(size=2500)
    with pytest.warns(ConvergenceWarning, match=r"not converged \(steps: 1; .* larger max_iter"):
        first = learn_metric(Z, y, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        second = learn_metric(Z, y, max_iter=1, random_state=0)
    np.testing.assert_array_equal(first.matrix, second.matrix)
    assert not first.converged
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).matrix, first.matrix)


def test_constant_labels_and_repeated_rows():
    Z = np.repeat(np.arange(5.0), 4)[:, None]
    assert np.isfinite(learn_metric(Z, np.ones(20), random_state=0).matrix).all()
    assert np.isfinite(learn_metric(Z, Z[:, 0], smoothing=0.0, random_state=0).matrix).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_directions": 0}, "n_directions must be an integer of at least 1; got 0"),
        ({"max_iter": 2.5}, "max_iter must be an integer of at least 1; got 2.5"),
        ({"smoothing": -1}, "smoothing must be a number from 0 to 1e.30; got -1"),
        ({"smoothing": np.inf}, "smoothing must be a number from 0 to 1e.30; got inf"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        learn_metric(np.eye(4), np.arange(4.0), **parameters)


def test_bad_data():
    with pytest.raises(CalliperError, match="at least 3 training rows; got 2"):
        learn_metric([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(CalliperError, match=r"y_train must .* got 3 values for 4 rows"):
        learn_metric(np.eye(4), [0.0, 1.0, 2.0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_are_moved_to_no_more_columns_than_there_are_features():
    Z = np.random.default_rng(0).normal(size=(40, 3))
    for n_directions, width in ((2, 2), (3, 3), (5, 3)):
        metric = learn_metric(
            Z, Z[:, 0] ** 2, n_directions=n_directions, max_iter=3, random_state=0
        )
        moved = metric.transform(Z)
        assert moved.shape == (40, width)
        plain = ((Z - Z.mean(axis=0)) / Z.std(axis=0)) @ metric.matrix.T / np.sqrt(n_directions)
        for i in range(1, 4):
            expected = np.linalg.norm(plain[i] - plain[0])
            assert np.linalg.norm(moved[i] - moved[0]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_three_rows_are_enough():
    Z = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
    assert learn_metric(Z, Z[:, 0], n_directions=1, max_iter=2, random_state=0).matrix.shape[0] == 1


@pytest.mark.parametrize("n_directions", [2, 3])
def test_rows_are_moved_from_the_training_mean_along_the_directions(n_directions):
    Z = 50 + np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 2.0, 3.0]
    metric = learn_metric(Z, Z[:, 0], n_directions=n_directions, random_state=0)
    expected = (Z - Z.mean(axis=0)) / Z.std(axis=0) @ metric.matrix.T / np.sqrt(n_directions)
    np.testing.assert_allclose(metric.transform(Z), expected, atol=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_feature_of_just_the_least_spread_says_nothing():
    Z = np.c_[np.tile([-1.0, 1.0], 10), np.tile([-1e-3, 1e-3], 10), np.tile([-2e-3, 2e-3], 10)]
    assert Z[:, 1].std() == _learnt.LEAST_SPREAD
    assert learn_metric(Z, np.arange(20.0), random_state=0).kept.tolist() == [0, 2]


def test_of_too_many_rows_just_so_many_are_drawn(monkeypatch):
    seen, plain = set(), _learnt.loss_and_gradient

    def noting(A, X, y, smoothing):
        seen.add((len(X), len(y)))
        return plain(A, X, y, smoothing)

    monkeypatch.setattr(_learnt, "MOST_ROWS", 30)
    monkeypatch.setattr(_learnt, "loss_and_gradient", noting)
    Z = np.random.default_rng(0).normal(size=(50, 2))
    learn_metric(Z, Z[:, 0], random_state=0)
    assert seen == {(30, 30)}


def test_where_features_are_counted_from_does_not_matter():
    draw = np.random.default_rng(0)
    Z = np.round(256 * draw.normal(size=(60, 2))) / 256  # a sum with 2**24 is exact
    how = {"n_directions": 2, "random_state": 0}
    near, far = learn_metric(Z, Z[:, 0], **how), learn_metric(Z + 2.0**24, Z[:, 0], **how)
    np.testing.assert_allclose(far.loss, near.loss, rtol=1e-4)


def test_default_parameters_are_those_that_the_docstring_names():
    parameters = inspect.signature(learn_metric).parameters
    said = re.findall(r"(\w+) : \w+, default (\d+)", inspect.getdoc(learn_metric))
    assert {name: parameters[name].default for name, _ in said} == {n: int(v) for n, v in said}
    assert len(said) == 3
