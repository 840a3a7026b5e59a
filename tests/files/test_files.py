"""How large files are, what loading does, and that files of this format stay readable.

Files of a format are kept beside this test. A change of what classes keep is a new format: raise
``FORMAT`` in ``calliper/files/_file.py`` and keep files of the new number beside the others:

    python tests/files/test_files.py
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import polars as pl
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge

import calliper
from calliper import KNN, RBF, ConformalRegressor, ErrorModel, JackknifeRescaled, Split
from calliper._kept import Number, columns_for_file
from calliper._trees import PlainTrees
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    Calibrator,
    FullRescaled,
    Grouped,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.exceptions import CalliperError
from calliper.files import _codec, _file
from calliper.kernels import GradedKNN, Radial, _weighted
from calliper.kernels._nearest import Nearest
from calliper.kernels._search import NeighborSearch
from calliper.kernels._weighted import MOST_WEIGHT, fitting
from calliper.rows import RowTrend, rows_again, state_of
from calliper.scale import Cells
from calliper.scores import SignedError
from cases.kept import Case, answers, brought, by_frame, forging_cases, rows, small_cases
from checks.fuzzing.files import members_of, rehashed

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


def blob(n=600, d=40):
    """Every point is as near to half of the others, which are one point."""
    Z = np.random.default_rng(0).normal(size=(n, d))
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    Z[::2] = 0
    return Z, np.arange(1.0, n + 1)


#: Methods, and what is known of training rows, that would compare many pairs of points again.
DEAR = {
    "crowded": (FullRescaled(KNN(5)), 0),
    "crowded and global": (FullRescaled(KNN(5), shrinkage=0.3), 0),
    "crowded twice": (FullRescaled(GradedKNN(5)), 0),
    "difficulty": (NormalizedKNN(5, difficulty="distance+labels"), 3),
    "nearest errors": (MADSplit(KNN(5)), 2),
    "all errors": (MADSplit(RBF(1.0)), 2),
}


@pytest.mark.parametrize(("method", "n_known"), DEAR.values(), ids=DEAR)
def test_no_pair_of_points_is_compared_again(method, n_known, tmp_path, monkeypatch):
    (Z, scores), new = blob(), blob(40)[0]
    given = {"training": (Z + 0.01, scores, scores)[:n_known]} if n_known else {}
    made = clone(method).fit(Z, scores, **given)
    calliper.save(made, tmp_path / "x")
    with monkeypatch.context() as patch:
        for kind, name in ((NeighborSearch, "_find"), (NeighborSearch, "over_candidates")):
            patch.setattr(kind, name, None)
        patch.setattr(Radial, "exponents", None)
        again, other = (calliper.load(tmp_path / "x") for _ in "12")
    expected = made.predict_radius(new, 0.8)
    if not n_known:
        scale = other.bag_.calibration_scale(0.5)
        np.testing.assert_array_equal(scale, made.bag_.calibration_scale(0.5))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: again.predict_radius(new, 0.8), range(8)):
            np.testing.assert_array_equal(found, expected)
    with monkeypatch.context() as patch:
        patch.setattr(Nearest, "sums_of_others", None)  # once for all
        np.testing.assert_array_equal(again.predict_radius(new, 0.8), expected)
    for each in (made, again):
        each.extend(new, np.arange(1.0, 41.0))
    np.testing.assert_array_equal(again.predict_radius(new), made.predict_radius(new))


def test_a_regressor_is_asked_for_scales_again():
    Z, scores = blob()
    known = {"training": (Z + 0.01, scores)}
    made, other = (MADSplit(Ridge(alpha)).fit(Z, scores, **known) for alpha in (1.0, 9.0))
    again = MADSplit(Ridge())
    again.restore({**made.for_file(), "learnt_": other.learnt_})
    np.testing.assert_array_equal(again.sizes_, other.sizes_)
    assert not np.array_equal(again.sizes_, made.sizes_)


FRAMES = {
    "whole": pd.DataFrame({"x": pd.Series([1, None, 3], dtype="Int64")}),
    "yes": pd.DataFrame({"x": pd.Series([True, None, False], dtype="boolean")}),
    "text": pd.DataFrame({"x": pd.Series(["a", None, "b"], dtype="string")}),
    "sparse": pd.DataFrame({"x": pd.arrays.SparseArray([0.0, 1.5, 0.0])}),
    "arrow": pd.DataFrame({"x": pd.Series([1.5, 2.5], dtype="double[pyarrow]")}),
    "days of arrow": pd.DataFrame({"x": pd.Series([date(2024, 1, 1)], dtype="date32[pyarrow]")}),
    "towns": pd.DataFrame({"x": pd.Categorical(["Bern", "Thun", None])}),
    "times": pd.DataFrame({"x": pd.date_range("2024-01-01", periods=3)}),
    "polars": pl.DataFrame({"x": [1, None], "y": [1.5, None], "z": ["a", None], "w": [True, None]}),
    "days": pl.DataFrame({"x": [date(2024, 1, 1), None], "y": [None, None]}),
    "classes": pl.DataFrame({"x": pl.Series(["a", "b"], dtype=pl.Categorical)}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_columns_of_usual_types_are_kept(frame):
    assert rows_again(state_of(frame)).equals(frame)


class Near(Split):
    """A method of one's own, which has a kernel under another name."""

    def __init__(self, near=None, *, by=None):
        self.near, self.by = near, by


def test_a_parameter_of_any_name_holds_a_kernel_a_score_or_a_method(tmp_path, monkeypatch):
    monkeypatch.setitem(_codec.classes_of("calibrators"), "Near", Near)
    made = Near(KNN(7), by=SignedError()).fit(*rows(20)[:1], np.abs(rows(20)[1]))
    calliper.save(made, tmp_path / "x")
    assert repr(calliper.load(tmp_path / "x")) == repr(made)


def test_what_derives_from_something_kept_keeps_its_fields():
    class Longer(RowTrend):
        more: Annotated[int, Number(int)]

    assert [*Longer.keeps] == [*RowTrend.keeps, "more"]


def test_only_what_was_brought_is_asked_for_radii(tmp_path, monkeypatch):
    """LCP compares all pairs of points before its first answer."""
    Z, scores = blob(60, 2)
    made = ConformalRegressor(Ridge().fit(Z, scores), LCP(bandwidth=1.0), embed=np.abs)
    made.calibrate(Z, np.sin(scores))
    monkeypatch.setattr(LCP, "_localizer", None)
    calliper.save(made, tmp_path / "x")
    calliper.load(tmp_path / "x", made.estimator_, embed=np.abs)


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


@pytest.mark.parametrize(
    ("method", "kernel"), [(Split(), ""), (JackknifeRescaled(KNN(3)), "KNN(n_neighbors=3)")]
)
def test_the_header_names_a_kernel_only_where_there_is_one(method, kernel, tmp_path):
    calliper.save(method.fit([[0.0]] * 9, range(9)), tmp_path / "kept.calliper")
    assert calliper.files.inspect(tmp_path / "kept.calliper").header["kernel"] == kernel


def by_frame_rows():
    from cases.kept import frame

    return frame()[:6]


def test_there_are_files_of_this_format():
    folder = FILES / f"format-{_file.FORMAT}"
    assert len(list(folder.glob("*.calliper"))) >= 10, f"keep some: python {__file__}"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000


@cache
def methods_to_keep():
    """Methods alone, by name, and some that are at the ends of what they allow."""
    X, y = rows(80)
    Z, scores, new, few = X[40:], np.abs(y[40:]), rows(6, seed=1)[0], slice(40, 48)
    more = {
        "all": FullRescaled(KNN(40)).fit(Z, scores),
        "graded-few": FullRescaled(GradedKNN(10)).fit(X[few], np.abs(y[few])),
        "cells-of-all": FullRescaled(KNN(3, cells=Cells(n_probes=2, random_state=0))).fit(
            Z, scores
        ),
        "grouped-split": Grouped(Split()).fit(Z, scores, groups=X[40:, 1] > 0, weights=scores + 1),
        "grouped-one": Grouped(Split()).fit(Z, scores, groups=np.ones(40)),
        "sizes": JackknifeRescaled(KNN(5)).fit(Z, scores / 2, magnitudes=scores / 9),
        "named": JackknifeRescaled(KNN(5)).fit(pd.DataFrame(Z, columns=["a", "b"]), scores),
        "rows": FullRescaled().fit(Z, scores, left_out=(X[:40], np.abs(y[:40]))),
        "taught": LVD().fit(Z, scores, training=(X[:40], scores, y[:40])),
        "errors": MADSplit(KNN(5)).fit(Z, scores, training=(X[:40], scores, y[:40])),
    }
    cases = {n: c for n, c in forging_cases().items() if isinstance(c.made, Calibrator)}
    asked = {"grouped-split": {"groups": new[:, 1] > 0, "weights": np.ones(6)}}
    asked["grouped-one"] = {"groups": np.ones(6)}
    return cases | {name: Case(made, None, new, asked.get(name)) for name, made in more.items()}


METHODS = """
split neighbours radial proximity locart boosted histogram learnt drawn full nearest graded quantile
cells directions mahalanobis minmax tuned folds tuned-nearest conditional local local-tuned
normalized rcp slcp weighted grouped grouped-split all graded-few cells-of-all sizes named rows
taught errors grouped-one
"""


@pytest.mark.filterwarnings("ignore")
def test_all_methods_are_kept():
    assert sorted(METHODS.split()) == sorted(methods_to_keep())


def as_kept(made):
    """The numbers that a file holds of a method, and what it does not hold."""
    state = made.for_file().items()
    return {n: np.array(v).tolist() for n, v in state if v is None or isinstance(v, np.ndarray)}


@pytest.mark.parametrize("name", METHODS.split())
@pytest.mark.filterwarnings("ignore")
def test_a_method_that_was_loaded_is_the_one_that_was_saved(name, tmp_path):
    case = methods_to_keep()[name]
    made, how = deepcopy(case.made), case.asked or {}
    X = pd.DataFrame(case.X, columns=["a", "b"]) if name == "named" else case.X
    expected = answers(made, X, how)
    calliper.save(made, tmp_path / "x")
    again = calliper.load(tmp_path / "x", bring=brought(made))
    np.testing.assert_array_equal(answers(again, X, how), expected)
    assert as_kept(again) == as_kept(made)
    np.testing.assert_array_equal(again._rows.scores, made._rows.scores)
    assert again.guarantee(0.8) == made.guarantee(0.8)
    if not isinstance(made, Grouped):
        assert again.levels_asked_ == made.levels_asked_
        assert columns_for_file(again) == columns_for_file(made)
    if made._rows.signs is not None:
        how = how | {"signs": np.ones(6)}
    for each in (made, again):
        each.extend(X, np.arange(1.0, 7.0), **how)
    np.testing.assert_array_equal(answers(again, X, case.asked), answers(made, X, case.asked))


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("split", ""),
        ("weighted", "signs weights"),
        ("sizes", "magnitudes"),
        ("taught", "Z_train targets_train"),
        ("errors", "Z_train scores_train"),
        ("rows", "Z_left_out scores_left_out"),
        ("full", "signs length"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_file_holds_what_is_used_and_no_more(name, held):
    may = "magnitudes signs weights Z_train scores_train targets_train Z_left_out scores_left_out"
    state = methods_to_keep()[name].made.for_file()
    assert [each for each in [*may.split(), "length"] if state[each] is not None] == held.split()


def with_(array, at, value):
    """The array with another value in one place."""
    other = array.copy()
    other[at] = value
    return other


@pytest.mark.parametrize(
    ("total", "weight", "magnitudes"),
    [
        ([0.9], [0.3], [3.0]),  # rounded up: 0.3 times 3 is a little less
        ([0.0, 2.0], [0.0, 1.0], [2.0, 1.0]),  # of a point without any weight
        ([0.0, 0.0], [1.0, 1.0], [0.0, 0.0]),
        ([MOST_WEIGHT], [MOST_WEIGHT], [1.0]),
    ],
)
def test_sums_that_may_be_those_of_points(total, weight, magnitudes):
    sums, magnitudes = np.array([total, weight, np.zeros(len(total))]), np.array(magnitudes)
    assert fitting(sums, magnitudes) is sums
    for place, wrong in ((0, 1.5 * sums[1] * magnitudes.max() + 1), (0, -1.0), (2, 1.0)):
        damaged = sums.copy()
        damaged[place, -1] = np.max(wrong)
        with pytest.raises(CalliperError, match="sums of weights do not match"):
            fitting(damaged, magnitudes)


def saying(**numbers):
    """Change what a file holds of a method."""

    def change(made):
        state = {**made.for_file(), **numbers}
        made.for_file = lambda: state

    return change


LEVEL = "levels of Split holds"
BEYOND = {
    "a level beyond one": (RCP(kernel=KNN(3)), saying(at_=np.full(1, 1.5)), "at_ of RCP holds"),
    "a level of nought": (Split(), saying(levels=np.zeros(1)), LEVEL),
    "a level of one": (Split(), saying(levels=np.ones(1)), LEVEL),
    "two trees": (
        LoCart(min_leaf=10),
        lambda made: vars(made).update(nodes_=PlainTrees.of([made.tree_.tree_] * 2, 2)),
        "needs one tree; got 2",
    ),
}


@pytest.mark.parametrize(("method", "change", "words"), BEYOND.values(), ids=BEYOND)
def test_what_no_fit_makes_is_refused(method, change, words, tmp_path):
    X, y = rows(40)
    given = {"training": (X + 0.01, abs(y))} if "training" in method.uses else {}
    made = method.fit(X, abs(y), **given)
    made.predict_radius(X[:2], 0.5)
    change(made)
    calliper.save(made, tmp_path / "x")
    with pytest.raises(CalliperError, match=words):
        calliper.load(tmp_path / "x")


SMALL = {
    "sizes": (JackknifeRescaled(KNN(3)), {"magnitudes": np.full(40, 0.5)}, (0.5,)),
    "weights": (Split(), {"weights": np.append(0.0, np.full(39, 0.5))}, ()),
    "a length": (FullRescaled(), {"length_scale": 0.5}, (0.5,)),
    "a scale": (RLCP(0.05, random_state=0), {}, (0.5,)),
    "neighbours": (FullRescaled(KNN(3)), {}, (0.5,)),
    "sums": (FullRescaled(RBF(0.3)), {}, (0.5,)),
    "trees": (RCP(random_state=0), {"training": (rows(40)[0], abs(rows(40)[1]))}, (0.5,)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("method", "given", "levels"), SMALL.values(), ids=SMALL)
def test_small_numbers_and_sums_come_back(method, given, levels, tmp_path, monkeypatch):
    monkeypatch.setattr(_weighted, "FEW_SUMS", 10)
    X, y = rows(40, seed=1)
    made = clone(method).fit(X, abs(y), **given)
    expected = made.predict_radius(X[:3], levels) if levels else None
    calliper.save(made, tmp_path / "x")
    again = calliper.load(tmp_path / "x")
    assert not levels or np.array_equal(again.predict_radius(X[:3], levels), expected)
    before, after = made.for_file(), again.for_file()
    assert [*after["levels"]] == [*before["levels"]] == [*levels]
    assert np.size(after.get("sums_")) == np.size(before.get("sums_"))


def test_levels_may_lie_next_to_nought_and_to_one(tmp_path):
    made, levels = Split().fit(np.zeros((9, 1)), np.arange(9.0)), [5e-324, 1e-14, 1 - 2**-53]
    with pytest.warns(calliper.exceptions.SmallCalibrationWarning):
        made.predict_radius([[0.0]], levels)
    calliper.save(made, tmp_path / "x")
    assert calliper.load(tmp_path / "x").levels_asked_ == {*levels}


@pytest.mark.parametrize(
    ("seed", "taken"), [(0, True), (2**63 - 1, True), (-1, False), (2**63, False)]
)
def test_a_seed_has_63_bits(seed, taken, tmp_path):
    X, y = rows(40)
    calliper.save(RLCP(0.05, random_state=0).fit(X, abs(y)), tmp_path / "x")
    members = members_of((tmp_path / "x").read_bytes())
    whole = json.loads(members["object"])
    whole["nodes"]["object"]["state"]["seed_"] = seed
    members["object"] = json.dumps(whole).encode()
    (tmp_path / "x").write_bytes(rehashed(members))
    with nullcontext() if taken else pytest.raises(CalliperError, match=r"seed_ of R|too large"):
        assert calliper.load(tmp_path / "x").seed_ == seed


def near(state, name="near_"):
    return state[name].nearer


def farthest(Z, point):
    return np.square(Z - Z[point]).sum(axis=1).argmax()


def forged(name, **values):
    return lambda state: {**state, name: replace(state[name], **values)}


#: By name: the method, what a file says of it instead, and how that is refused.
FORGED = {
    "neighbours": ("nearest", lambda s: forged("near_", nearer=near(s)[:, 1:])(s), "for 40 points"),
    "sums": ("nearest", lambda s: forged("near_", nearer=near(s) * 1e9)(s), "exceed those"),
    "fewer scales": (
        "neighbours",
        lambda s: {**s, "without_one_": s["without_one_"][1:]},
        "there are 39 values for 40 points",
    ),
    "reach": (
        "graded",
        lambda s: forged("near_", last=with_(s["near_"].last, 3, farthest(s["Z"], 3)))(s),
        "K nearest points are farther",
    ),
    "candidate": (
        "tuned",
        lambda s: {**s, "chosen_": with_(s["chosen_"], 5, 0.123)},
        "the choice of TunedRBF is not a candidate",
    ),
    "folds": (
        "folds",
        lambda s: {**s, "fold_": with_(s["fold_"], np.flatnonzero(s["fold_"] == 1)[0], 2)},
        "folds of TunedRBF have the wrong sizes",
    ),
    "drawn twice": (
        "local-tuned",
        lambda s: {**s, "sample_": with_(s["sample_"], 0, s["sample_"][1])},
        "did not draw the 40 stored training rows",
    ),
    "drawn too few": ("local-tuned", lambda s: {**s, "sample_": s["sample_"][1:]}, "39 stored"),
    "groups": ("grouped", lambda s: {**s, "code": with_(s["code"], 0, 1 - s["code"][0])}, "one c"),
    "label twice": ("grouped", lambda s: {**s, "labels": ["low", "low"]}, "each group must"),
    "label too many": (
        "grouped",
        lambda s: {**s, "labels": ["low", "high", "x"]},
        "each group must",
    ),
    "no list of labels": ("grouped", lambda s: {**s, "labels": ("low", "high")}, "each group must"),
    "no label": (
        "grouped",
        lambda s: {**s, "labels": [], "parts": (), "code": s["code"][:0]},
        "each group must",
    ),
}


@pytest.mark.parametrize(("name", "forge", "words"), FORGED.values(), ids=FORGED)
@pytest.mark.filterwarnings("ignore")
def test_what_no_method_finds_is_refused(name, forge, words):
    made = methods_to_keep()[name].made
    again = clone(made)
    again.restore(made.for_file())
    if not isinstance(made, Grouped):
        assert again.levels_asked_ == made.levels_asked_
    with pytest.raises(CalliperError, match=words):
        clone(made).restore(forge(made.for_file()))


@pytest.mark.parametrize(
    ("n", "cells", "fits"), [(40, 64, True), (40, 65, False), (70, 70, True), (70, 71, False)]
)
@pytest.mark.filterwarnings("ignore")
def test_no_more_cells_than_points_are_made_for_a_file(n, cells, fits):
    X, y = rows(80)
    made = FullRescaled(KNN(3, cells=Cells(5, random_state=0))).fit(X[:n], np.abs(y[:n]))
    state = made.for_file()
    kernel = KNN(3, cells=Cells(cells, random_state=0))
    state["locality_"] = replace(state["locality_"], kernel=kernel)
    with nullcontext() if fits else pytest.raises(CalliperError, match=f"{cells} cells are too"):
        clone(made).restore(state)


def test_methods_without_nearness_hold_no_rows():
    state, again = Split().fit(*np.abs(rows(20)[:1]), np.abs(rows(20)[1])).for_file(), Split()
    again.restore({**state, "Z": np.ones((3, 2))})
    assert again._rows.Z.shape == state["Z"].shape == (0, 2)


@pytest.mark.parametrize(
    "kernel", [RBF(0.3), RBF(0.3, smoothing=1), RBF(0.3, smoothing=1, step=0.5)]
)
def test_sums_over_many_pairs_are_read(kernel, monkeypatch):
    X, y = rows(60)
    made, fresh = FullRescaled(kernel).fit(X, abs(y)), FullRescaled(kernel)
    assert made.for_file()["sums_"] is None
    monkeypatch.setattr(_weighted, "FEW_SUMS", 40)
    state = made.for_file()
    monkeypatch.setattr(_weighted.Weights, "among", None)
    monkeypatch.setattr(Radial, "among", None)
    fresh.restore(state)
    new = rows(9, seed=1)[0]
    assert np.array_equal(
        fresh.predict_radius(new, [0.5, 0.9]), made.predict_radius(new, [0.5, 0.9])
    )
    with pytest.raises(CalliperError, match="lacks 'sums'"):
        clone(made).restore({**state, "sums_": None})
    factors = np.array([[1e9, 1, 1], [-1, 1, 1], [1, 1e99, 1]])
    for wrong in (
        *(state["sums_"] * each[:, None] for each in factors),
        np.abs(state["sums_"]) + 1.0,
    ):
        with pytest.raises(CalliperError, match="sums of weights"):
            clone(made).restore({**state, "sums_": wrong})


@pytest.mark.parametrize("method", [FullRescaled(), FullRescaled(KNN(100))])
def test_a_file_is_hardly_larger_than_its_rows(method, tmp_path):
    Z = np.random.default_rng(0).normal(size=(3000, 10))
    calliper.save(clone(method).fit(Z, abs(Z[:, 0])), tmp_path / "x.calliper")
    assert (tmp_path / "x.calliper").stat().st_size < 1.3 * 11 * Z[:, 0].nbytes


if __name__ == "__main__":
    if not (FILES / f"format-{_file.FORMAT}").exists():
        write_kept()
