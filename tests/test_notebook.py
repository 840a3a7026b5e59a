"""What notebooks show: readable on any page, whatever the numbers and names are."""

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import (
    ConformalRegressor,
    FullRescaled,
    Intervals,
    JackknifeRescaled,
    MultiTargetRegressor,
    Split,
)
from calliper._notebook import DRAWN, HEIGHT_PX, WIDTH_PX
from calliper.calibrators import Grouped
from calliper.kernels import TunedKNN
from calliper.lab.comparison import Points, compare
from calliper.refitting import CVPlus
from calliper.scores import SignedError

rng = np.random.default_rng(0)
X = rng.uniform(size=(300, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=300)
MODEL = LinearRegression().fit(X[:100], Y[:100])
HALVES = slice(0, 150), slice(150, 300)
NASTY = "<script>\"&'"


def parsed(html):
    """The page as a tree, which fails if it is not well formed; checked to be self-contained."""
    assert not re.search(r"https?://|<script|<style|url\(|NaN|=\"-?(nan|inf)\"", html)
    return ElementTree.fromstring(f"<body>{html.replace('<br>', '<br/>')}</body>")


def drawn(page, kind):
    """Marks of a picture, which must lie inside it, in the colour of the page."""
    for svg in page.iter("svg"):
        assert svg.get("fill") == svg.get("stroke") == "currentColor" and svg.get("aria-label")
        for mark in svg.iter("line"):
            assert 0 <= min(float(mark.get(name)) for name in ("x1", "x2", "y1", "y2"))
            assert max(float(mark.get(name)) for name in ("x1", "x2")) <= WIDTH_PX
            assert max(float(mark.get(name)) for name in ("y1", "y2")) <= HEIGHT_PX
    return list(page.iter(kind))


def of_ends(lower, upper, **known):
    return parsed(Intervals(np.array(lower, float), np.array(upper, float), **known)._repr_html_())


def length(mark):
    return float(mark.get("y1")) - float(mark.get("y2"))


def test_bars_are_as_long_as_intervals_are_wide():
    page = of_ends([0, 5, 2], [10, 7, 6], centre=np.array([5.0, 6.0, 4.0]), coverage=0.9)
    by_centre = [4, 10, 2]  # widths of the rows with the centres 4, 5 and 6
    lengths = [length(line) for line in drawn(page, "line")]
    np.testing.assert_allclose(lengths, np.array(by_centre) * (HEIGHT_PX - 12) / 10, atol=0.11)
    assert len(drawn(page, "circle")) == 3
    text = "".join(page.itertext())
    assert "3 rows, coverage 0.9" in text and "Width: 2 to 10, half of them below 4" in text


def test_the_largest_numbers_have_their_place():
    lines = drawn(of_ends([-1.7e308, 0], [1.7e308, 1]), "line")
    assert [length(line) for line in lines] == [HEIGHT_PX - 12, 0]


def test_levels_lie_over_one_another():
    ends = np.arange(1.0, 6.0)[None] * np.ones((4, 1))
    page = of_ends(-ends, ends, coverage=(0.5, 0.6, 0.7, 0.8, 0.9))
    lines = drawn(page, "line")
    assert len(lines) == 4 * 3
    assert [length(line) for line in lines[:3]] == sorted(map(length, lines[:3]), reverse=True)
    assert "Width at 0.9: 10 to 10" in "".join(page.itertext())


INF = np.inf


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([], []),
        (np.empty((0, 2)), np.empty((0, 2))),
        ([1], [1]),
        ([-INF, -INF], [INF, INF]),
        ([-INF, 0, 1], [1, INF, 2]),
        ([-1.7e308, 0], [1.7e308, 5e-324]),
        ([0, 0], [5e-324, 0]),
        (np.full((3, 4), -INF), np.full((3, 4), 2.0)),
    ],
)
def test_no_interval_is_too_odd_to_be_shown(lower, upper):
    page = of_ends(lower, upper)
    unbounded = [line for line in drawn(page, "line") if line.get("stroke-dasharray")]
    assert bool(unbounded) == bool(np.isinf(lower).any() or np.isinf(upper).any())


def test_a_few_of_many_rows_are_drawn_and_names_are_escaped():
    lower = rng.normal(size=100_000)
    index = pd.Index([NASTY] * len(lower))
    page = of_ends(lower, lower + 1, index=index, centre=lower)
    assert len(drawn(page, "line")) == DRAWN
    assert NASTY in "".join(page.itertext())


def calibrated(*args, **kwargs):
    return ConformalRegressor(MODEL, *args, **kwargs).calibrate(X[100:], Y[100:])


def test_a_regressor_shows_parameters_state_and_promise():
    html = calibrated()._repr_html_()
    diagram, own = html[: html.rindex("</style>")], html[html.rindex("sk-top-container") :]
    assert "calibration_size" in html and "sk-estimator" in diagram
    page = parsed(own[own.index('<div style="max-width') :])
    text = "".join(page.itertext())
    for words in ("calibrated on 200 rows", "requested: 0.9", "proved: 0.9", "exchangeable"):
        assert words in text


def fitted_by_groups():
    model = ConformalRegressor(MODEL, Grouped(Split(), groups=lambda rows: rows[:, 0] > 0.5))
    return model.calibrate(X[100:], Y[100:])


def few():
    return ConformalRegressor(MODEL, Split()).calibrate(X[100:101], Y[100:101])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConformalRegressor(MODEL),
        lambda: ConformalRegressor(lambda rows: rows[:, 0]),
        lambda: MultiTargetRegressor(LinearRegression()),
        lambda: MultiTargetRegressor(LinearRegression()).fit(X, np.c_[Y, 2 * Y]),
        lambda: MultiTargetRegressor(MODEL, joint=False, refits=0).fit(X, np.c_[Y, 2 * Y]),
        lambda: calibrated(score_function=SignedError()),
        lambda: ConformalRegressor(Ridge(), Split()).fit(X, Y, groups=np.arange(300) % 9),
        lambda: make_pipeline(StandardScaler(), ConformalRegressor(Ridge(), refits=0)).fit(X, Y),
        fitted_by_groups,
        few,
        FullRescaled,
        lambda: Split().fit(X, abs(Y)),
        lambda: Split().fit(X, np.zeros(300)),
        lambda: CVPlus(Ridge()),
        lambda: CVPlus(Ridge()).fit(X, Y),
    ],
)
def test_no_state_is_too_odd_to_be_shown(make):
    shown = make()._repr_html_()
    assert "sk-" in shown
    own = shown.find('<div style="max-width:48em')
    if own >= 0:
        drawn(parsed(shown[own:]), "svg")


def test_diagrams_can_be_switched_off():
    with config_context(display="text"):
        assert not hasattr(calibrated(), "_repr_html_")


def test_boxes_show_each_target():
    frame = pd.DataFrame({NASTY: Y, "b": -Y})
    model = MultiTargetRegressor(LinearRegression(), random_state=0).fit(X, frame)
    page = parsed(model.predict_interval(X[:50], [0.8, 0.9])._repr_html_())
    assert len(drawn(page, "svg")) == 2 and NASTY in "".join(page.itertext())


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
def test_promises_tell_the_spread_where_there_is_a_law():
    page = parsed(Split().fit(X, abs(Y)).guarantee(0.9)._repr_html_())
    assert "in nine of ten such cases: 0.8" in "".join(page.itertext())
    assert "in nine of ten" not in few().guarantee(0.9)._repr_html_()
    void = (
        ConformalRegressor(Ridge(), refits=0)
        .fit(X, Y, split_groups=np.arange(300) % 9)
        .guarantee(0.9)
    )
    page = parsed(void._repr_html_())
    assert "no guarantee" in "".join(page.itertext())


def test_progress_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr("calliper._notebook.PAUSE", 0.0)
    MultiTargetRegressor(Ridge(), joint=False, progress=True).fit(X, np.c_[Y, Y])
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.rstrip().endswith("\rtraining: 100%")
    assert "s left" in err
    calibrated(progress=True)  # nothing is trained
    assert capsys.readouterr().err == ""
    JackknifeRescaled(TunedKNN(progress=True)).fit(X, abs(Y))
    assert capsys.readouterr().err.rstrip().endswith("tuning: 100%")
    train = {"X_train": X[:100], "y_train": Y[:100]}
    ConformalRegressor(MODEL, refits=3, progress=True).calibrate(X[100:], Y[100:], **train)
    assert capsys.readouterr().err.rstrip().endswith("training: 100%")
    first, second = (Points(X[rows], y=Y[rows], y_pred=X[rows, 0]) for rows in HALVES)
    compare(first, second, methods={"split": Split()}, progress=True)
    assert capsys.readouterr().err.rstrip().endswith("comparing: 100%")
