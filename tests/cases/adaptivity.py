"""Intervals with a known answer that the tests of adaptivity share."""

from __future__ import annotations

import numpy as np

from calliper.intervals import Intervals


def two_sizes(factor, *, size=100):
    """Scores 1..size in narrow intervals and 2..2·size in wide ones; CSQ = median."""
    narrow = np.arange(1.0, size + 1)
    y = np.concatenate([narrow, 2 * narrow])
    radius = factor * np.repeat([narrow.mean(), 2 * narrow.mean()], size)
    return y, Intervals(-radius, radius, 0.5), 0 * y
