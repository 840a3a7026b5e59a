"""Distances by direct differences: symmetric to the last bit, zero for equal rows.

Fast searches use the expansion ‖x‖² − 2x·z + ‖z‖², whose rounding can order two equal
distances either way. What decides a tie is therefore always computed here, coordinate by
coordinate, so that the same two rows give the same number wherever it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from calliper._types import FloatArray
from calliper.exceptions import CalliperError

#: A name that :func:`scipy.spatial.distance.cdist` knows, or a symmetric function of two rows.
Metric = str | Callable[[FloatArray, FloatArray], float]

EUCLIDEAN = "euclidean"


def check_metric(metric: Metric) -> None:
    """Try the metric on two rows, so that a wrong name fails at once and by name."""
    if metric in ("seuclidean", "mahalanobis"):
        raise ValueError(
            f"metric {metric!r} would take its scale from whatever rows are compared: standardise "
            f"or whiten the features with training data instead, and use the Euclidean metric."
        )
    try:
        cdist(np.eye(2), np.eye(2), metric=metric)
    except ValueError as error:
        raise ValueError(
            f"metric must be a name that scipy.spatial.distance.cdist knows, or a function of two "
            f"rows; got {metric!r} ({error})."
        ) from error


def all_distances(queries: FloatArray, points: FloatArray, metric: Metric) -> FloatArray:
    """Distances of every query to every point, (m, N); squared for the Euclidean metric."""
    if metric != EUCLIDEAN:
        distances = np.asarray(cdist(queries, points, metric=metric), dtype=np.float64)
        if np.isnan(distances).any():
            row = int(np.flatnonzero(np.isnan(distances).any(axis=1))[0])
            raise CalliperError(
                f"metric {metric!r} gives NaN, for example for the row {queries[row]}: such a row "
                f"(all zeros, for cosine) is near to nothing. Remove it or use another metric."
            )
        return distances
    total = np.zeros((len(queries), len(points)))
    for column in range(points.shape[1]):
        total += np.square(queries[:, column, None] - points[None, :, column])
    return total


def paired_distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """Squared Euclidean distances of row r of ``left`` to row r of ``right``, (m,)."""
    total = np.zeros(len(left))
    for column in range(left.shape[1]):
        total += np.square(left[:, column] - right[:, column])
    return total


def squared_distances(queries: FloatArray, points: FloatArray, metric: Metric) -> FloatArray:
    """Squared distances for any metric, (m, N)."""
    distances = all_distances(queries, points, metric)
    return distances if metric == EUCLIDEAN else np.square(distances)
