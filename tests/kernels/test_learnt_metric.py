"""A kernel in a space learnt on training errors."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from calliper import KNN, RBF, CalliperError, ConformalRegressor, FullRescaled, JackknifeRescaled
from calliper.calibrators import MADSplit
from calliper.kernels import Mahalanobis, TunedKNN, _learnt, learn_metric
from calliper.rows import Rows

rng = np.random.default_rng(0)
Z = rng.normal(size=(900, 6))
ERRORS = np.abs(rng.normal(size=900)) * np.exp(1.5 * np.sin(2 * Z[:, 0]))
TRAIN = {"training": (Z[300:700], ERRORS[300:700])}
LEVELS = [0.2, 0.5, 0.8, 0.9]


def fitted(kernel, **how):
    method = FullRescaled(kernel, random_state=0, **how)
    return method.fit_to(Rows(Z[:300], ERRORS[:300]), **TRAIN)


@pytest.mark.parametrize("shrinkage", [0.0, 0.4])
@pytest.mark.parametrize("inner", [KNN(7), RBF(0.5), RBF("median"), RBF(0.5, smoothing=1.0)])
def test_it_is_the_inner_kernel_on_mapped_rows(inner, shrinkage):
    method = fitted(Mahalanobis(inner, max_iter=10), shrinkage=shrinkage)
    moved = method.kernel_.metric.transform
    plain = FullRescaled(inner, shrinkage=shrinkage, random_state=0)
    plain.fit_to(Rows(moved(Z[:300]), ERRORS[:300]), training=moved(Z[300:700]))
    np.testing.assert_allclose(
        method.predict_radius(Z[700:], LEVELS),
        plain.predict_radius(moved(Z[700:]), LEVELS),
        rtol=1e-9,
    )


def test_directions_that_do_not_matter_are_forgotten():
    metric = fitted(Mahalanobis()).kernel_.metric
    steps = metric.transform(np.eye(6)) - metric.transform(np.zeros((1, 6)))
    length = np.sqrt(np.square(steps).sum(axis=1))
    assert length[0] > 3 * length[1:].max()
    truth = np.exp(1.5 * np.sin(2 * Z[700:, 0]))
    learnt, plain = (
        np.corrcoef(np.log(fitted(kernel).predict_radius(Z[700:])), np.log(truth))[0, 1]
        for kernel in (Mahalanobis(KNN(20)), KNN(20))
    )
    assert learnt > 0.85 > plain + 0.2


def test_calibration_scores_have_no_say():
    kernel = Mahalanobis(max_iter=10)
    one = fitted(kernel).kernel_.metric.matrix
    other = FullRescaled(kernel, random_state=0).fit(Z[700:], ERRORS[700:], **TRAIN)
    np.testing.assert_array_equal(one, other.kernel_.metric.matrix)


def test_left_out_errors_come_first():
    left_out = {"left_out": (Z[700:], ERRORS[700:])}
    kernel = Mahalanobis(max_iter=10)
    both = FullRescaled(kernel, random_state=0)
    both.fit(Z[:300], ERRORS[:300], **TRAIN, **left_out)
    alone = FullRescaled(kernel, random_state=0).fit(Z[:300], ERRORS[:300], **left_out)
    np.testing.assert_array_equal(both.kernel_.metric.matrix, alone.kernel_.metric.matrix)
    assert "left_out" in FullRescaled(Mahalanobis()).uses


def test_labels_are_logarithms_of_errors():
    labels = np.log(TRAIN["training"][1] + 0.1 * TRAIN["training"][1].mean())
    seed = np.random.RandomState(0)
    by_hand = learn_metric(
        TRAIN["training"][0], labels, n_directions=3, max_iter=50, random_state=seed
    )
    method = fitted(Mahalanobis(n_directions=3, max_iter=50))
    np.testing.assert_allclose(method.kernel_.metric.matrix, by_hand.matrix)


def test_it_works_through_the_regressor_and_its_clones():
    y = Z[:, 1] + np.random.default_rng(1).normal(size=900) * ERRORS
    model = ConformalRegressor(
        LinearRegression(),
        FullRescaled(Mahalanobis(KNN(20), max_iter=20)),
        embed="inputs",
        random_state=0,
    )
    lower, upper = clone(model).fit(Z[:700], y[:700]).predict_interval(Z[700:])
    assert 0.8 < np.mean((lower <= y[700:]) & (y[700:] <= upper)) < 1
    assert "learnt directions" in repr(fitted(Mahalanobis(max_iter=3)).kernel_)


@pytest.mark.parametrize(
    ("kernel", "extras", "error", "words"),
    [
        (Mahalanobis(), {}, CalliperError, "learns its metric on training errors"),
        (Mahalanobis(TunedKNN()), TRAIN, TypeError, "takes KNN"),
        (Mahalanobis("nearest"), TRAIN, TypeError, "takes KNN.* got 'nearest'"),
        (Mahalanobis(KNN(0), max_iter=3), TRAIN, ValueError, "integer of at least 1; got 0"),
        (
            Mahalanobis(n_directions=0),
            TRAIN,
            ValueError,
            "n_directions must be an integer",
        ),
        (
            Mahalanobis(),
            {"training": (Z, np.zeros(900))},
            CalliperError,
            "all of 900 training errors are 0",
        ),
    ],
)
def test_bad_input(kernel, extras, error, words):
    with pytest.raises(error, match=words):
        FullRescaled(kernel).fit(Z[:300], ERRORS[:300], **extras)


def test_methods_without_a_closed_form_say_so():
    with pytest.raises(TypeError, match=r"not support leave-two-out scales: use FullRescaled"):
        JackknifeRescaled(Mahalanobis()).fit(Z[:300], ERRORS[:300])
    with pytest.raises(TypeError, match=r"not support local means: use FullRescaled"):
        MADSplit(Mahalanobis(max_iter=3)).fit(Z[:300], ERRORS[:300], **TRAIN)


def test_a_metric_is_learnt_on_so_many_errors_at_most(monkeypatch):
    rng = np.random.default_rng(0)
    Z, errors = rng.normal(size=(60, 2)), rng.exponential(size=60)
    kernel = Mahalanobis(KNN(5), max_iter=3)
    monkeypatch.setattr(_learnt, "MOST_ERRORS", 50)
    drawn = np.random.RandomState(0).choice(60, 50, replace=False)
    found = kernel.fixed(Z, errors, np.random.RandomState(0)).metric.matrix
    state = np.random.RandomState(0)
    state.choice(60, 50, replace=False)
    expected = kernel.fixed(Z[drawn], errors[drawn], state).metric.matrix
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("statistic", ["mean", "quantile"])
def test_a_learnt_space_is_the_inner_kernel_on_moved_rows(statistic):
    rng = np.random.default_rng(0)
    Z, errors = rng.normal(size=(90, 3)), rng.exponential(size=90)
    kernel = Mahalanobis(KNN(6), max_iter=3)
    how = {"shrinkage": 0.2, "statistic": statistic, "random_state": 0}
    method = FullRescaled(kernel, **how)
    method.fit(Z[:58], errors[:58], training=(Z[60:], errors[60:])).extend(Z[58:60], errors[58:60])
    moved = method.kernel_.moved(Z)
    plain = FullRescaled(KNN(6), **how).fit(moved[:60], errors[:60])
    for rows, at in ((Z, moved), (Z[7:8] + 0.1, method.kernel_.moved(Z[7:8] + 0.1))):
        np.testing.assert_array_equal(
            method.predict_radius(rows, [0.5, 0.9]), plain.predict_radius(at, [0.5, 0.9])
        )


def test_stopping_early_is_no_matter_to_warn_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(Mahalanobis(max_iter=1))


def test_some_errors_may_be_nought():
    errors = np.where(np.arange(60) % 5 == 0, 0.0, ERRORS[:60])
    kernel = Mahalanobis(KNN(5), max_iter=3).fixed(Z[:60], errors, np.random.RandomState(0))
    assert kernel.metric.matrix.shape == (4, 6)


@pytest.mark.parametrize("kept", [[0, 0], [0, 1, 1, 2], [1, 0, 2]])
def test_columns_that_are_stored_twice_or_out_of_order_are_refused(kept):
    metric = replace(fitted(Mahalanobis(max_iter=5)).kernel_.metric, kept=np.array(kept))
    with pytest.raises(CalliperError, match="not in order"):
        metric.check_kept()
