"""Kept for imports until the package is merged."""

from calliper.exceptions import EmbeddingWarning

__all__ = ["EmbeddingWarning"]
