"""HSIC and correlation of coverage with width, pinball loss, median width."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import mean_pinball_loss

from calliper.intervals import Intervals
from calliper.lab.metrics import (
    coverage_width_correlation,
    fraction_infinite,
    hsic,
    interval_score,
    mean_width,
    median_width,
    pinball_loss,
)
from oracles import metrics as metric_oracles

INF = float("inf")
BOTH = pytest.mark.parametrize("measure", [hsic, coverage_width_correlation])


def draw(seed, n, *, adapts=False):
    """Intervals whose width has nothing, or something, to do with the spread of the targets."""
    rng = np.random.default_rng(seed)
    radius = rng.choice([0.5, 1.0, 2.0, 3.0], size=n)
    y = rng.normal(size=n) * (radius if adapts else 1.0)
    return y, (-radius, radius)


@given(st.integers(0, 1000), st.integers(20, 60))
def test_they_equal_the_definitions(seed, n):
    y, ends = draw(seed, n)
    covered, widths = np.array(metric_oracles.contained(y, *ends)), ends[1] - ends[0]
    if covered.all():
        return
    assert hsic(y, ends) == pytest.approx(metric_oracles.hsic(covered, widths), rel=1e-9)
    correlation = abs(np.corrcoef(covered, widths)[0, 1])
    assert coverage_width_correlation(y, ends) == pytest.approx(correlation, abs=1e-12)


def test_hsic_in_several_blocks_equals_the_definition():
    rng = np.random.default_rng(0)
    radius = rng.exponential(size=900)
    y = rng.normal(size=900)
    covered = np.abs(y) <= radius
    slow = metric_oracles.hsic(covered, 2 * radius)
    assert hsic(y, (-radius, radius)) == pytest.approx(slow, rel=1e-9)


@BOTH
def test_unit_and_order_do_not_matter(measure):
    y, (lower, upper) = draw(0, 200)
    value = measure(y, (lower, upper))
    assert measure(1e160 * y, (1e160 * lower, 1e160 * upper)) == pytest.approx(value, rel=1e-9)
    back = slice(None, None, -1)
    assert measure(y[back], (lower[back], upper[back])) == pytest.approx(value, rel=1e-9)


@BOTH
def test_small_if_independent_and_large_if_not(measure):
    same = [measure(*draw(seed, 500, adapts=True)) for seed in range(20)]
    differs = [measure(*draw(seed, 500)) for seed in range(20)]
    assert max(same) < min(differs)
    if measure is coverage_width_correlation:
        # √n r is half-normal under independence.
        assert np.mean(same) == pytest.approx(np.sqrt(2 / np.pi / 500), rel=0.5)


@pytest.mark.parametrize(("level", "words"), [(0.9, 0.06), (0.5, 0.17)])
def test_what_chance_leaves_of_hsic(level, words):
    """1.26 c(1 − c)(1 − L̄)/n; L̄ = 1/√5 for normal widths."""
    n, values = 200, []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        radius = 10 + rng.normal(size=n)
        y = np.where(rng.random(n) < level, 0.0, 99.0)
        values.append(hsic(y, (-radius, radius)))
    expected = 2 * (1 - np.exp(-1)) * level * (1 - level) * (1 - 1 / np.sqrt(5)) / n
    assert expected * n == pytest.approx(words, abs=0.006)
    error = np.std(values) / np.sqrt(len(values))
    assert np.mean(values) == pytest.approx(expected, abs=4 * error)
    assert error < 0.06 * expected


def test_hsic_samples_large_sets():
    y, ends = draw(0, 2000)
    values = [hsic(y, ends, max_points=200, random_state=seed) for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert values[0] == pytest.approx(hsic(y, ends), rel=0.6)


@BOTH
def test_undefined_with_a_reason(measure):
    def reason(y, lower, upper, words):
        with pytest.warns(UndefinedMetricWarning, match=f"{measure.__name__} is NaN: {words}"):
            assert isnan(measure(y, (lower, upper)))

    y, (lower, upper) = draw(0, 100)
    reason(y[:19], lower[:19], upper[:19], "19 rows are too few")
    reason(y, y - 0.3, y + 0.3, r"all 100 widths are equal \(0\.6\)")
    reason(0 * y, lower, upper, "all of 100 targets are covered")
    reason(0 * y + 99, lower, upper, "none of 100 targets are covered")
    upper[:3] = INF
    reason(y, lower, upper, "3 of 100 widths are infinite")
    reason(y, 0 * y - INF, 0 * y + INF, "100 of 100 widths are infinite")


def test_the_sample_may_be_undefined_where_the_whole_is_not():
    y = np.append(np.zeros(3000), 9.0)
    radius = np.linspace(1, 2, 3001)
    with pytest.warns(UndefinedMetricWarning, match="in the 20 rows sampled, all of 20 targets"):
        assert isnan(hsic(y, (-radius, radius), max_points=20, random_state=0))


@given(st.integers(0, 1000), st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_pinball_is_scikit_learns_mean_of_both_ends(seed, level):
    y, (lower, upper) = draw(seed, 50)
    low = mean_pinball_loss(y, lower, alpha=(1 - level) / 2)
    high = mean_pinball_loss(y, upper, alpha=1 - (1 - level) / 2)
    value = pinball_loss(y, Intervals(lower, upper, level))
    assert value == pytest.approx((low + high) / 2)
    assert value == pytest.approx(
        (1 - level) / 4 * interval_score(y, (lower, upper), coverage=level)
    )


def test_pinball_of_an_infinite_interval_is_infinite():
    assert pinball_loss([0.0, 1.0], ([-INF, 0.0], [1.0, 1.0]), coverage=0.9) == INF


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_median_width(widths):
    upper = np.array(widths, float)
    assert median_width((0 * upper, upper)) == np.median(upper)
    assert median_width((0 * upper, upper), half=True) == np.median(upper) / 2


def test_median_width_beside_infinity_and_at_several_levels():
    upper = np.array([[1.0, INF], [3.0, INF], [5.0, 1.0], [INF, 2.0]])
    levels = Intervals(np.zeros((4, 2)), upper, (0.8, 0.9))
    np.testing.assert_array_equal(median_width(levels), [4.0, INF])
    np.testing.assert_array_equal(mean_width(levels), [INF, INF])
    np.testing.assert_array_equal(fraction_infinite(levels), [0.25, 0.5])
    assert median_width((np.zeros(2), [INF, INF])) == INF
