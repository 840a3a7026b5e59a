"""Models of several quantiles out of any that has a quantile to set."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError, ConformalRegressor, QuantileModel
from cases.quantile_models import LINEAR, X_CAL, X_NEW, X_TRAIN, Y_CAL, Y_TRAIN, X, Y


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (LINEAR, "quantile"),
        (HistGradientBoostingRegressor(loss="quantile", max_iter=2), "quantile"),
        (GradientBoostingRegressor(loss="quantile", n_estimators=5, random_state=0), "alpha"),
        (make_pipeline(StandardScaler(), LINEAR), "quantileregressor__quantile"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("levels", [(0.1, 0.9), (0.9, 0.1, 0.5)])
def test_a_clone_for_each_quantile(estimator, name, levels):
    pair = QuantileModel(estimator, levels).fit(X_TRAIN, Y_TRAIN)
    assert tuple(pair.estimator_) == levels
    by_hand = {p: clone(estimator).set_params(**{name: p}) for p in levels}
    again = QuantileModel(by_hand, levels).fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_array_equal(pair.predict(X_NEW), again.predict(X_NEW))
    for level, column in zip(levels, pair.predict(X_NEW).T, strict=True):
        model = clone(estimator).set_params(**{name: level}).fit(X_TRAIN, Y_TRAIN)
        np.testing.assert_array_equal(column, model.predict(X_NEW))


class Forest(BaseEstimator):
    """Predicts any quantile of all training targets, as quantile forests do near x."""

    def fit(self, X, y):
        self.y_ = np.sort(y)
        return self

    def predict(self, X, quantiles=None):
        return np.tile(np.quantile(self.y_, quantiles), (len(X), 1))


class Booster(BaseEstimator):
    """The grammar of other libraries of boosted trees."""

    def __init__(self, objective="quantile", alpha=0.9, quantile_alpha=None):
        self.objective, self.alpha, self.quantile_alpha = objective, alpha, quantile_alpha

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.full(len(X), self.alpha if self.objective == "quantile" else self.quantile_alpha)


def test_other_grammars_of_quantiles():
    forest = QuantileModel(Forest(), [0.25, 0.5, 0.75]).fit(X, Y)
    np.testing.assert_array_equal(forest.predict(X[:2])[1], np.quantile(Y, [0.25, 0.5, 0.75]))
    assert isinstance(forest.estimator_, Forest)
    for booster in (Booster(), Booster("reg:quantileerror")):
        np.testing.assert_array_equal(
            QuantileModel(booster).fit(X, Y).predict(X[:1]), [[0.05, 0.95]]
        )


@pytest.mark.parametrize(
    "estimator",
    [Ridge(), HistGradientBoostingRegressor(), SGDRegressor()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_without_a_quantile(estimator):
    with pytest.raises(CalliperError, match=r"gave shape \(5,\).* objective='quantile'"):
        QuantileModel(estimator).fit(X, Y)
    with pytest.raises(AttributeError, match="fit"):
        QuantileModel(np.mean).fit(X, Y)


def test_bad_pairs():
    both = make_pipeline(clone(LINEAR), clone(LINEAR))
    with pytest.raises(CalliperError, match="which has several: "):
        QuantileModel(both).fit(X, Y)
    for levels in ([1.5, 0.5], [0, 0.5], [0.5], [0.5, 0.5]):
        with pytest.raises(CalliperError, match="probabilities must be two or more different"):
            QuantileModel(LINEAR, levels).fit(X, Y)
    for levels in ([5, 25, 75, 95], [2.5, 97.5], [1, 99]):
        with pytest.raises(CalliperError, match=r"If these are percentages, divide by 100\."):
            QuantileModel(LINEAR, levels).fit(X, Y)
    with pytest.raises(CalliperError, match="y must be finite"):
        QuantileModel(LINEAR).fit(X, np.full(600, np.nan))
    with pytest.raises(ValueError, match="1 features"):
        QuantileModel(LINEAR).fit(X, Y).predict(X[:, :1])


@pytest.mark.parametrize(
    ("library", "name", "settings", "parameter"),
    [
        ("xgboost", "XGBRegressor", {"objective": "reg:quantileerror"}, "quantile_alpha"),
        ("lightgbm", "LGBMRegressor", {"objective": "quantile", "verbose": -1}, "alpha"),
        (
            "catboost",
            "CatBoostRegressor",
            {"loss_function": "Quantile", "verbose": 0, "allow_writing_files": False},
            "loss_function",
        ),
        (
            "catboost",
            "CatBoostRegressor",
            {"objective": "Quantile:alpha=0.5", "verbose": 0, "allow_writing_files": False},
            "objective",
        ),
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_the_level_of_boosting_libraries(library, name, settings, parameter, piped):
    module = pytest.importorskip(library)
    model = getattr(module, name)(n_estimators=20, **settings)
    pair = QuantileModel(make_pipeline(StandardScaler(), model) if piped else model, [0.1, 0.9])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    y = np.exp(X[:, 0]) * rng.normal(size=800)
    pair.fit(X, y) if piped else pair.fit(X, y, sample_weight=np.ones(800))
    told = [fitted[-1] if piped else fitted for fitted in pair.estimator_.values()]
    levels = [str(each.get_params()[parameter]) for each in told]
    assert [float(level.rpartition("=")[2]) for level in levels] == pytest.approx([0.1, 0.9])
    lower, upper = pair.predict(X).T
    assert 0.5 < np.mean((lower <= y) & (y <= upper)) < 0.98


def test_two_quantiles_serve_every_level_and_method():
    """As a model of distributions: |y − middle| in units of the width, by the default method."""
    pair = QuantileModel(LINEAR).fit(X_TRAIN, Y_TRAIN)
    model = ConformalRegressor(pair, learning_part=None).calibrate(X_CAL, Y_CAL)
    low, high = np.sort(model.estimator_.predict(X_CAL), axis=1).T
    unit = (high - low) / (2 * norm.ppf(0.95))
    expected = np.abs(Y_CAL - (low + high) / 2) / unit
    np.testing.assert_allclose(model.score_.measure(Y_CAL, np.stack([low, high], 1)), expected)
    ends = [np.stack(list(model.predict_interval(X_NEW, level))) for level in (0.5, 0.9)]
    assert (ends[1][0] <= ends[0][0]).all() and (ends[0][1] <= ends[1][1]).all()
