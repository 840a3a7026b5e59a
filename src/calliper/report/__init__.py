"""What a person looks at: figures, and one page that compares methods. Nothing is printed."""

from calliper.report._bands import Band, Scene, draw_bands
from calliper.report._tuning import draw_tuning
from calliper.report.comparison import Answer, Comparison, Points, compare
from calliper.report.displays import (
    BandDisplay,
    CalibrationCurveDisplay,
    CoverageDisplay,
    CoverageLawDisplay,
    EmbeddingDisplay,
    MetricCurveDisplay,
    WidthErrorDisplay,
)
from calliper.report.page import Provenance, SourceFile, render_page

__all__ = [
    "Answer",
    "Band",
    "BandDisplay",
    "CalibrationCurveDisplay",
    "Comparison",
    "CoverageDisplay",
    "CoverageLawDisplay",
    "EmbeddingDisplay",
    "MetricCurveDisplay",
    "Points",
    "Provenance",
    "Scene",
    "SourceFile",
    "WidthErrorDisplay",
    "compare",
    "draw_bands",
    "draw_tuning",
    "render_page",
]
