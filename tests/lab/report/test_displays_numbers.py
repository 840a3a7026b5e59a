"""What displays hold equals the measures; none of it needs matplotlib."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.decomposition import PCA

from calliper.exceptions import CalliperError
from calliper.guarantees import coverage_law
from calliper.intervals import Intervals
from calliper.lab import report
from calliper.lab.evaluation import one_sigma
from calliper.lab.metrics import (
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
    empirical_coverage,
    r2_sqi,
    tau_sqi,
)
from calliper.lab.report import (
    BandDisplay,
    CalibrationCurveDisplay,
    CoverageDisplay,
    CoverageLawDisplay,
    EmbeddingDisplay,
    MetricCurveDisplay,
    WidthErrorDisplay,
)
from calliper.lab.report._style import percent

INF = float("inf")


def draw(n=600, seed=0):
    rng = np.random.default_rng(seed)
    radius = rng.uniform(1, 3, n)
    return radius * rng.normal(size=n), Intervals(-1.6 * radius, 1.6 * radius, 0.9)


def test_the_public_names_are_sorted_and_exist():
    assert report.__all__ == sorted(report.__all__)
    assert all(hasattr(report, name) for name in report.__all__)


def test_numbers_need_no_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from calliper.lab.report import CoverageDisplay, WidthErrorDisplay, BandDisplay
radius = np.linspace(1, 2, 300)
ends = (-radius, radius)
CoverageDisplay.from_intervals(radius, ends)
BandDisplay.from_intervals(radius, ends, y=radius)
WidthErrorDisplay.from_intervals(radius, ends, coverage=0.9)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_band_is_in_the_order_of_x():
    y, intervals = draw(50)
    x = np.random.default_rng(1).permutation(50)[:, None] * 1.0
    display = BandDisplay.from_intervals(x, intervals, y=y, y_pred=0 * y, oracle=intervals)
    order = np.argsort(x[:, 0])
    np.testing.assert_array_equal(display.x, np.arange(50.0))
    np.testing.assert_array_equal(display.lower, intervals.lower[order])
    np.testing.assert_array_equal(display.covered, intervals.contains(y)[order])
    np.testing.assert_array_equal(display.oracle.upper, intervals.upper[order])
    assert display.coverage == 0.9 and display.n_infinite == 0


def test_width_and_error_hold_the_bins_of_the_measures():
    y, intervals = draw()
    display = WidthErrorDisplay.from_intervals(y, intervals)
    assert display.r2 == r2_sqi(y, intervals)
    assert display.tau == tau_sqi(y, intervals)
    isq, csq = display.isq, display.csq
    by_hand = 1 - np.sum((isq - 2 * csq) ** 2) / np.sum((isq - isq.mean()) ** 2)
    assert display.r2 == pytest.approx(by_hand)
    order = np.argsort(np.abs(y))
    np.testing.assert_allclose(display.errors, np.abs(y)[order])
    np.testing.assert_allclose(display.widths, intervals.width[order])


def test_measures_that_are_undefined_are_nan_without_a_warning(recwarn):
    y, _ = draw()
    display = WidthErrorDisplay.from_intervals(y, Intervals(y * 0 - 1, y * 0 + 1, 0.9))
    assert np.isnan(display.r2) and np.isnan(display.tau) and len(display.isq) == 1
    everything = Intervals(y * 0 - INF, y * 0 + INF, 0.9)
    display = WidthErrorDisplay.from_intervals(y, everything, y_pred=y * 0)
    assert display.n_infinite == len(y) and np.isnan(display.r2)
    assert not recwarn


def test_coverage_displays_hold_the_tables():
    y, intervals = draw()
    groups = np.repeat(["a", "b"], 300)
    for display, table in (
        (CoverageDisplay.from_intervals(y, intervals), coverage_by_width(y, intervals)),
        (
            CoverageDisplay.from_intervals(y, intervals, values=y, n_bins=4),
            coverage_by_value(y, intervals, y, n_bins=4),
        ),
        (
            CoverageDisplay.from_intervals(y, intervals, groups=groups),
            coverage_by_group(y, intervals, groups),
        ),
    ):
        assert display.coverage == 0.9
        assert display.table.labels == table.labels
        np.testing.assert_array_equal(display.table.coverage, table.coverage)
    with pytest.raises(CalliperError, match="values or groups, not both"):
        CoverageDisplay.from_intervals(y, intervals, values=y, groups=groups)


def records():
    rng = np.random.default_rng(0)
    return [
        {
            "problem": problem,
            "method": method,
            "n_calibration": n,
            "split": split,
            "level": level,
            "coverage": level + rng.normal() / n,
            "tau_si": float("nan") if method == "Split" or split == 3 else rng.random(),
        }
        for problem in ("a", "b")
        for level in (0.8, 0.9)
        for method in ("Split", "Full")
        for n in (200, 50)
        for split in range(5)
    ]


@pytest.mark.parametrize("form", [list, iter, pd.DataFrame])
def test_curves_are_means_over_splits(form):
    rows = records()
    display = MetricCurveDisplay.from_records(form(rows), "coverage", problem="b", level=0.9)
    assert list(display.curves) == ["Split", "Full"]
    curve = display.curves["Full"]
    np.testing.assert_array_equal(curve.n_calibration, [50, 200])
    values = [
        row["coverage"]
        for row in rows
        if (row["problem"], row["level"], row["method"], row["n_calibration"])
        == ("b", 0.9, "Full", 50)
    ]
    assert (curve.mean[0], curve.error[0]) == one_sigma(values)
    assert curve.n_splits.tolist() == [5, 5] and curve.n_undefined.tolist() == [0, 0]


def test_splits_without_a_value_are_counted():
    display = MetricCurveDisplay.from_records(records(), "tau_si", problem="a", level=0.8)
    assert display.curves["Full"].n_undefined.tolist() == [1, 1]
    assert np.isfinite(display.curves["Full"].mean).all()
    assert display.curves["Split"].n_undefined.tolist() == [5, 5]
    assert np.isnan(display.curves["Split"].mean).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.9, "90 %"), (0.975, "97.5 %"), (0.9123, "91.2 %"), (1.0, "100 %"), (0.0, "0 %"),
     (0.9975, "99.75 %"), (0.9999, "99.99 %"), (0.999999, "99.9999 %"), (0.00012345, "0.0123 %")],
)  # fmt: skip
def test_a_share_is_said_with_enough_digits(value, words):
    assert percent(value) == words


def test_without_a_level_the_coverage_is_the_level():
    rows = [{"problem": "a", "method": "M", "n_calibration": 9, "coverage": 0.9, "width": 2.0}]
    display = MetricCurveDisplay.from_records(rows, "width")
    assert display.level == 0.9 and display.curves["M"].mean.tolist() == [2.0]


def test_records_that_do_not_fit_are_refused():
    rows = records()
    with pytest.raises(
        CalliperError, match=r"more than one problem: \['a', 'b'\]; pass one as problem="
    ):
        MetricCurveDisplay.from_records(rows, "coverage")
    with pytest.raises(CalliperError, match=r"no level 0\.5; there are \[0\.8, 0\.9\]"):
        MetricCurveDisplay.from_records(rows, "coverage", problem="a", level=0.5)
    with pytest.raises(CalliperError, match="n_calibration and 'width'; got 80 of"):
        MetricCurveDisplay.from_records(rows, "width")
    with pytest.raises(CalliperError, match="at least one row, each a dict"):
        MetricCurveDisplay.from_records([], "coverage")


def test_the_law_is_that_of_the_guarantee():
    display = CoverageLawDisplay.from_coverages([0.9, 0.8, 0.93], coverage=0.9, n_calibration=100)
    law = coverage_law(0.9, 100)
    assert display.law_mean == pytest.approx(law.mean())
    assert display.law_quantiles == pytest.approx(tuple(law.ppf([0.05, 0.95])))
    np.testing.assert_allclose(display.density, law.pdf(display.x))
    assert display.share_inside == pytest.approx(2 / 3)
    assert display.mean == pytest.approx(np.mean([0.9, 0.8, 0.93]))


def test_on_a_finite_test_set_the_law_is_beta_binomial():
    rng = np.random.default_rng(0)
    covered = coverage_law(0.9, 50).rvs(3000, random_state=0)
    measured = rng.binomial(40, covered) / 40
    display = CoverageLawDisplay.from_coverages(measured, coverage=0.9, n_calibration=50, n_test=40)
    law = stats.betabinom(40, 46, 5)
    np.testing.assert_allclose(display.density / 40, law.pmf(np.rint(40 * display.x)))
    low, high = (round(40 * end) for end in display.law_quantiles)
    expected = law.cdf(high) - law.cdf(low - 1)
    assert display.share_inside == pytest.approx(expected, abs=4 * np.sqrt(0.1 / 3000))
    assert abs(display.mean - display.law_mean) < 4 * display.error
    bins = display._bins()
    assert bins[0] < measured.min() and measured.max() < bins[-1]
    assert np.allclose(np.diff(bins), np.diff(bins)[0]), "bars of equal numbers of values"


def test_no_law_without_finite_intervals_or_shares():
    with pytest.raises(CalliperError, match=r"5 calibration rows cannot support coverage 0\.9"):
        CoverageLawDisplay.from_coverages([1.0, 1.0], coverage=0.9, n_calibration=5)
    with pytest.raises(CalliperError, match="two shares between 0 and 1; got 2 from 90 to 91"):
        CoverageLawDisplay.from_coverages([90, 91], coverage=0.9, n_calibration=50)


def test_the_embedding_is_a_principal_component_analysis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    _, intervals = draw(200)
    display = EmbeddingDisplay.from_intervals(np.column_stack([X, np.ones(200)]), intervals)
    pca = PCA(2).fit(X / X.std(axis=0))
    expected = pca.transform(X / X.std(axis=0))
    np.testing.assert_allclose(np.abs(display.position), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(display.explained, pca.explained_variance_ratio_)
    np.testing.assert_array_equal(display.widths, intervals.width)


def test_an_embedding_may_be_given():
    y, intervals = draw(200)
    position = np.column_stack([y, 2 * y])
    display = EmbeddingDisplay.from_intervals(position, intervals, project=False)
    assert display.explained is None
    np.testing.assert_array_equal(display.position, position)
    np.testing.assert_array_equal(display.widths, intervals.width)


def test_what_is_no_plane_is_refused():
    y, intervals = draw(30)
    with pytest.raises(CalliperError, match=r"at least two columns; got 1\. For one, use"):
        EmbeddingDisplay.from_intervals(y[:, None], intervals)
    with pytest.raises(CalliperError, match="two columns if project=False; got 3"):
        EmbeddingDisplay.from_intervals(np.zeros((30, 3)), intervals, project=False)
    with pytest.raises(CalliperError, match="every column of X is constant"):
        EmbeddingDisplay.from_intervals(np.zeros((30, 3)), intervals)
    with pytest.raises(CalliperError, match="X has 3 rows for 30 intervals"):
        EmbeddingDisplay.from_intervals(np.zeros((3, 3)), intervals)
    with pytest.raises(CalliperError, match="one value for each row; got 2 columns"):
        BandDisplay.from_intervals(np.zeros((30, 2)), intervals)


def test_the_calibration_curve_counts_each_level():
    y = np.random.default_rng(0).normal(size=300)
    levels = np.array([0.5, 0.8, 0.95])
    radius = stats.norm.ppf((1 + levels) / 2)
    intervals = Intervals(np.tile(-radius, (300, 1)), np.tile(radius, (300, 1)), tuple(levels))
    display = CalibrationCurveDisplay.from_intervals(y, intervals)
    np.testing.assert_allclose(display.covered, empirical_coverage(y, intervals))
    assert (display.lower < display.covered).all() and (display.covered < display.upper).all()
    assert display.largest_gap == np.abs(display.covered - levels).max()
    one = CalibrationCurveDisplay.from_intervals(y, intervals.at(0.8))
    assert one.covered.tolist() == [display.covered[1]]
    with pytest.raises(CalliperError, match="must carry their levels"):
        CalibrationCurveDisplay.from_intervals(y, tuple(intervals))
