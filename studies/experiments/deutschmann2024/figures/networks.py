"""Figures of the networks: AlphaSeq's predictions and map, MNIST's maps and digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper import KNN, FullRescaled, Intervals
from calliper.lab.evaluation import Records
from calliper.lab.report import EmbeddingDisplay, WidthErrorDisplay
from studies.experiments import FloatArray
from studies.experiments.deutschmann2024.artefact import Artefact, load
from studies.experiments.deutschmann2024.config import COVERAGE, NEIGHBOURS, SEED, TASKS
from studies.experiments.deutschmann2024.methods import QUANTILE_NEIGHBOURS

MAP_ROWS, QUICK_MAP_ROWS = 2500, 200


def split(artefact: Artefact, n: int) -> tuple[Any, Any]:
    """Held-out rows that calibrate and that test, drawn once."""
    rows = np.random.default_rng(SEED).permutation(len(artefact.held_out.y))
    return rows[:n], rows[n:]


def widths_of(artefact: Artefact, cal: Any, test: Any, method: Any) -> FloatArray:
    """Radii of test rows."""
    held_out = artefact.held_out
    errors = np.abs(held_out.y[cal] - held_out.y_pred[cal])
    fitted = method.fit(held_out.Z[cal], errors)
    return np.asarray(fitted.predict_radius(held_out.Z[test], COVERAGE))


def map_of(Z: FloatArray, n: int) -> FloatArray:
    """Two coordinates that keep neighbours together: t-SNE, where the paper has UMAP."""
    from sklearn.manifold import TSNE

    perplexity = min(30, n // 4)
    found = TSNE(perplexity=perplexity, init="pca", random_state=SEED).fit_transform(Z[:n])
    return np.asarray(found, dtype=np.float64)


def alphaseq(results: dict[str, Records], quick: bool) -> Any:
    """Left, prediction against label; right, the map of the embedding."""
    from matplotlib import pyplot

    task = TASKS["alphaseq"]
    if not task.artefact.exists():
        return None
    artefact = load(task.artefact)
    cal, test = split(artefact, task.n_calibration[0])
    y, y_pred = artefact.held_out.y[test], artefact.held_out.y_pred[test]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12.8, 5.4), layout="constrained")
    hexes = left.hexbin(y, y_pred, gridsize=60, bins="log", cmap="viridis", mincnt=1)
    figure.colorbar(hexes, ax=left, label="antibodies")
    ends = [float(y.min()), float(y.max())]
    left.plot(ends, ends, color="#D55E00", linestyle="--", label="prediction = label")
    centres, means = _means(y, y_pred)
    left.plot(centres, means, "o-", color="#000000", ms=4, label="mean prediction in bins of y")
    left.set_xlabel("measured log10 Kd")
    left.set_ylabel("predicted log10 Kd")
    left.set_title("AlphaSeq: pulled to the mean at both ends", loc="left", fontweight="bold")
    left.legend(frameon=False, loc="upper left")
    n = QUICK_MAP_ROWS if quick else MAP_ROWS
    few = test[:n]
    radius = widths_of(artefact, cal, few, FullRescaled(KNN(NEIGHBOURS), random_state=0))
    EmbeddingDisplay.from_intervals(
        map_of(artefact.held_out.Z[few], n), Intervals(-radius, radius, COVERAGE), project=False
    ).plot(right, name="Embedding of both chains (t-SNE)")
    _name_axes(right)
    return figure


def mnist_map(results: dict[str, Records], quick: bool) -> Any:
    """The hidden layer in two dimensions, by width and by digit."""
    from matplotlib import pyplot

    artefact = load(TASKS["mnist"].artefact)
    cal, test = split(artefact, TASKS["mnist"].n_calibration[0])
    n = QUICK_MAP_ROWS if quick else MAP_ROWS
    few = test[:n]
    position = map_of(artefact.held_out.Z[few], n)
    radius = widths_of(artefact, cal, few, FullRescaled(KNN(NEIGHBOURS), random_state=0))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12.8, 5.4), layout="constrained")
    EmbeddingDisplay.from_intervals(
        position, Intervals(-radius, radius, COVERAGE), project=False
    ).plot(left, name="MNIST by width of the interval")
    dots = right.scatter(*position.T, c=artefact.held_out.y[few], cmap="tab10", s=9, linewidths=0)
    bar = figure.colorbar(dots, ax=right, ticks=np.linspace(0.45, 8.55, 10))
    bar.ax.set_yticklabels([str(digit) for digit in range(10)])
    right.set_title("The same by digit", loc="left", fontweight="bold", fontsize=11)
    right.spines[["top", "right"]].set_visible(False)
    for ax in (left, right):
        _name_axes(ax)
    return figure


def mnist_digits(results: dict[str, Records], quick: bool) -> Any:
    """For each digit, what is predicted and how wide the intervals are."""
    from matplotlib import pyplot

    artefact = load(TASKS["mnist"].artefact)
    cal, test = split(artefact, TASKS["mnist"].n_calibration[0])
    radius = widths_of(artefact, cal, test, FullRescaled(KNN(NEIGHBOURS), random_state=0))
    y, y_pred = artefact.held_out.y[test], artefact.held_out.y_pred[test]
    figure, axes = pyplot.subplots(2, 1, figsize=(10.5, 7.6), layout="constrained", sharex=True)
    of_digit = [y == digit for digit in range(10)]
    for ax, values, label in (
        (axes[0], y_pred, "prediction"),
        (axes[1], 2 * radius, "width of the interval"),
    ):
        parts = ax.violinplot(
            [values[rows] for rows in of_digit],
            positions=range(10),
            widths=0.85,
            showextrema=False,
            showmedians=True,
            points=300,
        )
        for body in parts["bodies"]:
            body.set(facecolor="#0072B2", alpha=0.45)
        for digit, rows in enumerate(of_digit):
            tail = np.quantile(values[rows], [0.025, 0.975])
            ax.plot([digit, digit], tail, color="#444444", linewidth=1)
        ax.set_ylabel(label)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].plot(range(10), range(10), "_", color="#D55E00", ms=22, label="the digit itself")
    axes[0].legend(frameon=False)
    axes[1].set_ylim(0, np.quantile(2 * radius, 0.995))
    axes[1].set_xticks(range(10))
    axes[1].set_xlabel("digit")
    axes[0].set_title(
        "Predictions near the digit, with tails that differ from digit to digit (lines: 95 %)",
        loc="left",
        fontweight="bold",
        fontsize=11,
    )
    return figure


def mnist_width_error(results: dict[str, Records], quick: bool) -> Any:
    """What R²_SQI sees: widths against error quantiles for three local scales."""
    from matplotlib import pyplot

    artefact = load(TASKS["mnist"].artefact)
    cal, test = split(artefact, TASKS["mnist"].n_calibration[1])
    y, y_pred = artefact.held_out.y[test], artefact.held_out.y_pred[test]
    methods = {
        "mean of 10": FullRescaled(KNN(NEIGHBOURS), random_state=0),
        "rms of 10": FullRescaled(KNN(NEIGHBOURS), statistic="rms", random_state=0),
        "quantile of 30": FullRescaled(
            KNN(QUANTILE_NEIGHBOURS), statistic="quantile", random_state=0
        ),
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    for ax, (name, method) in zip(axes, methods.items(), strict=True):
        radius = widths_of(artefact, cal, test, method)
        WidthErrorDisplay.from_intervals(
            y, Intervals(y_pred - radius, y_pred + radius, COVERAGE), y_pred=y_pred
        ).plot(ax, name=f"MNIST, {name}")
        ax.set_xlim(0, 12)
        ax.set_ylim(0, 7)
    return figure


def _means(y: FloatArray, y_pred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean prediction in twelve bins of equal numbers of labels."""
    groups = np.array_split(np.argsort(y, kind="stable"), 12)
    centres = np.array([y[group].mean() for group in groups])
    return centres, np.array([y_pred[group].mean() for group in groups])


def _name_axes(ax: Any) -> None:
    ax.set_xlabel("t-SNE 1")
    ax.set_ylabel("t-SNE 2")
    ax.set_xticks([])
    ax.set_yticks([])
