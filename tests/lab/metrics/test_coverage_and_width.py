"""Coverage, widths and what every measure accepts as intervals."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper import metrics
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.metrics import empirical_coverage, fraction_infinite, mean_width

INF = float("inf")
LEVELS = Intervals(np.zeros((3, 2)), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, INF]]), (0.8, 0.9))


def test_the_public_names_are_sorted_and_exist():
    assert metrics.__all__ == sorted(metrics.__all__, key=lambda n: (not n.isupper(), n))
    assert all(hasattr(metrics, name) for name in metrics.__all__)


def test_ends_belong_to_the_interval():
    ends = ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    assert empirical_coverage([0.0, 1.0, 1.0 + 1e-12, -1e-12], ends) == 0.5


def test_an_infinite_interval_covers():
    assert empirical_coverage([1e300, 0.0], ([-INF, 1.0], [INF, 2.0])) == 0.5


def test_several_levels_give_a_value_each():
    np.testing.assert_array_equal(empirical_coverage([1.5, 3.5, 6.0], LEVELS), [0.0, 1.0])
    np.testing.assert_array_equal(mean_width(LEVELS), [3.0, INF])
    np.testing.assert_array_equal(mean_width(LEVELS, half=True), [1.5, INF])
    np.testing.assert_array_equal(fraction_infinite(LEVELS), [0.0, 1 / 3])


def test_one_level_gives_a_plain_number():
    one = LEVELS.at(0.8)
    values = empirical_coverage([1.0, 1.0, 1.0], one), mean_width(one), fraction_infinite(one)
    assert values == (1.0, 3.0, 0.0)
    assert all(type(value) is float for value in values)


def test_one_infinite_end_makes_the_mean_width_infinite():
    bound = ([0.0, 0.0], [1.0, INF])
    assert mean_width(bound) == mean_width(bound, half=True) == INF
    assert fraction_infinite(bound) == 0.5


@given(st.lists(st.tuples(*[st.integers(-99, 99)] * 3), min_size=1), st.integers(-9, 9))
def test_scaling_and_shifting_y_and_intervals(rows, shift):
    y, one, two = np.array(rows, float).T
    lower, upper = np.minimum(one, two), np.maximum(one, two)
    moved = (4 * lower + shift, 4 * upper + shift)
    assert empirical_coverage(4 * y + shift, moved) == empirical_coverage(y, (lower, upper))
    assert mean_width(moved) == 4 * mean_width((lower, upper))
    back = slice(None, None, -1)
    assert empirical_coverage(y[back], (lower[back], upper[back])) == empirical_coverage(
        y, (lower, upper)
    )


@pytest.mark.parametrize(
    "intervals",
    [
        ([0.0, 1.0, 2.0], [1.0, 3.0, 5.0]),
        [[0.0, 1.0, 2.0], [1.0, 3.0, 5.0]],
        np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 5.0]]),
        Intervals(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])),
        Intervals(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])).to_frame(),
    ],
    ids=["pair", "lists", "array", "Intervals", "frame"],
)
def test_whatever_holds_two_ends_is_taken(intervals):
    assert mean_width(intervals) == 2.0


@pytest.mark.parametrize(
    ("intervals", "got"),
    [
        (np.zeros((5, 2)), "ndarray of shape (5, 2)"),
        (np.zeros((2, 2)), "ndarray of shape (2, 2)"),
        (np.zeros((3, 4)), "ndarray of shape (3, 4)"),
        (np.zeros(4), "ndarray of shape (4,)"),
        (3.0, "float"),
        (("a", "b"), "tuple"),
        (pd.DataFrame({"low": [0.0], "high": [1.0]}), "DataFrame"),
    ],
)
def test_what_holds_no_two_ends_is_refused(intervals, got):
    remedy = "targets, pass them first" if np.ndim(intervals) == 1 else "pass (a[:, 0], a[:, 1])"
    remedy = "pass (a[:, 0], a[:, 1])" if isinstance(intervals, tuple) else remedy
    message = rf"pair \(lower, upper\) of arrays; got {re.escape(got)}\. .*{re.escape(remedy)}"
    with pytest.raises(CalliperError, match=message):
        mean_width(intervals)


@pytest.mark.parametrize("measure", [mean_width, fraction_infinite])
def test_no_rows_no_mean(measure):
    with pytest.raises(CalliperError, match="at least one row; got 0"):
        measure(([], []))


def test_targets_are_checked():
    with pytest.raises(CalliperError, match=r"y must .* got 2 values for 1 rows"):
        empirical_coverage([0.0, 1.0], ([0.0], [1.0]))
    with pytest.raises(CalliperError, match=r"y must be finite, but 1 of 1 .* at position 0"):
        empirical_coverage([np.nan], ([0.0], [1.0]))
