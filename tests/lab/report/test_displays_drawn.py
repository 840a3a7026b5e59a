"""Displays draw on Agg: words are there, odd input does not break them, nothing is hidden."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from calliper.intervals import Intervals
from calliper.lab.report import (
    BandDisplay,
    CalibrationCurveDisplay,
    CoverageDisplay,
    CoverageLawDisplay,
    EmbeddingDisplay,
    MetricCurveDisplay,
    WidthErrorDisplay,
    draw_bands,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

INF = float("inf")
N = 300
pytestmark = [
    pytest.mark.filterwarnings("ignore::calliper.lab.metrics.SparseBinsWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def draw(kind):
    rng = np.random.default_rng(0)
    radius = rng.uniform(1, 3, N)
    y = radius * rng.normal(size=N)
    if kind == "some infinite":
        radius[::7] = INF
    elif kind == "all infinite":
        radius[:] = INF
    elif kind == "constant":
        radius[:] = 2.0
    elif kind == "one row":
        y, radius = y[:1], radius[:1]
    return y, Intervals(-1.6 * radius, 1.6 * radius, 0.9)


KINDS = pytest.mark.parametrize(
    "kind", ["plain", "some infinite", "all infinite", "constant", "one row"]
)


def displays(y, intervals):
    X = np.random.default_rng(1).normal(size=(len(y), 3))
    yield BandDisplay.from_intervals(X[:, 0], intervals, y=y, y_pred=y * 0, oracle=intervals)
    yield WidthErrorDisplay.from_intervals(y, intervals, y_pred=y * 0)
    yield CoverageDisplay.from_intervals(y, intervals)
    yield CoverageDisplay.from_intervals(y, intervals, values=X[:, 0], what="first input")
    yield CoverageDisplay.from_intervals(y, intervals, groups=X[:, 0] > 0)
    if len(y) > 1:
        yield EmbeddingDisplay.from_intervals(X, intervals)
    yield CalibrationCurveDisplay.from_intervals(y, intervals)


def words(display):
    ax = display.ax_
    legend = ax.get_legend()
    parts = [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()]
    parts += [text.get_text() for text in ax.texts]
    return parts + ([text.get_text() for text in legend.get_texts()] if legend else [])


@KINDS
def test_everything_draws_with_title_and_labels(kind):
    for display in displays(*draw(kind)):
        assert display.ax_ is None and display.figure_ is None, "nothing is drawn before plot"
        assert display.plot() is display
        display.figure_.canvas.draw()
        assert display.figure_ is display.ax_.figure
        assert all(words(display)[:3]), type(display)


def test_infinite_intervals_are_counted_in_words():
    n_infinite = len(range(0, N, 7))
    for display in displays(*draw("some infinite")):
        if isinstance(display, BandDisplay | WidthErrorDisplay | EmbeddingDisplay):
            assert any(f"{n_infinite} in" in text for text in words(display.plot())), display
    by_width = CoverageDisplay.from_intervals(*draw("some infinite")).plot()
    assert [text.get_text() for text in by_width.ax_.get_xticklabels()][-1] == "∞"
    display = WidthErrorDisplay.from_intervals(*draw("all infinite"), y_pred=np.zeros(N)).plot()
    assert any("all intervals are infinite" in text for text in words(display))


def test_a_few_of_many_rows_are_drawn(monkeypatch):
    monkeypatch.setattr("calliper.lab.report._style.MOST_DOTS", 50)
    X = np.random.default_rng(1).normal(size=(N, 3))
    display = EmbeddingDisplay.from_intervals(X, draw("plain")[1]).plot()
    assert len(display.ax_.collections[0].get_offsets()) == 50
    assert any(text.startswith("50 of 300 rows") for text in words(display))


def test_undefined_measures_are_said():
    display = WidthErrorDisplay.from_intervals(*draw("constant")).plot()
    assert any("R²_SQI undefined · τ_SQI undefined" in text for text in words(display))


def test_axes_of_the_caller_are_used():
    _, ax = pyplot.subplots()
    for display in displays(*draw("plain")):
        assert display.plot(ax).ax_ is ax
    assert len(pyplot.get_fignums()) == 1


def test_the_level_is_drawn_and_named():
    y, intervals = draw("plain")
    display = CoverageDisplay.from_intervals(y, intervals, what="width (mm)").plot(name="Mine")
    assert {"Mine", "width (mm)", "requested: 90 %"} <= set(words(display))
    lines = [line.get_ydata() for line in display.ax_.lines]
    assert any(list(line) == [0.9, 0.9] for line in lines)


def test_curves_of_several_methods_and_of_none():
    rows = [
        {"problem": "a", "method": method, "n_calibration": n, "level": 0.9, "tau_si": value}
        for method, value in (("Full", 0.3), ("Split", float("nan")))
        for n in (50, 100)
        for _ in range(2)
    ]
    display = MetricCurveDisplay.from_records(rows, "tau_si").plot()
    display.figure_.canvas.draw()
    assert {"Full", "Split (4 of 4 undefined)", "τ_SI", "calibration rows, N"} <= set(
        words(display)
    )
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["50", "100"]


def curve_of(values_by_size):
    rows = [
        {"problem": "a", "method": "M", "n_calibration": n, "level": 0.9, "mean_width": value}
        for n, values in values_by_size.items()
        for value in values
    ]
    display = MetricCurveDisplay.from_records(rows, "mean_width").plot()
    display.figure_.canvas.draw()
    return display


def test_infinite_means_are_named():
    display = curve_of({50: [INF, 1.0], 1000: [2.0, 2.5], 2000: [-INF, 1.0]})
    assert "M (infinite at N = 50, 2,000)" in words(display)


def test_an_error_that_is_not_known_is_no_bar_of_length_zero():
    def bars(display):
        (bars,) = display.ax_.containers[0].lines[2]
        return [end for path in bars.get_segments() if len(path) for end in path[:, 1]]

    one = curve_of({50: [1.0], 100: [2.0]})
    assert bars(one) == []
    caption = "90 % asked for · mean over 1 split; no bar: one value, its error is not known"
    assert caption in words(one)
    both = curve_of({50: [1.0, 3.0], 100: [2.0]})
    assert len(bars(both)) == 2
    assert any("bars ± 1 σ of a split; no bar: one value" in text for text in words(both))
    many = curve_of({50: [1.0, 3.0], 100: [2.0, 3.0]})
    assert "90 % asked for · mean over 2 splits, bars ± 1 σ of a split" in words(many)


def test_the_law_is_drawn_beside_the_bars():
    for n_test in (None, 50):
        display = CoverageLawDisplay.from_coverages(
            [0.88, 0.9, 0.92], coverage=0.9, n_calibration=100, n_test=n_test
        ).plot()
        area = sum(bar.get_width() * bar.get_height() for bar in display.ax_.patches)
        assert area == pytest.approx(1.0)
        assert f"{'Beta' if n_test is None else 'beta-binomial'} law" in words(display)


def test_two_calibration_curves_share_a_diagonal():
    y, intervals = draw("plain")
    first = CalibrationCurveDisplay.from_intervals(y, intervals).plot(name="one")
    CalibrationCurveDisplay.from_intervals(y, intervals).plot(first.ax_, name="two")
    legend = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert sorted(legend) == ["exact", "one", "two"]


@pytest.mark.long
def test_every_figure_of_the_pages_is_drawn(tmp_path):
    docs = Path(__file__).parents[3] / "docs"
    spec = importlib.util.spec_from_file_location("make_plots", docs / "make_plots.py")
    make_plots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_plots)
    make_plots.draw(tmp_path)
    pages = "".join(page.read_text(encoding="utf-8") for page in docs.glob("*.md"))
    shown = set(re.findall(r"images/(plot-[a-z-]+\.png)", pages))
    assert shown == {path.name for path in tmp_path.iterdir()}
    assert shown == {path.name for path in (docs / "images").glob("plot-*")}


def test_axes_are_named_after_columns():
    pd = pytest.importorskip("pandas")
    y, intervals = draw("plain")
    frame = pd.DataFrame({"age": np.arange(N) / 2, "dose": y, "city": ["a", "b"] * (N // 2)})
    band = BandDisplay.from_intervals(frame[["age"]], intervals, y=frame["dose"]).plot()
    assert words(band)[1:3] == ["age", "dose"]
    by_value = CoverageDisplay.from_intervals(y, intervals, values=frame["age"]).plot()
    assert words(by_value)[:2] == ["Coverage by age", "age"]
    by_group = CoverageDisplay.from_intervals(y, intervals, groups=frame["city"]).plot()
    assert words(by_group)[::2][:2] == ["Coverage by city", "city"]
    named = CoverageDisplay.from_intervals(y, intervals, values=frame["age"], what="age (years)")
    assert words(named.plot())[1] == "age (years)"
    plane = EmbeddingDisplay.from_intervals(frame[["age", "dose"]], intervals, project=False)
    assert words(plane.plot())[1:3] == ["age", "dose"]


def test_rows_without_a_value_have_a_tick_of_their_own():
    y, intervals = draw("plain")
    values = np.where(np.arange(N) % 3, np.arange(N), np.nan)
    display = CoverageDisplay.from_intervals(y, intervals, values=values, n_bins=4).plot()
    display.figure_.canvas.draw()
    ticks = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert len(ticks) == 6 and ticks[-1] == "missing"
    assert display.ax_.get_xticks()[-1] == 4, "in the middle of its bin"


def test_points_are_sorted_before_they_are_joined():
    y, one = draw("plain")
    order = [2, 0, 1]
    levels = np.array([0.5, 0.8, 0.9])
    ends = np.outer(one.upper, levels)
    mixed = Intervals(-ends[:, order], ends[:, order], levels[order])
    ax = CalibrationCurveDisplay.from_intervals(y, mixed).plot().ax_
    joined = ax.lines[1].get_xydata()
    assert list(joined[:, 0]) == [0.5, 0.8, 0.9] and np.all(np.diff(joined[:, 1]) >= 0)
    grid = np.random.default_rng(0).permutation(50) / 50
    around = Intervals(-1 - grid, 1 + grid)
    known = {"y": 0 * grid, "y_pred": 0 * grid, "oracle": around}
    band = BandDisplay.from_intervals(grid, around, **known)
    wider = BandDisplay.from_intervals(grid, Intervals(-9 - grid, 9 + grid), **known)
    low, high = draw_bands({"one": band, "two": wider}).axes[2].get_ylim()
    assert low == 0 and high >= 10, "a scale that all share has room for all"
    for axis in draw_bands({"one": band}).axes:
        assert all(np.all(np.diff(line.get_xdata()) >= 0) for line in axis.lines if len(
            line.get_xdata()) and line.get_linestyle() != "None")  # fmt: skip


@pytest.mark.parametrize("name", ["$x$", r"$\nonsense{$", "a$", r"\$x$$"])
def test_names_of_columns_and_groups_are_no_formulas(name):
    """A formula would be drawn as another name, and a broken one would be an error."""
    pandas = pytest.importorskip("pandas")
    y, intervals = draw("plain")
    drawn = [
        BandDisplay.from_intervals(pandas.Series(np.arange(N), name=name), intervals, y=y),
        CoverageDisplay.from_intervals(pandas.Series(y, name=name), intervals, groups=[name] * N),
    ]
    for display in drawn:
        display.plot()
        display.figure_.canvas.draw()
    (tick,) = drawn[1].ax_.get_yticklabels()
    for text in (drawn[0].ax_.xaxis.label, tick):
        shown, is_formula = text._preprocess_math(text.get_text())
        assert not is_formula and shown.startswith(name)
