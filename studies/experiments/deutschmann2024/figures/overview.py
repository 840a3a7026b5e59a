"""The interval-size ratio in closed form, and every method's interval score at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper.lab.evaluation import Records
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024.config import COVERAGE
from studies.experiments.deutschmann2024.interval_size import size_ratio
from studies.experiments.deutschmann2024.results import paper_blocks, value

FACTORS = (2, 5, 10, 50)
COLOURS = ("#0072B2", "#009E73", "#E69F00", "#D55E00")
SHOWN = (
    names.OURS,
    names.TUNED_MI,
    names.TUNED_MSE,
    names.FULL,
    names.RMS,
    names.QUANTILE,
    names.DEFAULT,
    names.WHOLE,
    names.MAD_KNN,
    names.MAD_MEDIAN,
    names.LVD_TUNED,
    names.LVD_BASE,
    "LCP",
    "SLCP",
    "RLCP",
    names.CQR,
)


def size_ratios(results: dict[str, Records], quick: bool) -> Any:
    """Flat over perfectly adaptive mean size, against the part with small errors."""
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(figsize=(7.4, 4.8), layout="constrained")
    beta = np.linspace(0, 1, 201)
    for factor, colour in zip(FACTORS, COLOURS, strict=True):
        ratio = [size_ratio(float(b), factor, COVERAGE) for b in beta]
        ax.plot(beta, ratio, color=colour, label=f"λ = {factor}")
    ax.axhline(1, color="#000000", linewidth=1, linestyle="--")
    ax.axvline(COVERAGE, color="#8C8C8C", linewidth=1, linestyle=":")
    ax.annotate("β = 1 − α", (COVERAGE, 0.12), (-6, 0), textcoords="offset points", ha="right")
    ax.annotate("flat is smaller below", (0.02, 0.93), va="top", fontsize=9, color="#444444")
    ax.set_ylim(0, None)
    ax.set_xlabel("β, part of the inputs with errors of σ₀; the others have λσ₀")
    ax.set_ylabel("mean size: flat / perfectly adaptive")
    ax.set_title("Smaller on average, and worse: rare large errors", loc="left", fontweight="bold")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.86))
    return figure


def interval_scores(results: dict[str, Records], quick: bool) -> Any:
    """Interval score over Split's, method by method and task by task."""
    from matplotlib import pyplot

    blocks = paper_blocks(results)
    if not blocks:
        return None
    ratios = np.array([[_ratio(results, block, method) for block in blocks] for method in SHOWN])
    shown = ~np.isnan(ratios).all(axis=1)
    ratios, methods = ratios[shown], [m for m, keep in zip(SHOWN, shown, strict=True) if keep]
    figure, ax = pyplot.subplots(figsize=(1.1 * len(blocks) + 3.2, 0.42 * len(methods) + 2.2),
                                 layout="constrained")  # fmt: skip
    ax.imshow(np.log(ratios), cmap="RdBu_r", vmin=-0.4, vmax=0.4, aspect="auto")
    for i, row in enumerate(ratios):
        for j, ratio in enumerate(row):
            dark = abs(np.log(ratio)) > 0.28
            text = "" if np.isnan(ratio) else f"{ratio:.2f}"
            ax.text(j, i, text, ha="center", va="center", color="w" if dark else "k", fontsize=9)
    ax.set_xticks(range(len(blocks)), [f"{title}\nN = {n:,}" for _, title, n in blocks],
                  rotation=40, ha="right")  # fmt: skip
    ax.set_yticks(range(len(methods)), methods)
    ax.set_title("Interval score over that of Split: below 1 is better", loc="left",
                 fontweight="bold", fontsize=11)  # fmt: skip
    return figure


def _ratio(results: dict[str, Records], block: tuple[str, str, int], method: str) -> float:
    stage, title, n = block
    mine, split = (
        value(results[stage], title, n, m, "interval_score").mean for m in (method, names.SPLIT)
    )
    return mine / split
