"""The paper's adaptivity measures against the slow oracle and closed forms."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score

from calliper.intervals import Intervals
from calliper.lab.metrics import SparseBinsWarning, r2_sqi, tau_si, tau_sqi
from cases.adaptivity import two_sizes
from oracles import rescaled as oracles

ALL = [tau_si, tau_sqi, r2_sqi]
ignore_warnings = pytest.mark.filterwarnings("ignore::UserWarning")

level_names = st.sampled_from(["0.5", "0.8", "0.9", "0.95"])
bins = st.integers(2, 12)
sizes = st.sampled_from([1, 2, 3, 5, 20])


@st.composite
def rows(draw):
    """Multiples of 1/8, so that differences are exact, with few or many ties."""
    n = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    scores, radius = (rng.integers(0, draw(st.sampled_from([2, 5, 300])), n) for _ in "ab")
    return np.column_stack([scores, radius]) / 8


def around_zero(rows):
    """Scores as targets above a prediction of 0, and centred intervals."""
    scores, radius = np.array(rows, float).T
    return scores, (-radius, radius), 2 * radius, np.zeros(len(scores))


def equal(fast, slow):
    return (isnan(fast) and isnan(slow)) or fast == pytest.approx(slow, rel=1e-9, abs=1e-9)


@ignore_warnings
@given(rows())
def test_tau_si_equals_the_definition(rows):
    scores, ends, widths, y_pred = around_zero(rows)
    assert equal(tau_si(scores, ends, y_pred=y_pred), oracles.tau_si(scores, widths))


@ignore_warnings
@given(rows(), level_names, bins, sizes)
def test_tau_sqi_equals_the_definition(rows, level, n_bins, smallest):
    scores, ends, widths, y_pred = around_zero(rows)
    fast = tau_sqi(
        scores, ends, y_pred=y_pred, coverage=float(level), n_bins=n_bins, min_bin_size=smallest
    )
    assert equal(fast, oracles.tau_sqi(scores, widths, level, n_bins, smallest))


@ignore_warnings
@given(rows(), level_names, bins, sizes)
def test_r2_sqi_equals_the_definition(rows, level, n_bins, smallest):
    scores, ends, widths, y_pred = around_zero(rows)
    fast = r2_sqi(
        scores, ends, y_pred=y_pred, coverage=float(level), n_bins=n_bins, min_bin_size=smallest
    )
    assert equal(fast, oracles.r2_sqi(scores, widths, level, n_bins, smallest))


@ignore_warnings
@pytest.mark.parametrize(("level", "smallest"), [("0.5", 20), ("0.9", 20), ("0.95", 40)])
def test_the_default_size_of_a_bin(level, smallest):
    rng = np.random.default_rng(0)
    for n in (150, 199, 200, 201, 399, 400, 500):
        widths = rng.integers(1, 300, n) / 8
        scores = widths * rng.exponential(size=n)
        ends = (-widths / 2, widths / 2)
        fast = r2_sqi(scores, ends, y_pred=0 * widths, coverage=float(level))
        assert equal(fast, oracles.r2_sqi(scores, widths, level, 10, smallest))
        fast = tau_sqi(scores, ends, y_pred=0 * widths, coverage=float(level))
        assert equal(fast, oracles.tau_sqi(scores, widths, level, 10, smallest))


@ignore_warnings
@given(rows(), st.integers(-8, 8), st.integers(-20, 20), st.randoms())
@pytest.mark.parametrize("measure", ALL)
def test_unit_origin_and_order_do_not_matter(measure, rows, power, shift, random):
    y, ends, _, y_pred = around_zero(rows)
    options = {} if measure is tau_si else {"coverage": 0.75, "n_bins": 4, "min_bin_size": 2}
    value = measure(y, ends, y_pred=y_pred, **options)
    factor, order = 2.0**power, np.array(random.sample(range(len(y)), len(y)))
    moved = [factor * (part + shift) for part in (y, *ends, y_pred)]
    y, lower, upper, y_pred = (part[order] for part in moved)
    assert equal(measure(y, (lower, upper), y_pred=y_pred, **options), value)
    assert equal(measure(-y, (-upper, -lower), y_pred=-y_pred, **options), value)


def test_perfect_and_reversed_order():
    radius = np.arange(1.0, 401.0)
    for sign in (1, -1):
        ends = (-(radius[::sign]), radius[::sign])
        assert tau_si(radius / 2, ends) == pytest.approx(sign)
        assert tau_sqi(radius / 2, ends, coverage=0.95) == sign


def test_r2_sqi_is_one_when_each_bin_is_as_wide_as_its_quantile():
    y, intervals, y_pred = two_sizes(1.0)
    assert r2_sqi(y, intervals, y_pred=y_pred) == pytest.approx(1.0)


def test_r2_sqi_of_intervals_twice_too_wide_in_closed_form():
    # ISQ = 4q and 8q against 2q and 4q: residuals 4 + 16, spread 4 + 4.
    y, intervals, y_pred = two_sizes(2.0)
    assert r2_sqi(y, intervals, y_pred=y_pred) == pytest.approx(1 - 20 / 8)
    assert tau_sqi(y, intervals, y_pred=y_pred) == 1.0


def test_r2_sqi_takes_the_widths_as_what_is_explained():
    rng = np.random.default_rng(0)
    widths = rng.uniform(1, 2, 1000)
    y = widths * rng.standard_normal(1000)
    bins = np.array_split(np.argsort(widths), 10)
    isq = [np.median(widths[b]) for b in bins]
    csq = [np.quantile(np.abs(y[b]), 0.8) for b in bins]
    value = r2_sqi(y, (-widths / 2, widths / 2), y_pred=0 * y, coverage=0.8)
    assert value == pytest.approx(r2_score(isq, 2 * np.array(csq)))


def test_the_middle_of_the_edges_instead_of_the_median():
    widths = np.array([1.0, 1.0, 2.0, 4.0, 6.0, 10.0])
    scores = widths / 2
    # Edges 1, 3 and 10; middles 2 and 6.5. Medians of the scores: 0.5 and 3.
    value = r2_sqi(
        scores, (-widths / 2, widths / 2), y_pred=0 * widths, coverage=0.5, n_bins=2,
        bin_width="midpoint", min_bin_size=1,
    )  # fmt: skip
    assert value == pytest.approx(r2_score([2.0, 6.5], [1.0, 6.0]))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_r2_sqi_at_extreme_units(size):
    y, intervals, y_pred = two_sizes(2.0)
    ends = (intervals.lower * size, intervals.upper * size)
    assert r2_sqi(y * size, ends, y_pred=y_pred, coverage=0.5) == pytest.approx(-1.5)


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize("centre", [1.0, 1e6])
def test_constant_radii_are_constant_widths_in_spite_of_rounding(measure, centre):
    rng = np.random.default_rng(0)
    y_pred = centre * rng.standard_normal(1000)
    intervals = Intervals(y_pred - 1.7, y_pred + 1.7, 0.9)
    assert len(np.unique(intervals.width)) > 1
    with pytest.warns(UndefinedMetricWarning, match=rf"{measure.__name__} is NaN: all 1000 widths"):
        assert isnan(measure(y_pred + rng.standard_normal(1000), intervals, y_pred=y_pred))


def test_no_order_of_scores_is_nan_with_the_reason():
    y, ends = np.ones(4), (-np.arange(1.0, 5), np.arange(1.0, 5))
    with pytest.warns(UndefinedMetricWarning, match=r"tau_si is NaN: all 4 scores are equal \(1\)"):
        assert isnan(tau_si(y, ends))
    with pytest.warns(UndefinedMetricWarning, match="the score quantile is 1 in every bin"):
        assert isnan(tau_sqi(y, ends, coverage=0.9, n_bins=2, min_bin_size=1))


def test_too_few_rows_are_nan_with_the_reason():
    with pytest.warns(UndefinedMetricWarning, match="1 rows are left, and 2 are needed"):
        assert isnan(tau_si([1.0], ([0.0], [1.0])))
    ends = (-np.arange(1.0, 20), np.arange(1.0, 20))
    for measure in tau_sqi, r2_sqi:
        with (
            pytest.warns(SparseBinsWarning),
            pytest.warns(UndefinedMetricWarning, match="19 rows leave fewer than two bins"),
        ):
            assert isnan(measure(np.arange(19.0), ends, coverage=0.9))


def test_undefined_warnings_point_at_the_caller():
    for measure in ALL:
        with pytest.warns(UndefinedMetricWarning) as caught:
            measure([0.0, 1.0], Intervals(np.zeros(2), np.ones(2), 0.9))
        assert caught[0].filename == __file__
