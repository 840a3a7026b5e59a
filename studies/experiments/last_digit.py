"""Draws of one measure as a number with its uncertainty, where some draws may be undefined."""

from __future__ import annotations

import numpy as np

from calliper.lab import evaluation
from studies.experiments import FloatArray


def last_digit(values: FloatArray) -> str:
    """Mean of the finite draws with the uncertainty of its last digit, if half of them are."""
    finite = values[np.isfinite(values)]
    if len(finite) < max(2, len(values) // 2):
        return "undefined"
    return evaluation.last_digit(*evaluation.one_sigma(finite))
