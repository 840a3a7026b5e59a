"""The weighted quantile against its definition, and where its rules show."""

from fractions import Fraction

import numpy as np
import pytest

from calliper.kernels import Radial
from calliper.quantile import (
    Shares,
    conformal_thresholds,
    count_true,
    effective_size,
    row_thresholds,
    weighted_quantiles,
)
from oracles import localized as oracles

LEVELS = ["0.1", "0.25", "0.5", "0.8", "0.9"]


def one_row(values, weights, at_infinity, levels):
    order = np.argsort(values, kind="stable")
    weights = np.asarray(weights, dtype=float)[order][None]
    ordered = np.asarray(values, dtype=float)[order]
    return weighted_quantiles(ordered, weights, np.array([float(at_infinity)]), levels)[0]


@pytest.mark.parametrize("batch", range(10))
def test_equals_the_definition(batch):
    """Small integers: shares that meet a level exactly are common, and so are tied scores."""
    for seed in range(60 * batch, 60 * batch + 60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 12))
        values = rng.integers(-2, 5, n) * 0.5
        weights = rng.integers(0, 4, n) if seed % 2 else rng.exponential(size=n) ** 6
        at_infinity = float(rng.integers(0, 3))
        exact = [Fraction(float(w)) for w in weights]
        expected = [
            oracles.weighted_quantile(values, exact, Fraction(at_infinity), c) for c in LEVELS
        ]
        found = one_row(values, weights, at_infinity, [float(c) for c in LEVELS])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [1, 9, 19, 248, 249, 999])
@pytest.mark.parametrize("weight", [1.0, 0.1, 1e-9, 3e7])
def test_equal_weights_give_the_conformal_rank(n, weight):
    """Also where (1−α)(N+1) is an integer, which sums of tenths miss by rounding."""
    scores = np.sort(np.random.default_rng(n).exponential(size=n))
    for level in (0.1, 0.172, 0.5, 1 - 0.172, 0.9, 0.95, 0.1 + 0.2):
        found = one_row(scores, np.full(n, weight), weight, [level])
        assert found[0] == conformal_thresholds(scores, [level])[0], (n, level)


def test_nothing_known_is_infinite():
    np.testing.assert_array_equal(one_row([1.0, 2.0], [0.0, 0.0], 0.0, [0.1, 0.9]), np.inf)
    np.testing.assert_array_equal(one_row([1.0, 2.0], [0.0, 0.0], 1.0, [0.1, 0.9]), np.inf)


def test_without_mass_at_infinity_it_is_always_finite():
    np.testing.assert_array_equal(one_row([3.0, 1.0], [1.0, 9.0], 0.0, [0.9, 0.95]), [1.0, 3.0])


def test_blocks_give_what_one_block_gives():
    rng = np.random.default_rng(0)
    ordered, points, Z = (
        np.sort(rng.exponential(size=300)),
        rng.normal(size=300),
        rng.normal(size=5000),
    )
    radial, own = Radial(points[:, None], 1.0, "euclidean"), rng.normal(size=5000)
    blocked = radial.quantile(ordered, Z[:, None], [0.5, 0.9], own)
    exponent = np.column_stack([radial.exponents(Z[:, None]), own])
    weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    at_once = weighted_quantiles(ordered, weights[:, :-1].copy(), weights[:, -1], [0.5, 0.9])
    np.testing.assert_array_equal(blocked, at_once)


def test_count_true_does_not_overflow():
    mask = np.ones((2, 70_000), dtype=bool)
    mask[0, :10] = False
    np.testing.assert_array_equal(count_true(mask), [69_990, 70_000])


def test_effective_size():
    assert effective_size(np.array([1.0, 1.0, 2.0])) == pytest.approx(16 / 6)
    assert effective_size(np.full(7, 1e-200)) == pytest.approx(7)
    assert effective_size(np.array([0.0, 3.0])) == 1.0


def shares_of(rng, n, m):
    weights = rng.integers(0, 4, n).astype(float)
    weights[0] = 3.0
    return Shares(weights, rng.integers(1, 4, m).astype(float))


def by_definition(values, shares, row, level):
    """The first value at which the weights up to it reach their share."""
    exact = [Fraction(w) for w in shares.calibration]
    return oracles.weighted_quantile(values, exact, Fraction(shares.new[row]), level)


@pytest.mark.parametrize("seed", range(10))
def test_weights_of_a_shift_equal_the_definition(seed):
    """One order for all rows, an order for each row, and one for each level."""
    rng = np.random.default_rng(seed)
    n, m, levels = int(rng.integers(1, 12)), 4, [float(c) for c in LEVELS]
    shares, rows = shares_of(rng, n, m), rng.integers(0, 5, (m, n)) * 0.5
    ordered = np.sort(rows[0])
    expected = [[by_definition(ordered, shares, r, c) for c in LEVELS] for r in range(m)]
    np.testing.assert_array_equal(conformal_thresholds(ordered, levels, shares), expected)
    expected = [[by_definition(rows[r], shares, r, c) for c in LEVELS] for r in range(m)]
    np.testing.assert_array_equal(row_thresholds(rows, levels, shares), expected)


@pytest.mark.parametrize("seed", range(6))
def test_long_rows_are_cut_where_a_sample_says_and_mended_where_it_is_wrong(seed):
    """Thousands of columns: sorted whole they give the same."""
    rng = np.random.default_rng(seed)
    n, m = 2100, 5
    values = rng.exponential(size=(m, n)) if seed % 2 else rng.integers(0, 9, (m, n)) * 1.0
    weights = rng.exponential(size=n) ** 4
    if seed > 2:  # what the sample sees says nothing of the others
        weights[::16] = 1e-3 if seed % 2 else 1e3
        values[:, ::16] += 1.5
    shares = Shares(weights / weights.max(), rng.exponential(size=m) * 9)
    for level in (0.02, 0.5, 0.9, 0.999):
        order = np.argsort(values, axis=1)
        reached = np.cumsum(shares.calibration[order], axis=1) >= shares.needed(level)[:, None]
        ordered = np.hstack([np.take_along_axis(values, order, axis=1), np.full((m, 1), np.inf)])
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), n)
        expected = ordered[np.arange(m), first]
        np.testing.assert_array_equal(row_thresholds(values, [level], shares)[:, 0], expected)


@pytest.mark.parametrize("seed", range(40))
def test_weighted_multiples_equal_sorting_everything(seed):
    rng = np.random.default_rng(seed)
    n, m, e = int(rng.integers(1, 14)), 5, 3
    ordered = np.sort(rng.integers(0, 5, n) * 1.0)
    ordered[ordered == 4] = np.inf
    factor, shares = rng.integers(0, 3, m) * 1.0, shares_of(rng, n, m)
    position, value = np.full((m, e), n), np.full((m, e), np.nan)
    values = np.where(np.isinf(ordered), np.inf, np.outer(factor, np.nan_to_num(ordered, posinf=0)))
    for r in range(m):
        few = rng.permutation(n)[: rng.integers(0, e + 1)]
        position[r, : len(few)] = few
        values[r, few] = value[r, : len(few)] = rng.choice([0.0, 1.0, 3.5, np.inf], len(few))
    for level in LEVELS:
        expected = [by_definition(values[r], shares, r, level) for r in range(m)]
        found = shares.merged_multiple(ordered, factor, position, value, float(level))
        np.testing.assert_array_equal(found, expected)


def test_equal_shares_are_none():
    assert Shares(np.ones(3), np.ones(2)).equal
    assert not Shares(np.array([1.0, 0.5]), np.ones(2)).equal
    assert not Shares(np.ones(3), np.array([1.0, 2.0])).equal
    some = Shares(np.array([0.25, 1.0]), np.array([1.0, 3.0, 2.0]))
    np.testing.assert_allclose(some.needed(0.5), [1.125, 2.125, 1.625], rtol=1e-11)
    assert (some.needed(0.5) < [1.125, 2.125, 1.625]).all()
    np.testing.assert_array_equal(some.of_rows([2, 0]).new, [2.0, 1.0])
    np.testing.assert_array_equal(some.reordered(np.array([1, 0])).reached, [1.0, 1.25])


@pytest.mark.parametrize("level", [1e-9, 1e-7, 0.5, 1 - 1e-7, 1 - 1e-9])
def test_what_is_forgiven_is_little_of_either_side(level):
    """A share that is short by rounding reaches the level; one that is short by more does not."""
    ordered, tails = np.array([1.0, 2.0]), min(level, 1 - level)
    for short, expected in [(0.0, 1.0), (1e-7 * tails, 1.0), (1e-4 * tails, 2.0)]:
        first = level - min(short, 1e4 * 1e-12 if expected == 2 else 1e-13)
        weights = np.array([[first, 1 - first]])
        assert weighted_quantiles(ordered, weights, np.zeros(1), [level])[0, 0] == expected
    edge = Shares(np.ones(1), np.zeros(1)).needed(level)[0]  # what is needed of a weight of one
    weights = np.array([[edge, 1 - edge]])
    assert weighted_quantiles(ordered, weights, np.zeros(1), [level])[0, 0] == 1


def test_many_long_rows_at_the_highest_levels():
    """Thresholds at the far end of rows."""
    rng = np.random.default_rng(0)
    values, weights = rng.exponential(size=(300, 1100)), rng.exponential(size=1100)
    shares = Shares(weights / weights.max(), np.full(300, 1e-3))
    found = row_thresholds(values, [0.9995], shares)[:, 0]
    order = np.argsort(values, axis=1)
    reached = np.cumsum(shares.calibration[order], axis=1) >= shares.needed(0.9995)[:, None]
    expected = np.take_along_axis(values, order, axis=1)[np.arange(300), reached.argmax(axis=1)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("level", [0.3, 0.5, 0.9])
def test_a_sum_that_is_exactly_what_is_needed_suffices(level):
    edge = Shares(np.ones(1), np.zeros(1)).needed(level)[0]
    shares, ordered = Shares(np.array([edge, 1 - edge]), np.zeros(1)), np.array([1.0, 2.0])
    assert shares.needed(level) == edge
    assert conformal_thresholds(ordered, [level], shares) == 1.0
    assert row_thresholds(ordered[None], [level], shares) == 1.0
    for position, value in [(2, np.nan), (0, 1.0), (1, 2.0), (0, 1.5)]:
        exception = np.array([[position]]), np.array([[value]])
        found = shares.merged_multiple(ordered, np.ones(1), *exception, level)
        assert found == (1.5 if value == 1.5 else 1.0)
