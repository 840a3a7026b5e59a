"""Points to compare methods on, drawn from problems whose answer is known."""

from __future__ import annotations

import numpy as np

from calliper import KNN, FullRescaled, JackknifeRescaled, Split
from calliper.lab.comparison import Points


def points(n, *, seed, spread="growing", shift=0.0, ids=False):
    """Targets around 2x with noise that grows with x, or is the same everywhere."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(size=(n, 2)) + shift
    sigma = {"growing": 0.05 + Z[:, 0], "constant": np.ones(n)}[spread]
    y_pred = 2 * Z[:, 0]
    names = [f"p{seed}-{i}" for i in range(n)] if ids else None
    return Points(Z, y_pred + sigma * rng.normal(size=n), y_pred, names, ("a", "b"))


def methods():
    return {
        "full": FullRescaled(KNN(20), random_state=0),
        "jackknife": JackknifeRescaled(KNN(20), random_state=0),
        "split": Split(),
    }
