"""What is loaded elsewhere, in another process, answers to the last bit as what was saved."""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import calliper
from cases.kept import LEVELS, brought
from cases.kept_all import MORE, all_cases
from cases.trees import FEW, with_trees

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]

#: What is asked of each.
PARTS = ("intervals", "quantiles", "extended")


def everything(made, case):
    """Intervals at several levels, quantiles of the distribution, and both after more rows came."""
    asked = case.asked or {}
    said = [_tried(_intervals, made, case.X, asked), _tried(_quantiles, made, case.X, asked)]
    _tried(_extend, made, case.X)
    return [*said, _tried(_intervals, made, case.X, asked)]


def _tried(ask, *given):
    try:
        return ask(*given)
    except (AttributeError, TypeError, ValueError, NotImplementedError) as error:
        return np.array(f"{type(error).__name__}: {error}")


def _intervals(made, X, asked):
    np.random.seed(0)  # noqa: NPY002
    if hasattr(made, "predict_radius"):
        return np.asarray(made.predict_radius(X, LEVELS, **asked))
    found = [made.predict_interval(X, coverage=level, **asked) for level in LEVELS]
    return np.array([[each.lower, each.upper] for each in found])


def _quantiles(made, X, asked):
    np.random.seed(0)  # noqa: NPY002
    given = (X, np.zeros(len(X))) if hasattr(made, "predict_radius") else (X,)
    return np.asarray(made.predict_distribution(*given, **asked).quantile([0.1, 0.5, 0.95]))


def _extend(made, X):
    width = X.shape[1]
    if hasattr(X, "columns"):
        made.extend(X[:4], MORE["y"][:4])
    else:
        rows = np.resize(MORE["X"], (12, width))
        rows = rows if isinstance(X, np.ndarray) else type(X)(rows)
        made.extend(rows, np.abs(MORE["y"]))


def answer_again(folder):
    """In the other process: load every file and ask it the same."""
    warnings.simplefilter("ignore")
    found = {}
    for name, (case, bring) in pickle.loads((folder / "cases").read_bytes()).items():
        made = calliper.load(folder / f"{name}.calliper", case.model, bring=bring)
        found[name] = everything(made, case)
    (folder / "answers").write_bytes(pickle.dumps(found))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each object said when it was saved, and what another process says of the file."""
    folder, elsewhere = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("elsewhere")
    before, bare, bring = {}, {}, {}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        with_trees(patch, *FEW)
        for name, case in all_cases().items():
            calliper.save(case.made, folder / f"{name}.calliper")
            bring[name] = brought(case.made)
            before[name] = everything(case.made, case)
            bare[name] = type(case)(None, case.model, case.X, case.asked), bring[name]
    (folder / "cases").write_bytes(pickle.dumps(bare))
    again = "import sys; from pathlib import Path; from keeping_again import answer_again"
    code = f"{again}; answer_again(Path(sys.argv[1]))"
    (elsewhere / "keeping_again.py").write_text(Path(__file__).read_text())
    source = Path(calliper.__file__).parents[1]
    settings = {"PYTHONPATH": f"{source}:{TESTS}:{elsewhere}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(folder)]
    # The machine's own settings stay: they may choose how linear algebra rounds.
    env = {**os.environ, **settings}
    subprocess.run(command, cwd=elsewhere, env=env, check=True, timeout=200)
    return before, pickle.loads((folder / "answers").read_bytes())


def test_answers_are_the_same_to_the_last_bit(both):
    before, after = both
    wrong = [
        f"{name}, {what}: {old} became {new}"
        for name, said in before.items()
        for what, old, new in zip(PARTS, said, after[name], strict=True)
        if not np.array_equal(old, new)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_object_gave_intervals(both):
    before, _ = both
    silent = {name: str(said[0]) for name, said in before.items() if said[0].dtype.kind == "U"}
    assert not silent


def test_every_calibrator_is_there(both):
    names = {name.partition("-")[0] for name in both[0]}
    assert set(calliper.calibrators.__all__) <= {*names, "Grouped"}
    assert len(both[0]) > 90


def test_groups_of_a_method_without_signs_are_extended_after_loading(tmp_path):
    draw = np.random.default_rng(0)
    X, labels = draw.normal(size=(60, 2)), np.tile(["a", "b"], 30)
    y = X[:, 0] + draw.normal(size=60)
    model = LinearRegression().fit(X[:20], y[:20])
    made = calliper.ConformalRegressor(model, calliper.JackknifeRescaled(calliper.KNN(3)))
    made.calibrate(X[20:50], y[20:50], groups=labels[20:50])
    calliper.save(made, tmp_path / "groups")
    again = calliper.load(tmp_path / "groups", model)
    grown = [each.extend(X[50:], y[50:], groups=labels[50:]) for each in (made, again)]
    first, second = (each.predict_interval(X[:5], 0.8, groups=labels[:5]) for each in grown)
    np.testing.assert_array_equal(first.upper, second.upper)
