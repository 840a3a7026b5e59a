"""What no method can use is refused, and the error says what to do."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from calliper import KNN, RBF, CalliperError, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import MADSplit
from cases.edges import METHODS, NEW, RESCALED, SCORES, Z


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("Z", "scores", "message"),
    [
        (Z, np.r_[SCORES[:-1], np.nan], "NaN or infinite .nan at position 49"),
        (Z, np.r_[np.inf, SCORES[1:]], "must be finite, but 1 of 50"),
        (np.where(Z == Z[3, 1], np.nan, Z), SCORES, "contains NaN"),
        (np.where(Z == Z[3, 1], np.inf, Z), SCORES, "contains infinity"),
        (Z * 1e160, SCORES, "as large as .*e.160; .* Rescale that feature"),
        (Z, SCORES[:-1], "inconsistent numbers of samples"),
        (Z[:, 0], SCORES, "must be a table with columns"),
        (Z, np.column_stack([SCORES, SCORES]), "one value for each row"),
        (Z[:0], SCORES[:0], "0 sample"),
        (Z[:, :0], SCORES, "0 feature"),
        (Z, None, "target y is None"),
        (Z, ["a"] * 50, "scores must be numbers"),
        (Z, SCORES + 1j, "Complex data not supported"),
    ],
)
def test_bad_calibration_data(method, Z, scores, message):
    with pytest.raises(ValueError, match=message):
        method.fit(Z, scores)


@pytest.mark.parametrize("method", [*RESCALED, MADSplit()], ids=repr)
def test_negative_scores_are_refused_where_they_are_rescaled(method):
    with pytest.raises(
        CalliperError,
        match=r"2 of 50 values are below 0 \(first: -1.0 at position 4.* one-sided bound",
    ):
        method.fit(Z, np.where(np.isin(np.arange(50), [4, 9]), -1.0, SCORES))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_sparse_input_is_refused(method):
    with pytest.raises(TypeError, match="pass a dense array"):
        method.fit(sparse.csr_array(Z), SCORES)
    with pytest.raises(TypeError, match="pass a dense array"):
        method.fit(Z, SCORES).predict_radius(sparse.csr_array(NEW))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": Z[:, 0], "b": Z[:, 1]}, r"must be an array.* got a dict"),
        (pl.LazyFrame({"a": Z[:, 0], "b": Z[:, 1]}), r"got a LazyFrame .*\. Call collect\(\)"),
        ([{"a": 1.0, "b": 2.0}] * 50, "got a list of dicts"),
    ],
    ids=["dict", "LazyFrame", "dicts"],
)
def test_dictionaries_and_queries_are_refused(method, rows, message):
    if isinstance(rows, list) and isinstance(method, Split):
        return  # which only counts them
    with pytest.raises(CalliperError, match=message):
        method.fit(rows, SCORES)
    with pytest.raises(CalliperError, match=message):
        method.fit(Z, SCORES).predict_radius(rows)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("new", "message"),
    [
        (NEW[:, :1], "2 features"),
        (np.full((1, 2), np.nan), "contains NaN"),
        (NEW[0], "must be a table with columns"),
        (NEW[:0], "0 sample"),
    ],
)
def test_bad_new_rows(method, new, message):
    with pytest.raises(ValueError, match=message):
        method.fit(Z, SCORES).predict_radius(new)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("coverage", "message"),
    [
        (1.0, "strictly between 0 and 1"),
        (0.0, "strictly between 0 and 1"),
        (-0.1, "strictly between 0 and 1"),
        (90, "divide by 100"),
        (float("nan"), "strictly between 0 and 1"),
        ([0.9, 0.8], "in ascending order"),
        ([0.9, 0.9], "without repeats"),
        ([], "one level or a list"),
        ("high", "must be a number"),
        ([[0.8, 0.9]], "one level or a list"),
    ],
)
def test_bad_levels(method, coverage, message):
    fitted = method.fit(Z, SCORES)
    with pytest.raises(CalliperError, match=message):
        fitted.predict_radius(NEW, coverage)
    with pytest.raises(CalliperError, match=message):
        fitted.guaranteed_coverage(coverage)


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        (FullRescaled(KNN(0)), ValueError, "integer of at least 1; got 0"),
        (FullRescaled(KNN(2.5)), ValueError, "integer of at least 1; got 2.5"),
        (FullRescaled(RBF(0.0)), ValueError, "positive, finite number; got 0.0"),
        (FullRescaled(RBF(np.inf)), ValueError, "positive, finite number"),
        (FullRescaled(RBF("mean")), ValueError, "a number or 'median'"),
        (FullRescaled(RBF("median")), CalliperError, "needs training inputs"),
        (FullRescaled(RBF(1.0), statistic="quantile"), CalliperError, "use kernel=KNN"),
        (
            FullRescaled(statistic="median"),
            ValueError,
            "statistic must be 'mean', 'rms' or 'quantile'",
        ),
        (
            FullRescaled(offset=-1.0),
            ValueError,
            "offset must be a number from 0 to 1e.302; got -1.0",
        ),
        (FullRescaled("knn"), TypeError, "kernel must be KNN"),
        (FullRescaled(KNN(metric="nearby")), ValueError, "metric must be a name"),
        (JackknifeRescaled(5), TypeError, "kernel must be KNN"),
        (MADSplit(), CalliperError, "pass training="),
    ],
    ids=repr,
)
def test_bad_parameters_are_refused_by_fit(method, error, message):
    with pytest.raises(error, match=message):
        method.fit(Z, SCORES)


def test_full_rescaling_refuses_magnitudes_that_would_void_its_guarantee():
    with pytest.raises(CalliperError, match="magnitudes must equal scores"):
        FullRescaled().fit(Z, SCORES, magnitudes=np.sqrt(SCORES))
    JackknifeRescaled().fit(Z, SCORES, magnitudes=np.sqrt(SCORES))


def test_a_fit_that_fails_leaves_nothing_behind():
    method = FullRescaled().fit(Z, SCORES)
    with pytest.raises(CalliperError):
        method.fit(Z[:, :1], -SCORES)
    with pytest.raises(NotFittedError):
        method.predict_radius(NEW[:, :1])


@pytest.mark.parametrize("kind", [FullRescaled, JackknifeRescaled, MADSplit])
def test_training_features_have_the_same_columns(kind):
    with pytest.raises(CalliperError, match="Z of training has 5 columns, Z has 2"):
        kind(RBF()).fit(Z, SCORES, training=(np.zeros((50, 5)), SCORES))


def test_metrics_that_cannot_judge():
    for metric in ("seuclidean", "mahalanobis"):
        with pytest.raises(ValueError, match="standardise or whiten the features with training"):
            FullRescaled(KNN(5, metric=metric)).fit(Z, SCORES)
    with_zero = np.vstack([Z, np.zeros(2)])
    for kernel in (KNN(5, metric="cosine"), RBF(0.3, metric="cosine")):
        for method in (FullRescaled(kernel), JackknifeRescaled(kernel)):
            with pytest.raises(CalliperError, match="gives NaN, for example for the row"):
                method.fit(with_zero, np.append(SCORES, 1.0))


@pytest.mark.parametrize(
    "scores", [np.ma.masked_array(SCORES, SCORES > 1), SCORES.astype("datetime64[D]"), ["1"] * 50]
)
def test_values_that_only_look_like_numbers(scores):
    with pytest.raises(CalliperError, match="scores must be numbers"):
        Split().fit(Z, scores)


TEXTS = {
    "list": ["Bern", "Basel"] * 25,
    "numerals": ["1", "2"] * 25,
    "rows": [["Bern", 1.0], ["Basel", 2.0]] * 25,
    "array": np.array([["Bern"], ["Basel"]] * 25),
    "objects": np.array([["Bern", 1.0], [None, 2.0]] * 25, dtype=object),
    "frame": pd.DataFrame({"city": ["Bern", "Basel"] * 25, "x": SCORES}),
    "dates": pd.date_range("2020", periods=50).to_numpy(),
}


@pytest.mark.parametrize("name", TEXTS)
def test_split_only_counts_rows(name):
    """It judges no nearness: text has as many rows as numbers do."""
    found = Split().fit(TEXTS[name], SCORES).predict_radius(TEXTS[name][:7], [0.5, 0.9])
    np.testing.assert_array_equal(found, Split().fit(Z, SCORES).predict_radius(Z[:7], [0.5, 0.9]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Split().fit(TEXTS[name], SCORES[:-1])
    with pytest.raises((ValueError, TypeError)):
        FullRescaled().fit(TEXTS[name], SCORES)


def test_rows_on_a_device_that_calibration_points_are_not_on():
    torch = pytest.importorskip("torch")
    method = FullRescaled(KNN(5)).fit(Z, SCORES)
    with pytest.raises(CalliperError, match="Z is on meta, but is compared with rows on cpu"):
        method.predict_radius(torch.empty((2, 2), device="meta"))
    here = FullRescaled(KNN(5, engine="torch:cpu"))
    with pytest.raises(CalliperError, match="Z is on meta, but is compared with rows on cpu"):
        here.fit(torch.empty((9, 2), device="meta"), SCORES[:9])
