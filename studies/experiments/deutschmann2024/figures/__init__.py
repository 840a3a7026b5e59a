"""The paper's figures, and one of our own, from stored records and artefacts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from studies.experiments.deutschmann2024.figures import networks, one_dimensional, overview
from studies.experiments.deutschmann2024.results import load

IMAGES = Path(__file__).parents[4] / "docs" / "images"

#: Each makes one figure, or none if what it needs is not at hand.
FIGURES: dict[str, Callable[..., Any]] = {
    "paper-1d-fit": one_dimensional.fit,
    "paper-1d-curves": one_dimensional.curves,
    "paper-1d-overfitting": one_dimensional.overfitting_curves,
    "paper-mi-length-scale": one_dimensional.mutual_information,
    "paper-alphaseq": networks.alphaseq,
    "paper-mnist-map": networks.mnist_map,
    "paper-mnist-digits": networks.mnist_digits,
    "paper-mnist-width-error": networks.mnist_width_error,
    "paper-interval-size-ratio": overview.size_ratios,
    "paper-interval-scores": overview.interval_scores,
}


def draw_all(folder: Path, *, quick: bool = False) -> None:
    """Every figure as a PNG; of a quick run, smaller and into that run's folder."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    target = folder / "figures" if quick else IMAGES
    target.mkdir(parents=True, exist_ok=True)
    results = load(folder)
    for name, draw in FIGURES.items():
        figure = draw(results, quick)
        if figure is None:
            print(f"  {name}: not drawn, since its data are not here", file=sys.stderr)
            continue
        figure.savefig(target / f"{name}.png", dpi=130)
        pyplot.close(figure)
