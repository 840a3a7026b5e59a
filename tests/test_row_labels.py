"""Values of the same rows whose labels disagree: refused, or pointed out, wherever rows meet."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from calliper import (
    CalliperError,
    ConformalRegressor,
    Intervals,
    MultiTargetRegressor,
    Split,
    metrics,
)
from calliper.exceptions import RowLabelsWarning
from calliper.information import mutual_information
from calliper.lab.comparison import Points, compare
from calliper.lab.evaluation import Problem
from calliper.lab.report import BandDisplay
from calliper.online import coverage_needed
from calliper.refitting import CVPlus
from calliper.rows import same_rows

rng = np.random.default_rng(0)
N = 60
X = pd.DataFrame(rng.uniform(size=(N, 2)), columns=["a", "b"], index=rng.permutation(1000)[:N])
y = X["a"] + rng.normal(size=N)
turned, ones = y.sort_index(), pd.Series(np.ones(N), X.index)
kinds = pd.Series(np.where(X["a"] > 0.5, "high", "low"), X.index)
model = ConformalRegressor(LinearRegression().fit(X, y), Split()).calibrate(X, y)
weighted = ConformalRegressor(model.estimator_, Split()).calibrate(X, y, weights=ones)
grouped = ConformalRegressor(model.estimator_, Split()).calibrate(X, y, groups=kinds)
intervals = model.predict_interval(X)
found = model.predict_distribution(X)
line = np.zeros(N)


def regressor():
    return ConformalRegressor(model.estimator_, Split())


@pytest.mark.parametrize(
    "ask",
    [
        lambda: intervals.contains(turned),
        lambda: intervals[(X["a"] > 0.5).sort_index()],
        lambda: Intervals(y, turned + 9),
        lambda: model.fit(X, turned),
        lambda: model.fit(X, y, sample_weight=ones.sort_index()),
        lambda: regressor().calibrate(X, turned),
        lambda: regressor().calibrate(X, y, X_train=X, y_train=turned),
        lambda: regressor().calibrate(X.to_numpy(), y, weights=ones.sort_index()),
        lambda: regressor().calibrate(X, y, groups=kinds.sort_index()),
        lambda: regressor().calibrate(X, y).extend(X, turned),
        lambda: weighted.predict_interval(X, weights=ones.sort_index()),
        lambda: weighted.shift_report(X, weights=ones.sort_index()),
        lambda: grouped.predict_distribution(X, groups=kinds.sort_index()),
        lambda: coverage_needed(model, X, turned),
        lambda: CVPlus(LinearRegression()).fit(X, turned),
        lambda: MultiTargetRegressor(LinearRegression()).fit(X, pd.DataFrame({"y": turned})),
        lambda: Split().fit(X, turned.abs()),
        lambda: Split().fit(X, y.abs()).extend(X, turned.abs()),
        lambda: Split().fit(X, y.abs(), signs=np.sign(turned)),
        lambda: mutual_information(X, turned),
        lambda: found.cdf(turned),
        lambda: found.crps(turned),
        lambda: found.pit(turned),
        lambda: metrics.interval_score(turned, intervals),
        lambda: metrics.tau_si(y, intervals, y_pred=turned),
        lambda: metrics.empirical_coverage(turned, intervals.to_frame()),
        lambda: metrics.coverage_by_value(y, intervals, X["a"].sort_index()),
        lambda: metrics.coverage_by_group(y.to_numpy(), intervals, kinds.sort_index()),
        lambda: metrics.coverage_by_group(y, (line, line), kinds.sort_index()),
        lambda: metrics.worst_slab_coverage(y, intervals, X.sort_index()),
        lambda: metrics.bootstrap(metrics.empirical_coverage, turned, intervals),
        lambda: metrics.quantile_calibration(turned, found),
        lambda: Problem("p", Z=X, y=y, y_pred=line, groups=kinds.sort_index()),
        lambda: Points(X, turned, line),
        lambda: compare(
            *[Points(X, y, line)] * 2, methods={"split": Split()}, groups=kinds.sort_index()
        ),
        lambda: BandDisplay.from_intervals(X["a"], intervals, y=turned),
    ],
)
def test_the_same_labels_in_another_order_are_refused(ask):
    with pytest.raises(CalliperError, match=r"same row labels in different orders.*\.to_numpy\(\)"):
        ask()


def test_the_advice_is_right():
    right = intervals.contains(y)
    with pytest.raises(CalliperError, match=r"Pass y\.loc\[intervals\.index\], or y\.to_numpy"):
        intervals.contains(turned)
    np.testing.assert_array_equal(intervals.contains(turned.loc[intervals.index]), right)
    np.testing.assert_array_equal(intervals.contains(y.to_numpy()), right)


def test_other_labels_are_refused_and_named():
    with pytest.raises(
        CalliperError, match=r"intervals and y have different row labels: .* and 5000 in y"
    ):
        intervals.contains(y.set_axis([5000, *y.index[1:]]))


def test_a_plain_range_goes_by_position_with_one_warning_for_the_same_numbers():
    scaled = X.reset_index(drop=True)
    numbers = rng.permutation(N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_position = ConformalRegressor(model.estimator_, Split()).calibrate(scaled, y)
        assert by_position.predict_interval(scaled).contains(y).shape == (N,)
        assert intervals.contains(y.reset_index(drop=True)).shape == (N,)
        assert same_rows(X, "X", y=[*y], weights=None, groups="a") == ([*y], None, "a")
    moved = y.set_axis(numbers)
    for ask in (
        lambda: regressor().calibrate(scaled, moved, weights=ones.set_axis(numbers)),
        lambda: metrics.coverage_by_group(
            moved, model.predict_interval(scaled), kinds.set_axis(numbers)
        ),
    ):
        with pytest.warns(RowLabelsWarning, match=r"y\.to_numpy\(\).*y\.loc\[") as caught:
            ask()
        assert len([each for each in caught if each.category is RowLabelsWarning]) == 1


@pytest.mark.parametrize(
    ("labels", "others", "message"),
    [
        (list("aab"), list("aab"), None),
        (list("aab"), list("aba"), "Labels are not unique: pass y.to_numpy"),
        ([np.nan, 1.0, 2.0], [np.nan, 1.0, 2.0], None),
        (
            pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")]),
            pd.MultiIndex.from_tuples([(1, "a"), (2, "a"), (1, "b")]),
            "in different orders",
        ),
        (
            pd.date_range("2024-01-01", periods=3, tz="UTC"),
            pd.date_range("2024-01-01", periods=3, tz="UTC").tz_convert("Asia/Tokyo"),
            None,
        ),
        (
            pd.date_range("2024-01-01", periods=3),
            pd.date_range("2024-01-01", periods=3, tz="UTC"),
            "different row labels",
        ),
        (pd.RangeIndex(10, 13), pd.RangeIndex(11, 14), "different row labels"),
    ],
)
def test_labels_of_all_kinds(labels, others, message):
    first, second = pd.Series(range(3), index=labels), pd.Series(range(3), index=others)
    if message is None:
        assert same_rows(first, "X", y=second)[0].tolist() == [0, 1, 2]
    else:
        with pytest.raises(CalliperError, match=message):
            same_rows(first, "X", y=second)


def test_labels_survive_json():
    days = pd.date_range("2024-01-01", periods=3)
    again = Intervals.from_json(Intervals([0.0] * 3, [1.0] * 3, 0.9, days).to_json())
    values = pd.Series([0.5, 2.0, 0.5], days)
    assert again.contains(values).tolist() == [True, False, True]
    with pytest.raises(CalliperError, match="in different orders"):
        again.contains(values[::-1])


def test_resampled_rows_are_not_taken_for_others():
    plain = metrics.bootstrap(metrics.empirical_coverage, [*y], tuple(intervals), random_state=0)
    assert metrics.bootstrap(metrics.empirical_coverage, y, intervals, random_state=0) == plain

    def worst(y, intervals, groups):
        return metrics.coverage_by_group(y, intervals, groups).worst

    metrics.bootstrap(worst, y, intervals, kinds.reset_index(drop=True), n_resamples=3)
