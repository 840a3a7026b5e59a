"""Models that are not what they seem, and spaces in which nearness says nothing."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor, VotingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from calliper import CalliperError, ConformalRegressor, Split
from calliper.exceptions import EmbeddingWarning, UnusedWarning
from calliper.space import fit_embedding

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
Y = X[:, 0] + rng.normal(size=300)
X_TRAIN, X_CAL, X_NEW = X[:100], X[100:200], X[200:]
Y_TRAIN, Y_CAL = Y[:100], Y[100:200]
MODEL = LinearRegression().fit(X_TRAIN, Y_TRAIN)


class Clipped(RandomForestRegressor):
    """Not the mean of its members where that is negative."""

    def predict(self, X):
        return np.maximum(super().predict(X), 0)


class Stranger:
    """Keeps members that have nothing to do with what it predicts."""

    def __init__(self, members):
        self.estimators_ = members

    def predict(self, X):
        return MODEL.predict(X)


@pytest.mark.parametrize(
    "model",
    [
        Clipped(9, random_state=0).fit(X_TRAIN, Y_TRAIN),
        VotingRegressor([("a", Ridge()), ("b", SVR())], weights=[3, 1]).fit(X_TRAIN, Y_TRAIN),
        Stranger([Ridge().fit(X_TRAIN, 2 * Y_TRAIN), MODEL]),
        Stranger([MODEL, LinearRegression().fit(X_TRAIN, X_TRAIN)]),
        Stranger([MODEL, LinearRegression().fit(X_TRAIN[:, :1], Y_TRAIN)]),
    ],
    ids=["clipped", "weighted", "strangers", "two outputs", "other inputs"],
)
def test_members_that_are_not_the_prediction_are_not_asked(model):
    fitted = ConformalRegressor(model).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN)
    assert fitted.embedding_.space.name == "3 standardised inputs and prediction"
    lower, upper = fitted.predict_interval(X_NEW)
    np.testing.assert_allclose((lower + upper) / 2, model.predict(X_NEW), atol=1e-9)


def test_a_forest_of_several_outputs_is_refused():
    forest = RandomForestRegressor(3).fit(X_TRAIN, X_TRAIN[:, :2])
    with pytest.raises(CalliperError, match="one value for each row"):
        ConformalRegressor(forest).calibrate(X_CAL, Y_CAL)


def test_pipelines_must_end_in_a_regressor():
    scaled = make_pipeline(PCA(2), StandardScaler()).fit(X_TRAIN)
    with pytest.raises(CalliperError, match=r"last step, 'standardscaler' \(StandardScaler\)"):
        ConformalRegressor(scaled).calibrate(X_CAL, Y_CAL)
    with pytest.raises(CalliperError, match="last step, 'passthrough'"):
        ConformalRegressor(make_pipeline(PCA(2), "passthrough").fit(X_TRAIN)).calibrate(
            X_CAL, Y_CAL
        )
    classes = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_TRAIN, Y_TRAIN > 0)
    with pytest.raises(CalliperError, match="LogisticRegression is a classifier"):
        ConformalRegressor(classes).calibrate(X_CAL, Y_CAL)


def test_models_without_scale():
    """Targets that are all alike: no unit, no spread, and still an interval."""
    forest = RandomForestRegressor(3, random_state=0).fit(X_TRAIN, np.zeros(100))
    with pytest.warns(
        EmbeddingWarning, match="gives all 100 calibration rows the same coordinates"
    ):
        model = ConformalRegressor(forest).calibrate(X_CAL, Y_CAL)
    assert repr(model.embedding_) == "spread of 3 trees (1 dimension)"
    assert np.isfinite(model.predict_interval(X_NEW).width).all()


def test_bagged_models_without_unit():
    bagged = BaggingRegressor(Ridge(), n_estimators=4, random_state=0).fit(X_TRAIN, Y_TRAIN)
    alone = ConformalRegressor(bagged).calibrate(X_CAL, Y_CAL)
    assert repr(alone.embedding_) == "spread of 4 members (1 dimension)"
    trained = ConformalRegressor(bagged).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN)
    assert trained.embedding_.space.unit == pytest.approx(bagged.predict(X_TRAIN).std())


def test_coordinates_that_say_nothing():
    with pytest.warns(EmbeddingWarning, match="same coordinates: all are equally near"):
        model = ConformalRegressor(MODEL, embed=lambda X: np.zeros(len(X))).calibrate(X_CAL, Y_CAL)
    assert np.isfinite(model.predict_interval(X_NEW).width).all()
    wide = rng.normal(size=(3, 150))
    with pytest.warns(EmbeddingWarning, match="has 150 dimensions for 100 calibration rows"):
        model = ConformalRegressor(MODEL, embed=lambda X: X @ wide).calibrate(X_CAL, Y_CAL)
    assert np.isfinite(model.predict_interval(X_NEW).width).all()
    quantiles = {p: lambda X, p=p: X[:, 0] + p for p in np.linspace(0.1, 0.9, 9)}
    with pytest.warns(EmbeddingWarning, match="9 dimensions .* fewer quantiles, or use Split"):
        ConformalRegressor(quantiles).calibrate(X_CAL[:8], Y_CAL[:8])


def test_plain_split_asks_no_space():
    model = ConformalRegressor(MODEL, Split(), embed=lambda X: 1 / 0)
    with pytest.warns(UnusedWarning, match="embed has no effect, since the method"):
        model.calibrate(X_CAL, Y_CAL)
    model.set_params(embed="prediction")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(X_CAL, Y_CAL)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_bad_embeddings():
    with pytest.raises(TypeError, match="embed must be a function"):
        ConformalRegressor(MODEL, embed=3).calibrate(X_CAL, Y_CAL)
    with pytest.raises(TypeError, match="got 'latent'"):
        ConformalRegressor(MODEL, embed="latent").calibrate(X_CAL, Y_CAL)
    with pytest.raises(CalliperError, match="turned 100 into 99"):
        ConformalRegressor(MODEL, embed=lambda X: X[1:]).calibrate(X_CAL, Y_CAL)
    for nothing in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"Input embed\(X\) contains (NaN|infinity)"):
            ConformalRegressor(MODEL, embed=lambda X, n=nothing: X * n).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize(
    "embed",
    [
        lambda X: X + rng.normal(size=X.shape),  # dropout left on
        lambda X: X * (rng.uniform(size=X.shape) > 0.5),
        lambda X: (X - X.mean(axis=0)) / X.std(axis=0),  # batch normalisation left on
    ],
)
def test_coordinates_that_change_between_calls(embed):
    with pytest.raises(CalliperError, match=r"differs between calls.*module\.eval"):
        ConformalRegressor(MODEL, embed=embed).calibrate(X_CAL, Y_CAL)


def test_predictions_that_change_between_calls():
    with pytest.raises(CalliperError, match="the model differs between calls"):
        ConformalRegressor(lambda X: rng.normal(size=len(X))).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize("embed", ["auto", "inputs", "prediction"])
def test_predictions_that_depend_on_the_company(embed):
    def centred(X):
        return X[:, 0] - X[:, 0].mean()

    with pytest.raises(CalliperError, match=r"the model differs between calls.*smaller batch"):
        ConformalRegressor(centred, embed=embed).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize(("part", "refused"), [(0.003, True), (0.0005, False)])
def test_each_column_is_held_against_its_own_range(part, refused):
    """A wide column, or a large constant, must not hide that another one moves."""

    def drifting(X):
        shifted = X[:, 0] + part * 6 * (len(X) < 50)
        return np.column_stack([np.clip(shifted, -3, 3), 1e3 * X[:, 1], np.full(len(X), 1e3)])

    rows = X_CAL.copy()
    rows[:8, 0], rows[-2:, 0] = 0.1, (-3, 3)  # the range is 6
    model = ConformalRegressor(MODEL, embed=drifting)
    if not refused:
        assert model.calibrate(rows, Y_CAL).embedding_.n_dimensions == 3
        return
    with pytest.raises(CalliperError, match=r"by up to 0\.018 in column 0 \(of a range of 6\)"):
        model.calibrate(rows, Y_CAL)


def test_rounding_is_no_change():
    def single(X):
        return (X.astype(np.float32) @ np.ones((3, 8), np.float32)) * (1 + 1e-7 * len(X))

    fitted = ConformalRegressor(MODEL, embed=single).calibrate(X_CAL, Y_CAL)
    assert fitted.embedding_.n_dimensions == 8


def test_rows_of_new_models_are_checked_as_ever():
    embedding = fit_embedding(
        "auto", None, X_CAL, model=RandomForestRegressor(4).fit(X_TRAIN, Y_TRAIN)
    )
    with pytest.raises(ValueError, match="2 features"):
        embedding.transform(X_NEW[:, :2])
