"""What the user brings again is known by its answers, and nothing else is taken in silence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

import calliper
from calliper import ConformalRegressor, FullRescaled, MultiTargetRegressor, Split
from calliper.calibrators import MADSplit
from calliper.exceptions import CalliperError, CannotSaveError, OtherModelError
from calliper.kernels import ForestProximity
from calliper.online import Controller

rng = np.random.default_rng(0)
X = rng.uniform(size=(320, 3))
Y = X[:, 0] + X[:, 1] * rng.normal(size=320)
TRAIN, CAL = slice(0, 150), slice(150, 320)
MODEL = Ridge().fit(X[TRAIN], Y[TRAIN])


def forest(seed=0, sign=1):
    return RandomForestRegressor(9, random_state=seed).fit(X[TRAIN], sign * Y[TRAIN])


def right(X):
    return X[:, 0] > 0.5


def heavy(X):
    return 1 + X[:, 0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.calliper"


@pytest.mark.parametrize("given", [{}, {"groups": right}, {"weights": heavy}])
def test_another_forest_is_refused_though_nothing_was_asked_before(path, given):
    trees = forest()
    made = ConformalRegressor(MODEL, FullRescaled(ForestProximity(trees)))
    calliper.save(made.calibrate(X[CAL], Y[CAL], **given), path)
    assert calliper.files.inspect(path).header["levels"] == []
    with pytest.raises(OtherModelError, match="Pass what it was calibrated with"):
        calliper.load(path, MODEL, bring={"forest": forest(9, -1), **given})
    again = calliper.load(path, MODEL, bring={"forest": trees, **given})
    np.testing.assert_array_equal(
        again.predict_interval(X[CAL]).lower, made.predict_interval(X[CAL]).lower
    )


@pytest.mark.parametrize("rows", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize("made", [Ridge(), RandomForestRegressor(5, random_state=0)], ids=repr)
@pytest.mark.parametrize("method", [None, Split()], ids=repr)
def test_a_model_that_was_trained_again_after_calibration_is_not_saved(path, method, made, rows):
    model, table = clone(made).fit(rows(X[TRAIN]), Y[TRAIN]), rows(X[CAL])
    made = ConformalRegressor(model, method).calibrate(table, Y[CAL])
    calliper.save(made, path)
    again = calliper.load(path, model)
    for each in (made, again):  # which reads the trees
        each.predict_interval(table[:5])
    model.fit(rows(X[TRAIN]), Y[TRAIN] + 9)
    for each in (made, again):
        with pytest.raises(CannotSaveError, match="trained again since: calibrate again"):
            calliper.save(each, path)


def test_another_function_of_groups_is_refused(path):
    calliper.save(ConformalRegressor(MODEL, Split()).calibrate(X[CAL], Y[CAL], groups=right), path)
    with pytest.raises(OtherModelError, match="the function for groups labels"):
        calliper.load(path, MODEL, bring={"groups": lambda X: X[:, 1] > 0.5})


def test_a_regressor_and_its_clones_have_one_name(path):
    made = ConformalRegressor(MODEL, MADSplit(KNeighborsRegressor(5)))
    made.calibrate(X[CAL], Y[CAL], X_train=X[TRAIN], y_train=Y[TRAIN])
    calliper.save(made, path)
    assert [*calliper.files.inspect(path).header["brought"]] == ["scale"]
    calliper.load(path, MODEL, bring={"scale": made.calibrator_.scale_})


def test_what_is_not_needed_is_refused(path):
    calliper.save(ConformalRegressor(MODEL, Split()).calibrate(X[CAL], Y[CAL]), path)
    for needless in ({"embed": StandardScaler()}, {"bring": {"scale": 5}}):
        with pytest.raises(CalliperError, match="the file needs no other objects: leave"):
            calliper.load(path, MODEL, **needless)


class Mine(Split):
    pass


class MyRegressor(ConformalRegressor):
    pass


def test_classes_and_labels_of_ones_own_are_refused_when_saving(path):
    for made in (
        Mine().fit(X[CAL], abs(Y[CAL])),
        MyRegressor(MODEL).calibrate(X[CAL], Y[CAL]),
        ConformalRegressor(MODEL, Mine()).calibrate(X[CAL], Y[CAL]),
    ):
        with pytest.raises(CannotSaveError, match="only calliper's own classes"):
            calliper.save(made, path)
    months = [pd.Period("2020-01"), pd.Period("2020-02")] * 85
    made = ConformalRegressor(MODEL, Split()).calibrate(X[CAL], Y[CAL], groups=months)
    with pytest.raises(CannotSaveError, match=r"group Period.* is a Period"):
        calliper.save(made, path)
    assert not path.exists()


def test_another_embed_is_blamed_and_not_the_model(path):
    scaler = StandardScaler().fit(X[TRAIN])
    made = ConformalRegressor(MODEL, embed=scaler).calibrate(
        X[CAL], Y[CAL], X_train=X[TRAIN], y_train=Y[TRAIN]
    )
    calliper.save(made, path)
    calliper.load(path, MODEL, embed=made.embedding_.transformer)
    for other in (StandardScaler().fit(9 * X), StandardScaler().fit(X[:, :2]), StandardScaler()):
        with pytest.raises(OtherModelError, match=r"^the embed .* pass that model"):
            calliper.load(path, MODEL, embed=other)
    with pytest.raises(OtherModelError, match=r"^Ridge predicts"):
        calliper.load(path, Ridge().fit(X, -Y), embed=made.embedding_.transformer)


def test_a_class_is_no_fitted_model(path):
    calliper.save(ConformalRegressor(MODEL, Split()).calibrate(X[CAL], Y[CAL]), path)
    with pytest.raises(CalliperError, match="model is the class Ridge: pass the fitted object"):
        calliper.load(path, Ridge)
    with pytest.raises(CalliperError, match="embed is the class StandardScaler"):
        calliper.load(path, MODEL, embed=StandardScaler)


def test_a_model_that_was_never_trained_is_not_the_files_fault(path):
    made = ConformalRegressor(forest()).calibrate(X[CAL], Y[CAL])
    calliper.save(made, path)
    with pytest.raises(OtherModelError, match="the RandomForestRegressor is not fitted: pass"):
        calliper.load(path, RandomForestRegressor(9, random_state=0))


def test_a_controller_is_said_to_be_one_and_no_more(path):
    control = Controller(0.9, rate=0.05)
    control.predict_interval(ConformalRegressor(MODEL).calibrate(X[CAL], Y[CAL]), X[:1])
    control.update(True)
    calliper.save(control, path)
    what, made = calliper.files.inspect(path).describe()
    assert what == "Controller" and made.startswith("made by calliper")


@pytest.mark.parametrize("kind", [ConformalRegressor, MultiTargetRegressor])
def test_a_file_holds_the_parameters_that_were_calibrated_with(path, kind):
    y = Y[CAL] if kind is ConformalRegressor else Y[CAL, None]
    made = kind(MODEL, Split()).calibrate(X[CAL], y)
    before = made.predict_interval(X[CAL])
    made.set_params(embed=StandardScaler(), calibrator=MADSplit(KNeighborsRegressor(5)))
    calliper.save(made, path)
    assert calliper.files.inspect(path).header["brought"] == {}
    again = calliper.load(path, MODEL)
    assert again.embed == "auto" and isinstance(again.calibrator, Split)
    np.testing.assert_array_equal(again.predict_interval(X[CAL]).lower, before.lower)
    again.calibrate(X[CAL], y)
    np.testing.assert_array_equal(again.predict_interval(X[CAL]).lower, before.lower)
