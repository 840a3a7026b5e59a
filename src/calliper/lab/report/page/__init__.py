"""The page for people: one HTML file that works offline."""

from calliper.lab.report.page._page import Provenance, SourceFile, render_page

__all__ = ["Provenance", "SourceFile", "render_page"]
