"""Methods that refit, and rows to try them on."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus

COVERAGES = ["0.1", "0.3", "0.5", "0.75", "0.8", "0.9"]
rng = np.random.default_rng(0)
X = rng.uniform(size=(120, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=120)
NEW = rng.uniform(size=(30, 2))


class Nearest(RegressorMixin, BaseEstimator):
    """The target of the nearest training row, the smallest among ties: quick and unstable."""

    def fit(self, X, y):
        order = np.argsort(y, kind="stable")
        self.X_, self.y_ = X[order, 0], y[order]
        return self

    def predict(self, X):
        return self.y_[np.abs(X[:, :1] - self.X_).argmin(axis=1)]


def small_problem(seed):
    """Few rows; every second problem is full of ties."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 13))
    draw = (lambda *s: rng.integers(0, 4, s) * 1.0) if seed % 2 else (lambda *s: rng.normal(size=s))
    return draw(n, 2), draw(n), draw(4, 2), str(rng.choice(COVERAGES)), rng


def ends(intervals):
    return np.stack(list(intervals), axis=1)


METHODS = [
    JackknifePlus(Ridge()),
    JackknifePlus(Ridge(), minmax=True),
    CVPlus(Ridge(), random_state=0),
    CVPlus(Ridge(), 7, minmax=True, random_state=0),
    JackknifeAfterBootstrap(Ridge(), 30, random_state=0),
    JackknifeAfterBootstrap(Ridge(), 30, aggregate="median", random_state=0),
]
