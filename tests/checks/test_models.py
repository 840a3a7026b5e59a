"""Models that answer with nonsense, write into their input, change or stop half-way.

Whatever they do, there is an error with a name, and the object answers afterwards as before.
"""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    Split,
)
from calliper._blocks import _OneThread

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 3))
Y = X[:, 0] + RNG.normal(size=160)
OLD, MORE, NEW = slice(0, 100), slice(100, 140), slice(140, 160)


class Model:
    """Right until it is told otherwise; ``wrong`` is asked from the n-th call on."""

    wrong, calls = None, 0

    def predict(self, rows):
        self.calls -= 1
        right = np.asarray(rows, dtype=float)[:, 0] * 1.0
        return right if self.wrong is None or self.calls >= 0 else self.wrong(rows, right)


def raising(error):
    def wrong(rows, right):
        raise error

    return wrong


def zeroing(rows, right):
    rows[:] = 0.0
    return right


def clipping(rows, right):
    """The same however often it is done, so that no comparison of two answers notices."""
    np.clip(rows, -0.5, 0.5, out=rows)
    return right


WRONG = {
    "NaN": (lambda rows, right: np.where(right > right.min(), right, np.nan), "1 of .* is NaN or"),
    "infinite": (lambda rows, right: right * np.inf, "are NaN or infinite"),
    "too few": (lambda rows, right: right[:-1], r"predictions must .* got \d+ values for \d+ rows"),
    "too many": (lambda rows, right: np.append(right, 0.0), "predictions must .* got"),
    "one for all": (lambda rows, right: right.mean(), r"got shape \(\)"),
    "columns": (lambda rows, right: np.stack([right, right], axis=1), r"got shape \(\d+, 2\)"),
    "nothing": (lambda rows, right: None, "predictions must have one value"),
    "words": (lambda rows, right: ["a"] * len(right), "predictions must be numbers"),
    "complex": (lambda rows, right: right * 1j, "Complex data"),
    "writes zeros": (zeroing, "the model modifies the rows that are passed to it"),
    "clips": (clipping, "the model modifies the rows that are passed to it"),
}
ASKED = {
    "calibrate": lambda made, rows: made.calibrate(rows, Y[: len(rows)]),
    "extend": lambda made, rows: made.extend(rows, Y[: len(rows)]),
    "predict": lambda made, rows: made.predict(rows),
    "predict_interval": lambda made, rows: made.predict_interval(rows),
    "predict_distribution": lambda made, rows: made.predict_distribution(rows),
}


def bits(made):
    """All that the object says of new rows, as bytes."""
    ends = made.predict_interval(X[NEW].copy(), (0.5, 0.9))
    quantiles = made.predict_distribution(X[NEW].copy()).quantile(0.3)
    return np.concatenate([np.ravel(each) for each in (*ends, quantiles)]).tobytes()


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_nonsense_is_refused_and_changes_nothing(wrong, words):
    model = Model()
    made = ConformalRegressor(model).calibrate(X[OLD], Y[OLD])
    before = bits(made)
    for asked in ASKED.values():
        model.wrong = wrong
        with pytest.raises(CalliperError, match=words):
            asked(made, X[MORE].copy())
        model.wrong = None
        assert bits(made) == before


@pytest.mark.parametrize("rows", [X[OLD], pd.DataFrame(X[OLD], columns=[*"abc"])], ids=type)
def test_rows_of_the_caller_stay_as_they_are(rows):
    kept = rows.copy()
    made = ConformalRegressor(Model()).calibrate(rows, Y[OLD]).extend(rows[:5], Y[:5])
    made.predict_interval(rows)
    assert np.array_equal(rows, kept)


def test_a_frame_that_a_model_writes_into_is_noticed():
    def predict(frame):
        frame["more"] = 1.0
        return frame["a"].to_numpy()

    with pytest.raises(CalliperError, match="the model modifies the rows that are passed to it"):
        ConformalRegressor(predict).calibrate(pd.DataFrame(X[OLD], columns=[*"abc"]), Y[OLD])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("asked", ASKED)
def test_a_prediction_that_is_interrupted_changes_nothing(asked, error):
    """At the first call of the model, at the second, and so on until none is left."""
    model = Model()
    for call in range(20):
        made = ConformalRegressor(model, FullRescaled(KNN(5))).calibrate(X[OLD], Y[OLD])
        before, model.calls, model.wrong = bits(made), call, raising(error)
        try:
            ASKED[asked](made, X[MORE])
        except type(error):
            model.wrong = None
            assert bits(made) == before
        else:
            model.wrong = None
            assert call > 0
            return
    raise AssertionError("the model is asked for ever")


def interrupted(work, at):
    """Run it with Ctrl-C at the n-th call of a function of the library; how many calls it made."""
    calls = [0]

    def look(frame, event, argument):
        if event == "call" and "/calliper/" in frame.f_code.co_filename:
            calls[0] += 1
            if calls[0] == at:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return calls[0]


SEVERAL = np.column_stack([Y, -Y])
LINEAR = LinearRegression().fit(X, SEVERAL)
MADE = {
    "full": lambda: ConformalRegressor(Model(), FullRescaled(KNN(5))).calibrate(X[OLD], Y[OLD]),
    "jackknife": lambda: ConformalRegressor(Model(), JackknifeRescaled(KNN(5))).calibrate(
        X[OLD], Y[OLD]
    ),
    "groups": lambda: ConformalRegressor(Model(), Split()).calibrate(
        X[OLD], Y[OLD], groups=lambda rows: np.where(rows[:, 1] > 0, "a", "b")
    ),
    "several": lambda: MultiTargetRegressor(LINEAR, Split()).calibrate(X[OLD], SEVERAL[OLD]),
}
CHANGED = {
    "calibrate": lambda made, y: made.calibrate(X[MORE], y[MORE]),
    "extend": lambda made, y: made.extend(X[MORE], y[MORE]),
    "predict_interval": lambda made, y: made.predict_interval(X[MORE]),
}


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("name", MADE)
def test_ctrl_c_anywhere_leaves_the_object_as_it_was_or_as_it_shall_be(name, changed):
    targets, change = SEVERAL if name == "several" else Y, CHANGED[changed]

    def ends(made):
        return np.concatenate([*made.predict_interval(X[NEW], 0.8)]).tobytes()

    made = MADE[name]()
    before = ends(made)
    n = interrupted(lambda: change(made, targets), 0)
    known = {before, ends(made)}
    assert len(known) == 1 + (changed != "predict_interval")
    made = MADE[name]()
    for at in sorted({*range(1, n, 1 + n // 10), *range(max(1, n - 30), n + 1)}):
        interrupted(lambda: change(made, targets), at)  # noqa: B023
        assert not _OneThread.inside, at
        assert _OneThread.limiter is None, at
        assert ends(made) in known, at
        if ends(made) != before:
            made = MADE[name]()


def test_a_model_that_answers_otherwise_when_asked_again_is_refused():
    drawn = np.random.default_rng(0)
    with pytest.raises(CalliperError, match="the model differs between calls"):
        ConformalRegressor(lambda rows: drawn.normal(size=len(rows))).calibrate(X[OLD], Y[OLD])
