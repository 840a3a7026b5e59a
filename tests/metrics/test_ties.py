"""Values that differ by rounding only are made equal, whatever their magnitudes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calliper.intervals import Intervals
from calliper.metrics._adaptivity import sort_widths, sort_with_ties, tie_rounding

EPS = np.finfo(float).eps


def one_by_one(values, magnitude):
    """From the smallest up: a value joins the one before it unless it is clearly larger."""
    order = np.argsort(values)
    ordered = [values[order[0]]]
    for before, here in pairwise(order):
        slack = 4 * EPS * magnitude[here] + 4 * EPS * magnitude[before]
        apart = values[here] > values[before] + slack
        ordered.append(values[here] if apart else ordered[-1])
    return order, ordered


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([0, 1e-3, 1.0, 1e6]))
def test_only_the_magnitudes_of_close_values_are_looked_up(seed, n, largest):
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 40, n) * EPS * rng.choice([0.5, 1.0, 64.0])
    values = rng.choice([0.0, 1.0, 3.0, np.inf], n) + steps
    magnitude = largest * rng.choice([0.0, 0.3, 1.0, 100.0], n)
    order, ordered = sort_with_ties(values, magnitude)
    expected_order, expected = one_by_one(values, magnitude)
    np.testing.assert_array_equal(order, expected_order)
    np.testing.assert_array_equal(ordered, expected)
    np.testing.assert_array_equal(tie_rounding(values, magnitude)[order], expected)


def test_widths_of_a_constant_radius_are_one_width():
    middle = 1e3 * np.random.default_rng(0).normal(size=200)
    middle[:3] = 0.0
    intervals = Intervals(middle - 0.3, middle + 0.3)
    assert len(set(intervals.width)) > 1
    assert len(set(sort_widths(intervals)[1])) == 1
