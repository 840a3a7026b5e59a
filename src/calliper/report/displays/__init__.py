"""Figures as objects: numbers when they are made, drawn when :meth:`plot` is called."""

from calliper.report.displays._band import BandDisplay
from calliper.report.displays._calibration_curve import CalibrationCurveDisplay
from calliper.report.displays._coverage_bins import CoverageDisplay
from calliper.report.displays._coverage_law import CoverageLawDisplay
from calliper.report.displays._embedding import EmbeddingDisplay
from calliper.report.displays._metric_curve import MetricCurveDisplay
from calliper.report.displays._width_error import WidthErrorDisplay

__all__ = [
    "BandDisplay",
    "CalibrationCurveDisplay",
    "CoverageDisplay",
    "CoverageLawDisplay",
    "EmbeddingDisplay",
    "MetricCurveDisplay",
    "WidthErrorDisplay",
]
