"""Draw the figures ``images/plot-*.png`` of the pages: ``python docs/make_plots.py``.

Most of them show the paper's one-dimensional task, whose noise is known.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.ensemble import RandomForestRegressor

from calliper import KNN, RBF, ConformalRegressor, Intervals, JackknifeRescaled, Split
from calliper.lab.datasets import one_dimensional
from calliper.lab.report import (
    BandDisplay,
    CoverageDisplay,
    FanDisplay,
    PITDisplay,
    WidthErrorDisplay,
)

matplotlib.use("Agg")

DOCS = Path(__file__).parent


def draw_intervals(folder: Path) -> None:
    """The band, width against error, and coverage by the true spread of the noise."""
    from matplotlib import pyplot

    train, cal, test = (one_dimensional(n, random_state=n) for n in (1000, 1001, 4000))
    model = RandomForestRegressor(min_samples_leaf=5, random_state=0).fit(train.X, train.y)
    errors, y_pred = np.abs(cal.y - model.predict(cal.X)), model.predict(test.X)
    adaptive = JackknifeRescaled(KNN(10), random_state=0).fit(cal.X, errors)
    coarse = JackknifeRescaled(RBF(0.2), random_state=0).fit(cal.X, errors)
    constant = Split().fit(cal.X, errors)

    def intervals_of(method: JackknifeRescaled | Split, rows: slice = slice(None)) -> Intervals:
        radius, middle = method.predict_radius(test.X[rows], 0.9), y_pred[rows]
        return Intervals(middle - radius, middle + radius, 0.9)

    few = slice(0, 600)
    band = BandDisplay.from_intervals(
        test.X[few],
        intervals_of(adaptive, few),
        y=test.y[few],
        y_pred=y_pred[few],
        oracle=test.oracle(test.X[few], coverage=0.9),
    ).plot(name="JackknifeRescaled, ten neighbours")
    band.figure_.savefig(folder / "plot-band.png", dpi=150)

    figure, axes = pyplot.subplots(1, 2, figsize=(10.4, 4.6), layout="constrained")
    for ax, (name, method) in zip(
        axes, {"Ten neighbours": adaptive, "A kernel that is too wide": coarse}.items(), strict=True
    ):
        display = WidthErrorDisplay.from_intervals(test.y, intervals_of(method), y_pred=y_pred)
        display.plot(ax, name=name)
    figure.savefig(folder / "plot-width-error.png", dpi=150)

    difficulty = test.standard_deviation(test.X)
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    for ax, (name, made) in zip(
        axes, {"Split": constant, "JackknifeRescaled": adaptive}.items(), strict=True
    ):
        CoverageDisplay.from_intervals(
            test.y,
            intervals_of(made),
            values=difficulty,
            what="true spread of the noise (unit of y)",
        ).plot(ax, name=name)
    axes[1].set_ylabel("")
    figure.savefig(folder / "plot-coverage-by-value.png", dpi=150)


def draw_distributions(folder: Path) -> None:
    """The fan and the probability integral transform, where noise is skewed and grows with x."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=3500)
    X, y = x[:, None], np.sin(6 * x) + (0.1 + x) * (rng.gamma(2, size=3500) - 2)
    forest = RandomForestRegressor(min_samples_leaf=20, random_state=0).fit(X[:1000], y[:1000])
    model = ConformalRegressor(forest)
    model.calibrate(X[1000:2000], y[1000:2000], X_train=X[:1000], y_train=y[:1000])
    distribution = model.predict_distribution(X[2000:])
    fan = FanDisplay.from_distribution(X[2000:], distribution, y=y[2000:]).plot()
    fan.figure_.savefig(folder / "plot-fan.png", dpi=150)
    places = PITDisplay.from_distribution(y[2000:], distribution).plot()
    places.figure_.savefig(folder / "plot-pit.png", dpi=150)


def draw(folder: Path) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_intervals(folder)
    draw_distributions(folder)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images")
