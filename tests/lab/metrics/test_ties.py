"""Values that differ by rounding only are made equal, whatever their magnitudes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.exceptions import UndefinedMetricWarning

from calliper.intervals import Intervals
from calliper.lab.metrics import tau_si
from calliper.lab.metrics._adaptivity import sort_widths, sort_with_ties, tie_rounding

EPS = np.finfo(float).eps


def one_by_one(values, magnitude):
    """From the smallest up: a value joins the first of its ties unless it is clearly larger."""
    order = np.argsort(values)
    first, ordered = order[0], []
    for here in order:
        slack = EPS * (magnitude[here] + magnitude[first] + 6 * values[first])
        if values[here] > values[first] + slack:
            first = here
        ordered.append(values[first])
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


@pytest.mark.parametrize("offset", [1e12, 1e14])
@pytest.mark.parametrize("n", [200, 2000])
def test_targets_far_from_zero_keep_their_ranks(offset, n):
    """Ties do not spread step by step: what is left is the rounding of the targets themselves."""
    rng = np.random.default_rng(0)
    spread = rng.uniform(1, 5, n)
    centre = offset + 10 * rng.normal(size=n)
    y, lower, upper = centre + spread * rng.normal(size=n), centre - spread, centre + spread
    exact = kendalltau(upper - lower, np.abs(y - centre)).statistic
    assert abs(tau_si(y, (lower, upper), y_pred=centre) - exact) < 0.01
    with pytest.warns(UndefinedMetricWarning, match="widths are equal"):
        tau_si(y, (centre - 0.3, centre + 0.3), y_pred=centre)
