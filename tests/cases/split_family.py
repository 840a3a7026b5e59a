"""Methods that training data transform, and points to try them on."""

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

from calliper import KNN, RBF, Split
from calliper.calibrators import RCP, SLCP, LoCart, NormalizedKNN
from calliper.calibrators._learnt_scales import DIFFICULTIES

quiet = pytest.mark.filterwarnings("ignore::UserWarning")

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(50, 2)), rng.exponential(size=50), rng.normal(size=(7, 2))
Z_TRAIN, Y_TRAIN = rng.normal(size=(80, 2)), rng.normal(size=80)
TRAIN = {"training": (Z_TRAIN, np.abs(Y_TRAIN))}
LEVELS = [0.1, 0.5, 0.8, 0.9]
SPLIT = Split().fit(Z, SCORES).predict_radius(NEW, LEVELS)

METHODS = [
    SLCP(random_state=0),
    SLCP(RBF(0.7)),
    SLCP(RBF("median")),
    *(NormalizedKNN(difficulty=d) for d in DIFFICULTIES),
    NormalizedKNN(difficulty="distance+labels", form="exp"),
    RCP(kernel=KNN(10), random_state=0),
    RCP(QuantileRegressor(alpha=0.0)),
    LoCart(random_state=0),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def fit(method, Z=Z, scores=SCORES, train=TRAIN, y_train=Y_TRAIN):
    Z_train, errors = train["training"]
    return method.fit(Z, scores, training=(Z_train, errors, y_train))
