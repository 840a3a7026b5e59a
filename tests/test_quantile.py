import warnings
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper.quantile import (
    ROUNDING,
    above,
    as_fraction,
    below,
    conformal_rank,
    conformal_thresholds,
    exponent,
    merged_multiple,
    not_below,
    outward,
    pad_exceptions,
    power_of_two,
    required_calibration_size,
    with_signs,
)
from oracles import rescaled as oracles


@given(thousandths=st.integers(1, 999), n=st.integers(1, 3000))
def test_rank_is_exact_for_levels_of_three_digits(thousandths, n):
    exact = ceil(Fraction(thousandths, 1000) * (n + 1))
    assert conformal_rank(thousandths / 1000, n) == exact
    assert conformal_rank(1 - (1000 - thousandths) / 1000, n) == exact
    assert oracles.conformal_rank(Fraction(thousandths, 1000), n) == exact


def test_floating_point_would_be_off_by_one():
    cases = [(k, n) for k in range(1, 1000) for n in (9, 19, 249, 999)]
    floating = [ceil((1 - k / 1000) * (n + 1)) for k, n in cases]
    exact = [ceil(Fraction(1000 - k, 1000) * (n + 1)) for k, n in cases]
    assert sum(a != b for a, b in zip(floating, exact, strict=True)) > 100
    assert [conformal_rank(1 - k / 1000, n) for k, n in cases] == exact


def test_level_means_what_was_typed():
    assert as_fraction(0.1 + 0.2) == Fraction(3, 10)
    assert as_fraction(1 / 3) == Fraction(1, 3)
    assert 0 < as_fraction(1 - 1e-12) < 1
    assert 0 < as_fraction(1e-15) < 1
    for level in (6e-10, 1 - 6e-10, 0.5 + 2e-10, 1e-13, 1 - 1e-13):  # near to no fraction within
        assert as_fraction(level) == Fraction(level)
    assert as_fraction(sum([1e-4] * 7000)) == Fraction(7, 10)


@given(thousandths=st.integers(1, 999))
def test_required_size_is_the_smallest_with_a_finite_radius(thousandths):
    level = thousandths / 1000
    n = required_calibration_size(level)
    assert conformal_rank(level, n) <= n
    assert n == 1 or conformal_rank(level, n - 1) > n - 1


def test_order_statistic_beyond_the_last_is_infinite():
    assert conformal_thresholds(np.array([1.0, 2.0]), [0.6, 0.7]).tolist() == [2.0, np.inf]


@pytest.mark.parametrize("seed", range(200))
def test_merged_multiple_equals_sorting_everything(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 30)), 7
    ordered = np.sort(rng.integers(0, 5, n) * 1.0)
    ordered[ordered == 4] = np.inf
    factor = rng.integers(0, 3, m) * 1.0
    values = np.where(np.isinf(ordered), np.inf, np.outer(factor, np.nan_to_num(ordered, posinf=0)))
    row, position, value = [], [], []
    for r in range(m):
        for j in rng.permutation(n)[: rng.integers(0, min(n, 6) + 1)]:
            new = rng.choice([0.0, 1.0, 3.5, 40.0, np.inf])
            values[r, j] = new
            row.append(r), position.append(j), value.append(new)
    padded = pad_exceptions(
        np.array(row, dtype=int), np.array(position, dtype=int), np.array(value), m, n
    )
    for rank in range(1, n + 1):
        expected = np.sort(values, axis=1)[:, rank - 1]
        np.testing.assert_array_equal(merged_multiple(ordered, factor, *padded, rank), expected)


@pytest.mark.parametrize("values", [[0.5], [1.0, -3.0], [2.0**-1070], [-4.0], [0.1, 0.2]])
def test_no_magnitude_exceeds_the_power_of_two(values):
    e, largest = exponent(np.array(values)), max(map(abs, values))
    assert 2.0 ** (e - 1) < largest <= 2.0**e == power_of_two(np.array(values))


def test_powers_of_two_have_ends():
    assert exponent(np.zeros(2)) == exponent(np.empty(0)) == 0
    assert power_of_two(np.array([1.5 * 2.0**1023])) == 2.0**1023


def test_signs_of_sizes():
    sizes, signs = np.array([2.0, np.inf, np.inf, 3.0]), np.array([-1.0, 0.0, -1.0, 1.0])
    with np.errstate(all="raise"):  # nothing to warn of
        np.testing.assert_array_equal(with_signs(sizes, signs), [-2.0, 0.0, -np.inf, 3.0])
        np.testing.assert_array_equal(with_signs(np.ones(2), np.array([0.0, 0.0])), [0.0, 0.0])


def test_outward_is_up_on_both_sides_of_zero():
    found = outward(np.array([2.0, 0.0, -2.0, np.inf]))
    np.testing.assert_array_equal(found, [2 * (1 + ROUNDING), 0.0, -2 * (1 - ROUNDING), np.inf])
    assert 2 < found[0] < 2 + 1e-10


def test_a_ratio_that_has_lost_digits_is_the_next_number_up():
    tiny, least = np.finfo(np.float64).tiny, 5e-324
    ratio = np.array([least, -2 * least, tiny, -tiny, 0.0, 1.0])
    expected = [2 * least, -least, tiny, -tiny, 0.0, 1.0]
    np.testing.assert_array_equal(not_below(ratio), expected)


def test_ends_move_by_last_digits_of_the_radius_and_one_of_their_own():
    y, radius = np.array([-3.0, 3.0]), np.array([2.0, 0.0])
    one = np.nextafter(-1 + np.spacing(2.0), np.inf)
    np.testing.assert_array_equal(above(y, radius), [one, 3.0])
    np.testing.assert_array_equal(below(-y, radius), [-one, -3.0])
    four = np.nextafter(-5 + 4 * np.spacing(1.9), np.inf)
    np.testing.assert_array_equal(above(y, -radius, digits=4), [four, 3.0])
    largest = np.finfo(np.float64).max
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(below(np.array([largest]), np.array([largest])))
        assert above(np.array([largest]), np.array([1.0])) == np.inf
    np.testing.assert_array_equal(above(y, np.array([np.inf, -np.inf])), [np.inf, -np.inf])


@pytest.mark.parametrize("digits", [1, 4])
@pytest.mark.parametrize("y", [0.0, 1.0, 1 - 2.0**-53, -0.7, 1.7093770154973665e15, 5e-324])
def test_ends_contain_all_errors_and_keep_the_order_of_radii(y, digits):
    """Radii beside one another, around those at which sums cross nought or a power of two."""
    around = np.array([0.0, abs(y), 0.5, 1.0, 2 - abs(y), abs(np.spacing(y)), 5e-324])
    radii = around + np.arange(-40, 41)[:, None] * np.spacing(around) / 4
    radii = np.unique(np.concatenate([radii, -radii]))
    upper, lower = (end(np.array(y), radii, digits=digits) for end in (above, below))
    assert (np.diff(upper) >= 0).all() and (np.diff(lower) <= 0).all()
    further = np.abs([Fraction(r) for r in radii]) * Fraction(digits, 2**53)
    exact = [Fraction(r) + more for r, more in zip(radii, further, strict=True)]
    small = np.abs(radii) < np.finfo(float).tiny  # whose digits are not in proportion to them
    inside = [Fraction(u) - Fraction(y) >= r for u, r in zip(upper, exact, strict=True)]
    assert (inside | small).all() and (upper >= y + radii).all()
    assert upper[radii == 0] == lower[radii == 0] == y


@pytest.mark.parametrize("new", [0.0, 3.5, 40.0])
def test_more_exceptions_than_rows(new):
    """All on one side of the answer, which is as far from its rank as they are many."""
    ordered, position = np.arange(1.0, 13.0), np.array([[3, 4, 5, 6, 7]])
    values = np.where(np.isin(np.arange(12), position[0]), new, 2 * ordered)
    for rank in range(1, 13):
        found = merged_multiple(ordered, np.array([2.0]), position, np.full((1, 5), new), rank)
        assert found == np.sort(values)[rank - 1]


def test_no_exceptions_need_no_room():
    none = np.empty(0, dtype=int)
    position, value = pad_exceptions(none, none, np.empty(0), 3, 9)
    assert position.shape == value.shape == (3, 0)
