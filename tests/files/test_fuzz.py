"""Files that say what they should not: each refused by name; see ``checks/fuzzing/files.py``."""

import io
import json
import zipfile

import numpy as np
import pytest

import calliper
from calliper import KNN, JackknifeRescaled, Split
from calliper._trees import packed, unpacked
from calliper.calibrators import LoCart
from calliper.exceptions import CalliperError, DamagedFileError
from calliper.files import _classes, _file
from cases.trees import with_few_trees
from checks.fuzzing import files as fuzz


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        with_few_trees(patch, (5,), 5)
        return fuzz.good_files(tmp_path_factory.mktemp("good"))


def test_every_bit_of_the_contents_counts(bases, tmp_path):
    base = next(each for each in bases if each.name == "split")
    path = tmp_path / "x"
    start = base.data.index(b'{"format"')
    for place in range(start, start + 300, 7):
        path.write_bytes(base.data[:place] + bytes([base.data[place] ^ 4]) + base.data[place + 1 :])
        with pytest.raises(DamagedFileError):
            calliper.load(path)


def forged(base, tmp_path, change):
    """The path of a file whose header, graph or arrays were changed, under a right hash."""
    header, whole, arrays = base.parts()
    change(header, whole, arrays)
    path = tmp_path / "forged.calliper"
    path.write_bytes(fuzz.rehashed(fuzz._members(header, whole, arrays)))
    return path


def one(bases, name):
    return next(each for each in bases if each.name == name)


def test_attributes_may_not_hide_methods(bases, tmp_path):
    for name in ("predict_radius", "__class__", "_radius"):

        def change(header, whole, arrays, name=name):
            _, state = whole["graph"]["objects"][0]
            state["dict"].append([name, {"float": "inf"}])

        with pytest.raises(DamagedFileError, match="hide what it does"):
            calliper.load(forged(one(bases, "split"), tmp_path, change))


def test_a_text_type_cannot_ask_for_memory(bases, tmp_path):
    def change(header, whole, arrays):
        node = {"texts": {"array": 0}, "type": "U1000000000"}
        whole["graph"]["objects"][0][1]["dict"].append(["words", node])

    with pytest.raises(DamagedFileError):
        calliper.load(forged(one(bases, "split"), tmp_path, change))


@pytest.mark.parametrize("shape", [[2**31, 2**31], [0, 2**40], [-1], [2**63], ["3"], [True]])
def test_shapes_that_are_not_there(bases, tmp_path, shape):
    def change(header, whole, arrays):
        whole["arrays"][0][2] = shape

    with pytest.raises(DamagedFileError):
        calliper.load(forged(one(bases, "split"), tmp_path, change))


def test_many_references_to_one_object_are_one_object(bases, tmp_path):
    def change(header, whole, arrays):
        objects = whole["graph"]["objects"]
        for level in range(60):  # 2⁶⁰ objects, were each reference a copy
            pair = [{"object": len(objects) + 1}] * 2 if level < 59 else []
            objects.append(["Span", {"dict": [["pair", {"tuple": pair}]]}])
        objects[0][1]["dict"].append(["extra", {"object": len(objects) - 60}])

    calliper.load(forged(one(bases, "split"), tmp_path, change))


@pytest.mark.parametrize("left", [0, -2, -(2**40), 10**6])
def test_nodes_that_compiled_code_would_follow(left):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 2))
    made = LoCart(min_leaf=5).fit(Z, np.abs(Z[:, 0]), training=(Z + 1, np.abs(Z[:, 1])))
    columns = packed([made.tree_.tree_])
    (again,) = unpacked({name: each.copy() for name, each in columns.items()})
    assert np.array_equal(again.apply(Z.astype(np.float32)), made.tree_.apply(Z))
    for place in (0, len(columns["left_child"]) - 1):
        wrong = {name: each.copy() for name, each in columns.items()}
        wrong["left_child"][place] = left
        with pytest.raises(CalliperError, match=r"node of a tree|neither a leaf"):
            unpacked(wrong)


@pytest.mark.parametrize("name", ["n_outputs", "n_values", "max_depth", "node_count", "n_features"])
@pytest.mark.parametrize("number", [-1, 2**31, 2**33, 2**62, 0])
def test_sizes_of_trees(name, number):
    Z = np.random.default_rng(0).normal(size=(60, 2))
    made = LoCart(min_leaf=5).fit(Z, np.abs(Z[:, 0]), training=(Z + 1, np.abs(Z[:, 1])))
    columns = packed([made.tree_.tree_])
    columns[name] = np.array([number])
    if (name, number) in (("n_features", 2**31), ("max_depth", 0)):
        unpacked(columns)  # more columns, or a depth that nobody reads, do no harm here
        return
    with pytest.raises(CalliperError):
        unpacked(columns)


def test_trees_that_ask_for_columns_that_rows_need_not_have(bases, tmp_path):
    for found, lost in (("locart", "n_features_in_"), ("boosted", "n_features_in_")):

        def change(header, whole, arrays, lost=lost):
            for kind, state in whole["graph"]["objects"]:
                if str(kind).startswith("sklearn:") and "dict" in state:
                    state["dict"] = [pair for pair in state["dict"] if pair[0] != lost]

        with pytest.raises(DamagedFileError, match="columns"):
            calliper.load(forged(one(bases, found), tmp_path, change))


def test_boosting_must_write_where_there_is_room(bases, tmp_path):
    def change(header, whole, arrays):
        for kind, state in whole["graph"]["objects"]:
            if kind == "sklearn:DummyRegressor":
                state["dict"] = [[k, 0 if k == "n_outputs_" else v] for k, v in state["dict"]]

    with pytest.raises(DamagedFileError, match="start from a constant"):
        calliper.load(forged(one(bases, "boosted"), tmp_path, change))


def test_a_generator_is_somewhere_in_its_sequence():
    rng = np.random.RandomState(0)
    kind, key, _, *rest = rng.get_state()
    for wrong in (-1, 625, 10**9, 1.5, None):
        with pytest.raises(DamagedFileError):
            _classes._random_state((kind, key, wrong, *rest))
    philox = np.random.Philox(0).state
    with pytest.raises(DamagedFileError):
        _classes._generator({**philox, "buffer_pos": -3})


def test_jobs_are_limited(bases, tmp_path):
    def change(header, whole, arrays):
        for kind, state in whole["graph"]["objects"]:
            if kind == "sklearn:RandomForestRegressor":
                state["dict"] = [[k, 10**6 if k == "n_jobs" else v] for k, v in state["dict"]]

    with pytest.raises(DamagedFileError, match="1000000 jobs"):
        calliper.load(forged(one(bases, "proximity"), tmp_path, change))


def test_what_the_header_asks_for_is_limited(bases, tmp_path):
    base = one(bases, "ridge")
    path = forged(base, tmp_path, lambda header, *_: header["needs"].update(columns=10**12))
    with pytest.raises(DamagedFileError, match="columns"):
        calliper.load(path, base.case.model)


def test_a_bomb_is_not_unfolded(tmp_path):
    path, target = tmp_path / "x", io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_file.HEADER, json.dumps({"format": 1}))
        archive.writestr(_file.OBJECT, bytes(10**8))
        archive.writestr(_file.HASH, "")
    path.write_bytes(target.getvalue())
    with pytest.raises(DamagedFileError, match="does not belong"):
        calliper.load(path)


def test_texts_and_dates_of_arrays_come_back(tmp_path):
    from calliper.files._graph import GraphReader, GraphWriter

    arrays = [
        np.array(["a", "Zürich", ""]), np.array([[b"x", b"yz"]]), np.array([], dtype=str),
        np.array(["ab", "c"], dtype=">U5")[::-1], np.zeros(2, dtype="U0"),
        np.array(["2024-01-01", "NaT"], dtype="M8[D]"), np.array([3, -1], dtype=">m8[ns]"),
        np.array([1, None, "x", 2.5], dtype=object), np.array("one"),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(5, dtype=">i4")[::2],
    ]  # fmt: skip
    writer = GraphWriter()
    node = writer.node(arrays)
    path = tmp_path / "x"
    _file.write(path, _file.Contents({"format": 1}, node, writer.arrays))
    contents = _file.read(path)
    again = GraphReader([], contents.arrays, [], {}).value(contents.graph)
    for before, after in zip(arrays, again, strict=True):
        assert before.shape == after.shape and before.dtype.kind == after.dtype.kind
        assert str(before.tolist()) == str(after.tolist())


def test_what_is_kept_is_small_and_apart(tmp_path):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50, 2))
    for made in (
        Split().fit(Z, np.abs(Z[:, 0])),
        JackknifeRescaled(KNN(3)).fit(Z, np.abs(Z[:, 0])),
    ):
        calliper.save(made, tmp_path / "x")
        with np.load(tmp_path / "x", allow_pickle=False) as arrays:
            assert "float64" in arrays and arrays["float64"].size
