"""Models that predict quantiles or distributions, each asked in the way of its library.

TabICL, TabPFN and skpro are stood in for by models with the signatures that they document; so are
quantile-forest and NGBoost where they are not installed.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import (
    CalliperError,
    ConformalRegressor,
    DistributionError,
    PredictWith,
    QuantileError,
    QuantileModel,
    Split,
)
from calliper.exceptions import UnusedWarning
from calliper.models import asked_as, quantiles_out_of_bag
from calliper.refitting import CVPlus
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


@pytest.mark.parametrize(
    "how",
    [
        {"objective": "MultiQuantile:alpha=0.9, 0.1,0.5"},
        {"loss_function": "MultiQuantile:alpha=0.9,0.1,0.5;delta=0.001"},
        {"loss_function": "MultiQuantile:delta=0.001;alpha=0.9,0.1,0.5"},
    ],
)
def test_other_words_of_catboost_for_several_quantiles(how):
    """``objective`` is a synonym, which counts where both are stated; options come in any order."""
    module = pytest.importorskip("catboost")
    quiet = {"iterations": 5, "verbose": 0, "allow_writing_files": False}
    several = module.CatBoostRegressor(**how, **quiet).fit(X_TRAIN, Y_TRAIN)
    found, probabilities = asked(several)
    assert probabilities == (0.9, 0.1, 0.5)
    np.testing.assert_array_equal(found, several.predict(X_NEW))
    one = [
        module.CatBoostRegressor(loss_function=f"Quantile:alpha={p};delta=0.01", **quiet) for p in P
    ]
    assert asked([model.fit(X_TRAIN, Y_TRAIN) for model in one])[1] == P


class MeanAndVariance(StandIn):
    """CatBoost's ``RMSEWithUncertainty``, which ``predict`` answers with two columns."""

    def __init__(self, objective=None, loss_function="RMSE"):
        self.objective, self.loss_function = objective, loss_function

    def predict(self, X, prediction_type=None):
        return np.stack([normal(X).mean(), normal(X).var()], axis=1)


@pytest.mark.parametrize("name", ["objective", "loss_function"])
def test_mean_and_variance_are_never_two_quantiles(name):
    model = MeanAndVariance(**{name: "RMSEWithUncertainty"})
    np.testing.assert_allclose(asked(model)[0], quantiles(X_NEW, REGULAR))
    pair = asked(model, score=DistributionError([0.05, 0.95]))[0]
    np.testing.assert_allclose(pair, quantiles(X_NEW, [0.05, 0.95]))
    for around in (model, make_pipeline(StandardScaler(), model).fit(X_TRAIN, Y_TRAIN)):
        with pytest.raises(CalliperError, match=r"predicts mean and variance.*leave out score_fun"):
            calibrate(around, QuantileError())
    made = calibrate(QuantileModel(model), QuantileError())
    np.testing.assert_allclose(made.estimator_.predict(X_NEW), pair)


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


class BaggedLike(RandomForestRegressor):
    """Quantiles of what trees predict; out of bag in the signature of quantile-forest."""

    def predict(self, X, quantiles=None, oob_score=False, indices=None):
        said = np.array([tree.predict(np.asarray(X)) for tree in self.estimators_])
        if oob_score:
            for values, bag in zip(said, self.estimators_samples_, strict=True):
                values[np.isin(indices, bag)] = np.nan
        return np.nanquantile(said, quantiles, axis=0).T


def out_of_bag(forest):
    """Rows that some tree left out, and quantiles of what these trees predict, one by one."""
    bags = [set(bag) for bag in forest.estimators_samples_]
    kept = [row for row in range(len(X_TRAIN)) if any(row not in bag for bag in bags)]
    q = []
    for row in kept:
        trees = [t for t, bag in zip(forest.estimators_, bags, strict=True) if row not in bag]
        q.append(np.quantile([t.predict(X_TRAIN[[row]])[0] for t in trees], REGULAR))
    return kept, np.array(q)


def test_training_rows_of_a_quantile_forest_teach_out_of_bag():
    forest = BaggedLike(6, random_state=0, min_samples_leaf=5).fit(X_TRAIN, Y_TRAIN)
    model = ConformalRegressor(forest).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    made = model.calibration_
    kept, expected = out_of_bag(forest)
    assert 0 < len(kept) < len(X_TRAIN)
    np.testing.assert_array_equal(made.left_out.numbers, kept)
    np.testing.assert_allclose(made.left_out.y_pred, expected)
    assert (made.left_out.source, made.n_taught, made.n_calibration) == (
        "out of bag",
        0,
        len(Y_CAL),
    )
    assert model.error_model_.n_errors_ == len(kept)


def test_other_training_rows_or_a_forest_without_bags_teach_nothing_out_of_bag():
    forest = BaggedLike(6, random_state=0).fit(X_TRAIN, Y_TRAIN)
    every = BaggedLike(6, random_state=0, bootstrap=False).fit(X_TRAIN, Y_TRAIN)
    for model, rows in ((forest, slice(None, None, -1)), (every, slice(None))):
        asked_for = asked_as(model, None)[0]
        assert quantiles_out_of_bag(asked_for, X_TRAIN[rows], Y_TRAIN[rows]) is None


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


def test_a_booster_without_its_wrapper_answers_with_quantiles():
    module = pytest.importorskip("xgboost")
    how = {"objective": "reg:quantileerror", "quantile_alpha": P}
    model = module.train(how, module.DMatrix(X_TRAIN, Y_TRAIN), 3)
    found, _ = asked(model, score=DistributionError(P))
    np.testing.assert_array_equal(found, model.predict(module.DMatrix(X_NEW)))


def test_a_network_answers_with_quantiles():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 4)
    found, _ = asked(module, score=DistributionError(P))
    expected = module(torch.as_tensor(X_NEW, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("score", [None, DistributionError(P)])
def test_a_network_of_mean_and_variance_is_wrapped_in_a_function(score):
    torch = pytest.importorskip("torch")

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.last(x)[:, 0], self.last(x)[:, 1].exp()

    with pytest.raises(CalliperError, match=r"got a tuple.* one that returns scipy.stats"):
        calibrate(Both(), score)


@pytest.mark.parametrize("score", [None, DistributionError(P)])
def test_predict_with_refuses_a_deviation_beside_the_prediction(score):
    model = PredictWith(BayesianRidge().fit(X_TRAIN, Y_TRAIN), {"return_std": True})
    with pytest.raises(
        CalliperError, match=r"'return_std': True} returns a tuple.* leave PredictW"
    ):
        calibrate(model, score)
    for given in ((np.mean, {}), (BayesianRidge(), None), (BayesianRidge(), ["return_std"])):
        with pytest.raises(TypeError, match=r"needs a model with predict, and a dict of"):
            PredictWith(*given).predict(X_NEW)


def test_predictions_too_large_for_distances_are_named():
    with pytest.raises(CalliperError, match=r"the space \(prediction.*as large as"):
        calibrate(lambda X: X[:, 0] * 1e151)


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


@pytest.mark.parametrize("inverse", [np.negative, lambda y: np.exp(-y)])
def test_a_decreasing_transform_of_the_target_is_refused(inverse):
    """Its q-quantile is the (1 − q)-quantile of what the model was trained on."""
    how = {"func": inverse, "inverse_func": inverse, "check_inverse": False}
    target = TransformedTargetRegressor(ForestLike(), **how).fit(X_TRAIN, Y_TRAIN)
    same = StandardScaler(with_mean=False, with_std=False)
    for wrapped in (target, make_pipeline(same, target).fit(X_TRAIN, Y_TRAIN)):
        with pytest.raises(CalliperError, match=r"decreases.* so that it increases"):
            QuantileModel(wrapped, [0.5, 0.9, 0.99]).predict(X_NEW)
        with pytest.raises(CalliperError, match="decreases"):
            calibrate(wrapped)


WORDED = {
    "reversed": lambda X: labelled(X, P[::-1]),
    "float32": lambda X: labelled(X, P[::-1]).rename(columns=np.float32),
    "text": lambda X: labelled(X, P[::-1]).rename(columns=str),
    "several levels": lambda X: SkproLike().predict_quantiles(X, P[::-1]),
}


def labelled(X, p):
    return pd.DataFrame(quantiles(X, p), columns=p)


@pytest.mark.parametrize("function", WORDED.values(), ids=WORDED)
@pytest.mark.parametrize("n", [1, 4, 9])
def test_columns_of_frames_are_read_by_their_probabilities(function, n):
    found, _ = asked(function, X_NEW[:n], DistributionError(P))
    np.testing.assert_allclose(found, quantiles(X_NEW[:n]))


def test_columns_of_other_probabilities_and_masked_ones_are_refused():
    other = (0.1, 0.3, 0.6, 0.9)
    with pytest.raises(CalliperError, match=r"at 0.1, 0.3, 0.6, 0.9.* expects 0.1, 0.5, 0.75"):
        calibrate(lambda X: labelled(X, other), DistributionError(P))

    def masked(X):
        return np.ma.masked_less(quantiles(X), np.median(quantiles(X)))

    with pytest.raises(CalliperError, match="400 of 800 quantiles are masked"):
        calibrate(masked, DistributionError(P))
    with pytest.raises(CalliperError, match=r"column 0 of predictions .* masked"):
        calibrate(lambda X: masked(X)[:, [0, 3]], QuantileError())


def test_probabilities_may_be_rounded_or_of_another_type():
    rounded = tuple(np.arange(0.1, 1, 0.2))
    assert rounded != (0.1, 0.3, 0.5, 0.7, 0.9)
    models = {np.float32(p): lambda X, p=p: quantiles(X, [p])[:, 0] for p in rounded}
    found, _ = asked(models, score=DistributionError([0.9, 0.7, 0.5, 0.3, 0.1]))
    np.testing.assert_allclose(found, quantiles(X_NEW, rounded[::-1]))
    pair = QuantileModel(models, [0.1, 0.9]).predict(X_NEW)
    np.testing.assert_array_equal(pair, found[:, [4, 0]])
    with pytest.raises(CalliperError, match=r"quantiles at 0.1, 0.3, 0.5, 0.7, 0.9, but .* 0.05"):
        QuantileModel(models, [0.05, 0.95]).predict(X_NEW)


def test_lists_of_models_are_trained_again():
    """As a dict of them is."""
    models, how = linear(), {"refits": 2, "random_state": 0}
    found = [
        ConformalRegressor(given, **how).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
        for given in (models, [*models.values()])
    ]
    assert [made.left_out_.source for made in found] == ["2 folds"] * 2
    np.testing.assert_array_equal(*(made.left_out_.y_pred for made in found))
    ends = [
        CVPlus(given, 2, random_state=0).fit(X_CAL, Y_CAL).predict_interval(X_NEW)
        for given in (
            {p: clone(model) for p, model in models.items()},
            tuple(map(clone, models.values())),
        )
    ]
    np.testing.assert_array_equal(*(each.lower for each in ends))


@pytest.mark.parametrize("kind", [dict, list])
def test_models_that_are_frozen_or_functions_are_not_trained_again(kind):
    for turn, why in ((FrozenEstimator, "is frozen"), (lambda model: model.predict, "has no fit")):
        models = {p: turn(model) for p, model in linear().items()}
        given = models if kind is dict else [*models.values()]
        score = DistributionError([*models])
        with pytest.warns(UnusedWarning, match=why):
            ConformalRegressor(given, refits=2, score_function=score).calibrate(
                X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN
            )


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
        (NoQuantiles(), None, r"must have ppf\(p\), its quantiles; got object"),
        ({}, None, r"pass two models or more, one for each quantile; got {}"),
        ([], DistributionError(P), r"pass two models or more, one for each quantile; got \[\]"),
        ({10: normal, 90: normal}, None, r"If these are percentages, divide by 100"),
        ({"low": normal, "high": normal}, None, r"keys .* must be probabilities.*'low', 'high'"),
        ([quantiles] * 3, None, r"not every model in the list has a parameter"),
        ([*linear().values()][:1], None, r"two or more different numbers"),
        (
            linear(),
            DistributionError(P),
            r"predicts quantiles at 0.9, 0.1, 0.5, but score_function",
        ),
    ],
    ids=[
        "nan",
        "inf",
        "fewer",
        "one",
        "no ppf",
        "none",
        "empty",
        "percent",
        "words",
        "unknown",
        "alone",
        "other",
    ],
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
