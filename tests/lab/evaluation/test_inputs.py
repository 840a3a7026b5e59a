"""Every bad argument is refused before any work, in words that say what to do."""

import numpy as np
import pytest

from calliper import CalliperError, FullRescaled, Split
from calliper.lab.evaluation import Problem, evaluate
from cases.evaluation import fan

METHODS = {"Split": Split(), "FullRescaled": FullRescaled()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_calibration": 120}, "has 120 held-out rows, too few for 120 to calibrate and any"),
        ({"n_calibration": 100, "n_test": 30}, "lower n_calibration to at most 90"),
        ({"n_calibration": {"fan": 10, "other": 5}}, "must name every problem and no other"),
        ({"n_calibration": [10, 10]}, "10 occurs more than once"),
        ({"n_calibration": 2.5}, "n_calibration must be an integer of at least 1; got 2.5"),
        ({"n_splits": 0}, "n_splits must be an integer of at least 1"),
        ({"random_state": None}, "random_state must be an integer of at least 0"),
        ({"coverage": 90}, "percentage"),
        ({"measures": {}}, "measures must map names"),
        ({"measures": {"coverage": 3}}, "must be a function of"),
        ({"measures": {"level": lambda *_: 0.0}}, "level is a field of every row"),
        ({"problems": [fan(), fan()]}, "fan occurs more than once"),
        ({"problems": []}, "problems must not be empty"),
        ({"problems": ["fan"]}, "must be Problem objects; got str"),
        ({"calibrators": {}}, "calibrators must not be empty"),
        ({"calibrators": [Split(), Split()]}, "occurs more than once"),
        ({"calibrators": {"Split": Split}}, "needs a calibrator"),
    ],
)
def test_bad_input(arguments, message):
    given = {"problems": fan(), "calibrators": METHODS, **arguments}
    with pytest.raises(CalliperError, match=message):
        evaluate(given.pop("problems"), given.pop("calibrators"), **given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1.0]}, "y must .* got 1 values for 2 rows"),
        ({"y": [1.0, np.nan]}, "y must be finite"),
        ({"groups": ["a"]}, "groups must have 2 rows"),
        ({"outputs": {"q": [[1.0, 2.0]]}}, "must have 2 rows"),
        ({"outputs": {"q": [[1.0, 2.0], [np.nan, 1.0]]}}, "column 0 of outputs"),
        ({"y_train": [1.0]}, "y_train given without Z_train"),
        ({"Z_train": [[1.0]], "y_pred_train": [1.0]}, "without y_train"),
        ({"name": ""}, "name must be a non-empty string"),
    ],
)
def test_bad_problems(arguments, message):
    given = {"name": "a", "Z": [[0.0], [1.0]], "y": [0, 1], "y_pred": [0, 1], **arguments}
    with pytest.raises(CalliperError, match=message):
        Problem(given.pop("name"), **given)
