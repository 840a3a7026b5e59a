"""Weights that are learnt, and weights that travel with rows through the regressor."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from calliper import KNN, ConformalRegressor, FullRescaled, SignedError, Split, load, save
from calliper.calibrators import LCP
from calliper.exceptions import CalliperError, ShiftWarning
from calliper.shift import LikelihoodRatio, Recency, ShiftReport

RNG = np.random.default_rng(0)


def rows(n, centre):
    x = centre + RNG.normal(size=n)
    frame = pd.DataFrame({"x": x, "w": np.exp(x)})
    return frame, 2 * x + RNG.normal(size=n) * np.exp(x)


TRAIN, CAL, NEW = rows(600, 0.0), rows(400, 0.0), rows(300, 1.0)
MODEL = LinearRegression().fit(TRAIN[0][["x"]], TRAIN[1])


class OfColumnX:
    """The model on frames that have other columns, too."""

    def predict(self, X):
        return MODEL.predict(X[["x"]])


def calibrated(weights, calibrator=None, **options):
    method = ConformalRegressor(OfColumnX(), calibrator or Split(), **options)
    return method.calibrate(*CAL, weights=weights)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_the_ratio_is_that_of_the_densities(kind):
    before, now = kind(RNG.normal(size=(3000, 2))), kind(1 + RNG.normal(size=(1000, 2)))
    new = kind(RNG.normal(size=(2000, 2)))
    truth = np.exp(np.asarray(new).sum(axis=1) - 1)
    for classifier, most in ((LogisticRegression(), 0.08), (None, 0.3)):
        ratio = LikelihoodRatio(classifier, random_state=0).fit(before, now)
        weights = ratio(new)
        assert weights.shape == (2000,) and (weights > 0).all()
        assert 0.5 * np.abs(weights / weights.mean() - truth / truth.mean()).mean() < most
        assert 0.6 < weights.mean() < 1.6, "sizes are corrected for"
    same = pickle.loads(pickle.dumps(ratio))
    np.testing.assert_array_equal(same(new), weights)
    assert not hasattr(clone(ratio), "classifier_")


def test_inputs_in_the_wrong_order_are_pointed_out():
    for order, swapped in (((TRAIN, NEW), False), ((NEW, TRAIN), True)):
        ratio = LikelihoodRatio(random_state=0).fit(*(each[["x"]] for each, _ in order))
        made = calibrated(lambda X, ratio=ratio: ratio(X[["x"]]))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ShiftWarning)
            made.predict_interval(NEW[0])
            made.predict_interval(NEW[0][:29])  # too few to say
        said = [
            str(each.message) for each in told if "takes X_train, then X_new" in str(each.message)
        ]
        assert len(said) == swapped


@pytest.mark.parametrize("kind", [Recency, LikelihoodRatio])
def test_a_class_is_no_weight(kind):
    with pytest.raises(TypeError, match=f"weights is the class {kind.__name__}: pass an instance"):
        calibrated(kind)


def test_a_ratio_that_is_no_weight_is_refused():
    before, now = np.zeros((20, 1)), np.ones((20, 1))
    certain = LikelihoodRatio(DecisionTreeClassifier()).fit(before, now)
    with pytest.raises(CalliperError, match="that 20 of 20 rows are new"):
        certain(now)
    with pytest.raises(TypeError, match="predict_proba"):
        LikelihoodRatio(LinearRegression()).fit(before, now)
    with pytest.raises(CalliperError, match="at least 5 rows each; got 20 and 0"):
        LikelihoodRatio().fit(before, now[:0])
    with pytest.raises(CalliperError, match=r"has 0: call fit\(X_train, X_new\), without targets"):
        LikelihoodRatio().fit(before, now[:, 0])
    with pytest.raises(TypeError, match="classifier must have predict_proba; got 'logistic'"):
        LikelihoodRatio("logistic").fit(before, now)
    with pytest.raises(CalliperError, match="at least 5 rows each; got 20 and 4"):
        LikelihoodRatio().fit(before, now[:4])


def test_rows_of_other_columns_are_refused_and_other_orders_read():
    before, now = (each[0].assign(z=np.arange(len(each[0])) % 7.0) for each in (TRAIN, NEW))
    for other in (now.rename(columns={"z": "y"}), now[["x"]], now.assign(y=0.0)):
        with pytest.raises(CalliperError, match="X_now must have the same columns as X_before"):
            LikelihoodRatio().fit(before, other)
    with pytest.raises(CalliperError, match=r"as X_before \(2\), but has 1"):
        LikelihoodRatio().fit(before[["x", "z"]].to_numpy(), now[["x"]].to_numpy())
    with pytest.raises(CalliperError, match="cannot use these rows: cannot concatenate"):
        LikelihoodRatio().fit(before, now.to_numpy())
    as_named = LikelihoodRatio(random_state=0).fit(before, now)
    turned = LikelihoodRatio(random_state=0).fit(before, now[now.columns[::-1]])
    np.testing.assert_array_equal(turned(now), as_named(now))
    of_polars = pl.from_pandas(before), pl.from_pandas(now[now.columns[::-1]])
    polars = LikelihoodRatio(random_state=0).fit(*of_polars)
    np.testing.assert_array_equal(polars(pl.from_pandas(now)), as_named(now))


def test_rows_that_one_column_separates_are_pointed_out():
    before, now = (each[0].assign(z=np.arange(len(each[0])) % 7.0) for each in (TRAIN, NEW))
    for z in (np.nan, 7.0 + now["z"]):
        with pytest.warns(ShiftWarning, match="tells every row of X_now from every row"):
            LikelihoodRatio(random_state=0).fit(before, now.assign(z=z))
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShiftWarning)
        LikelihoodRatio(random_state=0).fit(before, now)
        for seed in range(3):  # many columns fit few rows by chance
            rng = np.random.default_rng(seed)
            few = rng.normal(size=(20, 100))
            LikelihoodRatio(random_state=0).fit(rng.normal(size=(1000, 100)), few)


def test_learnt_weights_cover_what_is_shifted():
    ratio = LikelihoodRatio(LogisticRegression()).fit(TRAIN[0][["x"]], NEW[0][["x"]])
    method = calibrated(lambda X: ratio(X[["x"]]))
    inside = method.predict_interval(NEW[0]).contains(NEW[1]).mean()
    without = calibrated(None).predict_interval(NEW[0]).contains(NEW[1]).mean()
    assert without < 0.8 and inside > 0.9 - 4 * np.sqrt(0.09 / 300)


@pytest.mark.parametrize("score", [None, SignedError()], ids=repr)
def test_values_a_column_and_a_function_are_the_same_weights(score):
    how = {"coverage": [0.5, 0.8], "bounds": (-40, 40)}
    by_values = calibrated(CAL[0]["w"], score_function=score)
    expected = by_values.predict_interval(NEW[0], weights=NEW[0]["w"].to_numpy(), **how)
    for given in ("w", lambda X: np.exp(X["x"])):
        method = calibrated(given, score_function=score)
        found = method.predict_interval(NEW[0], **how)
        np.testing.assert_array_equal(found.lower, expected.lower)
        np.testing.assert_array_equal(found.upper, expected.upper)
    report, by_hand = (
        method.shift_report(NEW[0], 0.8),
        ShiftReport.of(CAL[0]["w"], NEW[0]["w"], 0.8),
    )
    assert vars(report) == pytest.approx(vars(by_hand))
    assert method.guaranteed_coverage(0.8) == pytest.approx(0.8)
    assert "density of new inputs" in method.guarantee(0.8).describe()
    grouped = calibrated("w", score_function=score).calibrate(
        *CAL, weights="w", groups=lambda X: X["x"] > 0
    )
    assert "in each of the 2 groups" in grouped.guarantee(0.8).describe()
    assert np.isfinite(grouped.predict_interval(NEW[0], 0.5).width).all()


def test_weights_must_be_given_at_both_ends_and_taken():
    with pytest.raises(CalliperError, match="also pass weights= for the new rows"):
        calibrated(CAL[0]["w"]).predict_interval(NEW[0])
    with pytest.raises(CalliperError, match="not for calibration: also pass weights= to calibrate"):
        calibrated(None).predict_interval(NEW[0], weights="w")
    with pytest.raises(
        CalliperError, match=r"LCP does not support weights: .*FullRescaled, Jackknife"
    ):
        calibrated("w", LCP(bandwidth=0.5))
    with pytest.raises(CalliperError, match="confidence cannot be combined with weights"):
        calibrated("w").predict_interval(NEW[0], 0.9, confidence=0.9)
    with pytest.raises(CalliperError, match="fitted without weights"):
        calibrated(None).shift_report(NEW[0])


@pytest.mark.parametrize("method", [Split(), FullRescaled(KNN(5))])
def test_recent_rows_count_most_by_the_definition_and_after_extend(method, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = X[:, 0] + rng.normal(size=300) * np.linspace(0.1, 1.0, 300)
    model = LinearRegression().fit(X[:50], y[:50])
    made = ConformalRegressor(model, method, embed="inputs", learning_part=None)
    made.calibrate(X[50:250], y[50:250], X_train=X[:50], weights=Recency(half_life=20))
    if isinstance(method, Split):
        errors, weights = np.abs(y - model.predict(X))[50:250], 0.5 ** (np.arange(200, 0, -1) / 20)
        order = np.argsort(errors)
        reached = np.cumsum(weights[order]) / (weights.sum() + 1)
        wanted = errors[order][np.searchsorted(reached, 0.9)]
        radius = made.predict_interval(X[:1], 0.9).width[0] / 2
        assert radius == pytest.approx(wanted) and radius > np.quantile(errors, 0.9)
    promise = made.guarantee(0.9)
    assert promise.proved == 0 and "Drift over the rows of largest weight" in promise.describe()
    anew = ConformalRegressor(model, method, embed="inputs", learning_part=None)
    anew.calibrate(X[50:], y[50:], X_train=X[:50], weights=Recency(half_life=20))
    made.extend(X[250:260], y[250:260]).extend(X[260:], y[260:])
    np.testing.assert_allclose(
        made.predict_interval(X[:9], 0.9).width, anew.predict_interval(X[:9], 0.9).width
    )
    save(made, tmp_path / "made.calliper")
    again = load(tmp_path / "made.calliper", model, bring={"weights": Recency(20)})
    assert (
        again.predict_interval(X[:9], 0.9).upper == made.predict_interval(X[:9], 0.9).upper
    ).all()
    with pytest.raises(CalliperError, match="half_life must be a positive number; got 0"):
        made.calibrate(X[50:], y[50:], weights=Recency(0))
