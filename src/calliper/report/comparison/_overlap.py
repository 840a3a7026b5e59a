"""Rows that occur twice, exactly: within one set, or in two."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray
from calliper.report.comparison._points import Points


def shared_rows(known: Points, test: Points) -> tuple[int, float]:
    """How many test rows are in the other set, and what share would be so by chance.

    Chance is the share of the known rows that have a twin among themselves: targets and
    predictions on a coarse grid coincide without being the same row.
    """
    ours, theirs = _keys(known.rows()), _keys(test.rows())
    shared = int(np.isin(theirs, ours).sum())
    return shared, duplicate_rows(known.rows()) / len(known)


def duplicate_rows(rows: FloatArray) -> int:
    """How many rows equal another."""
    _, counts = np.unique(_keys(rows), return_counts=True)
    return int(counts[counts > 1].sum())


def _keys(rows: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Each row as one value that compares by its bytes; −0 is 0."""
    rows = np.ascontiguousarray(rows + 0.0)
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
