"""The picture of the demonstration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calliper.cli._comparison import Comparison
from calliper.cli._output import check_output, open_output
from calliper.exceptions import CalliperError
from calliper.regressor import ConformalRegressor
from calliper.report import Band, Scene, draw_bands

_FORMATS = (".png", ".pdf", ".svg")
_N_POINTS = 500  # more would hide the bands
_CAPTIONS = {
    "Split": "same width everywhere; proved {}",
    "JackknifeRescaled": "as wide as errors near by; proved {}",
    "FullRescaled": "as wide as errors near by; proved {}",
}


def check_figure_name(output: str) -> None:
    """Refuse a file that cannot be drawn or written, before any work is done."""
    if Path(output).suffix.lower() not in _FORMATS:
        raise CalliperError(f"{output}: a figure's name must end in {', '.join(_FORMATS)}.")
    check_output(output, [])


def write_figure(
    comparison: Comparison, methods: Mapping[str, ConformalRegressor], output: str
) -> None:
    """Draw a constant and two adaptive bands around the oracle."""
    from calliper.cli._demo_table import promise

    grid, level = np.linspace(0, 1, 801)[:, None], comparison.coverage
    X, y = comparison.test.X[:_N_POINTS], comparison.test.y[:_N_POINTS]
    bands = [
        Band(
            name,
            caption.format(promise(float(methods[name].guaranteed_coverage(level)))),
            methods[name].predict_interval(grid, level),
            methods[name].predict_interval(X, level).contains(y),
            adaptive=name != "Split",
        )
        for name, caption in _CAPTIONS.items()
    ]
    oracle = comparison.test.oracle(grid, level)
    scene = Scene(grid[:, 0], comparison.model.predict(grid), oracle, X[:, 0], y)
    with open_output(output) as handle:
        draw_bands(scene, bands).savefig(handle, format=Path(output).suffix[1:].lower())
