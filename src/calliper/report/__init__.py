"""Figures: numbers in, a matplotlib figure out, nothing shown and nothing printed."""

from calliper.report._bands import Band, Scene, draw_bands
from calliper.report.displays import (
    BandDisplay,
    CalibrationCurveDisplay,
    CoverageDisplay,
    CoverageLawDisplay,
    EmbeddingDisplay,
    MetricCurveDisplay,
    WidthErrorDisplay,
)

__all__ = [
    "Band",
    "BandDisplay",
    "CalibrationCurveDisplay",
    "CoverageDisplay",
    "CoverageLawDisplay",
    "EmbeddingDisplay",
    "MetricCurveDisplay",
    "Scene",
    "WidthErrorDisplay",
    "draw_bands",
]
