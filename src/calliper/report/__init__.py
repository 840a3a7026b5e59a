"""Figures: numbers in, a matplotlib figure out, nothing shown and nothing printed."""

from calliper.report._bands import Band, Scene, draw_bands

__all__ = ["Band", "Scene", "draw_bands"]
