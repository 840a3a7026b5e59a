"""Means and quantiles over the K nearest, by definition: who is just as far has a share."""

from fractions import Fraction

import numpy as np
import pytest

from calliper.kernels._nearest import Nearest, sum_of_each
from calliper.kernels._search import NeighborSearch


@pytest.fixture
def points():
    """A lattice with copies, and points apart from it: some rows have ties, and some have none."""
    rng = np.random.default_rng(0)
    return np.vstack([rng.integers(3, size=(14, 2)) * 1.0, 9 + rng.normal(size=(10, 2))])


@pytest.fixture
def magnitudes():
    return np.random.default_rng(1).integers(9, size=24) * 1.0


ROWS = np.array([[0.0, 0.0], [1.0, 1.0], [9.1, 8.7], [8.3, 9.2], [0.5, 1.0]])


def shares(points, row, k, left_out=()):
    """How much each point counts for, of K."""
    distance = np.square(points - row).sum(axis=1)
    distance[list(left_out)] = np.inf
    reach = np.sort(distance)[k - 1]
    near, tied = distance < reach, distance == reach
    share = Fraction(k - int(near.sum()), int(tied.sum()))
    return np.array([Fraction(int(a)) + share * int(b) for a, b in zip(near, tied, strict=True)])


def mean(points, magnitudes, row, k, left_out=()):
    return float(shares(points, row, k, left_out) @ magnitudes.astype(int)) / k


@pytest.mark.parametrize("k", [1, 2, 4])
def test_means_and_quantiles_of_rows_with_and_without_ties(points, magnitudes, k):
    search = NeighborSearch(points, "euclidean")
    tied = search.nearest(ROWS, k)[1]
    assert tied.any() and not tied.all()
    found = Nearest(search, magnitudes, k).predict(ROWS)
    np.testing.assert_allclose(found, [mean(points, magnitudes, row, k) for row in ROWS])
    order, levels = np.argsort(magnitudes), (0.2, 0.5, 0.9)
    found = Nearest(search, magnitudes, k).quantile(ROWS, levels)
    for row, values in zip(ROWS, found, strict=True):
        total = np.cumsum(shares(points, row, k)[order])
        ranks = [np.ceil(level * k - 1e-9) for level in levels]
        expected = [magnitudes[order][np.argmax(total >= rank)] for rank in ranks]
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_means_without_each_member_and_without_two_points(points, magnitudes, k):
    means = Nearest(NeighborSearch(points, "euclidean"), magnitudes, k)
    for row, values in zip(ROWS, means.to(ROWS), strict=True):
        expected = [mean(points, magnitudes, row, k, [m]) for m in range(24)]
        np.testing.assert_allclose(values, expected)
    found = means.among()
    pairs = [(i, m) for i in range(0, 24, 2) for m in range(24) if m != i]
    expected = [mean(points, magnitudes, points[i], k, [i, m]) for i, m in pairs]
    np.testing.assert_allclose([found[i, m] for i, m in pairs], expected)


def test_sums_have_the_same_bits_in_any_order():
    values = np.random.default_rng(0).exponential(size=(50, 9))
    np.testing.assert_array_equal(sum_of_each(values), sum_of_each(values[:, ::-1]))
    np.testing.assert_allclose(sum_of_each(values), values.sum(axis=1))
