"""Several targets: joint boxes, intervals of each by itself, and the frames that hold them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import (
    KNN,
    Boxes,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    Intervals,
    JointError,
    MultiTargetRegressor,
    Split,
)
from calliper.calibrators import LVD, MADSplit
from calliper.exceptions import SharedRowsWarning, SplitGroupsWarning, UnbalancedBoxWarning
from calliper.space._left_out import split_rows

pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.EmbeddingWarning")
quiet = pytest.mark.filterwarnings("ignore::UserWarning")
UNITS = [1.0, 1000.0]


def rows(rng, n):
    """Two targets whose errors are correlated and grow with an input, in very different units."""
    X = rng.uniform(size=(n, 3))
    noise = rng.normal(size=(n, 2)) @ [[1.0, 0.8], [0.0, 0.6]] * (0.1 + X[:, [1]])
    return X, (X[:, [0, 2]] + noise) * UNITS


def means(X):
    return X[:, [0, 2]] * UNITS


@pytest.fixture
def data():
    return rows(np.random.default_rng(0), 300)


def ends(boxes):
    return np.stack([boxes.lower, boxes.upper])


@quiet
@pytest.mark.parametrize("method", [Split(), FullRescaled(KNN(5))], ids=repr)
@pytest.mark.long
def test_joint_and_single_coverage_over_draws(method):
    rng, n, n_draws, levels = np.random.default_rng(1), 39, 180, [0.5, 0.8]
    together, single = np.empty((n_draws, 2)), np.empty((n_draws, 2, 2))
    joint = MultiTargetRegressor(means, method, units=[1.0, 500.0])
    each = MultiTargetRegressor(means, method, joint=False)
    for draw in range(n_draws):
        known, (X, y) = rows(rng, n), rows(rng, 200)
        together[draw] = joint.calibrate(*known).predict_interval(X, levels).contains(y).mean(0)
        boxes = each.calibrate(*known).predict_interval(X, levels)
        single[draw] = [boxes[j].contains(y[:, j]).mean(axis=0) for j in range(2)]
    for covered in (together, single[:, 0], single[:, 1]):  # all are exact at this N
        error = covered.std(axis=0) / np.sqrt(n_draws)
        assert np.all(np.abs(covered.mean(axis=0) - levels) < 4 * error)


@quiet
def test_a_box_is_what_its_definition_says(data):
    X, y = data
    model = MultiTargetRegressor(means, Split(), units=[2.0, 30.0]).calibrate(X[:99], y[:99])
    radius = sorted(max(abs(a) / 2, abs(b) / 30) for a, b in (y - means(X))[:99])[90 - 1]
    boxes = model.predict_interval(X[99:], 0.9)
    half = radius * np.array([2.0, 30.0])
    expected = [means(X)[99:] - half, means(X)[99:] + half]
    np.testing.assert_allclose(ends(boxes), expected, rtol=1e-12)
    assert boxes.joint and len(list(boxes)) == 2
    np.testing.assert_array_equal(model.predict(X), means(X))


def test_a_target_at_the_radius_is_inside():
    rng = np.random.default_rng(2)
    y, y_pred = rng.normal(size=(2, 500, 3)) * [1e-8, 1.0, 1e9]
    score = JointError(rng.uniform(0.1, 3, size=3) * [1e-8, 1.0, 1e9])
    lower, upper = score.invert(y_pred, score.measure(y, y_pred))
    assert np.all((lower <= y) & (y <= upper))
    lower, upper = score.invert(y_pred, score.measure(y, y_pred) * (1 - 1e-9))
    assert not np.any(np.all((lower <= y) & (y <= upper), axis=1))
    np.testing.assert_array_equal(np.abs(score.signed(y, y_pred)), score.measure(y, y_pred))
    with pytest.raises(CalliperError, match=r"shape \(n, 3\).*\(500, 2\)"):
        score.measure(y[:, :2], y_pred)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("model", [Ridge(), RandomForestRegressor(10, random_state=0)], ids=repr)
def test_one_target_is_a_conformal_regressor(data, model, joint):
    X, y = data
    one = ConformalRegressor(model, random_state=0).fit(X[:200], y[:200, 0])
    several = MultiTargetRegressor(model, joint=joint, random_state=0).fit(X[:200], y[:200, :1])
    for _ in range(2):
        bounds = y[:, 0].min(), y[:, 0].max()
        expected = np.stack([*one.predict_interval(X, [0.8, 0.9], bounds=bounds)])
        boxes = several.predict_interval(X, [0.8, 0.9], bounds=[bounds])
        np.testing.assert_array_equal(ends(boxes)[:, :, 0], expected)
        np.testing.assert_array_equal(several.predict(X)[:, 0], one.predict(X))
        assert several.guarantee() == one.guarantee()
        one.calibrate(X[200:], y[200:, 0])
        several.calibrate(X[200:], y[200:, :1])


@pytest.mark.parametrize("method", [FullRescaled(), MADSplit(), Split()], ids=repr)
def test_each_by_itself_is_a_conformal_regressor(data, method):
    """With left-out errors, standardised inputs and all."""
    X, y = data
    pipe = make_pipeline(StandardScaler(), MultiOutputRegressor(Ridge()))
    several = MultiTargetRegressor(pipe, method, joint=False, random_state=0).fit(X, y)
    whole = MultiTargetRegressor(Ridge(), method, joint=False, random_state=0).fit(X, y)
    for j in range(2):
        of_one = make_pipeline(StandardScaler(), Ridge())
        one = ConformalRegressor(of_one, method, random_state=0).fit(X, y[:, j])
        expected = one.predict_interval(X)
        np.testing.assert_array_equal(several.predict_interval(X)[j].lower, expected.lower)
        one = ConformalRegressor(Ridge(), method, random_state=0).fit(X, y[:, j])
        np.testing.assert_allclose(
            whole.predict_interval(X)[j].lower, one.predict_interval(X).lower, rtol=1e-6
        )


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("trained", [True, False])
@quiet
def test_order_and_unit_of_targets_change_nothing_else(data, joint, trained):
    X, y = data
    boxes = []
    for columns, unit in ([0, 1], [1, 1]), ([1, 0], [1, 1]), ([0, 1], [1, 2.0**-10]):
        model = MultiTargetRegressor(LinearRegression(), joint=joint, random_state=0)
        if trained:
            model.fit(X[:200], (y * unit)[:200, columns])
        else:
            model.estimator = lambda X, c=columns, u=unit: (means(X) * u)[:, c]
            model.units = (np.array([0.5, 300]) * unit)[columns]
            model.calibrate(X[:200], (y * unit)[:200, columns])
        boxes.append(ends(model.predict_interval(X[200:], [0.5, 0.9])))
    np.testing.assert_allclose(boxes[1][:, :, ::-1], boxes[0], rtol=1e-7)
    np.testing.assert_allclose(boxes[2] / np.array([1, 2.0**-10])[:, None], boxes[0], rtol=1e-7)


def test_units_balance_the_box(data):
    X, y = data
    model = MultiTargetRegressor(Ridge(), Split(), random_state=0).fit(X, y)
    assert 600 < model.units_[1] / model.units_[0] < 1600
    train = np.setdiff1d(np.arange(300), _held_out(X, y))
    fitted = Ridge().fit(X[train], y[train])
    errors = np.abs(y[train] - fitted.predict(X[train])).mean(axis=0)
    np.testing.assert_allclose(model.units_, errors)  # nothing of the calibration rows
    left_out = MultiTargetRegressor(Ridge(), Split(), refits=5, random_state=0).fit(X, y)
    assert np.all(left_out.units_ > model.units_)
    model.calibrate(X[:50] + 1e-3, y[:50] + 1e-3)
    np.testing.assert_allclose(model.units_, errors)  # those of training, still
    with pytest.warns(UnbalancedBoxWarning, match=r"not balanced.*X_train and y_train, or units="):
        boxes = MultiTargetRegressor(means, Split()).calibrate(X, y).predict_interval(X)
    np.testing.assert_allclose(boxes.width[:, 0], boxes.width[:, 1])


def _held_out(X, y):
    return split_rows(len(y), None, size=0.25, shuffle=True, random_state=0)[1]


class Counting(BaseEstimator):
    """Least squares that counts how often it is trained and asked."""

    trained = asked = 0

    def fit(self, X, y):
        Counting.trained += 1
        self.model_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        Counting.asked += len(X) == 250
        return self.model_.predict(X)


@pytest.mark.parametrize("joint", [True, False])
def test_the_model_is_asked_once_and_refitted_once_a_fold(data, joint):
    X, y = data
    Counting.trained = 0
    progress = []
    model = MultiTargetRegressor(Counting(), joint=joint, progress=progress.append).fit(X, y)
    assert Counting.trained == 6
    assert progress == sorted(progress) and progress[-1] == 1
    Counting.asked = 0
    model.predict_interval(X[:250])
    assert Counting.asked == 1
    apart = MultiOutputRegressor(Counting()).fit(X, y)
    for frozen in (FrozenEstimator(model.estimator_), FrozenEstimator(apart)):
        again = MultiTargetRegressor(frozen, joint=joint, refits=3)
        again.calibrate(X[:100], y[:100], X_train=X[100:], y_train=y[100:])
    assert Counting.trained == 8


@pytest.mark.parametrize("joint", [True, False])
def test_a_learning_part_beside_training_rows(data, joint):
    X, y = data
    model = MultiTargetRegressor(Ridge().fit(X[:150], y[:150]), joint=joint, refits=3)
    model.set_params(learning_part=50, random_state=0)
    model.calibrate(X[150:], y[150:], X_train=X[:150], y_train=y[:150])
    assert (model.calibration_.n_taught, model.calibration_.n_calibration) == (50, 100)
    assert np.isfinite(model.predict_interval(X, 0.9).width).all()


@pytest.mark.filterwarnings("error:X has feature names")
@pytest.mark.parametrize("joint", [True, False])
def test_names_and_index_of_frames(data, joint):
    X, y = pd.DataFrame(data[0], columns=list("pqr")), pd.DataFrame(data[1], columns=["cm", "kg"])
    X.index = y.index = [f"row {i}" for i in range(300)]
    model = MultiTargetRegressor(Ridge(), joint=joint, random_state=0).fit(X[:200], y[:200])
    boxes = model.predict_interval(X[200:], 0.9)
    frame = boxes.to_frame()
    assert list(frame) == ["cm_lower", "cm_upper", "kg_lower", "kg_upper"]
    assert list(frame.index) == list(X.index[200:])
    np.testing.assert_array_equal(frame["kg_upper"], boxes["kg"].upper)
    inside = boxes.contains(y[200:])
    np.testing.assert_array_equal(boxes.contains(y[["kg", "cm"]][200:]), inside)
    np.testing.assert_array_equal(boxes.contains(y[200:].to_numpy()), inside)
    widths = model.calibrate(X[200:], y[200:]).predict_interval(X).width
    again = model.calibrate(X[200:], y[["kg", "cm"]][200:]).predict_interval(X)
    np.testing.assert_array_equal(again.width, widths)  # the model's order, not that of the frame
    levels = model.predict_interval(X, [0.5, 0.9])
    assert list(levels.to_frame())[:2] == ["cm_lower_0.5", "cm_upper_0.5"]
    assert levels.contains(y).shape == (300, 2) and levels.volume.shape == (300, 2)
    assert ("not joint" in repr(boxes)) is not joint and ("not joint" in repr(model)) is not joint
    with pytest.raises(CalliperError, match="2 targets: cm, kg; got 2: cm, lb"):
        boxes.contains(y[200:].rename(columns={"kg": "lb"}))
    with pytest.raises(KeyError, match="no target 'lb'; there are cm, kg"):
        boxes["lb"]


def test_boxes():
    sides = Intervals([0, -np.inf, 1], [2, 1, 1]), Intervals([0, 0, -np.inf], [5, 5, np.inf])
    boxes = Boxes(sides, ("a", "b"))
    np.testing.assert_array_equal(boxes.volume, [10, np.inf, np.inf])
    assert list(boxes.contains([[2, 5], [-1e300, 6], [1, 0]])) == [True, False, True]


@quiet
def test_bounds_of_each_target(data):
    X, y = data
    for joint in (True, False):
        model = MultiTargetRegressor(means, joint=joint, units=UNITS).calibrate(X, y)
        least = y[:, 0].min()
        free = model.predict_interval(X)
        held = model.predict_interval(X, bounds=[(least, None), None])
        np.testing.assert_array_equal(held[0].lower, np.maximum(free[0].lower, least))
        with pytest.raises(CalliperError, match=f"calibration targets .* to {y[:, 1].max():.6g}"):
            model.predict_interval(X, bounds=[None, (None, 0)])
        np.testing.assert_array_equal(ends(held)[:, :, 1], ends(free)[:, :, 1])
        with pytest.raises(CalliperError, match=r"2 pairs \(y_min, y_max\), one for each target"):
            model.predict_interval(X, bounds=[(0, 1)] * 3)
        with pytest.raises(TypeError, match="nonsense"):
            model.predict_interval(X, nonsense=1)


def test_promises_say_whether_they_are_joint(data):
    X, y = data
    joint = MultiTargetRegressor(Ridge(), random_state=0).fit(X, y)
    assert (
        "all 2 targets of a new row lie in their intervals together with probability at least"
        in (joint.guarantee().describe())
    )
    each = MultiTargetRegressor(Ridge(), joint=False, random_state=0).fit(X, y)
    assert "each of 2 targets by itself, not all of them together" in each.guarantee().describe()
    assert each.guaranteed_coverage([0.8, 0.9]) == pytest.approx(
        joint.guaranteed_coverage([0.8, 0.9])
    )
    for model in (joint, each):
        with pytest.warns(SharedRowsWarning):
            model.calibrate(X, y)
        assert model.guaranteed_coverage(0.9) == 0
        assert "no guarantee" in model.guarantee().describe()
        with pytest.warns(SplitGroupsWarning):
            model.fit(X, y, split_groups=np.arange(300) // 10)
        assert "groups" in model.guarantee().describe()


def test_grammar(data):
    X, y = data
    for joint in (True, False):
        model = MultiTargetRegressor(Ridge(), joint=joint, units=None, random_state=0)
        assert model.get_params()["joint"] is joint and "score_function" not in model.get_params()
        assert repr(clone(model)) == repr(model)
        model.set_params(calibrator__shrinkage=0.5, estimator__alpha=2.0).fit(X, y)
        stored = pickle.loads(pickle.dumps(model)).predict_interval(X)
        np.testing.assert_array_equal(ends(stored), ends(model.predict_interval(X)))
        assert not hasattr(clone(model), "calibrators_")
        assert 0 < model.score(X, y) < 1
        # What was calibrated speaks, not what was set since.
        assert model.set_params(joint=not joint).predict_interval(X).joint is joint
        assert model.fit(X, y).predict_interval(X).joint is not joint


def test_categories_and_methods_that_ask_for_targets(data):
    """Levels are ordered, and metrics learnt, by all targets together."""
    X, y = data
    frame = pd.DataFrame(X, columns=list("pqr")).assign(level=np.where(X[:, 1] > 0.5, "b", "a"))
    model = MultiTargetRegressor(lambda X: means(X[["p", "q", "r"]].to_numpy()), units=UNITS)
    for method in (LVD(random_state=0), FullRescaled()):
        model.set_params(calibrator=method)
        model.calibrate(frame[:150], y[:150], X_train=frame[150:], y_train=y[150:])
        assert model.predict_interval(frame, 0.5).contains(y).mean() > 0.4
    assert "4 standardised inputs and prediction" in repr(model)


def nan_at(y):
    y = y.copy()
    y[7, 1] = np.nan
    return y


@pytest.mark.parametrize(
    ("spoil", "settings", "message"),
    [
        (lambda y: y[:, 0], {}, r"column for each target.*got shape \(300,\). Use Conformal"),
        (nan_at, {}, r"y \(1\) must be finite, but 1 of 300 .* position 7"),
        (lambda y: y * [1, 0], {}, r"target 1 are all zero on 225 held-out rows.*constant"),
        (lambda y: y, {"units": [1.0]}, r"there are 2 targets, but units are \[1.0\]"),
        (lambda y: y, {"units": [1.0, 0.0]}, "units must be positive"),
        (lambda y: y, {"units": [1.0, np.nan]}, "units must be finite"),
        (lambda y: np.c_[y, y], {"estimator": means}, "fit needs an estimator"),
    ],
)
def test_bad_targets(data, spoil, settings, message):
    X, y = data
    model = MultiTargetRegressor(**{"estimator": LinearRegression(), **settings})
    with pytest.raises((CalliperError, TypeError), match=message):
        model.fit(X, spoil(y))


def test_a_model_that_fits_its_training_rows_exactly(data):
    X, y = data
    nearest = KNeighborsRegressor(1)
    with pytest.raises(CalliperError, match=r"0, 1 are all zero on 225 training.*refits=5"):
        MultiTargetRegressor(nearest, Split()).fit(X, y)
    model = MultiTargetRegressor(nearest, Split(), refits=5).fit(X, y)
    assert np.all(model.units_ > 0)


@quiet
@pytest.mark.parametrize("joint", [True, False])
def test_targets_of_another_width(data, joint):
    X, y = data
    model = MultiTargetRegressor(means, Split(), joint=joint, units=UNITS).calibrate(X, y)
    with pytest.raises(CalliperError, match="2 targets: 0, 1; got 3: 0, 1, 2"):
        model.predict_interval(X).contains(np.c_[y, y[:, 0]])
    with pytest.raises(CalliperError, match=r"y must .* got 299 values for 300 rows"):
        model.predict_interval(X).contains(y[:-1])
    with pytest.raises(CalliperError, match="y_train must have 2 targets"):
        model.calibrate(X[:100], y[:100], X_train=X[100:], y_train=y[100:, :1])
    for wrong in (lambda X: X[:, 0], lambda X: X):
        model.set_params(estimator=wrong)
        with pytest.raises(CalliperError, match=r"\(n, 2\); the model returned shape \(300,"):
            model.calibrate(X, y)
    trained = MultiTargetRegressor(Ridge(), joint=joint, random_state=0).fit(X[:200], y[:200])
    before = ends(trained.predict_interval(X))
    with pytest.raises(CalliperError, match="2 targets: 0, 1; got 3"):
        trained.calibrate(X[200:], np.c_[y, y[:, 0]][200:])
    with pytest.raises(TypeError, match="calibrator must be"):
        trained.set_params(calibrator=3).calibrate(X[200:], y[200:])
    np.testing.assert_array_equal(ends(trained.predict_interval(X)), before)
    with pytest.raises(ValueError, match="X has 2 features, but MultiTargetRegressor"):
        trained.predict_interval(X[:, :2])


def test_a_conformal_regressor_refuses_several_targets_by_name(data):
    X, y = data
    with pytest.raises(CalliperError, match=r"got shape \(300, 2\).*MultiTargetRegressor"):
        ConformalRegressor(Ridge()).fit(X, y)
    with pytest.raises(CalliperError, match=r"shape \(\d+, 2\).*MultiTargetRegressor"):
        ConformalRegressor(means).calibrate(X, y[:, 0])


@pytest.mark.parametrize("joint", [True, False])
def test_training_rows_are_not_added_to_the_calibration_set(joint):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = X + rng.normal(size=(300, 2))
    made = MultiTargetRegressor(LinearRegression(), joint=joint, shuffle=False).fit(X, y)
    with pytest.raises(CalliperError, match="rows are also training rows"):
        made.extend(X[:100], y[:100])
