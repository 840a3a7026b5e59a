"""The span of a basis and a constant, in coordinates fit for computing.

Columns in other units, repeated columns and indicators that sum to the constant leave the span as
it is. A new row may have a part that no calibration point has, such as a group not seen before:
then the calibration points say nothing about it, which ``coordinates`` tells.
"""

from __future__ import annotations

import numpy as np

from calliper._types import BoolArray, FloatArray

#: Directions in which calibration points differ by less, in relation to the others, are none.
LEAST_SPREAD = 1e-9


class Span:
    """Coordinates in which the columns at the calibration points have unit spread each.

    Their span with a constant stays the same; columns that repeat others are left out.
    """

    def __init__(self, columns: FloatArray) -> None:
        self.centre = columns.mean(axis=0)
        centred = columns - self.centre
        largest = np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1e-300)
        spread = np.sqrt(np.square(centred / largest).mean(axis=0)) * largest
        self.unit = np.where(spread > LEAST_SPREAD * largest, spread, largest)
        _, sizes, axes = np.linalg.svd(centred / self.unit, full_matrices=False)
        kept = sizes > LEAST_SPREAD * np.sqrt(len(columns))
        self.axes = axes[kept].T
        self.sizes = sizes[kept] / np.sqrt(len(columns))

    def coordinates(self, columns: FloatArray) -> tuple[FloatArray, BoolArray]:
        """A constant and p − 1 coordinates of each row, and whether they say all there is."""
        scaled = (columns - self.centre) / self.unit
        # One row at a time: products of matrices round by the number of rows.
        along = np.stack([row @ self.axes for row in scaled])
        rest = np.abs(scaled - along @ self.axes.T).max(axis=1, initial=0.0)
        inside = rest <= 1e-6 * (1 + np.abs(scaled).max(axis=1, initial=0.0))
        return np.column_stack([np.ones(len(columns)), along / self.sizes]), inside
