"""Rows that were seen in training, rows whose order matters, and rows that are split with care."""

import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_info, threadpool_limits

from calliper import CalliperError, ConformalRegressor, Intervals, SignedError, Split, load, save
from calliper._answering import UNCHECKED
from calliper._blocks import map_slices
from calliper.calibrators import ConditionalCalibration
from calliper.cli._calibration import calibrate_stored
from calliper.exceptions import (
    EmbeddingWarning,
    RowOrderWarning,
    SharedRowsWarning,
    SplitGroupsWarning,
    UnusedWarning,
)
from calliper.refitting import CVPlus
from calliper.rows import TREND_LEVEL, find_trend
from calliper.shift import Recency

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3))
Y = X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=600)
X_TRAIN, X_CAL, Y_TRAIN, Y_CAL = X[:200], X[200:400], Y[:200], Y[200:400]
MODEL = LinearRegression().fit(X_TRAIN, Y_TRAIN)


# Rows that were seen


@pytest.mark.parametrize("frame", [False, True])
def test_training_rows_are_refused_for_calibration(frame):
    rows = pd.DataFrame(X_TRAIN, columns=list("abc")) if frame else X_TRAIN
    order = rng.permutation(200)
    shuffled = rows.iloc[order] if frame else rows[order]
    model = ConformalRegressor(LinearRegression().fit(rows, Y_TRAIN))
    with pytest.raises(CalliperError, match=r"All 200 calibration rows are also training rows"):
        model.calibrate(shuffled, Y_TRAIN[order], X_train=rows, y_train=Y_TRAIN)


def test_some_training_rows_void_the_promise():
    X_mixed, y_mixed = X[180:400], Y[180:400]
    model = ConformalRegressor(MODEL)
    with pytest.warns(SharedRowsWarning, match="20 of 220 calibration rows are also training"):
        model.calibrate(X_mixed, y_mixed, X_train=X_TRAIN, y_train=Y_TRAIN)
    assert model.guaranteed_coverage(0.9) == 0
    promise = model.guarantee(0.9)
    assert promise.proved == 0 and "no guarantee. 20 of 220" in promise.describe()
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    assert model.guaranteed_coverage(0.9) >= 0.9


def test_it_says_whether_rows_that_were_trained_on_would_be_known(tmp_path):
    known = {"X_train": X_TRAIN, "y_train": Y_TRAIN}
    trained = ConformalRegressor(Ridge(), random_state=0).fit(X[:300], Y[:300])
    cases = [
        (ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL), False),
        (ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL, **known), True),
        (trained, True),
        (ConformalRegressor(FrozenEstimator(MODEL), Split()).fit(X[:300], Y[:300]), False),
    ]
    for model, checked in cases:
        save(model, tmp_path / "kept")
        for each in (model, load(tmp_path / "kept", model.estimator_)):
            words, shown = each.guarantee(0.9).describe(), repr(each)
            assert ("Checked when calibrating" in words) == checked
            for told in (words, shown, each._html_repr()):
                assert (UNCHECKED in told) == (not checked)
            assert words.endswith("calliper cannot check whether new rows meet these assumptions.")
    assert "Checked when" in trained.calibrate(X[400:], Y[400:]).guarantee(0.9).describe()
    other = trained.set_params(estimator=MODEL).calibrate(X_CAL, Y_CAL)
    assert "Checked when" not in other.guarantee(0.9).describe()


def test_stored_rows_are_checked_too():
    def stored(rows):
        return np.column_stack([Y[rows], MODEL.predict(X[rows]), X[rows]])

    training = stored(slice(0, 200))
    with pytest.raises(CalliperError, match="All 200"):
        calibrate_stored(Split(), training, training)
    with pytest.warns(SharedRowsWarning, match="20 of 220"):
        found = calibrate_stored(Split(), stored(slice(180, 400)), training)
    assert found.regressor.guarantee(0.9).proved == 0
    found = calibrate_stored(Split(), stored(slice(200, 400)), training)
    assert found.regressor.guarantee(0.9).proved >= 0.9


# Rows whose order matters


def growing(n, seed):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, 2))
    return X, X[:, 0] + np.linspace(0.2, 3, n) * draw.normal(size=n)


def test_errors_that_grow_with_the_row_number_are_pointed_out():
    X, y = growing(800, 1)
    with pytest.warns(RowOrderWarning, match=r"size of the error .*rank correlation 0\.[3-6]"):
        ConformalRegressor(LinearRegression(), Split(), random_state=0).fit(X, y)
    older = LinearRegression().fit(*growing(400, 3))
    with pytest.warns(RowOrderWarning, match="shuffle=False"):
        found = ConformalRegressor(older, Split()).calibrate(X, y)
    assert "errors depend on the row number" in found.guarantee().describe()
    with pytest.warns(RowOrderWarning, match=r"promised: calibrate on fewer rows, the latest, or"):
        ConformalRegressor(older, Split(), shuffle=False).calibrate(X, y)
    with pytest.warns(RowOrderWarning, match="The error depends on the row number"):
        drifting = Y_CAL + np.linspace(0, 4, 200)
        ConformalRegressor(MODEL, Split()).calibrate(X_CAL, drifting)


@pytest.mark.parametrize("of", ["index", "zoned index", "column", "polars", "y", "latest first"])
def test_rows_in_order_of_time_are_pointed_out_before_they_are_shuffled(of):
    rows, y = pd.DataFrame(X[:100], columns=list("abc")), pd.Series(Y[:100])
    days = pd.Series(pd.date_range("2024-01-01", periods=100, tz="UTC" if "z" in of else None))
    if of in ("column", "polars"):
        rows["day"] = days
    elif of == "y":
        y.index = days
    else:
        rows.index = days[::-1] if of == "latest first" else days
    rows = pl.from_pandas(rows) if of == "polars" else rows
    model = make_pipeline(FunctionTransformer(lambda rows: rows[["a", "b", "c"]]), Ridge())
    with pytest.warns(RowOrderWarning, match=r"at random, but .* in (a|de)scending order"):
        ConformalRegressor(model, Split()).fit(rows, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RowOrderWarning)
        for shuffle in (True, False) if of != "latest first" else (True,):
            ConformalRegressor(model, Split(), shuffle=shuffle).fit(rows, y)
        mixed = np.random.default_rng(0).permutation(100)
        if of != "polars":
            ConformalRegressor(model, Split()).fit(rows.iloc[mixed], y.to_numpy()[mixed])


def test_rows_in_order_of_time_are_pointed_out_by_calibrate_and_cv_plus():
    days = pd.date_range("2024-01-01", periods=400, tz="Europe/Zurich").repeat(2)[:400]
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"), index=days)
    y = rows["a"].to_numpy() + rng.normal(size=400)
    model = Ridge().fit(rows[:50], y[:50])
    with pytest.warns(RowOrderWarning, match="calibrate splits rows at random.* the older rows"):
        ConformalRegressor(model).calibrate(rows, y)
    with pytest.warns(RowOrderWarning, match=r"cv=KFold\(5\) leaves out runs"):
        CVPlus(Ridge(), cv=5).fit(rows, y)
    mixed = rng.permutation(400)
    for order, word in ((mixed, "no"), (np.arange(400)[::-1], "descending")):
        with pytest.warns(RowOrderWarning, match=f"the index holds times in {word} order: sort"):
            ConformalRegressor(Ridge(), Split(), shuffle=False).fit(rows.iloc[order], y[order])
        turned, recent = (rows.iloc[order], y[order]), Recency(50)
        for shuffle, weights, who in (
            (False, None, "shuffle=False"),
            (True, Recency(50), "Recency"),
        ):
            with pytest.warns(RowOrderWarning, match=f"{who} assumes .* times in {word} order"):
                made = ConformalRegressor(model, Split(), shuffle=shuffle)
                made.calibrate(*turned, weights=weights)
        for window in (100, None) if word == "no" else (100,):
            weights = recent if window is None else None
            made = ConformalRegressor(model, Split()).calibrate(rows, y, weights=weights)
            with pytest.warns(RowOrderWarning, match=f"extend assumes .* times in {word} order"):
                made.extend(*turned, window=window)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RowOrderWarning)
        CVPlus(Ridge(), cv=KFold(5)).fit(rows, y)
        for shuffle in (True, False):
            ConformalRegressor(model, shuffle=shuffle).calibrate(rows, y)
        made = ConformalRegressor(model, Split()).calibrate(rows, y, weights=Recency(50))
        made.extend(rows, y, window=100)
        made = ConformalRegressor(model, Split()).calibrate(*turned)
        made.extend(*turned).extend(*turned, window=10_000)  # which drops no row
        gaps = rows.set_axis(days.where(np.arange(400) % 50 > 0))
        ConformalRegressor(model, Split(), shuffle=False).calibrate(gaps, y)


def test_a_gap_is_left_between_parts():
    rng = np.random.default_rng(0)
    rows, y = np.arange(1000.0)[:, None], rng.normal(size=1000)
    seen = []

    class Told(DummyRegressor):
        def fit(self, X, y):
            seen.append(X[:, 0].astype(int))
            return super().fit(X, y)

    made = ConformalRegressor(Told(), shuffle=False, gap=24, calibration_size=200)
    made.fit(rows, y)
    assert seen[0].tolist() == [*range(776)] and made.calibrators_[0].n_calibration_ == 200
    for fold, others in enumerate(seen[1:]):
        left = np.array_split(np.arange(776), 5)[fold]
        wanted = [i for i in range(776) if i < left[0] - 24 or i > left[-1] + 24]
        assert others.tolist() == wanted
    dealt = ConformalRegressor(Told().fit(rows, y), shuffle=False, gap=24, learning_part=0.5)
    dealt.calibrate(rows, y)
    assert dealt.calibration_.n_taught == 500 and dealt.calibrators_[0].n_calibration_ == 476
    with pytest.warns(UnusedWarning, match="gap=24 has no effect: all rows"):
        dealt.set_params(learning_part=None).calibrate(rows, y)
    for wrong, words in [
        ({"gap": 5}, "gap=5 only applies to rows in chronological order: .* shuffle=False"),
        ({"gap": 900, "shuffle": False}, "gap=900 leaves none of 1000 rows to train on"),
        ({"gap": -1}, "gap must be an integer of at least 0"),
    ]:
        with pytest.raises(CalliperError, match=words):
            ConformalRegressor(Ridge(), **wrong).fit(rows, y)


def test_rows_in_random_order_hardly_ever_alarm():
    """By law at most TREND_LEVEL of the sets, whatever the errors: skewed, tied, few."""
    draw, alarms, sets = np.random.default_rng(5), 0, 4_000
    for _ in range(sets // 4):
        for errors in (
            draw.normal(size=30),
            draw.exponential(size=200) ** 3,
            draw.integers(0, 3, 100),
            draw.normal(size=8),
        ):
            alarms += find_trend(errors) is not None
    assert alarms <= TREND_LEVEL * sets + 4 * np.sqrt(TREND_LEVEL * sets)


def test_the_last_rows_are_held_out_and_folds_are_runs():
    X, y = growing(400, 2)

    class Noted(LinearRegression):
        seen: ClassVar = []

        def fit(self, X, y):
            self.seen.append(np.sort(X[:, 2]))
            return super().fit(X, y)

    numbered = np.column_stack([X, np.arange(400.0)])
    model = ConformalRegressor(Noted(), shuffle=False).fit(numbered, y)
    whole, *refits = Noted.seen
    np.testing.assert_array_equal(whole, np.arange(300))
    assert len(refits) == 5
    for start, rows in zip(range(0, 300, 60), refits, strict=True):
        np.testing.assert_array_equal(np.setdiff1d(whole, rows), np.arange(start, start + 60))
    assert model.calibrator_.n_calibration_ == 100


# Rows that belong together, and what is passed to fit


class Recorded(RegressorMixin, BaseEstimator):
    """Predicts zero, and remembers what it was trained with."""

    calls: ClassVar = []

    def fit(self, X, y, sample_weight=None, names=None):
        self.calls.append((X[:, 0], sample_weight, names))
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_groups_are_never_torn():
    Recorded.calls.clear()
    groups = rng.integers(0, 40, 600)
    numbered = np.column_stack([np.arange(600.0), X])
    with pytest.warns(SplitGroupsWarning, match="pass groups= and leave split_groups out"):
        ConformalRegressor(Recorded(), random_state=0).fit(numbered, Y, split_groups=groups)
    assert len(Recorded.calls) == 6
    train = Recorded.calls[0][0].astype(int)
    assert not set(groups[train]) & set(np.delete(groups, train))
    for part in (call[0].astype(int) for call in Recorded.calls[1:]):
        assert not set(groups[part]) & set(groups[np.setdiff1d(train, part)])
    with pytest.raises(CalliperError, match="shuffle=False"):
        ConformalRegressor(Recorded(), shuffle=False).fit(numbered, Y, split_groups=groups)


@pytest.mark.parametrize("routing", [False, True])
def test_fit_parameters_reach_every_training_and_no_calibration(routing):
    Recorded.calls.clear()
    numbered, weight = np.column_stack([np.arange(600.0), X]), np.arange(600.0)
    with config_context(enable_metadata_routing=routing):
        estimator = Recorded()
        if routing:
            estimator.set_fit_request(sample_weight=True, names=True)
        weighted = ConformalRegressor(estimator, random_state=0)
        weighted.fit(numbered, Y, sample_weight=weight, names=["a", "b"])
    assert len(Recorded.calls) == 6
    for rows, sample_weight, names in Recorded.calls:
        np.testing.assert_array_equal(rows, sample_weight)
        assert names == ["a", "b"]
    plain = ConformalRegressor(Recorded(), random_state=0).fit(numbered, Y)
    np.testing.assert_array_equal(
        plain.predict_interval(numbered).upper, weighted.predict_interval(numbered).upper
    )


def test_weights_weigh():
    weight = np.where(np.arange(600) < 300, 1.0, 1e-9)
    found = ConformalRegressor(Ridge(), Split(), shuffle=False, calibration_size=100)
    found.fit(X, Y, sample_weight=weight)
    expected = Ridge().fit(X[:500], Y[:500], sample_weight=weight[:500]).predict(X)
    np.testing.assert_allclose(found.predict(X), expected)


class Unclonable(Ridge):
    """Gives out copies of a parameter, as CatBoost does."""

    def __init__(self, alpha=1.0, columns=None):
        super().__init__(alpha)
        self.columns = columns

    def get_params(self, deep=True):
        return {"alpha": self.alpha, "columns": list(self.columns)}


def test_an_estimator_that_cannot_be_cloned_is_copied():
    estimator = Unclonable(columns=[0])
    with pytest.raises(RuntimeError):
        clone(estimator)
    model = ConformalRegressor(estimator, random_state=0).fit(X, Y)
    assert model.left_out_.source == "5 folds" and not hasattr(estimator, "coef_")
    assert clone(model).estimator.columns == [0] and not hasattr(clone(model), "estimator_")


# From one step to the next


def test_calibrating_after_fit_uses_the_model_that_was_trained():
    model = ConformalRegressor(KNeighborsRegressor(), embed="inputs", random_state=0).fit(X, Y)
    trained = model.estimator_
    before = model.predict(X)
    with pytest.warns(SharedRowsWarning, match="150 of 200"):  # X_CAL is a part of X
        model.set_params(embed="prediction").calibrate(X_CAL, Y_CAL)
    assert model.guaranteed_coverage(0.9) == 0
    assert model.estimator_ is trained and model.calibrator_.n_calibration_ == 200
    np.testing.assert_array_equal(model.predict(X), before)
    other = model.set_params(estimator=MODEL).calibrate(X_CAL, Y_CAL)
    assert other.estimator_ is MODEL
    with pytest.raises(NotFittedError, match="KNeighborsRegressor"):
        model.set_params(estimator=KNeighborsRegressor()).calibrate(X_CAL, Y_CAL)


def test_who_has_not_calibrated_is_told_to():
    for ask in ("predict", "predict_interval"):
        with pytest.raises(NotFittedError, match=r"call calibrate\(X, y\).* or fit\(X, y\)"):
            getattr(ConformalRegressor(MODEL), ask)(X)


def test_another_space_without_training_rows_is_pointed_out(recwarn):
    model = ConformalRegressor(RandomForestRegressor(20, random_state=0), random_state=0)
    model.fit(X, Y)
    with pytest.warns(EmbeddingWarning, match="now measured by .*, not by .*expected error"):
        model.calibrate(X_CAL, Y_CAL)
    recwarn.clear()
    model.calibrate(X_CAL, Y_CAL)
    assert not [w for w in recwarn if issubclass(w.category, EmbeddingWarning)]


def test_progress_counts_every_training():
    shares = []
    ConformalRegressor(Ridge(), random_state=0, progress=shares.append).fit(X, Y)
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1])


# A method that takes rows as they are


def test_a_basis_is_given_the_frame_itself(recwarn):
    city = rng.choice(["Basel", "Bern", "Thun"], 600)
    frame = pd.DataFrame(X, columns=list("abc")).assign(wide=1e6 * X[:, 0], city=city)
    y = X[:, 0] + np.where(city == "Bern", 3.0, 0.5) * rng.normal(size=600)

    def predict(rows):
        return rows["a"].to_numpy()

    def groups(rows):
        return pd.get_dummies(pd.Categorical(rows["city"], ["Basel", "Bern", "Thun"]))

    for embed in ("auto", "inputs"):
        model = ConformalRegressor(predict, ConditionalCalibration(basis=groups), embed=embed)
        model.calibrate(frame[:400], y[:400])
        inside = model.predict_interval(frame[400:], 0.8).contains(y[400:])
        width = model.predict_interval(frame[400:], 0.8).width
        bern = city[400:] == "Bern"
        assert width[bern].mean() > 3 * width[~bern].mean() and inside[bern].mean() > 0.6
    assert not [w for w in recwarn if "raw inputs" in str(w.message)]


# What is shown


def test_a_calibrated_model_shows_what_it_is():
    model = ConformalRegressor(Ridge(), random_state=0)
    assert repr(model) == "ConformalRegressor(estimator=Ridge(), random_state=0)"
    shown = repr(model.fit(X, Y)).splitlines()
    assert shown[0] == "ConformalRegressor(estimator=Ridge(), random_state=0)"
    assert shown[1] == "  calibrated on 150 rows by FullRescaled"
    assert shown[2] == "  feature space: prediction and expected error (2 dimensions)"
    assert shown[3].startswith("  locality: RBF(")
    assert shown[4] == "  held-out errors: LeftOut(450 of 450 training rows, 5 folds)"
    assert shown[5] == f"  intervals are {model.error_model_.describe()}"
    assert "450 held-out errors" in shown[5]
    assert shown[6] == "  guaranteed coverage at level 0.9: 0.9006"
    page = model._repr_mimebundle_()["text/html"]
    assert "calibrated on 150 rows by FullRescaled" in page and "level 0.9: 0.9006" in page


def test_the_one_calibrator():
    model = ConformalRegressor(MODEL, Split())
    assert not hasattr(model, "calibrator_")
    model.calibrate(X_CAL, Y_CAL)
    assert model.calibrator_ is model.calibrators_[0]
    both = ConformalRegressor(MODEL, Split(), score_function=SignedError())
    assert not hasattr(both.calibrate(X_CAL, Y_CAL), "calibrator_")
    assert len(both.calibrators_) == 2


@pytest.mark.parametrize("n", [0, 3, 10, 11, 1000])
def test_intervals_are_short_to_read(n):
    ends = np.arange(n, dtype=float)
    upper = np.where(ends % 4 == 0, np.inf, ends + 1)
    index = [f"<{i}>" for i in range(n)]
    for intervals in (
        Intervals(ends, upper, 0.9, index),
        Intervals(np.c_[ends, ends], np.c_[upper, upper], (0.8, 0.9)),
    ):
        lines = repr(intervals).splitlines()
        assert len(lines) == 2 + (n if n <= 10 else 11)
        assert lines[0].startswith(f"Intervals({n:,} rows, coverage ")
        assert ("% infinite" in lines[0]) == (n > 0)
        page = intervals._repr_html_()
        assert page.count("<tr>") == len(lines) - 1 and "<0>" not in page


# A row at a time


@pytest.mark.parametrize("embed", ["auto", "inputs"])
def test_a_few_rows_start_no_threads(embed, monkeypatch):
    forest = RandomForestRegressor(20, n_jobs=2, random_state=0).fit(X_TRAIN, Y_TRAIN)
    model = ConformalRegressor(forest, embed=embed)
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    expected = model.predict_interval(X[400:]).upper

    def refuse(*_, **__):
        raise AssertionError("a thread was started")

    monkeypatch.setattr("calliper._blocks.ThreadPoolExecutor", refuse)
    if embed == "auto":  # elsewhere the forest is asked as it is, with threads of its own
        monkeypatch.setattr("calliper.models._forests.Parallel", refuse)
    one_by_one = [model.predict_interval(X[[i]]).upper[0] for i in range(400, 410)]
    np.testing.assert_allclose(one_by_one, expected[:10], rtol=1e-12)


def test_linear_algebra_of_one_block_keeps_to_one_thread():
    def n_threads(_):
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        assert set(map_slices(n_threads, [slice(0, 1)])[0]) <= {1}
        assert max(n_threads(None), default=2) == 2


def test_rows_that_fit_has_trained_on_are_refused():
    """A model that calliper itself has trained: its rows need not be passed to be known again."""
    model = ConformalRegressor(Ridge(), random_state=0).fit(X[:400], Y[:400])
    half = ConformalRegressor(Ridge(), calibration_size=0.5, random_state=0).fit(X, Y)
    with pytest.warns(SharedRowsWarning, match="also training rows"):
        half.calibrate(X, Y)
    assert "also training rows" in repr(half)
    with pytest.raises(CalliperError, match=r"All 200 .*\(same inputs\)"):
        ConformalRegressor(Ridge().fit(X_CAL, Y_CAL)).calibrate(X_CAL, Y_CAL, X_train=X_CAL)
    with pytest.warns(SharedRowsWarning):  # other training rows do not make these forgotten
        half.calibrate(X, Y, X_train=X + 9, y_train=Y)
    fresh = model.calibrate(X[400:], Y[400:])
    assert fresh.guaranteed_coverage(0.9) >= 0.9


def test_weights_of_another_length_and_names_of_methods_are_refused():
    with pytest.raises(CalliperError, match="sample_weight has 5 values for 600 rows"):
        ConformalRegressor(Ridge()).fit(X, Y, sample_weight=np.ones(5))
    with pytest.raises(TypeError, match=r"such as FullRescaled\(\) or Split\(\); got 'split'"):
        ConformalRegressor(Ridge(), "split").fit(X, Y)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SplitGroupsWarning")
def test_fit_takes_groups_by_the_name_of_a_column():
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    frame["x0"] = np.repeat(np.arange(60.0), 10)
    made = ConformalRegressor(Ridge(), random_state=0)
    ends = [
        made.fit(frame, Y, split_groups=groups).predict_interval(frame)
        for groups in ("x0", frame["x0"])
    ]
    np.testing.assert_array_equal(ends[0].lower, ends[1].lower)
    for name in ("groups", "split_groups"):
        with pytest.raises(CalliperError, match=f"{name}='site' must name a column of X; its"):
            ConformalRegressor(Ridge()).fit(frame, Y, **{name: "site"})


def test_groups_are_a_promise_in_each_group_for_fit_as_for_calibrate():
    site = np.where(np.arange(600) % 3, "a", "b")
    made = [
        ConformalRegressor(Ridge(), Split(), random_state=0).fit(X, Y, groups=groups)
        for groups in (site, lambda rows: np.where(rows[:, 0] > 0, "a", "b"))
    ]
    by_label, by_function = made
    assert by_label.guarantee(0.9).groups == by_function.guarantee(0.9).groups == 2
    assert "marginal within each group" in by_label.guarantee(0.9).describe()
    first, second = by_label.predict_interval(X[:2], groups=["a", "b"]).width
    assert first != second
    with pytest.raises(CalliperError, match="also pass groups= for the new rows"):
        by_label.predict_interval(X[:2])
    assert by_function.predict_interval(X[:2]).width.shape == (2,)


def test_folds_without_training_rows_are_pointed_out():
    model = ConformalRegressor(Ridge().fit(X[:300], Y[:300]), refits=5)
    for known in ({}, {"X_train": X[:300]}):
        with pytest.warns(UnusedWarning, match="refits=5 has no effect without training rows"):
            model.calibrate(X[300:], Y[300:], **known)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedWarning)
        model = ConformalRegressor(model.estimator, refits=0).calibrate(X[300:], Y[300:])


def test_groups_promise_nothing_for_new_groups():
    groups = np.repeat(np.arange(60), 10)
    with pytest.warns(SplitGroupsWarning, match="150 calibration rows come from 15 groups"):
        model = ConformalRegressor(Ridge(), random_state=0).fit(X, Y, split_groups=groups)
    assert model.guaranteed_coverage(0.9) == 0
    assert "150 calibration rows come from 15 groups" in model.guarantee(0.9).describe()
    assert ConformalRegressor(Ridge(), random_state=0).fit(X, Y).no_guarantee_ is None
