"""The coordinate that left-out errors teach, and what of them reaches calibrators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import ConformalRegressor, ErrorModel, Split
from calliper.declarations import Uses
from calliper.rows import Rows
from calliper.space import fit_embedding
from cases.left_out import learnt_errors, left_out

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = 2 * X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=400)  # noise by an input that the mean ignores
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:300], X[300:]
Y_TRAIN, Y_CAL = Y[:200], Y[200:300]


#: Only the expected size, which is what the coordinate is made of.
SIZE = ErrorModel(recentre=False, units=False, side_trees=25)


def learnt(model, *, X_train=X_TRAIN, y_train=Y_TRAIN, embed="auto"):
    embedding = fit_embedding(embed, X_train, X_CAL, model=model)
    return learnt_errors(embedding, X_train, y_train, SIZE, chosen=embed == "auto")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (RandomForestRegressor(9), "prediction, spread of 9 trees and expected error"),
        (
            GradientBoostingRegressor(n_estimators=8, loss="huber", random_state=0),
            "prediction, steps of the last 4 of 8 trees and expected error",
        ),
        (Ridge(), "prediction and expected error"),
        (make_pipeline(StandardScaler(), Ridge()), "prediction and expected error"),
        (
            TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
            "prediction and expected error",
        ),
    ],
    ids=lambda case: repr(case)[:40],
)
def test_expected_error(model, name):
    model.fit(X_TRAIN, Y_TRAIN)
    found = learnt(model)
    space, unit = found.embedding.space, Y_TRAIN.std()
    assert space.name == name
    y_pred, Z = found.embedding.predict_and_transform(X_NEW)
    np.testing.assert_allclose(y_pred, model.predict(X_NEW), rtol=1e-10)
    # By hand: errors of rows left out, learnt from prepared inputs and the prediction.
    embedding = fit_embedding("auto", X_TRAIN, X_CAL, model=model)
    unseen = left_out(embedding, X_TRAIN, Y_TRAIN, random_state=0)
    errors = Y_TRAIN[unseen.numbers] - unseen.y_pred
    prepare = StandardScaler().fit(X_TRAIN).transform if hasattr(model, "steps") else np.asarray

    def clues(rows, predicted, Z):
        """The model's spread lies between the prediction and the expected error."""
        spread = Z[:, 1:] if "," in name else Z[:, :0]
        return np.c_[prepare(rows), (predicted - Y_TRAIN.mean()) / unit, spread]

    error_model = clone(SIZE).fit(clues(X_TRAIN[unseen.numbers], unseen.y_pred, unseen.Z), errors)
    expected = error_model.predict(clues(X_NEW, y_pred, Z[:, :-1])).size
    floored = np.maximum(expected, 0.02 * np.abs(errors).mean())
    np.testing.assert_allclose(Z[:, -1], 2 * np.log(floored / unit + 0.01), rtol=1e-6)
    if name.startswith("prediction and"):
        np.testing.assert_allclose(Z[:, 0], y_pred / unit)
    assert np.corrcoef(Z[:, -1], X_NEW[:, 1])[0, 1] > 0.5
    again = pickle.loads(pickle.dumps(found.embedding))
    np.testing.assert_array_equal(again.transform(X_NEW), Z)


@pytest.mark.parametrize("model", [RandomForestRegressor(9), Ridge()], ids=repr)
def test_left_out_rows_are_placed_by_error_models_that_have_not_seen_them(model):
    model.fit(X_TRAIN, Y_TRAIN)
    found = learnt(model)
    places, errors = found.rows.Z, found.rows.scores
    assert places.shape[1] == found.embedding.transform(X_NEW).shape[1]
    np.testing.assert_array_equal(errors, np.abs(Y_TRAIN[found.rows.numbers] - found.rows.y_pred))
    # Errors without any pattern: who has seen them would find one.
    noise = rng.normal(size=200)
    random = learnt(Ridge().fit(X_TRAIN, noise), y_train=noise)
    honest = random.rows.Z[:, -1], random.rows.scores
    seen = random.embedding.transform(X_TRAIN)[:, -1], random.rows.scores
    assert np.corrcoef(*honest)[0, 1] < 0.3 < np.corrcoef(*seen)[0, 1]


def test_where_nothing_can_be_learnt():
    ridge = Ridge().fit(X_TRAIN, Y_TRAIN)
    few = learnt(ridge, X_train=X_TRAIN[:39], y_train=Y_TRAIN[:39])
    assert few.embedding.space.name == "3 standardised inputs and prediction"
    assert few.rows.Z.shape == (39, 4)
    exact = LinearRegression().fit(X_TRAIN, np.zeros(200))
    assert "expected" not in learnt(exact, y_train=np.zeros(200)).embedding.space.name
    mine = learnt(ridge, embed="inputs")
    assert mine.embedding.space.name == "standardised inputs"
    assert mine.rows.Z.shape == (200, 3)
    text = X_TRAIN.astype(object)
    text[:, 2] = np.where(X_TRAIN[:, 2] > 0, "Bern", "Basel")
    encoded = learnt(FirstInput().fit(text), X_train=text).embedding.space
    assert encoded.name == "prediction and expected error"
    assert encoded.encode.kinds == ("numbers", "numbers", "levels")


class FirstInput(RegressorMixin, BaseEstimator):
    """Takes rows of anything."""

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float)


class Curious(Split):
    """Takes all that it can get."""

    uses = Uses("length_scale", "left_out")

    @property
    def seen_(self):
        errors = Rows(None) if self._left_out is None else self._left_out
        return self._length_scale, errors.Z, errors.scores


class Satisfied(Curious):
    uses = Uses("length_scale")


class CountsFits(RegressorMixin, BaseEstimator):
    fits = 0

    def fit(self, X, y):
        CountsFits.fits += 1
        self.model_ = Ridge().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)


@pytest.mark.parametrize(
    ("calibrator", "folds", "fits"),
    [
        (Split(), None, 1),
        (Satisfied(), None, 1),
        (Curious(), None, 6),
        (Curious(), 3, 4),
        (Curious(), 0, 1),
    ],
    ids=repr,
)
def test_nothing_is_refitted_unasked(calibrator, folds, fits):
    CountsFits.fits = 0
    model = ConformalRegressor(
        CountsFits(), calibrator, error_model=None, refits=folds, random_state=0
    )
    model.fit(X, Y)
    assert CountsFits.fits == fits
    assert (model.left_out_ is None) == (fits == 1)
    if fits > 1:
        length_scale, Z, errors = model.calibrators_[0].seen_
        _, _, y_train, _ = train_test_split(X, Y, test_size=0.25, random_state=0)
        assert length_scale == pytest.approx(4 * 100 ** (-1 / 3))
        assert len(Z) == len(errors) == 300
        np.testing.assert_array_equal(errors, np.abs(y_train - model.left_out_.y_pred))
        assert repr(model.embedding_) == "prediction and expected error (2 dimensions)"


def test_calibrate_refits_only_if_asked():
    CountsFits.fits = 0
    fitted = CountsFits().fit(X_TRAIN, Y_TRAIN)
    rows = {"X_train": X_TRAIN, "y_train": Y_TRAIN}
    model = ConformalRegressor(fitted, Curious()).calibrate(X_CAL, Y_CAL, **rows)
    assert CountsFits.fits == 1 and model.left_out_ is None
    model.set_params(refits=4).calibrate(X_CAL, Y_CAL, **rows)
    assert CountsFits.fits == 5 and model.left_out_.source == "4 folds"
    forest = RandomForestRegressor(20, random_state=0).fit(X_TRAIN, Y_TRAIN)
    model = ConformalRegressor(forest, Curious()).calibrate(X_CAL, Y_CAL, **rows)
    assert model.left_out_.source == "out of bag"
    assert model.calibrate(X_CAL, Y_CAL).left_out_ is None


def test_frames():
    frame = pd.DataFrame(X, columns=list("abc"))
    model = ConformalRegressor(RandomForestRegressor(9, random_state=0), random_state=0)
    plain = ConformalRegressor(RandomForestRegressor(9, random_state=0), random_state=0).fit(X, Y)
    model.fit(frame, Y)
    np.testing.assert_array_equal(
        model.predict_interval(frame[:20]).lower, plain.predict_interval(X[:20]).lower
    )
