"""Figures of the one-dimensional task: the fit, measures against N, information against scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper import KNN, Intervals, JackknifeRescaled
from calliper.calibrators import MADSplit
from calliper.kernels import TunedRBF
from calliper.lab.evaluation import Records
from calliper.lab.report import BandDisplay, MetricCurveDisplay, draw_tuning
from calliper.lab.tuning import tuning_curve
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024.config import COVERAGE, NEIGHBOURS
from studies.experiments.deutschmann2024.problems.one_dimensional import (
    N_TRAIN,
    TASK,
    VARIANTS,
    trained,
)
from studies.experiments.deutschmann2024.results import chosen

N_CALIBRATION = 1000
SHOWN = 1200
CURVES = (names.OURS, names.FULL, names.MAD_KNN, names.LVD_TUNED)
PANELS = {
    "coverage": "Coverage",
    "mean_width": "Mean width, end to end",
    "r2_sqi": "R²_SQI",
    "tau_si": "τ_SI",
}


def fit(results: dict[str, Records], quick: bool) -> Any:
    """Bands around the default forest and around one that overfits, ours and MADSplit's."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, 2, figsize=(12.5, 8.4), layout="constrained", sharex=True, sharey=True
    )
    for row, (bootstrap, forest) in zip(
        axes, ((True, "default forest"), (False, "overfitting forest")), strict=True
    ):
        data, model = trained("cycles", bootstrap, 0)
        y_pred = model.predict(data.X)
        errors = np.abs(data.y - y_pred)
        train, cal = slice(N_TRAIN), slice(N_TRAIN, N_TRAIN + N_CALIBRATION)
        test = slice(N_TRAIN + N_CALIBRATION, N_TRAIN + N_CALIBRATION + SHOWN)
        fitted: dict[str, Any] = {
            names.OURS: JackknifeRescaled(KNN(NEIGHBOURS), random_state=0).fit(
                data.X[cal], errors[cal]
            ),
            names.MAD_KNN: MADSplit(KNN(NEIGHBOURS), random_state=0).fit(
                data.X[cal], errors[cal], training=(data.X[train], errors[train])
            ),
        }
        for ax, (name, method) in zip(row, fitted.items(), strict=True):
            radius = method.predict_radius(data.X[test], COVERAGE)
            BandDisplay.from_intervals(
                data.X[test],
                Intervals(y_pred[test] - radius, y_pred[test] + radius, COVERAGE),
                y=data.y[test],
                oracle=data.oracle(data.X[test], COVERAGE),
            ).plot(ax, name=f"{name}, {forest}")
            ax.set_ylim(-1.15, 1.15)
    return figure


def curves(results: dict[str, Records], quick: bool) -> Any:
    """The paper's four panels: measures against the number of calibration rows."""
    return _panels(results, TASK.title)


def overfitting_curves(results: dict[str, Records], quick: bool) -> Any:
    """The same for the forest without bootstrapping."""
    return _panels(results, VARIANTS[1][0])


def _panels(results: dict[str, Records], title: str) -> Any:
    from matplotlib import pyplot

    records = results.get(TASK.name)
    if records is None:
        return None
    shown = chosen(records, title=title, methods=CURVES)
    figure, axes = pyplot.subplots(2, 2, figsize=(12.5, 8.4), layout="constrained")
    for ax, (measure, label) in zip(axes.flat, PANELS.items(), strict=True):
        MetricCurveDisplay.from_records(shown, measure).plot(ax, name=f"{label}: {title}")
        ax.set_ylabel(label)
        if measure == "r2_sqi":
            ax.set_ylim(-2, 1.05)
        if measure == "mean_width" and title != TASK.title:
            ax.set_yscale("log")  # where training errors are all zero, MADSplit has no bounds
    return figure


def mutual_information(results: dict[str, Records], quick: bool) -> Any:
    """MI between rescaled score and input against the length scale, as in the paper."""
    n = 200 if quick else 2000
    data, model = trained("cycles", True, 0)
    cal = slice(N_TRAIN, N_TRAIN + n)
    errors = np.abs(data.y[cal] - model.predict(data.X[cal]))
    kernel = TunedRBF("mi", grid="paper", n_sample=100, n_folds=20)
    curve = tuning_curve(
        data.X[cal], errors, kernel=kernel, Z_train=data.X[:N_TRAIN], random_state=0
    )
    return draw_tuning(curve)
