"""How large files are, what loading does, and that files of this format stay readable.

Files of a format are kept beside this test. A change of what classes keep is a new format: raise
``FORMAT`` in ``calliper/files/_file.py`` and keep files of the new number beside the others:

    python tests/files/test_files.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge

import calliper
from calliper import KNN, RBF, ConformalRegressor, ErrorModel, JackknifeRescaled, Split
from calliper.files import _file
from calliper.kernels._search import NeighborSearch
from cases.kept import answers, by_frame, rows, small_cases

HERE = Path(__file__).parent
FILES = HERE / "files"

#: Of the small cases, those that are kept for every format.
KEPT = ("split", "neighbours", "radial", "locart", "learnt", "ridge", "fit", "frame")
KEPT += ("groups", "joint", "drawn")


def bare_size(path):
    """Bytes of the arrays that a file holds."""
    return sum(array.nbytes for array in _file.read(path).arrays)


def large(name):
    """An object whose size is that of its arrays."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 5))
    y = X[:, 0] + rng.normal(size=5000)
    match name:
        case "fit":
            model = ConformalRegressor(RandomForestRegressor(20, random_state=0), random_state=0)
            return model.fit(X[:2000], y[:2000])
        case "calibrate":
            return ConformalRegressor(Ridge().fit(X, y)).calibrate(X[:1000] + 1, y[:1000])
        case "neighbours":
            return JackknifeRescaled(KNN(10)).fit(X, np.abs(y))
        case "radial":
            return JackknifeRescaled(RBF(1.0)).fit(X[:2000], np.abs(y[:2000]))
        case "split":
            return Split().fit(X, np.abs(y))


@pytest.mark.parametrize("name", ["fit", "calibrate", "neighbours", "radial", "split"])
def test_files_hold_little_but_arrays(name, tmp_path):
    path = tmp_path / name
    calliper.save(large(name), path)
    assert path.stat().st_size <= 1.05 * bare_size(path) + 20_000
    arrays = _file.read(path).arrays
    seen = [array.tobytes() for array in arrays if array.nbytes > 20_000]
    assert len(seen) == len(set(seen)), "an array is written twice"


def test_no_neighbour_is_searched_for_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 10))
    made = JackknifeRescaled(KNN(10)).fit(Z, np.abs(Z[:, 0]))
    made.predict_radius(Z[:3], 0.9)
    calliper.save(made, tmp_path / "x")
    searched, propose = [], NeighborSearch._propose

    def count(self, queries, k):
        searched.append(len(queries))
        return propose(self, queries, k)

    monkeypatch.setattr(NeighborSearch, "_propose", count)
    calliper.load(tmp_path / "x")
    assert sum(searched) <= 10  # the five rows whose radius is compared
    monkeypatch.setattr(NeighborSearch, "_propose", None)
    fresh = JackknifeRescaled(KNN(10))
    monkeypatch.undo()
    calliper.save(fresh.fit(Z, np.abs(Z[:, 0])), tmp_path / "x")  # no level was asked for yet
    monkeypatch.setattr(NeighborSearch, "_propose", None)
    calliper.load(tmp_path / "x")


def kept_models():
    """The models of kept files, made again from formulas, so that no version trains otherwise."""
    linear = LinearRegression()
    linear.coef_, linear.intercept_, linear.n_features_in_ = np.array([1.0, 0.25]), 0.5, 2
    several = LinearRegression()
    several.coef_ = np.array([[1.0, 0.25], [-1.0, 0.5]])
    several.intercept_, several.n_features_in_ = np.array([0.5, 0.0]), 2
    return {"linear": linear, "several": several, "by_frame": by_frame}


def kept_cases():
    """Those small cases whose models are formulas."""
    models, cases = kept_models(), small_cases()
    X, y = rows(120)
    linear, several = models["linear"], models["several"]
    made = {name: (cases[name], None) for name in KEPT if cases[name].model is None}
    made["frame"] = cases["frame"], "by_frame"
    calibrated = {
        "ridge": (ConformalRegressor(linear).calibrate(X[60:], y[60:]), "linear"),
        "fit": (
            ConformalRegressor(linear).calibrate(X[60:], y[60:], X_train=X[:60], y_train=y[:60]),
            "linear",
        ),
        "joint": (
            calliper.MultiTargetRegressor(several).calibrate(X, np.column_stack([y, -y])),
            "several",
        ),
    }
    case = type(cases["split"])
    for name, (each, model) in calibrated.items():
        made[name] = case(each, models[model], rows(6, seed=1)[0]), model
    groups = {"groups": np.array(["high", "low"] * 3)}
    by_group = ConformalRegressor(linear, Split())
    by_group.calibrate(X[60:], y[60:], groups=np.where(X[60:, 1] > 0, "high", "low"))
    made["groups"] = case(by_group, linear, rows(6, seed=1)[0], groups), "linear"
    return made


def write_kept():
    """Files of this format, and what they answer."""
    ErrorModel.__init__.__kwdefaults__.update(shift_trees=(5,), side_trees=5)
    folder = FILES / f"format-{_file.FORMAT}"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, (case, model) in kept_cases().items():
        expected[name] = {
            "model": model,
            "answers": answers(case.made, case.X, case.asked).tolist(),
        }
        calliper.save(case.made, folder / f"{name}.calliper")
    (folder / "expected.json").write_text(json.dumps(expected))


KEPT_FILES = sorted(FILES.glob("format-*/*.calliper"))


@pytest.mark.parametrize("path", KEPT_FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
def test_files_of_every_format_are_read(path):
    expected = json.loads((path.parent / "expected.json").read_text())[path.stem]
    made = calliper.load(path, kept_models().get(expected["model"]))
    X = by_frame_rows() if path.stem == "frame" else rows(6, seed=1)[0]
    asked = {"groups": np.array(["high", "low"] * 3)} if path.stem == "groups" else None
    found = answers(made, X, asked)
    np.testing.assert_allclose(found, np.array(expected["answers"]), rtol=1e-9)
    assert calliper.files.inspect(path).describe()


def by_frame_rows():
    from cases.kept import frame

    return frame()[:6]


def test_there_are_files_of_this_format():
    folder = FILES / f"format-{_file.FORMAT}"
    assert len(list(folder.glob("*.calliper"))) >= 10, f"keep some: python {__file__}"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000


if __name__ == "__main__":
    if not (FILES / f"format-{_file.FORMAT}").exists():
        write_kept()
