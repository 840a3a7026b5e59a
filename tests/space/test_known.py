"""Models that look like others: found out by their code, never by rows."""

import warnings

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from calliper import ConformalRegressor
from calliper.exceptions import EmbeddingWarning
from calliper.space import fit_embedding

rng = np.random.default_rng(0)
X = rng.uniform(size=(400, 2))
Y = X[:, 0] + X[:, 1] * rng.normal(size=400)
X_TRAIN, X_CAL, X_NEW = X[:150], X[150:300], X[300:]
Y_TRAIN, Y_CAL = Y[:150], Y[150:300]
LIMIT = 0.4


def clipped(kind):
    """The same class, with a physical limit."""

    class Clipped(kind):
        __init__ = kind.__init__  # scikit-learn reads parameters off its signature

        def predict(self, X, **options):
            whole = self.estimator if kind is FrozenEstimator else super()
            answer = whole.predict(X, **options)
            if isinstance(answer, tuple):  # what is stated with a deviation is not clipped
                return answer
            return np.minimum(answer, LIMIT)

    return Clipped


LIARS = {
    "forest": clipped(RandomForestRegressor)(7, random_state=0),
    "bagging": clipped(BaggingRegressor)(n_estimators=7, random_state=0),
    "boosting": clipped(GradientBoostingRegressor)(n_estimators=7, random_state=0),
    "histograms": clipped(HistGradientBoostingRegressor)(max_iter=7),
    "deviation": clipped(BayesianRidge)(),
}


def fit(model, X_train, X_cal, y_cal):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmbeddingWarning)
        return ConformalRegressor(model).calibrate(X_cal, y_cal, X_train=X_train)


@pytest.mark.parametrize("name", LIARS)
@pytest.mark.parametrize(
    "X_train", [None, X_TRAIN, X_TRAIN[X_TRAIN[:, 0] < 0.05]], ids=["none", "all", "few"]
)
def test_calibration_rows_do_not_choose(name, X_train):
    """Whether a limit shows in calibration rows, or in all of them, changes nothing."""
    model = LIARS[name].fit(X_TRAIN, Y_TRAIN)
    low = model.predict(X_CAL) < LIMIT
    assert 0 < low.sum() < len(low)
    subsets = [np.ones_like(low), low, ~low]
    fits = [fit(model, X_train, X_CAL[some], Y_CAL[some]) for some in subsets]
    for fitted in fits:
        assert repr(fitted.embedding_) == repr(fits[0].embedding_)
        y_pred, places = fitted.embedding_.predict_and_transform(X_NEW)
        np.testing.assert_array_equal(places, fits[0].embedding_.transform(X_NEW))
        np.testing.assert_allclose(y_pred, model.predict(X_NEW), rtol=1e-12)
        lower, upper = fitted.predict_interval(X_NEW)
        np.testing.assert_allclose((lower + upper) / 2, model.predict(X_NEW), atol=1e-9)
    assert "spread" not in fits[0].embedding_.space.name


def test_a_class_that_is_not_known_has_no_spread():
    model = LIARS["forest"].fit(X_TRAIN, Y_TRAIN)
    with pytest.warns(EmbeddingWarning, match=r"on the prediction alone"):
        fitted = ConformalRegressor(model).calibrate(X_CAL, Y_CAL)
    assert fitted.embedding_.space.name == "prediction"
    fitted = ConformalRegressor(model).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN)
    assert fitted.embedding_.space.name == "2 standardised inputs and prediction"


def test_a_class_that_changes_no_prediction_is_known():
    class Counted(RandomForestRegressor):
        def fit(self, X, y):
            self.n_fits_ = 1
            return super().fit(X, y)

    counted = Counted(7, random_state=0).fit(X_TRAIN, Y_TRAIN)
    same_code = fit_embedding("auto", None, X_CAL, model=counted)
    assert same_code.space.name == "prediction and spread of 7 trees"


def test_members_that_are_not_what_is_in_their_leaves():
    tree = clipped(DecisionTreeRegressor)(max_depth=3)
    model = BaggingRegressor(tree, n_estimators=5, random_state=0).fit(X_TRAIN, Y_TRAIN)
    y_pred, _ = fit_embedding("auto", X_TRAIN, X_CAL, model=model).predict_and_transform(X_NEW)
    np.testing.assert_allclose(y_pred, model.predict(X_NEW), rtol=1e-12)


def test_an_instance_with_a_predict_of_its_own():
    model = RandomForestRegressor(5, random_state=0).fit(X_TRAIN, Y_TRAIN)
    model.predict = lambda X: np.zeros(len(X))
    fitted = fit(model, X_TRAIN, X_CAL, Y_CAL)
    np.testing.assert_array_equal(fitted.embedding_.predict_and_transform(X_NEW)[0], 0)


FOREST = RandomForestRegressor(5, random_state=0)


@pytest.mark.parametrize(
    "wrapper",
    [
        clipped(Pipeline)([("scale", StandardScaler()), ("forest", FOREST)]),
        clipped(TransformedTargetRegressor)(FOREST, transformer=StandardScaler()),
        clipped(GridSearchCV)(FOREST, {"max_depth": [3]}, cv=2),
        clipped(FrozenEstimator)(RandomForestRegressor(5, random_state=0).fit(X_TRAIN, Y_TRAIN)),
    ],
    ids=lambda wrapper: type(wrapper).__mro__[1].__name__,
)
def test_wrappers_with_code_of_their_own_are_left_closed(wrapper):
    wrapper.fit(X_TRAIN, Y_TRAIN)
    for model in (wrapper, wrapper.predict):
        for X_train in (None, X_TRAIN):
            fitted = fit(model, X_train, X_CAL, Y_CAL)
            assert "spread" not in fitted.embedding_.space.name
            y_pred, _ = fitted.embedding_.predict_and_transform(X_NEW)
            np.testing.assert_allclose(y_pred, wrapper.predict(X_NEW), rtol=1e-12)


@pytest.mark.long
def test_coverage_of_a_model_that_hides_its_limit():
    """An ensemble whose limit few rows reach: the level that is promised, over many draws."""

    class Member:
        def __init__(self, shift):
            self.shift = shift

        def predict(self, X):
            return np.where(X[:, 0] > 0.9, 100.0 + self.shift, 0.01 * self.shift * X[:, 0])

    class Limited:
        estimators_ = [Member(-1), Member(1)]  # noqa: RUF012

        def predict(self, X):
            return np.clip(np.mean([m.predict(X) for m in self.estimators_], axis=0), -5, 0.5)

    local = np.random.default_rng(0)
    covered = []
    for seed in range(400):
        x, y = local.uniform(size=(49, 1)), local.normal(size=49)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ConformalRegressor(Limited(), random_state=seed).calibrate(x[:9], y[:9])
        covered.append(model.predict_interval(x[9:], 0.9).contains(y[9:]).mean())
    error = np.std(covered) / np.sqrt(len(covered))
    assert abs(np.mean(covered) - 0.9) < 3 * error
