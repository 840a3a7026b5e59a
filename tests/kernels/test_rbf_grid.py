"""A radial kernel on a grid: points count as being in the middle of their cell."""

import numpy as np
import pytest

from calliper import RBF, FullRescaled, JackknifeRescaled
from calliper.kernels._rbf import Radial
from calliper.quantile import Shares, row_thresholds
from calliper.rows import Rows

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(80, 2))
Z[:6] = Z[6:12]  # duplicates
SCORES = RNG.exponential(size=80) * np.exp(Z[:, 0])
SCORES[::9] = 0.0
NEW = RNG.normal(size=(300, 2))
LEVELS = [0.5, 0.9]
LENGTH, STEP = 0.8, 0.5


def radius(kernel, points, rows, **settings):
    return FullRescaled(kernel, **settings).fit(points, SCORES).predict_radius(rows, LEVELS)


def moved(rows):
    return np.round(rows / (LENGTH * STEP)) * (LENGTH * STEP)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
@pytest.mark.parametrize("settings", [{}, {"shrinkage": 0.3}, {"statistic": "rms"}], ids=repr)
def test_the_grid_is_that_of_moved_points(smoothing, settings):
    gridded = radius(RBF(LENGTH, smoothing=smoothing, step=STEP), Z, NEW, **settings)
    slow = radius(RBF(LENGTH, smoothing=smoothing), moved(Z), moved(NEW), **settings)
    np.testing.assert_allclose(gridded, slow, rtol=1e-9)
    _, cell = np.unique(moved(NEW), axis=0, return_inverse=True)
    for number in range(20):
        own = gridded[cell.ravel() == number]
        np.testing.assert_array_equal(own, own[:1].repeat(len(own), axis=0))
    assert len(np.unique(gridded[:, 0])) < 200


def test_rows_do_not_depend_on_the_batch():
    full = FullRescaled(RBF(LENGTH, smoothing=1.0, step=STEP)).fit(Z, SCORES)
    whole = full.predict_radius(NEW, LEVELS)
    for rows in (slice(0, 1), slice(7, 19), slice(None, None, -1)):
        np.testing.assert_allclose(full.predict_radius(NEW[rows], LEVELS), whole[rows], rtol=1e-12)


def test_rows_of_one_cell_have_their_own_weights():
    bag = RBF(LENGTH, smoothing=1.0, step=STEP).bag(
        Rows(Z, SCORES, SCORES), statistic="mean", offset=0.1
    )
    shares = Shares(RNG.integers(1, 4, 80) * 1.0, RNG.integers(1, 20, 300) * 1.0)
    found = bag.order_statistics(NEW, LEVELS, shares)
    expected = row_thresholds(bag.thresholds(NEW), LEVELS, shares)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_without_a_step_points_stay():
    kernel = RBF(LENGTH, smoothing=1.0)
    assert "step" not in repr(kernel) and kernel.step == 0
    found = radius(kernel, Z, NEW)
    np.testing.assert_array_equal(found, radius(RBF(LENGTH, smoothing=1.0, step=0), Z, NEW))
    np.testing.assert_allclose(
        found, radius(RBF(LENGTH, smoothing=1.0, step=1e-9), Z, NEW), rtol=1e-6
    )


@pytest.mark.parametrize("step", [-0.5, np.inf, np.nan, "half", None])
def test_bad_steps_are_refused(step):
    with pytest.raises(ValueError, match=r"step must be a number from 0 to 1e.30; got"):
        FullRescaled(RBF(LENGTH, step=step)).fit(Z, SCORES)


def test_an_infinite_length_without_a_grid_has_flat_weights():
    np.testing.assert_array_equal(Radial(Z, np.inf, "euclidean").to(NEW), 1.0)


@pytest.mark.parametrize("d", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_a_row_has_the_same_bits_in_any_batch(d, smoothing):
    rng = np.random.default_rng(d)
    Z, scores, new = rng.normal(size=(333, d)), rng.exponential(size=333), rng.normal(size=(90, d))
    new[40] += 1e4  # so far away that its distances, and its alone, are taken another way
    for method in (FullRescaled, JackknifeRescaled):
        fitted = method(RBF(0.3 * d**0.5, smoothing=smoothing)).fit(Z, scores)
        expected = fitted.predict_radius(new, [0.5, 0.9])
        for n_parts in (4, 90):
            parts = [
                fitted.predict_radius(part, [0.5, 0.9]) for part in np.array_split(new, n_parts)
            ]
            np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_exponents_of_many_features_agree_with_differences_near_and_far():
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(50, 12)), rng.normal(size=(70, 12))
    rows[[3, 33]] += [[1e4], [1e9]]
    for length in (2.0, 1e-7):
        found = Radial(points, length, "euclidean").exponents(rows)
        expected = -np.square(rows[:, None] - points).sum(axis=2) / (2 * length**2)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
