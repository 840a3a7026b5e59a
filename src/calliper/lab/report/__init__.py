"""Figures, and one page that compares methods. Nothing is printed."""

from calliper.lab.report._bands import (
    BandDisplay,
    FanDisplay,
    MetricCurveDisplay,
    draw_bands,
    draw_tuning,
)
from calliper.lab.report._coverage import (
    CalibrationCurveDisplay,
    CoverageDisplay,
    CoverageLawDisplay,
    MonitorDisplay,
    PITDisplay,
    RunningCoverageDisplay,
)
from calliper.lab.report._widths import (
    EmbeddingDisplay,
    WidthErrorDisplay,
    WidthImportanceDisplay,
    draw_calibration,
)
from calliper.lab.report.page import Provenance, render_page

__all__ = [
    "BandDisplay",
    "CalibrationCurveDisplay",
    "CoverageDisplay",
    "CoverageLawDisplay",
    "EmbeddingDisplay",
    "FanDisplay",
    "MetricCurveDisplay",
    "MonitorDisplay",
    "PITDisplay",
    "Provenance",
    "RunningCoverageDisplay",
    "WidthErrorDisplay",
    "WidthImportanceDisplay",
    "draw_bands",
    "draw_calibration",
    "draw_tuning",
    "render_page",
]
