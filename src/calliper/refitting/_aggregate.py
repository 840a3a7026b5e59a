"""Ensembles without one row: the mean or the median of the models that have not seen it."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray

AGGREGATES: dict[str, Any] = {"mean": np.mean, "median": np.median}


def aggregate_without(per_model: FloatArray, in_bag: BoolArray, aggregate: str) -> FloatArray:
    """μ₋ᵢ(x), (m, n), from (m, B) predictions and (B, n) membership; 0 where every model saw i.

    The mean is one matrix product, O(mBn); the median takes each row's models in turn.
    """
    unseen = ~in_bag
    if aggregate == "mean":
        weights: FloatArray = unseen / np.maximum(unseen.sum(axis=0), 1)
        return per_model @ weights
    left_out = np.zeros((len(per_model), in_bag.shape[1]))
    for i in np.flatnonzero(unseen.any(axis=0)):
        left_out[:, i] = np.median(per_model[:, unseen[:, i]], axis=1)
    return left_out
