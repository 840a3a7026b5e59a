"""The adaptivity measures beside infinite intervals, and what they refuse."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning

from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.metrics import r2_sqi, tau_si, tau_sqi
from cases.adaptivity import two_sizes

INF = float("inf")
ALL = [tau_si, tau_sqi, r2_sqi]


def with_infinite():
    radius = np.array([1.0, 2.0, 3.0, INF])
    return np.array([1.0, 2.0, 3.0, 0.5]), Intervals(-radius, radius, 0.5), np.zeros(4)


def test_kept_infinite_intervals_rank_as_the_widest():
    y, intervals, y_pred = with_infinite()
    assert tau_si(y, intervals, y_pred=y_pred) == pytest.approx(0.0)
    options = {"y_pred": y_pred, "n_bins": 4, "min_bin_size": 1}
    assert tau_sqi(y, intervals, **options) == 0.0


def test_infinite_intervals_that_fill_a_bin_are_not_mixed_with_finite_ones():
    radius = np.repeat([1.0, 2.0, INF], [20, 20, 60])
    y = np.repeat([1.0, 2.0, 9.0], [20, 20, 60])
    # Mixed with the second kind, the score quantile of the last bin would still be 9; so ask
    # for the smallest scores there.
    options = {"y_pred": 0 * y, "coverage": 0.05, "min_bin_size": 1, "n_bins": 5}
    assert tau_sqi(y, (-radius, radius), **options) == 1.0


def test_capped_infinite_intervals_have_twice_the_largest_score():
    y, intervals, y_pred = with_infinite()
    capped = {"infinite": "cap", "max_score": 1.5, "y_pred": y_pred}
    radius = np.array([1.0, 2.0, 3.0, 1.5])
    options = {"n_bins": 4, "min_bin_size": 1, "coverage": 0.5}
    assert tau_si(y, intervals, **capped) == tau_si(y, (-radius, radius), y_pred=y_pred)
    for measure in tau_sqi, r2_sqi:
        value = measure(y, intervals, **capped, **options)
        assert value == measure(y, (-radius, radius), y_pred=y_pred, **options)


def test_dropped_infinite_intervals_need_no_prediction():
    y, intervals, y_pred = with_infinite()
    assert tau_si(y, intervals, infinite="drop") == pytest.approx(1.0)
    value = tau_si(y, intervals, infinite="drop", y_pred=y_pred)
    assert value == tau_si(y[:3], (intervals.lower[:3], intervals.upper[:3]))
    for measure in tau_sqi, r2_sqi:
        options = {"n_bins": 3, "min_bin_size": 1, "coverage": 0.5}
        assert measure(y, intervals, infinite="drop", **options) == measure(
            y[:3], (intervals.lower[:3], intervals.upper[:3]), **options
        )


@pytest.mark.parametrize("measure", ALL)
def test_nothing_left_is_nan(measure):
    ends = Intervals(np.full(3, -INF), np.full(3, INF), 0.9)
    with pytest.warns(UndefinedMetricWarning, match=f"{measure.__name__} is NaN: 0 "):
        assert isnan(measure([1.0, 2.0, 3.0], ends, infinite="drop"))


def test_a_few_infinite_intervals_do_not_undo_r2_sqi_but_many_do():
    y, intervals, y_pred = two_sizes(1.0)
    upper = intervals.upper.copy()
    upper[-10:] = INF
    assert r2_sqi(y, Intervals(-upper, upper, 0.5), y_pred=y_pred) == pytest.approx(1.0, abs=0.1)
    upper[100:] = INF
    message = "r2_sqi is NaN: the size of 1 of 2 bins is infinite; use 'cap' or 'drop'"
    with pytest.warns(UndefinedMetricWarning, match=message):
        assert isnan(r2_sqi(y, Intervals(-upper, upper, 0.5), y_pred=y_pred))


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize("options", [{}, {"infinite": "cap", "max_score": 1.0}])
def test_no_middle_no_prediction(measure, options):
    y, intervals, _ = with_infinite()
    message = "y_pred is needed: 1 of 4 intervals are infinite, the first at position 3.*'drop'"
    with pytest.raises(CalliperError, match=message):
        measure(y, intervals, **options)


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"infinite": "cap"}, "needed for infinite='cap'.*the largest calibration score"),
        ({"infinite": "cap", "max_score": 0.0}, "positive and finite; got 0.0"),
        ({"infinite": "cap", "max_score": INF}, "positive and finite; got inf"),
        ({"infinite": "cap", "max_score": float("nan")}, "positive and finite; got nan"),
        ({"max_score": 1.0}, "used nowhere else; got infinite='keep' and max_score=1.0"),
        ({"infinite": "clip"}, "infinite must be 'keep', 'cap' or 'drop'; got 'clip'"),
        ({"y_pred": [0.0]}, "y_pred must .* got 1 values for 3 rows"),
        ({"y_pred": [0.0, np.nan, 0.0]}, "y_pred must be finite"),
        ({"y": [0.0]}, "y must .* got 1 values for 3 rows"),
        ({"intervals": ([], [])}, "at least one row; got 0"),
        (
            {"intervals": Intervals(np.zeros((3, 2)), np.ones((3, 2)), (0.8, 0.9))},
            r"one level; got 2 \(0.8, 0.9\): pass intervals.at\(level\)",
        ),
    ],
)
def test_bad_input(measure, options, message):
    good = {"y": np.arange(3.0), "intervals": Intervals(-np.arange(3.0), np.arange(3.0), 0.9)}
    with pytest.raises(CalliperError, match=message):
        measure(**(good | options))


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 1}, "n_bins must be an integer of at least 2; got 1"),
        ({"n_bins": 2.0}, "n_bins must be an integer of at least 2; got 2.0"),
        ({"min_bin_size": 0}, "min_bin_size must be an integer of at least 1; got 0"),
        ({"min_bin_size": True}, "min_bin_size must be an integer of at least 1; got True"),
        ({"coverage": 90}, "strictly between 0 and 1; got 90. If it is a percentage"),
        ({"coverage": None}, "is not known: pass coverage="),
    ],
)
def test_bad_bins(measure, options, message):
    radius = np.arange(3.0)
    with pytest.raises(CalliperError, match=message):
        measure(radius, (-radius, radius), **({"coverage": 0.9} | options))


def test_bad_bin_width():
    radius = np.arange(3.0)
    with pytest.raises(CalliperError, match="bin_width must be 'median' or 'midpoint'; got 'mean'"):
        r2_sqi(radius, (-radius, radius), coverage=0.9, bin_width="mean")


def test_the_level_of_the_intervals_is_the_default():
    y, intervals, y_pred = two_sizes(1.0)
    explicit = r2_sqi(y, tuple(intervals), y_pred=y_pred, coverage=0.5)
    assert r2_sqi(y, intervals, y_pred=y_pred) == explicit
    assert r2_sqi(y, intervals, y_pred=y_pred, coverage=0.8) != explicit
