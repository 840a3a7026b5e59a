"""Rows that occur twice: within one set, or in two.

Rows are the same if target and features are, to five digits of the spread of each column: files
round, and another run of the model predicts differently in the last digits. Predictions are left
out, since the same row may have been predicted by two models.
"""

from __future__ import annotations

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper.report.comparison._points import Points

#: Digits of the spread of a column that rows must share.
DIGITS = 5
_Keys = np.ndarray[tuple[int], np.dtype[np.void]]


def shared_rows(known: Points, test: Points) -> tuple[int, float]:
    """How many test rows are in the other set, and what share may be so by chance.

    Rows coincide by chance where both targets and features lie on a coarse grid: where the target
    of a known row also occurs with other features, and its features with another target. Copies
    of a row say nothing about that.
    """
    ours, theirs = (np.column_stack([points.y, points.Z]) for points in (known, test))
    quantum = _quantum(np.concatenate([ours, theirs]))
    shared = np.zeros(len(test), dtype=bool)
    # Two grids, half a step apart: what lies at the edge of a cell in one does not in the other.
    for offset in (0.0, 0.5):
        shared |= np.isin(_keys(theirs, quantum, offset), _keys(ours, quantum, offset))
    return int(shared.sum()), _by_chance(ours, quantum)


def duplicate_rows(rows: FloatArray) -> int:
    """How many rows equal another."""
    _, counts = np.unique(_keys(rows, _quantum(rows), 0.0), return_counts=True)
    return int(counts[counts > 1].sum())


def _by_chance(rows: FloatArray, quantum: FloatArray) -> float:
    """Share of the rows whose target has other features too, and whose features other targets."""
    rows = rows[np.unique(_keys(rows, quantum, 0.0), return_index=True)[1]]  # without copies
    targets = _occurs_again(_keys(rows[:, :1], quantum[:1], 0.0))
    features = _occurs_again(_keys(rows[:, 1:], quantum[1:], 0.0))
    return float(np.mean(targets & features))


def _occurs_again(keys: _Keys) -> BoolArray:
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    again: BoolArray = counts[place] > 1
    return again


def _quantum(rows: FloatArray) -> FloatArray:
    """The step of the grid in each column: a power of ten, DIGITS below its spread."""
    low, high = np.percentile(rows, [5, 95], axis=0)
    spread = np.where(high > low, high - low, np.ptp(rows, axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    steps: FloatArray = 10.0 ** (np.floor(np.log10(spread)) - DIGITS)
    return steps


def _keys(rows: FloatArray, quantum: FloatArray, offset: float) -> _Keys:
    """The cell of each row as one value that compares by its bytes; −0 is 0."""
    cells = np.ascontiguousarray(np.floor(rows / quantum + 0.5 + offset) + 0.0)
    return cells.view(np.dtype((np.void, cells.dtype.itemsize * cells.shape[1]))).ravel()
