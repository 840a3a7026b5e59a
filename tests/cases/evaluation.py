"""Small problems and methods that the tests of evaluation share."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from calliper.lab.evaluation import Problem


def fan(name: str = "fan", *, n: int = 120, seed: int = 0, **more: Any) -> Problem:
    """Noise that grows along the first feature, around a model that is right on average."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(size=(n, 2))
    y = Z[:, 0] * rng.normal(size=n)
    quantiles = np.stack([-1.6 * Z[:, 0], 1.6 * Z[:, 0]], axis=1)
    more.setdefault("outputs", {"quantiles": quantiles})
    return Problem(name, Z=Z, y=y, y_pred=np.zeros(n), **more)


class Failing(BaseEstimator):
    """Raises where the calibration set is larger than ``at_most``."""

    def __init__(self, at_most: int = 0) -> None:
        self.at_most = at_most

    def fit(self, Z, scores):
        if len(scores) > self.at_most:
            raise RuntimeError(f"{len(scores)} points are too many")
        return self

    def predict_radius(self, Z, coverage=0.9):
        return np.ones((len(Z), len(np.atleast_1d(coverage))))


class Dying(Failing):
    """Ends its process, as if out of memory, where the calibration set is at most that large."""

    def fit(self, Z, scores):
        if len(scores) <= self.at_most:
            os._exit(9)
        return self


class Threaded(Failing):
    """Warns from a thread of its own."""

    def fit(self, Z, scores):
        thread = Thread(target=warnings.warn, args=("from a thread",))
        thread.start()
        thread.join()
        return self


class Logging(BaseEstimator):
    """Writes the rows that it was fitted on to a file, and asks for the same radius everywhere."""

    def __init__(self, path: Path, tag: str = "") -> None:
        self.path = path
        self.tag = tag

    def fit(self, Z, scores):
        with open(self.path, "a") as file:
            file.write(f"{self.tag} {np.sort(Z[:, 0]).tobytes().hex()} {scores.sum():.17g}\n")
        return self

    def predict_radius(self, Z, coverage=0.9):
        return np.ones((len(Z), len(np.atleast_1d(coverage))))


class Seeded(BaseEstimator):
    """Its radius is the sum of its seed and that of the estimator inside it."""

    def __init__(self, random_state: int | None = None, inner: Any = None) -> None:
        self.random_state = random_state
        self.inner = inner

    def fit(self, Z, scores):
        return self

    def predict_radius(self, Z, coverage=0.9):
        radius = float(self.random_state + self.inner.random_state)
        return np.full((len(Z), len(np.atleast_1d(coverage))), radius)


class Slow(Logging):
    """The same, long enough to be killed."""

    def predict_radius(self, Z, coverage=0.9):
        sleep(0.05)
        return super().predict_radius(Z, coverage)


def without_time(rows: Any) -> list[dict[str, Any]]:
    """Rows that can be compared between runs; NaN as text, since it differs from itself."""
    kept = [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]
    return [{k: "NaN" if v != v else v for k, v in row.items()} for row in kept]
