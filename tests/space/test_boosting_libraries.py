"""XGBoost, LightGBM and CatBoost on frames with categories, text, gaps and dates."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from calliper import ConformalRegressor, Split, metrics
from calliper.exceptions import EmbeddingWarning
from calliper.models import fresh

pytestmark = pytest.mark.long

CITIES, GRADES, START = [f"city {i}" for i in range(12)], list("ABCDE"), pd.Timestamp("2020-01-01")
LOUD = np.exp(0.7 * np.random.default_rng(99).normal(size=12))


def raw(n, seed):
    """Gaps, text and dates in a frame; codes by hand; targets whose noise depends on the city."""
    rng = np.random.default_rng(seed)
    city, grade, day = rng.integers(0, 12, n), rng.integers(0, 5, n), rng.integers(0, 1000, n)
    X = rng.normal(size=(n, 2))
    noise = LOUD[city] * np.exp(0.4 * X[:, 1]) * rng.normal(size=n)
    y = X[:, 0] + np.sin(city) + 0.3 * grade + day / 1000 + noise
    X[rng.random((n, 2)) < 0.05] = np.nan
    codes = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "city": city, "grade": grade, "day": day})
    texts = {"city": np.array(CITIES)[city], "grade": np.array(GRADES)[grade]}
    frame = codes.assign(**texts, day=START + pd.to_timedelta(day, unit="D"))
    return frame, codes, y


def categories(frame):
    """What the libraries take: text as categories, dates as numbers; from either kind of frame."""
    frame = frame.to_pandas() if isinstance(frame, pl.DataFrame) else frame.copy()
    frame["city"] = pd.Categorical(frame["city"], CITIES)
    frame["grade"] = pd.Categorical(frame["grade"], GRADES)
    if frame["day"].dtype.kind == "M":
        frame["day"] = (frame["day"] - START).dt.days
    return frame


def library(name):
    module = pytest.importorskip(name)
    if name == "xgboost":
        return module.XGBRegressor(
            n_estimators=30, max_depth=3, enable_categorical=True, n_jobs=1, random_state=0
        )
    if name == "lightgbm":
        return module.LGBMRegressor(
            n_estimators=30, num_leaves=8, verbose=-1, n_jobs=1, random_state=0
        )
    return module.CatBoostRegressor(
        iterations=30,
        depth=3,
        verbose=0,
        thread_count=1,
        cat_features=["city", "grade"],
        allow_writing_files=False,
        random_seed=0,
    )


LIBRARIES = pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])


@LIBRARIES
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_text_gaps_and_dates_before_the_model(name, kind):
    """The frame as it came goes through a step of the user's own."""
    frame, _, y = raw(500, 1)
    rows = pl.from_pandas(frame) if kind == "polars" else frame
    model = make_pipeline(FunctionTransformer(categories), library(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmbeddingWarning)
        fitted = ConformalRegressor(model, random_state=0).fit(rows, y)
        assert fitted.left_out_.source == "5 folds"
        assert "expected error" in fitted.embedding_.space.name
        assert np.ptp(fitted.predict_interval(rows[:50]).width) > 0
        trained = fresh(model).fit(rows[:200], y[:200])
        known = {"X_train": rows[:200], "y_train": y[:200]}
        plain = ConformalRegressor(trained).calibrate(rows[200:], y[200:], **known)
        assert "prediction" in plain.embedding_.space.name
        again = ConformalRegressor(trained, refits=2).calibrate(rows[200:], y[200:], **known)
        assert "expected error" in again.embedding_.space.name


@LIBRARIES
def test_the_model_takes_the_frame_itself(name):
    frame, _, y = raw(500, 2)
    rows = categories(frame)
    fitted = ConformalRegressor(library(name), random_state=0).fit(rows, y)
    assert "expected error" in fitted.embedding_.space.name
    assert "levels" in fitted.embedding_.space.encode.kinds
    assert np.isfinite(fitted.predict_interval(rows).width).all()
    assert clone(fitted).fit(rows, y).left_out_.source == "5 folds"


def test_categories_named_in_fit():
    module = pytest.importorskip("catboost")
    frame, _, y = raw(500, 2)
    estimator = module.CatBoostRegressor(
        iterations=20, verbose=0, thread_count=1, allow_writing_files=False
    )
    fitted = ConformalRegressor(estimator, random_state=0)
    fitted.fit(categories(frame), y, cat_features=["city", "grade"], sample_weight=np.ones(500))
    assert "expected error" in fitted.embedding_.space.name


class ByHand(RegressorMixin, BaseEstimator):
    """The same model, given whole numbers."""

    def __init__(self, inner):
        self.inner = inner

    def fit(self, codes, y):
        self.inner_ = fresh(self.inner).fit(self.named(codes), y)
        self.n_features_in_ = codes.shape[1]
        return self

    def predict(self, codes):
        return self.inner_.predict(self.named(codes))

    def named(self, codes):
        texts = {"city": np.array(CITIES)[codes["city"]], "grade": np.array(GRADES)[codes["grade"]]}
        return categories(codes.assign(**texts))


@LIBRARIES
def test_levels_serve_as_well_as_whole_numbers_by_hand(name, all_trees):
    frame, codes, y = raw(1500, 3)
    new, new_codes, y_new = raw(3000, 4)

    def score(model, rows, new_rows, **how):
        fitted = ConformalRegressor(model, random_state=0, **how).fit(rows, y)
        return metrics.interval_score(y_new, fitted.predict_interval(new_rows))

    model = library(name)
    split = score(model, categories(frame), categories(new), calibrator=Split())
    found = score(model, categories(frame), categories(new)) / split
    by_hand = score(ByHand(model), codes, new_codes) / split
    assert found <= 1.01 * by_hand and found < 0.9
