"""Calibration rows that teach: how they are dealt, what they may not see, what is promised."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

from calliper import (
    CalliperError,
    ConformalRegressor,
    ErrorModel,
    FullRescaled,
    MultiTargetRegressor,
    Split,
    load,
    save,
)
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from calliper.guarantees import conformal_coverage
from calliper.kernels import KNN
from calliper.online import coverage_needed
from calliper.shift import Recency
from calliper.space import deal

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(700, 3))
#: A line misses the step; noise grows with the second input.
Y = X[:, 0] + (X[:, 2] > 0.5) + RNG.normal(size=700) * (0.1 + X[:, 1])
NEW = RNG.uniform(size=(50, 3))
MODEL = LinearRegression().fit(X[:100], Y[:100])
X_CAL, Y_CAL = X[100:600], Y[100:600]
FEW = ErrorModel(shift_trees=(20,), side_trees=10)


def calibrated(**settings):
    return ConformalRegressor(MODEL, error_model=FEW, **settings).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize(
    ("n", "asked", "n_taught"),
    [
        (299, "auto", 0),
        (300, "auto", 100),
        (500, "auto", 300),
        (2_000, "auto", 1_300),
        (100_000, "auto", 8_000),
        (10, 9, 9),
        (10, 0.5, 5),
        (10, None, 0),
        (10, 0, 0),
    ],
)
def test_how_many_rows_teach_is_a_rule_of_counts(n, asked, n_taught):
    taught, kept = deal(n, asked)
    assert len(taught) == n_taught
    np.testing.assert_array_equal(np.sort(np.r_[taught, kept]), np.arange(n))


@pytest.mark.parametrize("asked", [10, 1.0, -0.1, -1, "all", True])
def test_parts_that_cannot_be(asked):
    with pytest.raises(CalliperError, match="learning_part"):
        deal(10, asked)


def test_equal_calls_deal_alike_and_no_value_is_looked_at():
    first, again, other = deal(500, "auto"), deal(500, "auto"), deal(500, "auto", random_state=1)
    np.testing.assert_array_equal(first[0], again[0])
    assert (first[0] != other[0]).any()
    # What is dealt on another machine: MT19937's permutation is fixed for good.
    assert deal(20, 3, random_state=0)[0].tolist() == sorted(
        np.random.RandomState(0).permutation(20)[:3].tolist()
    )
    taught, kept = deal(500, "auto", shuffle=False)
    assert taught.max() < kept.min()  # the older rows teach


def test_a_small_group_keeps_all_its_rows():
    labels = np.r_[np.repeat("small", 50), np.repeat("large", 450)]
    taught, _ = deal(500, "auto", labels=labels)
    assert (taught >= 50).all() and len(taught) == 250
    found = ConformalRegressor(MODEL, error_model=FEW).calibrate(X_CAL, Y_CAL, groups=labels)
    sizes = {g: c.n_calibration_ for g, c in found.calibrator_.calibrators_.items()}
    assert sizes == {"small": 50, "large": 200}


def test_which_rows_calibrate_does_not_depend_on_their_weights():
    """Unless these follow from the age of rows; and a seed deals alike on every machine."""
    old = ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL, weights=Recency(50))
    assert old.calibration_.n_taught == 0 and old.calibrator_.n_calibration_ == len(Y_CAL)
    weights = np.full(len(Y_CAL), 1e-9)
    weights[:10] = 1.0
    for given in (weights, np.ones(len(Y_CAL))):
        model = ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL, weights=given)
        assert model.calibration_.n_taught == 300
    assert deal(500, "auto", random_state=3)[0][:8].tolist() == [3, 4, 5, 6, 10, 11, 14, 15]
    assert deal(500, "auto")[0][:8].tolist() == [1, 2, 4, 5, 6, 7, 8, 10]


def test_what_is_learnt_has_not_seen_the_kept_rows():
    taught, kept = deal(500, "auto")
    before = calibrated()
    other = Y_CAL.copy()
    other[kept] = RNG.normal(size=len(kept))
    after = ConformalRegressor(MODEL, error_model=FEW).calibrate(X_CAL, other)
    said = (m.error_model_.predict(np.zeros((1, 4))) for m in (before, after))
    np.testing.assert_array_equal(*said)
    np.testing.assert_array_equal(before.embedding_.transform(NEW), after.embedding_.transform(NEW))
    other = Y_CAL.copy()
    other[taught] = RNG.normal(size=len(taught))
    after = ConformalRegressor(MODEL, error_model=FEW).calibrate(X_CAL, other)
    assert (before.embedding_.transform(NEW) != after.embedding_.transform(NEW)).any()


def test_kept_rows_calibrate_where_nothing_can_be_learnt():
    with pytest.warns(ZeroScaleWarning):
        zero = ConformalRegressor(MODEL).calibrate(X_CAL, MODEL.predict(X_CAL))
    assert zero.error_model_ is None and zero.calibrator_.n_calibration_ == 200
    constant = ConformalRegressor(MODEL, error_model=None).calibrate(X_CAL, Y_CAL)
    assert constant.calibrator_.n_calibration_ == 500


@pytest.mark.parametrize("calibrator", [Split(), FullRescaled(KNN(10))], ids=repr)
def test_methods_that_ask_for_no_left_out_errors_keep_all_rows(calibrator):
    assert calibrated(calibrator=calibrator).calibrator_.n_calibration_ == 500


def test_known_left_out_errors_of_training_rows_take_its_place():
    model = ConformalRegressor(MODEL, refits=3, error_model=FEW)
    model.calibrate(X_CAL, Y_CAL, X_train=X[:100], y_train=Y[:100])
    assert model.calibrator_.n_calibration_ == 500 and model.left_out_.source == "3 folds"


@pytest.mark.parametrize("as_rows", [np.asarray, pd.DataFrame, sparse.csr_array])
def test_a_part_that_is_asked_for_teaches_beside_training_rows(as_rows, tmp_path):
    """Errors of training rows come first, then the model's own on the first calibration rows."""
    model = ConformalRegressor(MODEL, refits=3, error_model=FEW, learning_part=200, shuffle=False)
    model.calibrate(as_rows(X_CAL), Y_CAL, X_train=as_rows(X[:100]), y_train=Y[:100])
    known = model.left_out_
    assert model.calibrator_.n_calibration_ == 300 and len(known.numbers) == 300
    assert known.source == "3 folds, and calibration rows that were set aside"
    np.testing.assert_array_equal(known.targets, np.r_[Y[:100], Y_CAL[:200]])
    np.testing.assert_allclose(known.y_pred[100:], MODEL.predict(X_CAL[:200]))
    changed = Y_CAL + np.where(np.arange(500) < 200, 0, 9.0)
    again = ConformalRegressor(MODEL, refits=3, error_model=FEW, learning_part=200, shuffle=False)
    again.calibrate(as_rows(X_CAL), changed, X_train=as_rows(X[:100]), y_train=Y[:100])
    said, other = (each.calibration_.error_model for each in (model, again))
    clues = RNG.uniform(size=(9, said.n_features_in_))
    np.testing.assert_array_equal(said.predict(clues).size, other.predict(clues).size)
    save(model, tmp_path / "both")
    intervals = load(tmp_path / "both", MODEL).predict_interval(as_rows(NEW))
    np.testing.assert_array_equal(intervals.upper, model.predict_interval(as_rows(NEW)).upper)


def test_a_word_that_is_none_is_refused_whatever_the_calibrator():
    for calibrator in (None, Split()):
        with pytest.raises(CalliperError, match="learning_part must be 'auto'"):
            calibrated(calibrator=calibrator, learning_part="all")


def test_it_helps_and_says_what_it_did():
    enough = ErrorModel(shift_trees=(60,), side_trees=40)
    three_lines = ConformalRegressor(MODEL, error_model=enough).calibrate(X_CAL, Y_CAL)
    alone = calibrated(learning_part=None)
    widths = [m.predict_interval(X[600:]).width for m in (three_lines, alone)]
    assert widths[0].mean() < 0.95 * widths[1].mean()
    assert three_lines.predict_interval(X[600:]).contains(Y[600:]).mean() > 0.8
    words = repr(three_lines)
    assert "calibrated on 200 rows" in words and "300 others used to learn" in words
    said = three_lines.guarantee().describe()
    assert "300 other rows were used to learn" in said and "for the 200 calibration rows" in said
    assert "to learn" not in repr(alone) and "to learn" not in alone.guarantee().describe()


def test_levels_that_need_more_rows_than_were_kept_are_answered_from_all():
    model = calibrated()
    with pytest.warns(SmallCalibrationWarning, match="all 500 rows"):
        found = model.predict_interval(NEW, [0.9, 0.99, 0.997, 0.998])
    assert np.isfinite(found.width).all() and (np.diff(found.width, axis=1) >= 0).all()
    errors = np.sort(np.abs(Y_CAL - MODEL.predict(X_CAL)))
    assert (found.upper[:, 3] >= MODEL.predict(NEW) + errors[-1]).all()
    with pytest.warns(SmallCalibrationWarning):
        assert np.isinf(model.predict_interval(NEW, 0.999).width).all()  # no 500 rows can
    promise = model.guarantee(0.997)
    assert promise.proved == model.guaranteed_coverage(0.997) == conformal_coverage(0.997, 500) < 1
    assert "as wide as those of plain split on all 500 rows" in promise.describe()
    assert "always covers" in model.guarantee(0.999).describe()


@pytest.mark.filterwarnings("ignore:Coverage 0.997 needs more")
def test_the_highest_level_of_the_kept_rows_goes_with_one_of_all_rows():
    model = calibrated()  # 200 rows serve levels up to 200/201
    both = model.predict_interval(NEW, [0.994, 0.997])
    for place, level in enumerate((0.994, 0.997)):
        one = model.predict_interval(NEW, level)
        np.testing.assert_array_equal(both.lower[:, place], one.lower)
        np.testing.assert_array_equal(both.upper[:, place], one.upper)
    assert (np.diff(both.lower) <= 0).all() and (np.diff(both.upper) >= 0).all()
    needed = coverage_needed(model, NEW[:2], MODEL.predict(NEW[:2]) + np.array([0, 1e6]))
    assert needed[1] == 500 / 501  # a target beyond all thresholds, of kept rows and of all


@pytest.mark.filterwarnings("ignore:Coverage 0.99[78], 0.998 needs more")
def test_ends_from_all_rows_have_the_slack_too():
    model = calibrated()
    strict = model.predict_interval(NEW, [0.997, 0.998])
    model.calibration_ = replace(model.calibration_, slack=0.25)
    loose = model.predict_interval(NEW, [0.997, 0.998])
    assert (loose.lower < strict.lower - 1e-6).all() and (loose.upper > strict.upper + 1e-6).all()


def test_new_rows_join_the_kept_part():
    model, more = calibrated(), slice(600, 700)
    before = model.embedding_.transform(NEW)
    model.extend(X[more], Y[more])
    assert model.calibrator_.n_calibration_ == 300
    np.testing.assert_array_equal(model.embedding_.transform(NEW), before)
    with pytest.warns(SmallCalibrationWarning, match="all 600 rows"):
        assert np.isfinite(model.predict_interval(NEW, 0.998).width).all()
    model.extend(X[more], Y[more], window=150)
    assert model.calibrator_.n_calibration_ == 150


@pytest.mark.filterwarnings("ignore:Coverage 0.998 needs more")
def test_files_keep_it(tmp_path):
    model = calibrated()
    save(model, tmp_path / "m.calliper")
    again = load(tmp_path / "m.calliper", MODEL)
    assert repr(again).splitlines()[1:] == repr(model).splitlines()[1:]
    for level in (0.9, 0.998):
        found, expected = (m.predict_interval(NEW, level) for m in (again, model))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_each_of_several_targets_learns_from_the_same_rows():
    both = np.c_[Y_CAL, X_CAL[:, 1] + Y_CAL]
    model = LinearRegression().fit(X[:100], np.c_[Y[:100], X[:100, 1] + Y[:100]])
    found = MultiTargetRegressor(model, joint=False).calibrate(X_CAL, both)
    assert [each.calibrator_.n_calibration_ for each in found.regressors_] == [200, 200]
    whole = MultiTargetRegressor(model, joint=False, learning_part=None).calibrate(X_CAL, both)
    assert whole.regressors_[0].calibrator_.n_calibration_ == 500


@pytest.mark.long
def test_coverage_over_draws_of_the_whole():
    """1 − α through dealing, learning and calibrating, where errors depend on the inputs."""
    rng, inside, n_draws = np.random.default_rng(1), [], 120
    model = ConformalRegressor(LinearRegression(), error_model=FEW, learning_part=60)
    for _ in range(n_draws):
        rows = rng.uniform(size=(110, 2))
        y = rows[:, 0] + rng.normal(size=110) * rows[:, 1]
        model.set_params(estimator=LinearRegression().fit(rows[:30], y[:30]))
        model.calibrate(rows[30:109], y[30:109])  # 19 rows are kept
        inside.append(model.predict_interval(rows[109:], 0.9).contains(y[109:]).mean())
    deviation = np.sqrt(0.9 * 0.1 / n_draws)
    assert np.mean(inside) > 0.9 - 3 * deviation


def test_equal_calls_give_equal_intervals():
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(700, 3))
    y = X[:, 0] + X[:, 1] * rng.normal(size=700)
    model = LinearRegression().fit(X[:100], y[:100])
    first, second = (ConformalRegressor(model).calibrate(X[100:600], y[100:600]) for _ in range(2))
    assert repr(first.calibrator_.locality_) == repr(second.calibrator_.locality_)
    ends = (np.asarray(each.predict_interval(X[600:], 0.9)) for each in (first, second))
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"groups": ["a", None, *["b"] * 498]},
            r"1 of 500 values is missing \(None at posi",
        ),
        ({"weights": [1.0, np.nan, *[1.0] * 498]}, "position 1"),
        (
            {"weights": [*[1.0] * 11, -1.0, *[1.0] * 488]},
            r"1 of 500 values is negative .* position 11\)\.",
        ),
    ],
)
def test_groups_and_weights_are_refused_by_the_numbers_of_the_rows_given(given, message):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(500, 2)), rng.normal(size=500)
    model = LinearRegression().fit(rng.uniform(size=(50, 2)), rng.normal(size=50))
    with pytest.raises(ValueError, match=message):
        ConformalRegressor(model).calibrate(X, y, **given)
