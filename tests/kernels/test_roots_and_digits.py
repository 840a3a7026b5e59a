"""The small mathematics below kernels, by itself: roots, crossings, ratios and exact sums."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from calliper.kernels import _arithmetic, _nearest, _statistic

FEW = (0.0, 0.25, 1.0, 3.0)


def largest(holds):
    """The largest t ≥ 0 that satisfies a condition which holds up to some point; by halving."""
    if holds(1e12):
        return np.inf
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("quadratic", FEW)
def test_positive_root(quadratic):
    linear, constant = np.array(list(product(FEW, FEW))).T
    found = _arithmetic.positive_root(quadratic, linear, constant)
    for t, b, c in zip(found, linear, constant, strict=True):
        if quadratic == b == 0:
            assert t == np.inf
        else:
            close(t, largest(lambda t, b=b, c=c: quadratic * t * t + b * t <= c))


@pytest.mark.parametrize("quadratic", FEW[1:])
def test_signed_root(quadratic):
    linear, constant = np.array(list(product((-2.0, -0.5, *FEW), FEW))).T
    found = _arithmetic.signed_root(quadratic, linear, constant)
    expected = [
        largest(lambda t, b=b, c=c: quadratic * t * t + b * t <= c)
        for b, c in zip(linear, constant, strict=True)
    ]
    close(found, expected)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_clamped_crossing(offset):
    """The largest score that is not ahead of a point whose scale it enters."""
    cases = [(a, b, c) for a, b, c in product(FEW, (*FEW, np.inf), FEW) if a <= b]
    a, b, c = np.array(cases).T
    found = _statistic.clamped_crossing(a, b, offset, c)
    for t, low, high, right in zip(found, a, b, c, strict=True):
        if high + offset == 0:
            assert t == np.inf
        else:
            close(t, largest(lambda t: t * (min(max(t, low), high) + offset) <= right))  # noqa: B023


@pytest.mark.parametrize(("offset", "slope"), [(0.0, 0.5), (0.5, 0.5), (0.25, 3.0)])
def test_rising_clamped_crossing(offset, slope):
    cases = [(a, b, s, c) for a, b, s, c in product(FEW, (*FEW, np.inf), FEW, FEW) if a <= b]
    a, b, score, scale = np.array(cases).T
    found = _statistic.clamped_crossing(a, b, offset, score * scale, score, slope)
    for t, low, high, s, c in zip(found, a, b, score, scale, strict=True):

        def behind(t, low=low, high=high, s=s, c=c):
            return t * (min(max(t, low), high) + offset + slope * t) <= s * (c + slope * t)

        close(t, largest(behind))


def test_ratios_of_scores_and_scales():
    tiny, least = np.finfo(np.float64).tiny, 5e-324
    scores, scale = np.array([1.0, 0.0, 1.0, tiny, 0.0, least, 1e300]), np.array(
        [2.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1e-300]
    )  # fmt: skip
    expected = [0.5, 0.0, np.inf, tiny, np.inf, 2 * least, np.inf]
    np.testing.assert_array_equal(_arithmetic.rescale(scores, scale), expected)
    np.testing.assert_array_equal(_arithmetic.rescale(scores[:3], scale[:3]), expected[:3])


def test_products_of_scales_and_ratios():
    scale, rescaled = np.array([2.0, 0.0, 3.0, 0.0]), np.array([0.5, np.inf, 0.0, 1.0])
    found = _arithmetic.times(scale, rescaled)
    np.testing.assert_array_equal(found, [1.0, np.inf, 0.0, 0.0])
    assert found is scale


VALUES = {
    "small and large": [1e-300, 1e300, 1.0, 0.0],
    "tenths": [0.1] * 10,
    "subnormal": [5e-324, 1e-310, 3.0],
    "the smallest": [5e-324, 1e-323],
    "carried": [1.0 - 2**-53] * 40,
    "zero": [0.0, 0.0],
    "one": [1.0],
    "powers": [2.0**24, 2.0**-24, 2.0**48, 0.5],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_sums_are_exact(values):
    """To the last bit what rational numbers give, in any order and any parts."""
    values = np.array(values)
    grid = _arithmetic.Grid(values)
    exact = float(sum(map(Fraction, values.tolist())))
    digits = grid.sums(values, np.sum)
    assert digits.shape == (grid.n,)
    assert (digits[:-2] < 2.0**_arithmetic.BITS * len(values)).all()
    assert grid.rounded(digits) == exact
    parts = grid.sums(values, lambda digit: np.array([digit[:1].sum(), digit[1:].sum()]))
    np.testing.assert_array_equal(grid.rounded(parts.sum(axis=0)), exact)
    assert grid.low * _arithmetic.BITS >= -1074 - 2 * _arithmetic.BITS


def test_a_grid_is_as_fine_and_as_long_as_its_numbers():
    assert (_arithmetic.Grid(np.array([1.0])).low, _arithmetic.Grid(np.array([1.0])).n) == (-3, 6)
    assert (_arithmetic.Grid(np.zeros(3)).low, _arithmetic.Grid(np.zeros(3)).n) == (-3, 6)
    assert _arithmetic.Grid(np.array([5e-324])).low == -44


def test_a_grid_has_the_53_bits_of_a_number_and_no_digit_more():
    bits = _arithmetic.BITS
    for e in range(-940, 1020):
        grid = _arithmetic.Grid(np.array([2.0**e]))
        assert grid.low * bits <= e - 52 < (grid.low + 1) * bits
        assert grid.low + grid.n - 3 == e // bits


def test_what_digits_are_rounded_to_depends_on_their_sum_alone():
    """Whether they are carried over or not; also where each carry rounds on its own."""
    grid, base = _arithmetic.Grid(np.ones(1)), 2.0**_arithmetic.BITS
    draw = np.random.default_rng(0)
    carried = np.floor(draw.uniform(size=(200, grid.n)) * base)
    carried[0] = [0, 0, 1, 2**18, 2**23, 2**23]
    written = carried.copy()
    for place in range(1, grid.n):
        moved = np.floor(written[:, place] * draw.uniform(size=200))
        moved[0] = written[0, place] if place == grid.n - 1 else 0.0
        written[:, place] -= moved
        written[:, place - 1] += moved * base
    np.testing.assert_array_equal(grid.rounded(written), grid.rounded(carried))
    powers = base ** np.arange(grid.low, grid.low + grid.n)
    np.testing.assert_allclose(grid.rounded(carried), carried @ powers, rtol=1e-15)


def test_nothing_is_divided_by_nought():
    with np.errstate(all="raise"):
        c = np.array([0.0, 1.0])
        np.testing.assert_array_equal(_statistic.clamped_crossing(0.0, 0.0, 0.0, c), np.inf)
        found = _statistic.clamped_crossing(np.zeros(2), np.array([0.0, 4.0]), 0.0, c)
        np.testing.assert_array_equal(found, [np.inf, 1.0])


def test_means_without_a_point_with_one_beyond_the_last_or_nobody():
    distance, magnitudes = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 3.0]]), np.array([3.0, 5.0, 7.0])
    with np.errstate(all="raise"):
        means, common = _nearest.Nearest(None, magnitudes, 2).without(None, distance)
    np.testing.assert_array_equal(means, [[6.0, 5.0, 4.0]] * 2)
    np.testing.assert_array_equal(common, [4.5, 4.0])
