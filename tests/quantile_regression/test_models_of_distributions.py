"""Models that predict quantiles or distributions, each asked in the way of its library.

TabICL, TabPFN and skpro are stood in for by models with the signatures that they document; so are
quantile-forest and NGBoost where they are not installed.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import BayesianRidge, QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError, ConformalRegressor, DistributionError, Split
from calliper.models import asked_as
from cases.quantile_models import X_CAL, X_NEW, X_TRAIN, Y_CAL, Y_TRAIN

P = (0.1, 0.5, 0.75, 0.9)
REGULAR = (0.005, 0.01, 0.025, 0.05, *(n / 10 for n in range(1, 10)), 0.95, 0.975, 0.99, 0.995)
pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")


def normal(X):
    """Distributions of all rows."""
    x = np.asarray(X, dtype=float)[:, 0]
    return norm(x, 0.3 + x)


def quantiles(X, p=P):
    """(m, K) quantiles."""
    return normal(X).ppf(np.asarray(p)[:, None]).T


class StandIn(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.fitted_ = True
        return self


class TabICLLike(StandIn):
    def predict(self, X, output_type="mean", alphas=None):
        return quantiles(X, alphas) if output_type == "quantiles" else np.asarray(X)[:, 0]


class TabPFNLike(StandIn):
    def predict(self, X, *, output_type="mean", quantiles=None):
        return [normal(X).ppf(p) for p in quantiles]


class ForestLike(StandIn):
    def predict(self, X, quantiles=None, interpolation="linear"):
        return normal(X).ppf(np.asarray(quantiles)[:, None]).T


class NGBoostLike(StandIn):
    def predict(self, X):
        return np.asarray(X)[:, 0]

    def pred_dist(self, X):
        return normal(X)


class SkproLike(StandIn):
    def predict_quantiles(self, X, alpha=None):
        columns = pd.MultiIndex.from_product([["y"], alpha])
        return pd.DataFrame(quantiles(X, alpha), columns=columns)

    predict = NGBoostLike.predict


STAND_INS = [TabICLLike(), TabPFNLike(), ForestLike(), NGBoostLike(), SkproLike()]


def asked(model, X=X_NEW, score=None):
    """Quantiles and probabilities that a model is known by."""
    wrapped, score = asked_as(model, score)
    return wrapped.predict(X), tuple(score.probabilities)


@pytest.mark.parametrize("model", STAND_INS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("n", [1, 17, 40])  # as many rows as quantiles, too
def test_a_family_is_asked_in_its_own_way(model, n):
    found, probabilities = asked(model, X_NEW[:n])
    assert probabilities == REGULAR
    np.testing.assert_allclose(found, quantiles(X_NEW[:n], REGULAR))
    around = make_pipeline(StandardScaler(with_mean=False, with_std=False), model)
    np.testing.assert_allclose(asked(around.fit(X_TRAIN, Y_TRAIN), X_NEW[:n])[0], found)


@pytest.mark.parametrize("model", STAND_INS, ids=lambda model: type(model).__name__)
def test_intervals_are_those_of_the_quantiles(model):
    found = ConformalRegressor(model).calibrate(X_CAL, Y_CAL)
    plain = ConformalRegressor(
        lambda X: quantiles(X, REGULAR), score_function=DistributionError(REGULAR)
    ).calibrate(X_CAL, Y_CAL)
    for level in (0.5, 0.9, 0.99):
        ends, expected = found.predict_interval(X_NEW, level), plain.predict_interval(X_NEW, level)
        np.testing.assert_allclose(ends.lower, expected.lower)
        np.testing.assert_allclose(ends.upper, expected.upper)
    assert found.estimator_ is model
    np.testing.assert_allclose(found.predict(X_NEW), X_NEW[:, 0], atol=1e-12)


def test_fit_trains_and_refits():
    made = ConformalRegressor(ForestLike(), random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert made.left_out_.source == "5 folds" and made.error_model_ is not None
    assert made.estimator_.fitted_ and np.isfinite(made.predict_interval(X_NEW).width).all()


def linear():
    return {
        p: QuantileRegressor(quantile=p, alpha=0).fit(X_TRAIN, Y_TRAIN) for p in (0.9, 0.1, 0.5)
    }


def test_models_of_one_quantile_each_by_probability_or_by_what_they_say():
    models = linear()
    expected = np.stack([model.predict(X_NEW) for model in models.values()], axis=1)
    for given in (models, [*models.values()], tuple(models.values())):
        found, probabilities = asked(given)
        assert probabilities == (0.9, 0.1, 0.5)
        np.testing.assert_array_equal(found, expected)
    found, _ = asked(models, score=DistributionError([0.1, 0.5, 0.9]))
    np.testing.assert_array_equal(found, expected[:, [1, 2, 0]])
    silent = [model.predict for model in models.values()]
    found, _ = asked(
        [lambda X, f=f: f(X) for f in silent], score=DistributionError([0.9, 0.1, 0.5])
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost", "sklearn"])
def test_lists_of_boosted_quantile_models_say_which(library):
    module = pytest.importorskip("sklearn.ensemble" if library == "sklearn" else library)
    small = {"n_estimators": 3}
    made = {
        "lightgbm": lambda p: module.LGBMRegressor(
            objective="quantile", alpha=p, verbose=-1, n_jobs=1, **small
        ),
        "xgboost": lambda p: module.XGBRegressor(
            objective="reg:quantileerror", quantile_alpha=p, n_jobs=1, **small
        ),
        "catboost": lambda p: module.CatBoostRegressor(
            loss_function=f"Quantile:alpha={p}", verbose=0, allow_writing_files=False, **small
        ),
        "sklearn": lambda p: module.GradientBoostingRegressor(loss="quantile", alpha=p, **small),
    }[library]
    models = [made(p).fit(X_TRAIN, Y_TRAIN) for p in P]
    found, probabilities = asked(models)
    assert probabilities == P
    np.testing.assert_allclose(found, np.stack([m.predict(X_NEW) for m in models], axis=1))


def test_xgboost_of_several_quantiles():
    module = pytest.importorskip("xgboost")
    model = module.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=np.array([0.9, 0.1, 0.5]), n_estimators=5
    )
    found, probabilities = asked(model.fit(X_TRAIN, Y_TRAIN), X_NEW[:3])
    assert probabilities == (0.9, 0.1, 0.5)
    np.testing.assert_array_equal(found, model.predict(X_NEW)[:3])


def test_catboost_of_several_quantiles_and_of_mean_and_variance():
    module = pytest.importorskip("catboost")
    how = {"iterations": 20, "verbose": 0, "allow_writing_files": False}
    several = module.CatBoostRegressor(loss_function="MultiQuantile:alpha=0.9, 0.1,0.5", **how)
    found, probabilities = asked(several.fit(X_TRAIN, Y_TRAIN))
    assert probabilities == (0.9, 0.1, 0.5)
    np.testing.assert_array_equal(found, several.predict(X_NEW))
    spread = module.CatBoostRegressor(loss_function="RMSEWithUncertainty", **how)
    found, probabilities = asked(spread.fit(X_TRAIN, Y_TRAIN))
    mean, variance = spread.predict(X_NEW, prediction_type="RMSEWithUncertainty").T
    expected = norm(mean, np.sqrt(variance)).ppf(np.array(probabilities)[:, None]).T
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("library", ["quantile_forest", "ngboost"])
def test_the_libraries_themselves(library):
    module = pytest.importorskip(library)
    if library == "ngboost":
        model = module.NGBRegressor(n_estimators=5, verbose=False).fit(X_TRAIN, Y_TRAIN)
        expected = np.stack([model.pred_dist(X_NEW).ppf(p) for p in REGULAR], axis=1)
    else:
        model = module.RandomForestQuantileRegressor(5, random_state=0).fit(X_TRAIN, Y_TRAIN)
        expected = model.predict(X_NEW, quantiles=list(REGULAR))
    np.testing.assert_allclose(asked(model)[0], expected)
    assert np.isfinite(
        ConformalRegressor(model).calibrate(X_CAL, Y_CAL).predict_interval(X_NEW)
    ).all()


@pytest.mark.parametrize(
    "function",
    [
        quantiles,
        lambda X: quantiles(X).T,
        lambda X: [*quantiles(X).T],
        lambda X: [list(row) for row in quantiles(X)],
        lambda X: pd.DataFrame(quantiles(X)),
        normal,
    ],
    ids=["array", "transposed", "columns", "rows", "frame", "distribution"],
)
@pytest.mark.parametrize("n", [1, 4, 9])
def test_answers_of_functions_are_put_right(function, n):
    found, _ = asked(function, X_NEW[:n], DistributionError(P))
    np.testing.assert_allclose(found, quantiles(X_NEW[:n]))


def test_a_network_answers_with_quantiles():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 4)
    found, _ = asked(module, score=DistributionError(P))
    expected = module(torch.as_tensor(X_NEW, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_stated_deviation_is_asked_only_with_probabilities():
    model = BayesianRidge().fit(X_TRAIN, Y_TRAIN)
    assert asked_as(model, None)[0] is model
    mean, deviation = model.predict(X_NEW, return_std=True)
    found, _ = asked(model, score=DistributionError(P))
    np.testing.assert_allclose(found, norm(mean, deviation).ppf(np.array(P)[:, None]).T)


def test_quantiles_go_through_a_transformed_target():
    target = TransformedTargetRegressor(ForestLike(), func=np.log1p, inverse_func=np.expm1)
    target.fit(X_TRAIN, np.exp(Y_TRAIN))
    np.testing.assert_allclose(asked(target)[0], np.expm1(quantiles(X_NEW, REGULAR)))


def calibrate(model, score=None):
    return ConformalRegressor(model, Split(), score_function=score).calibrate(X_CAL, Y_CAL)


def spoilt(value):
    """A model whose third row has a quantile that is none."""

    def predict(X):
        found = quantiles(X)
        found[2, 1] = value
        return found

    return predict


class NoQuantiles(NGBoostLike):
    def pred_dist(self, X):
        return object()


@pytest.mark.parametrize(
    ("model", "score", "says"),
    [
        (spoilt(np.nan), DistributionError(P), r"column 1 .* \(nan at position 2"),
        (spoilt(np.inf), DistributionError(P), r"column 1 .* \(inf at position 2"),
        (quantiles, DistributionError(P[:3]), r"must predict 3 quantiles for each of 200 rows"),
        (lambda X: X[:, 0], DistributionError(P), r"it gave shape \(200,\)"),
        (NoQuantiles(), None, r"must have ppf\(p\), its quantiles; got a object"),
        ({"low": normal, "high": normal}, None, r"probabilities as keys.*'low', 'high'"),
        ([quantiles] * 3, None, r"some of the 3 models in the list"),
        ([*linear().values()][:1], None, r"two or more different numbers"),
        (
            linear(),
            DistributionError(P),
            r"predicts quantiles at 0.9, 0.1, 0.5, but score_function",
        ),
    ],
    ids=["nan", "inf", "fewer", "one", "no ppf", "words", "unknown", "alone", "other"],
)
def test_what_is_no_distribution_is_refused(model, score, says):
    with pytest.raises(CalliperError, match=says):
        calibrate(model, score)


def test_no_variance_is_a_constant():
    class Certain(StandIn):
        def predict(self, X, return_std=False):
            return np.zeros(len(X)), np.zeros(len(X))

    found, _ = asked(Certain(), score=DistributionError(P))
    np.testing.assert_array_equal(found, np.zeros((len(X_NEW), 4)))
