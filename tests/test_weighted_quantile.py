"""The weighted quantile against its definition, and where its rules show."""

from fractions import Fraction

import numpy as np
import pytest

from calliper.quantile import (
    conformal_rank,
    count_true,
    order_statistic,
    weighted_quantiles,
    weighted_quantiles_in_blocks,
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
        assert found[0] == order_statistic(scores, conformal_rank(level, n)), (n, level)


def test_nothing_known_is_infinite():
    np.testing.assert_array_equal(one_row([1.0, 2.0], [0.0, 0.0], 0.0, [0.1, 0.9]), np.inf)
    np.testing.assert_array_equal(one_row([1.0, 2.0], [0.0, 0.0], 1.0, [0.1, 0.9]), np.inf)


def test_without_mass_at_infinity_it_is_always_finite():
    np.testing.assert_array_equal(one_row([3.0, 1.0], [1.0, 9.0], 0.0, [0.9, 0.95]), [1.0, 3.0])


def test_blocks_give_what_one_block_gives():
    rng = np.random.default_rng(0)
    ordered, weights = np.sort(rng.exponential(size=300)), rng.exponential(size=(5000, 300))
    at_infinity = rng.exponential(size=5000) * 20

    def weigh(rows, out):
        out[:] = weights[rows]
        return out, at_infinity[rows]

    blocked = weighted_quantiles_in_blocks(ordered, weigh, 5000, [0.5, 0.9])
    at_once = weighted_quantiles(ordered, weights.copy(), at_infinity, [0.5, 0.9])
    np.testing.assert_array_equal(blocked, at_once)


def test_count_true_does_not_overflow():
    mask = np.ones((2, 70_000), dtype=bool)
    mask[0, :10] = False
    np.testing.assert_array_equal(count_true(mask), [69_990, 70_000])
