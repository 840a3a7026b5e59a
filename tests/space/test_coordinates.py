"""Coordinates against their definition, number by number; units; the rule for the length."""

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from calliper.space import fit_embedding

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
Y = 5 + 2 * X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=300)
X_TRAIN, X_CAL, X_NEW = X[:150], X[150:200], X[200:]
Y_TRAIN = Y[:150]


def places(model, *, y_train=None, X_train=None):
    return fit_embedding("auto", X_train, X_CAL, model=model, y_train=y_train).transform(X_NEW)


def test_gradient_boosting():
    model = GradientBoostingRegressor(n_estimators=9, random_state=0).fit(X_TRAIN, Y_TRAIN)
    later = model.estimators_[4:, 0]
    steps = sum(np.abs(0.1 * tree.predict(X_NEW)) for tree in later)
    variances = np.mean([tree.tree_.impurity[tree.apply(X_NEW)] for tree in later], axis=0)
    unit = Y_TRAIN.std()
    expected = np.column_stack(
        [
            model.predict(X_NEW) / unit,
            2 * np.log(steps / unit + 0.003),
            np.log(np.sqrt(variances) / unit + 0.003) / 0.15,
        ]
    )
    np.testing.assert_allclose(places(model), expected, rtol=1e-9)


def test_histogram_boosting():
    model = HistGradientBoostingRegressor(max_iter=9).fit(X_TRAIN, Y_TRAIN)
    sums = np.stack(list(model.staged_predict(X_NEW)))
    steps = np.abs(np.diff(sums, axis=0))[3:].sum(axis=0)
    trained = np.stack([np.full(150, Y_TRAIN.mean()), *model.staged_predict(X_TRAIN)])
    explained = (2 / 0.1 - 1) * (np.diff(trained, axis=0) ** 2).mean(axis=1).sum()
    unit = np.sqrt(explained)
    expected = np.column_stack([sums[-1] / unit, 2 * np.log(steps / unit + 0.003)])
    np.testing.assert_allclose(places(model), expected, rtol=1e-6)


def test_stated_deviation():
    model = GaussianProcessRegressor(alpha=1.0).fit(X_TRAIN, Y_TRAIN)
    mean, deviation = model.predict(X_NEW, return_std=True)
    unit = Y_TRAIN.std()
    expected = np.column_stack([mean / unit, 2 * np.log(deviation / unit + 0.01)])
    np.testing.assert_allclose(places(model), expected, rtol=1e-9)


SQUARES = [
    RandomForestRegressor(5, random_state=0),
    GradientBoostingRegressor(n_estimators=5, random_state=0),
    HistGradientBoostingRegressor(max_iter=5),
]
OTHERS = [
    RandomForestRegressor(5, criterion="absolute_error", random_state=0),
    GradientBoostingRegressor(n_estimators=5, loss="huber", random_state=0),
    GradientBoostingRegressor(n_estimators=5, init=Ridge(), random_state=0),
    HistGradientBoostingRegressor(max_iter=5, loss="absolute_error"),
    BaggingRegressor(Ridge(), n_estimators=3, random_state=0),
    BayesianRidge(),
]


@pytest.mark.parametrize("model", SQUARES, ids=repr)
def test_a_model_of_squared_errors_tells_its_unit(model):
    model.fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_array_equal(
        places(model), places(model, X_train=X_TRAIN, y_train=np.repeat(0.5, 150))
    )


@pytest.mark.parametrize("model", OTHERS, ids=repr)
def test_targets_tell_the_unit_of_other_models(model):
    model.fit(X_TRAIN, Y_TRAIN)
    Z = places(model, X_train=X_TRAIN, y_train=Y_TRAIN)
    np.testing.assert_allclose(Z[:, 0], model.predict(X_NEW) / Y_TRAIN.std(), rtol=1e-9)


def test_without_unit_the_first_spread_is_the_place():
    model = GradientBoostingRegressor(n_estimators=8, init=Ridge(), random_state=0)
    model.fit(X_TRAIN, Y_TRAIN)
    steps = sum(np.abs(0.1 * tree.predict(X_NEW)) for tree in model.estimators_[4:, 0])
    np.testing.assert_allclose(places(model), steps[:, None])


def nested(core):
    """Targets are halved, then their root is taken: order matters."""
    inner = TransformedTargetRegressor(core, func=np.sqrt, inverse_func=np.square)
    halved = FunctionTransformer(lambda y: y / 2, lambda y: 2 * y, check_inverse=False)
    return TransformedTargetRegressor(inner, transformer=halved)


@pytest.mark.parametrize(
    "core",
    [
        RandomForestRegressor(5, random_state=0),
        RandomForestRegressor(5, criterion="absolute_error", random_state=0),
        Ridge(),
    ],
    ids=repr,
)
def test_targets_that_are_transformed_twice(core):
    y = np.abs(Y_TRAIN) + 1
    model = nested(core).fit(X_TRAIN, y)
    embedding = fit_embedding("auto", X_TRAIN, X_CAL, model=model, y_train=y)
    y_pred, Z = embedding.predict_and_transform(X_NEW)
    np.testing.assert_allclose(y_pred, model.predict(X_NEW), rtol=1e-10)
    bare = model.regressor_.regressor_
    if getattr(bare, "criterion", None) == "absolute_error":  # in the unit that it was trained in
        unit = np.sqrt(y / 2).std()
        np.testing.assert_allclose(Z[:, 0], bare.predict(X_NEW) / unit, rtol=1e-10)


@pytest.mark.parametrize(
    ("n", "length"),
    [(1, 1.5), (18, 1.5), (19, 4 * 19 ** (-1 / 3)), (100, 4 * 100 ** (-1 / 3)),
     (4000, 4 * 4000 ** (-1 / 3)), (4097, 0.25), (10**6, 0.25)],
)  # fmt: skip
def test_length(n, length):
    """4·N^(−1/3), within 0.25 and 1.5, in every space that has a unit, and in no other."""
    forest = RandomForestRegressor(3, random_state=0).fit(X_TRAIN, Y_TRAIN)
    ridge = Ridge().fit(X_TRAIN, Y_TRAIN)
    spaces = [
        fit_embedding("auto", None, X_CAL, model=forest),
        fit_embedding("auto", X_TRAIN, X_CAL, model=ridge),
    ]
    for space in spaces:
        assert space.length_scale(n) == pytest.approx(length, rel=1e-4)
    for embed in ("inputs", "prediction", StandardScaler()):
        assert fit_embedding(embed, X_TRAIN, X_CAL, model=ridge).length_scale(n) is None
    assert fit_embedding("auto", None, X_CAL, model=ridge).length_scale(n) is None
