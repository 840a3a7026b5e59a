"""The bootstrap: its error is the spread over fresh draws, and rows stay together."""

from __future__ import annotations

from functools import cache, partial, wraps
from math import isnan

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.tree import DecisionTreeClassifier

from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.metrics import (
    Estimate,
    bootstrap,
    empirical_coverage,
    excess_risk_of_target_coverage,
    interval_score,
    mean_width,
    tau_si,
    worst_slab_coverage,
)

INF = float("inf")


def draw(n, seed):
    rng = np.random.default_rng(seed)
    radius = rng.uniform(1, 3, n)
    return radius * rng.normal(size=n), Intervals(-1.5 * radius, 1.5 * radius, 0.9)


@cache
def spread_over_fresh_draws(metric):
    return np.std([metric(*draw(300, seed)) for seed in range(300)])


@pytest.mark.parametrize("metric", [empirical_coverage, interval_score, tau_si])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.long
def test_the_error_is_the_spread_over_fresh_draws(metric, replace):
    errors = [
        bootstrap(metric, *draw(300, seed), replace=replace, random_state=seed).error
        for seed in range(6)
    ]
    assert np.mean(errors) == pytest.approx(spread_over_fresh_draws(metric), rel=0.2)


def test_bounds_and_error_are_percentiles_of_the_resamples():
    y, intervals = draw(100, 0)
    seen = []

    def metric(y, intervals):
        seen.append(interval_score(y, intervals))
        return seen[-1]

    estimate = bootstrap(metric, y, intervals, n_resamples=1000, random_state=0)
    value, *resamples = seen
    assert (estimate.value, estimate.n_resamples, estimate.n_undefined) == (value, 1000, 0)
    assert [estimate.lower, estimate.upper] == pytest.approx(
        np.percentile(resamples, [15.87, 84.13]), rel=1e-3
    )
    assert estimate.error == (estimate.upper - estimate.lower) / 2
    assert isinstance(estimate, Estimate)


def test_everything_with_a_row_for_each_target_is_drawn_together():
    n = 50
    number = np.arange(n)
    frame = pd.DataFrame({"row": number}, index=np.arange(n)[::-1])

    def metric(y, intervals, X, groups, *, y_pred, level):
        for part in (intervals.lower, X["row"], [int(name[1:]) for name in groups], y_pred):
            np.testing.assert_array_equal(part, y)
        assert level == 0.5
        return float(len(set(y)))

    estimate = bootstrap(
        metric,
        number.astype(float),
        (number, number + 1),
        frame,
        [f"g{row}" for row in number],
        y_pred=number.tolist(),
        level=0.5,
        n_resamples=20,
    )
    assert estimate.value == n
    assert estimate.upper < n, "with replacement, some rows are missing"


def test_a_measure_of_widths_alone_gets_no_targets():
    y, intervals = draw(200, 0)
    estimate = bootstrap(mean_width, y, intervals, random_state=0)
    assert estimate.value == mean_width(intervals)
    assert estimate.error == pytest.approx(np.std(intervals.width) / np.sqrt(200), rel=0.2)


def test_measures_that_split_rows_never_get_a_row_twice():
    y, intervals = draw(400, 0)
    X = np.arange(400.0)

    class Watching(DecisionTreeClassifier):
        def fit(self, X, y):
            assert len(set(X[:, 0])) == len(X) <= 320
            return super().fit(X, y)

    for metric, options in (
        (worst_slab_coverage, {"n_directions": 1}),
        (excess_risk_of_target_coverage, {"classifier": Watching(max_depth=1)}),
    ):
        options |= {"n_resamples": 20, "random_state": 0}
        estimate = bootstrap(metric, y, intervals, X, **options)
        again = bootstrap(metric, y, intervals, X, **options)
        assert estimate == again and estimate.error > 0


@pytest.mark.parametrize("wrap", [partial, lambda metric, **kw: decorated(partial(metric, **kw))])
def test_a_partial_of_a_measure_that_splits_rows_is_one(wrap):
    y, intervals = draw(200, 0)
    X, options = np.arange(200.0), {"n_resamples": 10, "random_state": 0}
    wrapped = wrap(worst_slab_coverage, n_directions=1, slab=0.2)
    plain = bootstrap(worst_slab_coverage, y, intervals, X, n_directions=1, slab=0.2, **options)
    assert bootstrap(wrapped, y, intervals, X, **options) == plain


def decorated(function):
    @wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def test_an_ensemble_is_no_list_of_rows():
    y, intervals = draw(40, 0)
    forest = RandomForestClassifier(40, max_depth=1, random_state=0)
    options = {"classifier": forest, "n_folds": 2, "n_resamples": 2, "random_state": 0}
    estimate = bootstrap(excess_risk_of_target_coverage, y, intervals, y, **options)
    assert estimate.n_resamples == 2
    # Fitted, it has as many entries as there are rows.
    forest.fit(y[:, None], y > 0)
    assert bootstrap(excess_risk_of_target_coverage, y, intervals, y, **options) == estimate


def test_undefined_resamples_are_counted():
    y, intervals = draw(30, 0)

    def sometimes(y, intervals):
        return float("nan") if 0 in y else 1.0

    y[0] = 0.0
    with pytest.warns(
        UndefinedMetricWarning, match=r"of 100 resamples have no value: the error is unknown"
    ):
        estimate = bootstrap(sometimes, y, intervals, n_resamples=100, random_state=0)
    assert isnan(estimate.value) and isnan(estimate.error) and 50 < estimate.n_undefined < 75
    with pytest.warns(UndefinedMetricWarning, match="the error is that of the others"):
        estimate = bootstrap(
            lambda y, intervals: 1.0 if 0 in y else float("nan"),
            y,
            intervals,
            n_resamples=100,
            random_state=0,
        )
    assert estimate.value == 1.0 and estimate.error == 0.0 and 25 < estimate.n_undefined < 50


def test_an_infinite_value_has_no_error():
    y = np.zeros(30)
    intervals = (y - 1, np.append(np.ones(29), INF))
    estimate = bootstrap(mean_width, y, intervals, n_resamples=10, random_state=0)
    assert estimate.value == INF and isnan(estimate.error)


def test_bad_input_is_refused():
    y, intervals = draw(30, 0)
    with pytest.raises(CalliperError, match=r"y must have a row for each of the 30 intervals"):
        bootstrap(empirical_coverage, y[:3], intervals)
    with pytest.raises(CalliperError, match=r"rows\[0\] must have a row for each.*; got 3"):
        bootstrap(worst_slab_coverage, y, intervals, np.zeros((3, 2)))
    two = Intervals(np.zeros((30, 2)), np.ones((30, 2)), (0.8, 0.9))
    with pytest.raises(CalliperError, match=r"one level; got 2 \(0\.8, 0\.9\): pass intervals\.at"):
        bootstrap(empirical_coverage, y, two)
    with pytest.raises(CalliperError, match="n_resamples must be an integer of at least 2"):
        bootstrap(empirical_coverage, y, intervals, n_resamples=1)
