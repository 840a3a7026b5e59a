"""Data and models of quantiles, quick to fit."""

import numpy as np
from sklearn.linear_model import QuantileRegressor

from calliper import ConformalRegressor, Split
from calliper.scores import QuantileError

VARIANTS = ["plain", "ratio", "median", "asymmetric"]
rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=600)
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:400], X[400:]
Y_TRAIN, Y_CAL, Y_NEW = Y[:200], Y[200:400], Y[400:]
LINEAR = QuantileRegressor(alpha=0)


def fixed_quantiles(columns):
    """A model whose quantiles are a simple function of the first input."""

    def predict(X):
        x = np.asarray(X)[:, 0]
        return np.stack([x - x, x, 3 * x][:: 2 if columns == 2 else 1], axis=1)

    return predict


def regressor(variant, calibrator=None):
    score = QuantileError(variant)
    model = fixed_quantiles(score.n_outputs)
    return ConformalRegressor(model, calibrator or Split(), score_function=score)
