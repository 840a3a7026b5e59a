"""A stream that drifts, on real data: ``python -m studies.experiments.drift.bike [figure.png]``.

Bicycles hired in Washington over two years, from the first hour on. The model learns from the first
five months and never again, while hiring grows, and with it the model's errors. Its 90 % intervals
are asked for in three ways: as calibrated once; with a level that follows what happens, at one
rate; and with several rates, while the calibration set slides along. Every fifth hour is a step.
Takes about half a minute; CALLIPER_DATA names the data folder.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import StandardScaler

from calliper import KNN, FullRescaled
from calliper.lab.report import RunningCoverageDisplay
from calliper.online import RATES, Controller, coverage_needed
from studies.experiments import FloatArray
from studies.experiments.data import load_tabular

#: Rows to train on and to calibrate on first; then one row of so many is a step of the stream.
N_TRAIN, N_CALIBRATION, EVERY = 2200, 600, 5


def follow(
    calibrator: FullRescaled,
    control: Controller,
    Z: FloatArray,
    errors: FloatArray,
    *,
    window: int | None = None,
) -> FloatArray:
    """Half-widths along the stream, (T,); with a window, the calibration set slides along."""
    radii = np.empty(len(Z))
    for t in range(len(Z)):
        now = slice(t, t + 1)
        radii[now] = control.predict_radius(calibrator, Z[now])
        inside = errors[now] <= radii[now]
        if window is None:
            control.update(inside)
        else:
            control.update(inside, needed=coverage_needed(calibrator, Z[now], errors[now]))
            calibrator.extend(Z[now], errors[now], window=window)
    return radii


def main(figure: str | None = None) -> None:
    """Run the three ways; print coverage and widths, and draw the running coverage."""
    data = load_tabular("bike_kaggle_10886")
    train, first = slice(N_TRAIN), slice(N_TRAIN, N_TRAIN + N_CALIBRATION)
    model = HistGradientBoostingRegressor(random_state=0).fit(data.X[train], data.y[train])
    errors = np.abs(data.y - model.predict(data.X))
    places = StandardScaler().fit(data.X[train]).transform(data.X)
    stream = slice(N_TRAIN + N_CALIBRATION, None, EVERY)
    Z, scores = places[stream], errors[stream]

    def calibrated() -> FullRescaled:
        return FullRescaled(KNN(20), shrinkage=0.3).fit(places[first], errors[first])

    once = calibrated().predict_radius(Z)
    one, several = Controller(0.9, rate=0.01), Controller(0.9, rate=RATES)
    ways = {
        "calibrated once": (once, scores > once),
        "one rate": (follow(calibrated(), one, Z, scores), one.history.outside),
        "several rates, sliding window": (
            follow(calibrated(), several, Z, scores, window=N_CALIBRATION),
            several.history.outside,
        ),
    }
    ax, colors = None, iter(("#8C8C8C", "#0072B2", "#D55E00"))
    for name, (radii, outside) in ways.items():
        display = RunningCoverageDisplay.from_outside(outside, coverage=0.9, window=200)
        worst, infinite = display.running.min(), np.isinf(radii).mean()
        print(
            f"{name:30s} covered {display.mean:.3f}, worst of 200 steps {worst:.3f}, median width "
            f"{2 * np.median(radii):.0f}, infinite {infinite:.3f}"
        )
        ax = display.plot(ax, name=name, color=next(colors)).ax_
    print(several.describe())
    if figure is not None and ax is not None:
        ax.figure.savefig(figure, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:2])
