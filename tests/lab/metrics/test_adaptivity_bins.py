"""The bins of the adaptivity measures: their edges, small ones, empty ones, and rounding."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from calliper.lab.metrics import SparseBinsWarning, r2_sqi, tau_sqi
from calliper.lab.metrics._adaptivity import merge, quantile_edges, tie_rounding

INF = float("inf")
ignore_warnings = pytest.mark.filterwarnings("ignore::UserWarning")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(2, 12))
def test_edges_are_exact_quantiles(values, n_bins):
    ordered = np.sort(np.array(values, float))
    edges = quantile_edges(ordered, n_bins)
    np.testing.assert_allclose(edges, np.quantile(ordered, np.arange(n_bins + 1) / n_bins))
    assert (np.diff(edges) >= 0).all()


def test_an_edge_on_a_value_is_that_value():
    ordered = np.arange(109.0)
    assert np.quantile(ordered, 7 / 12) > 63, "the reason for edges in integer arithmetic"
    np.testing.assert_array_equal(quantile_edges(ordered, 12), np.arange(0.0, 109.0, 9.0))


def test_edges_beside_infinity():
    edges = quantile_edges(np.array([1.0, 2.0, INF, INF]), 6)
    np.testing.assert_array_equal(edges, [1.0, 1.5, 2.0, INF, INF, INF, INF])


@ignore_warnings
@pytest.mark.parametrize(
    ("count", "smallest", "first", "last"),
    [
        ([5, 5, 5], 5, [0, 1, 2], [0, 1, 2]),
        ([3, 3, 5], 5, [0, 2], [1, 2]),
        ([5, 5, 4], 5, [0, 1], [0, 2]),
        ([1, 1, 1], 5, [0], [2]),
        ([4, 9, 1, 1], 5, [0], [3]),
    ],
)
def test_small_bins_join_the_next_and_the_rest_joins_below(count, smallest, first, last):
    got = merge(np.array(count), smallest)
    assert [list(part) for part in got] == [first, last]


def test_empty_bins_are_neither_sparse_nor_part_of_their_neighbour():
    widths = np.repeat([1.0, 9.0], 10)
    # Of 60 edges three fall into the gap: 11/60, 30/60 and 49/60 of the way from 1 to 9.
    isq = [(1 + 1 + 8 * 11 / 60) / 2, (1 + 8 * 49 / 60 + 9) / 2]
    options = {"y_pred": 0 * widths, "coverage": 0.5, "n_bins": 60, "min_bin_size": 5}
    ends = (-widths / 2, widths / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tau_sqi(widths, ends, **options) == 1.0
        value = r2_sqi(widths, ends, bin_width="midpoint", **options)
    assert value == pytest.approx(r2_score(isq, [2.0, 18.0]))


def test_the_middle_of_merged_bins_spans_their_edges():
    widths = np.arange(1.0, 10.0)
    with pytest.warns(SparseBinsWarning):
        value = r2_sqi(
            widths / 2, (-widths / 2, widths / 2), y_pred=0 * widths, coverage=0.5, n_bins=4,
            bin_width="midpoint", min_bin_size=4,
        )  # fmt: skip
    # Edges 1, 3, 5, 7, 9 hold 2, 2, 2 and 3 points: joined to [1, 5) and [5, 9].
    assert value == pytest.approx(r2_score([3.0, 7.0], [2.5, 7.0]))


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
def test_merged_bins_are_said_with_numbers_where_the_caller_stands(measure):
    radius = np.arange(1.0, 101.0)
    message = r"10 of 10 bins .* fewer than 40 points.* into 2\. Pass more test points \(400 fill"
    with pytest.warns(SparseBinsWarning, match=message) as caught:
        measure(radius, (-radius, radius), coverage=0.95)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
def test_full_bins_are_silent_and_the_limit_is_exact(measure):
    radius = np.arange(1.0, 401.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(radius, (-radius, radius), coverage=0.95)
    with pytest.warns(SparseBinsWarning, match="1 of 10 bins"):
        measure(radius[1:], (-radius[1:], radius[1:]), coverage=0.95)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_what_differs_by_more_than_rounding_stays_apart(size):
    values = size * np.array([1.0 + 1e-13, 1.0, 1.0 + 1e-14])
    np.testing.assert_array_equal(tie_rounding(values, values), values)


def test_rounding_ties_keep_places_and_infinities():
    values = np.array([INF, 3.0, 1.0 + 2e-16, 1.0, INF])
    np.testing.assert_array_equal(
        tie_rounding(values, np.array([0.0, 3, 1, 1, 0])), [INF, 3, 1, 1, INF]
    )
