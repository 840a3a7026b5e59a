"""Kernels that are made of a model of their own get the inputs as that model takes them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

from calliper import CalliperError, ConformalRegressor, FullRescaled
from calliper.kernels import ForestProximity

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2)) * [1000, 1] + [5000, 0]
Y = X[:, 0] / 1000 + X[:, 1] * rng.normal(size=300)
X_TRAIN, X_CAL, X_NEW = X[:150], X[150:250], X[250:]
Y_TRAIN, Y_CAL = Y[:150], Y[150:250]
FOREST = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X_TRAIN, Y_TRAIN)


@pytest.mark.parametrize("embed", ["auto", "inputs", None])
@pytest.mark.parametrize("training", [{}, {"X_train": X_TRAIN, "y_train": Y_TRAIN}], ids=len)
def test_inputs_arrive_as_they_are(embed, training):
    calibrator = FullRescaled(ForestProximity(FOREST), random_state=0)
    model = ConformalRegressor(FOREST, calibrator, embed=embed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(X_CAL, Y_CAL, **training)
    assert model.embedding_.space.name == "inputs as they are"
    errors = np.abs(Y_CAL - FOREST.predict(X_CAL))
    radius = FullRescaled(ForestProximity(FOREST), random_state=0).fit(X_CAL, errors)
    expected = FOREST.predict(X_NEW) + radius.predict_radius(X_NEW, 0.8)
    np.testing.assert_allclose(model.predict_interval(X_NEW, 0.8).upper, expected, rtol=1e-12)


def test_a_space_of_ones_own_is_left_alone():
    leaves = ConformalRegressor(FOREST, FullRescaled(ForestProximity()), embed=FOREST.apply)
    assert leaves.calibrate(X_CAL, Y_CAL).embedding_.n_dimensions == 20
    one = ConformalRegressor(FOREST, FullRescaled(ForestProximity(FOREST)), embed="prediction")
    with pytest.raises(CalliperError, match="takes 2 inputs, and the features have 1 columns"):
        one.calibrate(X_CAL, Y_CAL)


def test_frames_without_a_word():
    frame = pd.DataFrame(X, columns=["a", "b"])
    forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0)
    forest.fit(frame[:150], Y_TRAIN)
    model = ConformalRegressor(forest, FullRescaled(ForestProximity(forest), random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.calibrate(frame[150:250], Y_CAL).predict_interval(frame[250:])
    plain = ConformalRegressor(FOREST, FullRescaled(ForestProximity(FOREST), random_state=0))
    expected = plain.calibrate(X_CAL, Y_CAL).predict_interval(X_NEW)
    np.testing.assert_allclose(found.lower, expected.lower, rtol=1e-12)
