"""Worst-slab coverage: the search against all windows, the value as an unbiased measure."""

from __future__ import annotations

from fractions import Fraction
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

from calliper.exceptions import CalliperError
from calliper.lab.metrics import worst_slab_coverage
from calliper.lab.metrics._conditional import find_slab
from oracles import metrics as metric_oracles


@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([2, 6, 1000]), st.data())
def test_the_search_finds_the_worst_of_all_windows(seed, n, n_values, data):
    rng = np.random.default_rng(seed)
    smallest = data.draw(st.integers(1, n))
    # Directions that keep integers integers, so that the oracle sees the same ties.
    features = rng.integers(0, n_values, (n, 2)).astype(float)
    directions = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -2.0]])
    covered = rng.random(n) < rng.choice([0.5, 0.9])
    found = find_slab(features, covered, directions, smallest)
    worst = min(
        metric_oracles.worst_window(features @ way, covered.tolist(), smallest)
        for way in directions
    )
    assert Fraction(found.coverage).limit_denominator(n) == worst
    place = features @ found.direction
    inside = (found.low <= place) & (place <= found.high)
    assert inside.sum() >= smallest
    assert covered[inside].mean() == pytest.approx(found.coverage), "the slab is what it says"


def test_many_directions_are_searched_in_blocks():
    rng = np.random.default_rng(0)
    features, covered = rng.normal(size=(300, 3)), rng.random(300) < 0.9
    directions = rng.normal(size=(2000, 3))
    one_by_one = [find_slab(features, covered, way[None], 30).coverage for way in directions[:300]]
    assert find_slab(features, covered, directions[:300], 30).coverage == min(one_by_one)
    assert find_slab(features, covered, directions, 30).coverage <= min(one_by_one)


def problem(n, seed, d=3):
    """Coverage 0.9 everywhere, but 0.5 beyond the 80 % quantile of x·(1, 1, 0)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    hard = X[:, 0] + X[:, min(1, d - 1)] > 0.8416 * np.sqrt(2 if d > 1 else 4)
    return X, rng.random(n), hard


def test_it_finds_a_region_that_is_covered_badly():
    X, u, hard = problem(4000, 0)
    y = np.where(u < np.where(hard, 0.5, 0.9), 0.0, 9.0)
    value = worst_slab_coverage(y, (y * 0 - 1, y * 0 + 1), X, random_state=0)
    assert 0.4 < value < 0.65


def test_even_coverage_gives_the_level_on_average():
    """The two-part version is unbiased: the mean over draws is the coverage itself."""
    values = []
    for seed in range(60):
        X, u, _ = problem(400, seed)
        y = np.where(u < 0.9, 0.0, 9.0)
        ends = (y * 0 - 1, y * 0 + 1)
        values.append(worst_slab_coverage(y, ends, X, n_directions=50, random_state=seed))
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - 0.9) < 4 * error
    assert error < 0.02


def test_units_of_the_columns_do_not_matter():
    X, u, hard = problem(600, 1)
    y = np.where(u < np.where(hard, 0.5, 0.9), 0.0, 9.0)
    ends = (y * 0 - 1, y * 0 + 1)
    value = worst_slab_coverage(y, ends, X, random_state=3)
    moved = np.column_stack([X * [1024.0, 1.0, 2**-10], np.full(600, 7.0)])
    assert worst_slab_coverage(y, ends, moved, random_state=3) == value


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1])
def test_a_constant_is_one_in_spite_of_rounding(value):
    X, u, hard = problem(4000, 1)
    assert np.full(4000, 0.1).std() > 0, "the reason not to ask for the deviation"
    y = np.where(u < np.where(hard, 0.5, 0.9), 0.0, 9.0)
    ends = (y * 0 - 1, y * 0 + 1)
    constants = np.full((4000, 3), value)
    options = {"random_state": 3, "n_directions": 50}
    plain = worst_slab_coverage(y, ends, X, **options)
    assert worst_slab_coverage(y, ends, np.column_stack([X, constants]), **options) == plain
    with pytest.warns(UndefinedMetricWarning, match="every column of X is constant"):
        assert isnan(worst_slab_coverage(y, ends, constants))


def test_neither_origin_nor_tiny_units_matter():
    X, u, hard = problem(600, 1)
    X = np.round(1024 * X) / 1024
    y = np.where(u < np.where(hard, 0.5, 0.9), 0.0, 9.0)
    ends = (y * 0 - 1, y * 0 + 1)
    value = worst_slab_coverage(y, ends, X, random_state=3)
    assert worst_slab_coverage(y, ends, X + 2.0**40, random_state=3) == value
    assert worst_slab_coverage(y, ends, X * 2.0**-600, random_state=3) == value


def test_a_single_column_may_be_flat_and_needs_no_directions():
    X, u, hard = problem(2000, 2, d=1)
    y = np.where(u < np.where(hard, 0.5, 0.9), 0.0, 9.0)
    ends = (y * 0 - 1, y * 0 + 1)
    flat = worst_slab_coverage(y, ends, X[:, 0], random_state=0)
    assert flat == worst_slab_coverage(y, ends, X, n_directions=1, random_state=0)
    assert 0.4 < flat < 0.62


def test_the_seed_fixes_the_value_and_large_sets_are_sampled():
    X, u, _ = problem(3000, 4)
    y = np.where(u < 0.9, 0.0, 9.0)
    ends = (y * 0 - 1, y * 0 + 1)
    options = {"max_points": 400, "n_directions": 20}
    first, again, other = (
        worst_slab_coverage(y, ends, X, random_state=seed, **options) for seed in (5, 5, 6)
    )
    assert first == again != other


def test_undefined_with_a_reason():
    y = np.zeros(40)
    ends = (y - 1, y + 1)
    with pytest.warns(UndefinedMetricWarning, match="19 rows are too few"):
        assert isnan(worst_slab_coverage(y[:19], (ends[0][:19], ends[1][:19]), y[:19]))
    with pytest.warns(UndefinedMetricWarning, match="every column of X is constant"):
        assert isnan(worst_slab_coverage(y, ends, np.ones((40, 2))))
    # Ten rows choose one point of ten, which misses; none of the other thirty is there.
    y[:] = np.arange(40) % 2 * 9.0
    with pytest.warns(UndefinedMetricWarning, match="none of the 2 test rows lies in"):
        for seed in range(20):
            worst_slab_coverage(y, ends, np.arange(40.0), test_size=0.05, random_state=seed)


def test_bad_input_is_refused():
    y = np.zeros(40)
    ends = (y - 1, y + 1)
    for name in ("slab", "test_size"):
        with pytest.raises(CalliperError, match=f"{name} must lie strictly between 0 and 1"):
            worst_slab_coverage(y, ends, y, **{name: 1.0})
    with pytest.raises(CalliperError, match="X has 3 rows for 40 targets"):
        worst_slab_coverage(y, ends, np.zeros((3, 2)))
    with pytest.raises(CalliperError, match="max_points must be an integer of at least 20"):
        worst_slab_coverage(y, ends, np.arange(40.0), max_points=5)
