"""Fan and PIT: what they hold, and that they draw it."""

import numpy as np
import pandas as pd
import pytest

from calliper import Split
from calliper.lab.report import FanDisplay, PITDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x, y, errors = rng.uniform(size=300), rng.normal(size=300), rng.normal(size=199)
    split = Split().fit(np.zeros((199, 1)), abs(errors), signs=np.sign(errors))
    return x, y, split.predict_distribution(np.zeros((300, 1)), x)


def test_fan_is_in_the_order_of_x_and_draws_a_shade_for_each_level(rows):
    x, y, batch = rows
    display = FanDisplay.from_distribution(pd.Series(x, name="age"), batch, y=y).plot()
    order = np.argsort(x)
    np.testing.assert_array_equal(display.x, x[order])
    np.testing.assert_array_equal(display.median, batch.quantile(0.5)[order])
    np.testing.assert_array_equal(display.intervals.upper[:, 1], batch.interval(0.8).upper[order])
    assert len(display.ax_.collections) == 3 and display.ax_.get_xlabel() == "age"
    assert "in 80 %" in display.ax_.texts[0].get_text()


def test_fan_without_targets_and_with_infinite_ends(rows):
    x, _, batch = rows
    with pytest.warns(UserWarning, match="cannot support"):
        display = FanDisplay.from_distribution(x, batch, coverage=[0.5, 0.995]).plot()
    assert np.isinf(display.intervals.lower[:, 1]).all()
    assert np.isfinite(display.ax_.get_ylim()).all()


def test_pit_draws_its_bars_and_band(rows):
    _, y, batch = rows
    display = PITDisplay.from_distribution(y, batch, n_bins=5).plot(name="Mine")
    (bars,) = display.ax_.containers
    heights = [bar.get_height() for bar in bars]
    assert len(heights) == 5 and len(display.ax_.patches) == 6
    np.testing.assert_allclose(heights, display.table.share)
    assert display.ax_.get_title(loc="left") == "Mine"
