"""Methods that need calibration rows only, and points to try them on."""

import numpy as np

from calliper import RBF, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import ConditionalCalibration

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(50, 2)), rng.exponential(size=50), rng.normal(size=(7, 2))
RESCALED = [
    JackknifeRescaled(),
    JackknifeRescaled(RBF(1.0)),
    FullRescaled(),
    FullRescaled(statistic="rms"),
    FullRescaled(statistic="quantile"),
    FullRescaled(RBF(1.0)),
]
METHODS = [Split(), *RESCALED, ConditionalCalibration()]


def fit_mad(method, Z=Z, scores=SCORES):
    return method.fit(Z, scores, training=(Z[::-1], scores[::-1]))
