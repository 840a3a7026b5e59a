"""A warning points at the line of the user's code that called, however deep it was raised."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import VotingRegressor
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor

from calliper import KNN, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.exceptions import (
    EmbeddingWarning,
    SmallCalibrationWarning,
    UnscaledFeaturesWarning,
    ZeroScaleWarning,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
Y = X[:, 0] + rng.normal(size=120)
X_TRAIN, X_CAL, X_NEW = X[:50], X[50:100], X[100:]
Y_TRAIN, Y_CAL = Y[:50], Y[50:100]
MODEL = LinearRegression().fit(X_TRAIN, Y_TRAIN)
VOTE = VotingRegressor([("a", Ridge()), ("b", LinearRegression())], weights=[3, 1])
VOTE.fit(X_TRAIN, Y_TRAIN)


def exact(calibrator):
    """Errors of zero but for the last ten rows."""
    y = MODEL.predict(X_CAL)
    y[40:] += 1
    return ConformalRegressor(MODEL, calibrator, embed="inputs").calibrate(X_CAL, y)


CALLS = {
    "fit, y": (
        DataConversionWarning,
        lambda: ConformalRegressor(Ridge()).fit(X, Y[:, None]),
    ),
    "fit, refits": (
        EmbeddingWarning,
        lambda: ConformalRegressor(KNeighborsRegressor(5), random_state=0).fit(X[:8], Y[:8]),
    ),
    "fit, inside a search": (
        DataConversionWarning,
        lambda: GridSearchCV(
            ConformalRegressor(Ridge(), random_state=0), {"estimator__alpha": [1.0]}, cv=2
        ).fit(X, Y[:, None]),
    ),
    "calibrate, y": (
        DataConversionWarning,
        lambda: ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL[:, None]),
    ),
    "calibrate, members": (
        EmbeddingWarning,
        lambda: ConformalRegressor(VOTE).calibrate(X_CAL, Y_CAL),
    ),
    "calibrate, space": (
        EmbeddingWarning,
        lambda: ConformalRegressor(MODEL, embed=lambda X: 0 * X).calibrate(X_CAL, Y_CAL),
    ),
    "calibrate, unscaled": (
        UnscaledFeaturesWarning,
        lambda: ConformalRegressor(MODEL, embed="inputs").calibrate(X_CAL * [1, 1e4], Y_CAL),
    ),
    "calibrate, full": (ZeroScaleWarning, lambda: exact(FullRescaled(KNN(3), shrinkage=0))),
    "calibrate, jackknife": (ZeroScaleWarning, lambda: exact(JackknifeRescaled(KNN(3)))),
    "predict_interval, full": (
        SmallCalibrationWarning,
        lambda: ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL).predict_interval(X_NEW, 0.999),
    ),
    "predict_interval, split": (
        SmallCalibrationWarning,
        lambda: (
            ConformalRegressor(MODEL, Split())
            .calibrate(X_CAL, Y_CAL)
            .predict_interval(X_NEW, [0.5, 0.999])
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_point_at_the_line_that_called(name):
    category, call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    places = {entry.filename for entry in caught if issubclass(entry.category, category)}
    assert places == {__file__}
