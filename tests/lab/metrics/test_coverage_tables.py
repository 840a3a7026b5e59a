"""Coverage bin by bin: against the definition, with ties, infinite widths, tiny groups."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper.exceptions import CalliperError
from calliper.lab.metrics import (
    CoverageTable,
    SparseBinsWarning,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
    empirical_coverage,
)
from calliper.lab.metrics._tables import ONE_SIGMA_TAIL, binomial_bounds
from oracles import metrics as metric_oracles

INF = float("inf")
ignore_warnings = pytest.mark.filterwarnings("ignore::calliper.lab.metrics.SparseBinsWarning")


@st.composite
def problems(draw):
    """Targets, ends in multiples of 1/4 and values with few or many ties, some widths infinite."""
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    y = rng.integers(-8, 8, n) / 4
    radius = rng.integers(1, draw(st.sampled_from([2, 4, 100])), n) / 4
    radius[rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = INF
    return y, (-radius, radius), rng.integers(0, draw(st.sampled_from([1, 3, 100])), n) * 1.0


def assert_is_table_of(table, bins, covered, widths):
    assert len(table.labels) == len(set(bins)) == len(table.n)
    for place in sorted(set(bins)):
        rows = np.array(bins) == place
        assert table.n[place] == rows.sum()
        assert table.coverage[place] == pytest.approx(covered[rows].mean())
        assert table.mean_width[place] == pytest.approx(widths[rows].mean())
    assert table.worst == min(table.coverage)
    assert np.average(table.coverage, weights=table.n) == pytest.approx(covered.mean())


@ignore_warnings
@given(problems(), st.integers(1, 12))
def test_tables_equal_the_definition(problem, n_bins):
    y, ends, values = problem
    covered, widths = np.array(metric_oracles.contained(y, *ends)), ends[1] - ends[0]
    table = coverage_by_width(y, ends, n_bins=n_bins)
    assert_is_table_of(table, metric_oracles.quantile_bins(widths, n_bins), covered, widths)
    table = coverage_by_value(y, ends, values, n_bins=n_bins)
    assert_is_table_of(table, metric_oracles.quantile_bins(values, n_bins), covered, widths)
    table = coverage_by_group(y, ends, values.astype(int))
    places = [sorted(set(values)).index(value) for value in values]
    assert_is_table_of(table, places, covered, widths)


@ignore_warnings
@given(problems(), st.integers(1, 12))
def test_edges_say_which_bin_a_value_is_in(problem, n_bins):
    y, ends, values = problem
    table = coverage_by_value(y, ends, values, n_bins=n_bins)
    place = np.searchsorted(table.edges[1:-1], values, side="right")
    np.testing.assert_array_equal(np.bincount(place), table.n)
    assert (table.edges[0], table.edges[-1]) == (values.min(), values.max())


def test_bins_hold_equal_numbers_without_ties():
    rng = np.random.default_rng(0)
    radius = rng.exponential(size=1003)
    table = coverage_by_width(rng.normal(size=1003), (-radius, radius))
    assert set(table.n) == {100, 101}


def test_bounds_invert_the_binomial_law():
    for n in (1, 2, 7, 30):
        hits = np.arange(n + 1)
        lower, upper = binomial_bounds(hits, np.full(n + 1, n))
        assert lower[0] == 0 and upper[-1] == 1
        for k in hits[1:]:
            assert metric_oracles.at_least(k, n, lower[k]) == pytest.approx(ONE_SIGMA_TAIL)
        for k in hits[:-1]:
            assert 1 - metric_oracles.at_least(k + 1, n, upper[k]) == pytest.approx(ONE_SIGMA_TAIL)


def test_bounds_hold_two_times_of_three():
    rng = np.random.default_rng(0)
    for p in (0.5, 0.9):
        hits = rng.binomial(50, p, size=4000)
        lower, upper = binomial_bounds(hits, np.full(4000, 50))
        held = np.mean((lower <= p) & (p <= upper))
        assert 0.6827 - 4 * np.sqrt(0.22 / 4000) < held < 0.85


def test_constant_widths_up_to_rounding_are_one_bin():
    y_pred = np.random.default_rng(0).normal(size=500) * 1e3
    ends = (y_pred - 0.3, y_pred + 0.3)
    assert len(set(ends[1] - ends[0])) > 1, "rounding makes widths differ"
    with pytest.warns(SparseBinsWarning, match=r"all 500 widths are equal \(0\.6\)"):
        table = coverage_by_width(y_pred, ends)
    assert table.n.tolist() == [500] and table.worst == 1.0 and table.labels == ("0.6",)


def test_all_infinite_widths_are_one_bin():
    with pytest.warns(SparseBinsWarning, match=r"all 30 widths are equal \(inf\)"):
        table = coverage_by_width(np.zeros(30), (np.full(30, -INF), np.full(30, INF)))
    assert table.mean_width.tolist() == [INF] and table.coverage.tolist() == [1.0]


def test_infinite_widths_are_not_lumped_with_finite_ones():
    radius = np.append(np.linspace(1, 2, 400), np.full(40, INF))
    table = coverage_by_width(np.zeros(440), (-radius, radius))
    assert table.n[-1] == 40 and np.isinf(table.mean_width).tolist() == [False] * 10 + [True]
    assert table.labels[-1] == "inf"


def test_a_rare_value_is_not_lumped_with_a_common_one():
    values = np.repeat([0.0, 1.0], [475, 25])
    table = coverage_by_value(values, (values - 1, values + 1), values)
    assert table.n.tolist() == [475, 25] and table.labels == ("0 to 1", "1")


def test_a_group_of_one_is_kept_and_named():
    y, groups = np.zeros(41), ["a"] * 40 + ["rare"]
    with pytest.warns(SparseBinsWarning, match=r"1 of 2 groups .* 20 points.*\('rare'\) 1:"):
        table = coverage_by_group(y, (y - 1, y + 1), groups)
    assert table.labels == ("a", "rare") and table.n.tolist() == [40, 1]
    assert table.lower[1] == pytest.approx(ONE_SIGMA_TAIL) and table.upper[1] == 1.0


def test_few_points_are_said_to_say_little():
    y = np.arange(15.0)
    with pytest.warns(SparseBinsWarning, match=r"3 of 3 bins of the values .* fewer than 20"):
        assert coverage_by_value(y, (y - 1, y + 1), y, n_bins=3).n.tolist() == [5, 5, 5]


def test_enough_points_in_every_bin_need_no_warning():
    y = np.arange(200.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert coverage_by_value(y, (y - 1, y + 1), y).n.tolist() == [20] * 10


def test_labels_tell_close_edges_apart():
    values = 1000 + np.arange(100) / 1e4
    table = coverage_by_value(values, (values - 1, values + 1), values, n_bins=4)
    assert len(set(table.labels)) == 4
    assert table.labels[0] == "1000 to 1000.003"


def test_frame_and_gap():
    y = np.repeat([0.0, 9.0], [90, 10])
    table = coverage_by_group(y, (y * 0 - 1, y * 0 + 1), np.repeat(["a", "b"], [60, 40]))
    frame = table.to_frame()
    assert frame.index.tolist() == ["a", "b"]
    assert frame["coverage"].tolist() == [1.0, 0.75] and frame["n"].tolist() == [60, 40]
    assert table.gap(0.9) == pytest.approx(0.125)
    assert table.gap(0.9, weighted=True) == pytest.approx(0.12)
    assert isinstance(table, CoverageTable)
    assert empirical_coverage(y, (y * 0 - 1, y * 0 + 1)) == 0.9


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 29, r"groups has 29 labels for 30 rows"),
        (["a", None] * 15, r"15 of 30 values are missing \(first: (None|nan) at position 1"),
        ([1.0, np.nan] * 15, r"15 of 30 values are missing \(first: (None|nan) at position 1"),
        (np.array([1, "a"] * 15, dtype=object), "labels of one kind"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(CalliperError, match=message):
        coverage_by_group(np.zeros(30), (np.zeros(30), np.ones(30)), groups)


def test_bad_values_and_bins_are_refused():
    ends = (np.zeros(30), np.ones(30))
    with pytest.raises(CalliperError, match=r"values must be finite, but 1 of 30"):
        coverage_by_value(np.zeros(30), ends, np.append(np.zeros(29), np.inf))
    with pytest.raises(CalliperError, match="some rows must have a value; all 30 are missing"):
        coverage_by_value(np.zeros(30), ends, np.full(30, np.nan))
    with pytest.raises(CalliperError, match=r"values must .* got 3 values for 30 rows"):
        coverage_by_value(np.zeros(30), ends, [1, 2, 3])
    for wrong in (0, 2.5, True):
        with pytest.raises(CalliperError, match="n_bins must be an integer of at least 1"):
            coverage_by_width(np.zeros(30), ends, n_bins=wrong)


@pytest.mark.parametrize("kind", [float, object])
def test_rows_without_a_value_have_a_bin_of_their_own(kind):
    values = np.arange(200.0)
    y = np.where(values < 150, 0.0, 9.0)
    gap = np.nan if kind is float else None
    column = np.array([*values, *[gap] * 50], dtype=kind)[::-1]
    ends = (np.full(250, -1.0), np.ones(250))
    found = coverage_by_value(np.append(y, np.repeat([0.0, 9.0], 25))[::-1], ends, column, n_bins=4)
    known = coverage_by_value(y, (ends[0][:200], ends[1][:200]), values, n_bins=4)
    assert found.labels == (*known.labels, "missing") and found.n[-1] == 50
    np.testing.assert_array_equal(found.coverage, [*known.coverage, 0.5])
    np.testing.assert_array_equal(found.edges, [*known.edges, np.nan])


def test_a_table_prints_a_line_a_bin_and_no_more_than_some():
    y = np.zeros(3000)
    few, many = (
        coverage_by_group(y, (y - 1, y + 2), np.repeat(np.arange(count), 3000 // count))
        for count in (3, 100)
    )
    assert repr(few).splitlines() == [
        "CoverageTable of 3 bins, the worst 1",
        "bin      n  coverage  lower  upper  mean_width",
        "0    1,000         1  0.998      1           3",
        "1    1,000         1  0.998      1           3",
        "2    1,000         1  0.998      1           3",
    ]
    assert len(repr(many).splitlines()) == 13 and "…" in repr(many)
    assert many._repr_html_().count("<tr>") == 12
    tagged = coverage_by_group(y, (y - 1, y + 1), np.repeat(["<b>", "c"], 1500))
    assert "<td>&lt;b&gt;</td>" in tagged._repr_html_()
