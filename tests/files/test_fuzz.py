"""Files that say what they should not: each refused by name; see ``checks/fuzzing/files.py``."""

import json
import re
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import calliper
from calliper import KNN, FullRescaled, JackknifeRescaled, Split, _trees
from calliper._row_checks import find_shared, sketch_rows
from calliper._trees import PlainTrees
from calliper.calibrators import LoCart
from calliper.exceptions import CalliperError, DamagedFileError
from calliper.files import _codec, _file
from calliper.kernels import TunedRBF
from calliper.scale import Cells
from calliper.scale._cells import CellSearch
from cases.trees import with_trees
from checks.fuzzing import files as fuzz


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        with_trees(patch, (5,), 5)
        return {each.name: each for each in fuzz.good_files(tmp_path_factory.mktemp("good"))}


@pytest.fixture
def load(bases, tmp_path):
    """Load a file whose header, nodes or arrays were changed, under a right hash."""

    def forge(name, change):
        base = bases[name]
        header, nodes, arrays = base.parts()
        change(header, nodes, arrays)
        path = tmp_path / "forged.calliper"
        path.write_bytes(fuzz.packed(header, nodes, arrays))
        return calliper.load(path, base.case.model, bring=base.brought)

    return forge


def test_every_bit_of_the_contents_counts(bases, tmp_path):
    data, path = bases["split"].data, tmp_path / "x"
    start = data.index(b'{"format"')
    for place in range(start, start + 300, 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(DamagedFileError):
            calliper.load(path)


def test_a_file_names_few_classes_all_of_them_ours():
    classes = [kind for module in _codec.CLASSES for kind in _codec.classes_of(module).values()]
    assert len(classes) <= 43  # forty of the first house, one score, two monitors
    assert all(kind.__module__.startswith("calliper.") for kind in classes)


def state(nodes):
    return nodes["object"]["state"]


def array_of(nodes, arrays, *path):
    """An array of a file, by the way to it."""
    node = nodes["object"]
    for name in path:
        node = node[name]
    return arrays[node["array"]]


def of_class(name, state=None, **params):
    """The node of an object."""
    return {"class": name, "params": params, "state": state}


def inside(name, parameter, node, times):
    """Objects in one another."""
    for _ in range(times):
        node = of_class(name, **{**KERNELS.get(name, {"groups": None}), parameter: node})
    return node


def alike(n):
    """Pairs of numbers that hash alike: what Python does to hash a tuple, undone."""
    one, two, five = 11400714785074694791, 14029467366897019727, 2870177450012600261
    size, found, first = 2**64, [], 0

    def turned(number, by):
        return (number << by | number >> 64 - by) % size

    before = turned((7 - (2 ^ five ^ 3527539)) * pow(one, -1, size) % size, 33)
    while len(found) < n:
        first += 1
        mixed = turned((five + first * two) % size, 31) * one
        second = (before - mixed) * pow(two, -1, size) % size
        if second < 2**61 - 1:
            found.append({"tuple": [first, second]})
    assert len({hash(tuple(each["tuple"])) for each in found}) == 1
    return found


CELLS = {"learnt": None, "n_cells": 65536, "n_probes": 1, "seed": 0}
KERNELS = {
    "KNN": {"n_neighbors": 5, "metric": "euclidean", "engine": None, "cells": None},
    "Mahalanobis": {"kernel": None, "n_directions": 4, "max_iter": 100},
}
NEAREST = of_class("KNN", **KERNELS["KNN"])
TUNED = {"criterion": "mse", "n_components": None, "mi_neighbors": 3, "metric": "euclidean"}
TUNED = of_class("TunedKNN", **TUNED, n_neighbors=[3])
FIXED = of_class("KNN", **KERNELS["KNN"] | {"cells": of_class("FixedCells", **CELLS)})
ERRORS = {"recentre": True, "units": True, "shift_trees": [10**9], "side_trees": 10**9}
ERRORS |= {"max_errors": 8000, "random_state": 0}
CORE, RATIO = {"opened": {"opened": ["core", 0]}}, "per_row weights state trees sums"
NO_COLUMNS = {"columns": [], "names": None, "components": None, "largest": 1e30}
KERNEL = "locality_ kernel params kernel"
ERROR_MODEL = "space space errors errors"
#: By what is wrong: the file, what its state holds instead by where it is, and what is said of it.
FORGED = {
    "no weight": ("control", {"weights": np.zeros(2)}, "one share for each"),
    "last step": ("control", {"names": np.array([[0, 1], [1, 2], [2**63 - 1, 3]])}, "names of"),
    "no tree": ("shifted", {RATIO: []}, "needs trees"),
    "large leaves": (
        "shifted",
        {f"{RATIO} 0 trees value": lambda of: np.full_like(of, 1.7e308)},
        "too large",
    ),
    "untrained": ("ratio", {"per_row weights params classifier": None}, "needs trees or"),
    "no seed": ("full", {"..params random_state": NEAREST}, "not belong"),
    "nested": (
        "mahalanobis",
        {"..params kernel": inside("Mahalanobis", "kernel", None, 17)},
        "too deeply",
    ),
    "groups of groups": (
        "ridge",
        {"..params calibrator": inside("Grouped", "calibrator", None, 17)},
        "too deeply",
    ),
    "a model to train": ("boosted", {"learnt_": of_class("ErrorModel", **ERRORS)}, "not belong"),
    "labels": ("grouped", {"labels": alike(500)}, "hash alike"),
    "names": ("split", {"names": alike(500)}, "hash alike"),
    "neighbours": ("nearest", {"near_": None}, "lacks 'near'"),
    "wider": ("graded", {"wide_": None}, "lacks 'wide'"),
    "scales": ("neighbours", {"without_one_": None}, "lacks 'without_one'"),
    "radial scales": ("radial", {"without_one_": None}, "lacks 'without_one'"),
    "kept columns": ("learnt", {"metric_ kept": lambda of: of[::-1].copy()}, "not in order"),
    "medians": ("normalized", {"units_": np.ones(2)}, "2 units are not those"),
    "no medians": ("normalized", {"units_": np.zeros(1)}, "units_ of NormalizedKNN"),
    "choices": ("tuned", {"chosen_": None}, r"no len\(\)"),
    "all choices": ("tuned", {"chosen_": None, "without_one_": None}, r"no len\(\)"),
    "cells": ("mahalanobis", {KERNEL: FIXED}, "too many for 40"),
    "two spaces": ("mahalanobis", {KERNEL: TUNED}, "a learnt space needs a distance kernel"),
    "no fold": (
        "refitted",
        {"fold_": None, "in_bag_": np.ones((10, 80), bool)},
        "not subscriptable",
    ),
    "no bag": ("bootstrap", {"in_bag_": None, "fold_": np.zeros(80, "i4")}, "not subscriptable"),
    "no model": ("refitted", {"estimator_": None}, "2 rows and fitted models"),
    "no models": ("refitted", {"models_": "0123456789"}, "2 rows and fitted models"),
    "no rows": (
        "refitted",
        {"residuals_": np.zeros(0), "fold_": np.zeros(0, "i4")},
        "at least 2 rows",
    ),
    "no number": ("bootstrap", {"..params n_bootstraps": None}, "n_bootstraps"),
    "about a number": ("stored", {"..params about": 5}, "no attribute"),
    "about no columns": ("stored", {"..params about": {"dict": [["columns", 3]]}}, "no attribute"),
    "mapping": ("ridge", {"space space": {"mapped": {"name": "", "mapping": 5}}}, "a function or"),
    "family": (
        "ridge",
        {"space space": {"spread": CORE | {"family": "StatedDeviation", "unit": 1.0}}},
        "not of the family",
    ),
    "contributions": ("frame", {"space space": {"contributions": CORE}}, "no coefficients"),
    "columns": (
        "encoded",
        {"space space": {"inputs": {"encode": NO_COLUMNS, "scaling": None}}},
        "no columns",
    ),
    "score of a box": (
        "joint",
        {"score": of_class("QuantileError", variant="plain", offset=1e-6)},
        "a box needs",
    ),
    "slope": (
        "ridge",
        {"score": of_class("DistributionError", probabilities=[0.1, 0.9], slope=NEAREST)},
        "not belong",
    ),
    "metric": ("learnt", {"..params metric": NEAREST}, "must come from learn_metric"),
    "null": ("distribution", {"..params estimator": None}, "not subscriptable"),
    "rate": ("control", {"..params rate": [1e-320, 0.1]}, "must be a positive number"),
    "flag": ("each", {f"parts 0 state {ERROR_MODEL} params recentre": {"array": 0}}, "not bool"),
    "one model": ("refitted", {"models_": [{"brought": 1}] * 999}, "there twice"),
    "crowded": ("nearest", {"near_ crowded": np.zeros(9999, "i4")}, "not in order"),
    "sums": (
        "distribution",
        {f"{ERROR_MODEL} state trees_ steps": lambda of: np.full_like(of, 1.7e308)},
        "sums are not finite",
    ),
    "bounds": (
        "distribution",
        {f"{ERROR_MODEL} state forest_ bounds": lambda of: of[::-1].copy()},
        "or its bounds",
    ),
    "far bounds": (
        "distribution",
        {f"{ERROR_MODEL} state forest_ bounds": lambda of: 1.7e308 * np.sign(of)},
        "bounds of ErrorForest holds",
    ),
    "many bounds": (
        "distribution",
        {
            f"{ERROR_MODEL} state forest_ bounds": np.arange(999.0),
            f"{ERROR_MODEL} state forest_ shares": lambda of: np.zeros((len(of), 999), "u1"),
        },
        "or its bounds",
    ),
    "units": (
        "distribution",
        {"space space errors base prediction units": np.ones(6)},
        "6 units for 3 predictions",
    ),
    "steep": (
        "distribution",
        {"score": of_class("DistributionError", probabilities=[0.5, 0.8, 0.9], slope=1.7e308)},
        "from 0 to 1e300",
    ),
    "too near": (
        "distribution",
        {"space space errors probabilities": np.array([1e-300, np.nextafter(1e-300, 1), 0.5])},
        "different numbers",
    ),
    "level 0": ("split", {"levels": np.zeros(1)}, "levels of Split"),
    "level 1": ("split", {"levels": np.ones(1)}, "levels of Split"),
}


@pytest.mark.parametrize(("name", "values", "words"), FORGED.values(), ids=FORGED)
def test_forged_values_are_refused(load, name, values, words):
    def change(header, nodes, arrays):
        nodes["probe"] = {"dict": [["rows", None], ["said", {"dict": []}]]}
        for path, value in values.items():
            *way, last = path.removeprefix("..").split()
            here = nodes["object"] if path.startswith("..") else state(nodes)
            for step in way:
                here = here[int(step) if step.isdigit() else step]
            if callable(value):
                value = value(arrays[here[last]["array"]])
            if isinstance(value, np.ndarray):
                arrays.append(value)
                value = {"array": len(arrays) - 1}
            here[last] = value

    with pytest.raises(DamagedFileError, match=words):
        load(name, change)


@pytest.mark.parametrize(
    "params",
    [{"n_probes": n, "n_cells": 3000} for n in (3000, 2000)] + [{"n_neighbors": 3000}],
)
def test_cells_that_compare_too_many_pairs(tmp_path, params):
    Z, path = np.random.default_rng(0).normal(size=(3000, 2)), tmp_path / "x"
    calliper.save(FullRescaled(KNN(3, cells=Cells(random_state=0))).fit(Z, np.abs(Z[:, 0])), path)
    contents = _file.read(path)
    kernel = state(contents.nodes)["locality_"]["kernel"]["params"]
    for name, value in params.items():
        here = kernel if name in kernel else kernel["cells"]["params"]
        here[name] = value
    path.write_bytes(fuzz.packed(contents.header, contents.nodes, contents.arrays))
    start = time.process_time()
    tracemalloc.start()
    with pytest.raises(DamagedFileError, match="comparisons"):
        calliper.load(path)
    assert time.process_time() - start < 2 and tracemalloc.get_traced_memory()[1] < 9e6
    tracemalloc.stop()


def test_rows_are_compared_with_a_few_centres():
    points = np.random.default_rng(0).normal(size=(10_000, 2))
    with pytest.raises(CalliperError, match="100,000,000 comparisons"):
        CellSearch(points, points, 1)


def test_cells_of_equal_points():
    with pytest.raises(CalliperError, match="comparisons"):
        FullRescaled(KNN(3, cells=Cells(random_state=0))).fit(np.zeros((3000, 2)), np.ones(3000))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("name", fuzz.COLUMN_TYPES)
def test_a_column_has_one_of_a_few_types(load, kind, name):
    """Others take memory for each cell, make pandas open a file, or Polars panic."""

    def change(header, nodes, arrays):
        fuzz.retyped(nodes, kind, name)

    tracemalloc.start()
    with pytest.raises(DamagedFileError, match=re.escape(f"has type {name!r:.40}")):
        load("frame", change)
    assert tracemalloc.get_traced_memory()[1] < 9e6
    tracemalloc.stop()


@pytest.mark.parametrize("classifier", [[], 0, ""])
def test_a_ratio_with_something_in_place_of_no_classifier(bases, load, tmp_path, classifier):
    def change(header, nodes, arrays):
        state(nodes)["per_row"]["weights"]["params"]["classifier"] = classifier

    made, case = load("ratio", change), bases["ratio"].case
    calliper.save(made, tmp_path / "again")
    assert np.array_equal(made.predict(case.X), case.made.predict(case.X))


def test_no_tree_waits_for_one_that_is_deeper(monkeypatch):
    n, leaves = 2001, 2000
    left = np.full(n + leaves, -1)
    left[: n - 1 : 2] = np.arange(1, n, 2)
    none = np.zeros(n + leaves)
    nodes = {"feature": none.astype(int), "threshold": none, "gap_left": none > 0, "value": none}
    nodes |= {"left": left, "right": np.where(left < 0, -1, left + 1), "n_features": 1}
    sizes = np.append(n, np.ones(leaves, dtype=int))
    with pytest.raises(CalliperError, match="much deeper"):
        PlainTrees.again({**nodes, "sizes": sizes})
    lone = {name: each if name == "n_features" else each[:n] for name, each in nodes.items()}
    assert len(PlainTrees.again({**lone, "sizes": sizes[:1]}).sizes) == 1
    monkeypatch.setattr(_trees, "DEEPEST", 999)
    with pytest.raises(CalliperError, match="too deep"):
        PlainTrees.again({**lone, "sizes": sizes[:1]})


def test_unused_columns_take_no_memory(load):
    def change(header, nodes, arrays):
        arrays.append(np.zeros((0, 65536)))
        for part in state(nodes)["calibrators"][0]["state"]["parts"]:
            part["state"]["Z"] = {"array": len(arrays) - 1}

    tracemalloc.start()
    load("groups", change)
    assert tracemalloc.get_traced_memory()[1] < 9e6
    tracemalloc.stop()


def test_columns_that_are_named_twice_or_not_at_all():
    frame = pd.DataFrame({"a": np.arange(99.0), "b": 0.0})
    known = sketch_rows(frame)
    for names in ((), ("a", "a")):
        assert not find_shared(replace(known, names=names), frame, None).n_shared or not names


LOCALITY = ("state", "locality_", "kernel", "params", "cells", "params")


@pytest.mark.parametrize(
    ("name", "value"), [("n_probes", 0), ("n_probes", -3), ("n_cells", 10**6), ("seed", -1)]
)
def test_cells_out_of_range(load, name, value):
    def change(header, nodes, arrays):
        here = nodes["object"]
        for each in LOCALITY:
            here = here[each]
        here[name] = value

    with pytest.raises(DamagedFileError):
        load("directions", change)


def test_no_file_says_in_which_cell_a_point_is(bases):
    assert "probes" not in json.dumps(bases["cells"].nodes["object"]["state"]).replace(
        "n_probes", ""
    )


@pytest.mark.parametrize("number", [-1, 40, 2**31 - 1])
def test_neighbours_out_of_range(load, number):
    def change(header, nodes, arrays):
        array_of(nodes, arrays, "state", "near_", "last")[0] = number

    with pytest.raises(DamagedFileError, match="last of Neighborhood"):
        load("nearest", change)


def test_a_bound_method_is_no_mapping(load):
    def change(header, nodes, arrays):
        mapping = {"method": [{"brought": 0}, "predict"]}
        state(nodes)["space"]["space"] = {"mapped": {"name": "a method", "mapping": mapping}}

    with pytest.raises(DamagedFileError, match="is not a known value"):
        load("encoded", change)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", 0),
        ("left", -2),
        ("left", 10**6),
        ("right", -1),
        ("feature", -1),
        ("feature", 2**30),
    ],
)
def test_nodes_that_compiled_code_would_follow(load, field, value):
    def change(header, nodes, arrays):
        array_of(nodes, arrays, "state", "nodes_", field)[0] = value

    with pytest.raises(DamagedFileError):
        load("locart", change)


def test_trees_that_claim_many_features_or_nodes(load):
    def features(header, nodes, arrays):
        state(nodes)["nodes_"]["n_features"] = 2**30

    def sizes(header, nodes, arrays):
        array_of(nodes, arrays, "state", "nodes_", "sizes")[0] = 2**31 - 1

    for change in (features, sizes):
        with pytest.raises(CalliperError):
            load("locart", change).predict_radius(np.zeros((1, 2)))


def test_every_row_ends_where_the_trained_tree_puts_it():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 3)).round(1)
    made = LoCart(min_leaf=5).fit(Z, np.abs(Z[:, 0]), training=(Z + 1, np.abs(Z[:, 1])))
    again = PlainTrees.again(made.nodes_.for_file())
    rows = rng.normal(size=(3000, 3)).round(1).astype(np.float32)
    assert np.array_equal(again.leaves(rows)[0], made.tree_.apply(rows))
    state = made.nodes_.for_file()
    state["left"] = np.where(state["left"] < 0, state["left"], state["right"])
    with pytest.raises(CalliperError, match="two parents"):
        PlainTrees.again(state)


def test_one_array_named_many_times_is_not_copied_each_time(load):
    def change(header, nodes, arrays):
        arrays.append(np.zeros(90_000))
        state(nodes)["names"] = [{"array": len(arrays) - 1} for _ in range(3000)]

    tracemalloc.start()
    with pytest.raises(DamagedFileError, match="more often"):
        load("split", change)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_numbers_that_hash_alike_make_no_dict_slow(load):
    def change(header, nodes, arrays):
        pairs = [[k * (2**61 - 1), 0] for k in range(50_000)]
        state(nodes)["names"] = {"dict": pairs}

    start = time.process_time()
    with pytest.raises(DamagedFileError):
        load("split", change)
    assert time.process_time() - start < 2


def test_a_set_is_nothing_that_a_file_holds(load):
    with pytest.raises(DamagedFileError, match="is not a known value"):
        load("split", lambda header, nodes, arrays: state(nodes).update(names={"set": [0]}))


def test_jobs_are_nothing_that_a_file_asks_for(bases, load):
    assert "n_jobs" not in json.dumps(bases["refitted"].nodes)

    def change(header, nodes, arrays):
        nodes["object"]["params"]["n_jobs"] = 1024

    with pytest.raises(DamagedFileError, match="must have"):
        load("refitted", change)


@pytest.mark.parametrize(
    "name", ["Pipeline", "RandomForestRegressor", "os:system", "Tree", 7, None]
)
def test_no_class_of_another_library_is_made(load, name):
    with pytest.raises(DamagedFileError, match="does not belong"):
        load("split", lambda header, nodes, arrays: nodes["object"].update({"class": name}))


def test_nesting_and_names_that_are_there_twice(bases, tmp_path):
    base, path = bases["split"], tmp_path / "x"
    members = dict(base.members)
    whole = members["object"]
    for text in (
        whole.replace(b'"params":{}', b'"params":' + b"[" * 100_000 + b"]" * 100_000),
        whole.replace(b'"params":{}', b'"params":{},"params":{}'),
        whole.replace(b'"length":null', b'"length":' + b"9" * 5000),
        whole.replace(b'"length":null', b'"length":NaN'),
    ):
        assert text != whole
        path.write_bytes(fuzz.rehashed({**members, "object": text}))
        with pytest.raises(DamagedFileError):
            calliper.load(path)


@pytest.mark.parametrize(
    "shape", [[2**31, 2**31], [0, 2**40], [-1], [2**63], ["3"], [True], [1] * 70]
)
def test_shapes_that_are_not_there(bases, tmp_path, shape):
    base, path = bases["split"], tmp_path / "x"
    whole = json.loads(base.members["object"])
    whole["arrays"][0][1] = shape
    text = json.dumps(whole).encode()
    path.write_bytes(fuzz.rehashed({**base.members, "object": text}))
    with pytest.raises(DamagedFileError):
        calliper.load(path)


def test_a_generator_is_somewhere_in_its_sequence(load):
    for wrong in ([-1, 0, 0.0], [625, 0, 0.0], [10**9, 0, 0.0], [1.5, 0, 0.0], [0, 2, 0.0], [0]):

        def change(header, nodes, arrays, wrong=wrong):
            nodes["object"]["params"]["random_state"]["RandomState"][1:] = wrong

        with pytest.raises(DamagedFileError, match="state of a random generator"):
            load("drawn", change)


@pytest.mark.parametrize("name", ["ridge", "signed", "joint"])
def test_there_is_a_calibrator_for_each_tail(load, name):
    def change(header, nodes, arrays):
        state(nodes)["calibrators"].pop()

    with pytest.raises(DamagedFileError, match="one for each tail; got"):
        load(name, change)


@pytest.mark.parametrize(("name", "scale"), [("tuned", 1e-300), ("tuned-nearest", 4.0)])
def test_what_was_chosen_is_a_candidate(load, name, scale):
    def change(header, nodes, arrays):
        array_of(nodes, arrays, "state", "chosen_")[0] = scale

    with pytest.raises(DamagedFileError, match="is not a candidate"):
        load(name, change)


@pytest.mark.parametrize("forge", [np.zeros_like, np.sort, lambda fold: fold + 1])
def test_folds_are_as_many_and_as_large_as_the_kernel_says(load, forge):
    def change(header, nodes, arrays):
        fold = array_of(nodes, arrays, "state", "fold_")
        fold[:] = forge(fold)

    if forge is np.sort:  # another draw of the same folds
        assert load("folds", change).predict_radius(np.zeros((1, 2))) > 0
    else:
        with pytest.raises(DamagedFileError, match="have the wrong sizes"):
            load("folds", change)


def test_there_may_be_many_folds(tmp_path):
    Z = np.linspace(0, 1, 1300)[:, None]
    kernel = TunedRBF(length_scales=[0.5, 1.0], n_folds=1200)
    made = JackknifeRescaled(kernel, random_state=0).fit(Z, Z[:, 0])
    calliper.save(made, tmp_path / "x")
    again = calliper.load(tmp_path / "x")
    assert np.array_equal(again.predict_radius(Z[:5]), made.predict_radius(Z[:5]))


@pytest.mark.parametrize("name", ["local-tuned", "learnt"])
@pytest.mark.parametrize("forge", [lambda drawn: drawn[:0], lambda drawn: np.tile(drawn, 500)])
def test_a_sample_is_drawn_without_replacement(load, name, forge):
    def change(header, nodes, arrays):
        place = state(nodes)["sample_"]["array"]
        arrays[place] = forge(arrays[place])

    with pytest.raises(DamagedFileError, match="training rows"):
        load(name, change)


def test_three_training_points_are_in_a_file_too(load):
    def change(header, nodes, arrays):
        for name in ("Z_train", "scores_train", "sample_"):
            place = state(nodes)[name]["array"]
            arrays[place] = np.arange(2, dtype="i4") if name == "sample_" else arrays[place][:2]

    with pytest.raises(DamagedFileError, match="needs 3 training rows"):
        load("local-tuned", change)


def test_an_array_read_in_another_order_has_a_renewed_hash(bases):
    data, base, has_hash = fuzz.tampered(list(bases.values()), 693169)
    assert has_hash and data != base.data


@pytest.mark.parametrize("value", [{"float": "-inf"}, ["x"], [["x"], 1, 2, 3], {"dict": []}])
@pytest.mark.parametrize("name", ["encoded", "frame"])
def test_there_is_a_name_for_each_column(load, name, value):
    with pytest.raises(DamagedFileError):
        load(name, lambda header, nodes, arrays: state(nodes).update(names=value))


@pytest.mark.parametrize("name", ["groups", "weights"])
def test_no_values_of_calibration_rows_are_remembered(load, name):
    with pytest.raises(DamagedFileError, match="a name or a function"):
        load("ridge", lambda _, nodes, arrays: state(nodes)["per_row"].update({name: {"array": 1}}))


def test_what_answers_is_a_fitted_calibrator(load):
    def unfitted(header, nodes, arrays):
        state(nodes)["calibrators"][0]["state"] = None

    def foreign(header, nodes, arrays):
        state(nodes)["on_all"] = {"brought": 0}

    for change in (unfitted, foreign):
        with pytest.raises(DamagedFileError, match=r"not fitted|not an object"):
            load("ridge", change)
    with pytest.raises(DamagedFileError, match="Split is not fitted"):
        load("split", lambda header, nodes, arrays: nodes["object"].update(state=None))


@pytest.mark.parametrize(
    ("name", "parameter"), [("learnt", "tuned"), ("refitted", "minmax"), ("bootstrap", "aggregate")]
)
def test_parameters_that_are_asked_at_the_end_are_declared(load, name, parameter):
    def change(header, nodes, arrays):
        nodes["object"]["params"][parameter] = {"array": 0}

    with pytest.raises(DamagedFileError, match=parameter):
        load(name, change)


def test_there_is_a_unit_for_each_target(load):
    def units(header, nodes, arrays):
        place = state(nodes)["score"]["params"]["units"]["array"]
        arrays[place] = np.ones(4)

    for change in (units, lambda header, nodes, arrays: state(nodes)["targets"].pop()):
        with pytest.raises(
            DamagedFileError, match=r"a unit for each target|predictions for each row"
        ):
            load("joint", change)


def test_a_score_takes_what_is_predicted(load):
    def change(header, nodes, arrays):
        ends = {"lowest": -1.0, "highest": 1.0, "beyond": 1.0, "pull": 0.0}
        state(nodes)["score"].update({"class": "ScaledError", "params": ends})

    with pytest.raises(DamagedFileError, match="3 predictions for each row"):
        load("ridge", change)


def test_predictions_without_a_spread_have_a_unit(load):
    def change(header, nodes, arrays):
        of_part = state(nodes)["parts"][1]["state"]["space"]["space"]["errors"]
        of_part["base"]["spread"]["unit"] = None

    with pytest.raises(DamagedFileError, match="needs a unit"):
        load("each", change)


def test_the_nearest_are_among_the_nearer(load):
    def change(header, nodes, arrays):
        array_of(nodes, arrays, "state", "Z")[2:] = -1

    with pytest.raises(DamagedFileError, match="nearest"):
        load("graded", change)


def test_what_the_header_asks_for_is_limited(load):
    with pytest.raises(DamagedFileError, match="columns"):
        load("ridge", lambda header, *_: header["needs"].update(columns=10**12))


def test_texts_dates_and_objects_come_back():
    values = [
        np.array(["a", "Zürich", ""]), np.array([], dtype=str), np.array("one"),
        np.array(["2024-01-01", "NaT"], dtype="M8[D]"), np.array([3, -1], dtype=">m8[ns]"),
        np.array([1, None, "x", 2.5], dtype=object), np.arange(5, dtype=">i4")[::2],
        (1, 2.5, None, True, "x"), {"a": [1, float("inf")]}, Ellipsis,
    ]  # fmt: skip
    writer = _codec.Writer()
    node = json.loads(json.dumps(writer.plain(values, "x")))
    again = _codec.Reader(writer.arrays, {}).plain(node)
    for before, after in zip(values, again, strict=True):
        assert type(before) is type(after)
        assert str(getattr(before, "tolist", lambda b=before: b)()) == str(
            getattr(after, "tolist", lambda a=after: a)()
        )


def test_the_first_two_lines_are_plain_json(tmp_path):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50, 2))
    for made in (
        Split().fit(Z, np.abs(Z[:, 0])),
        JackknifeRescaled(KNN(3)).fit(Z, np.abs(Z[:, 0])),
    ):
        calliper.save(made, tmp_path / "x")
        header, objects, _ = (tmp_path / "x").read_bytes().split(b"\n", 2)
        assert json.loads(header)["n_calibration"] == 50 and json.loads(objects)["arrays"]
