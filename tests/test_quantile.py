from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper.quantile import (
    as_fraction,
    conformal_rank,
    merged_multiple,
    order_statistic,
    pad_exceptions,
    required_calibration_size,
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


@given(thousandths=st.integers(1, 999))
def test_required_size_is_the_smallest_with_a_finite_radius(thousandths):
    level = thousandths / 1000
    n = required_calibration_size(level)
    assert conformal_rank(level, n) <= n
    assert n == 1 or conformal_rank(level, n - 1) > n - 1


def test_order_statistic_beyond_the_last_is_infinite():
    assert order_statistic(np.array([1.0, 2.0]), 2) == 2.0
    assert order_statistic(np.array([1.0, 2.0]), 3) == np.inf


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
