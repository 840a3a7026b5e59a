"""Files that were tampered with, by the hundred thousand: each must be refused by name.

Each number makes one file: bytes changed, its parts put together otherwise, or, mostly, a *valid*
file that was forged: numbers, types, shapes, sharing, names and nesting are others, and its hash is
right, so that the readers inside are reached. A worker process that is not allowed much memory or
time loads it and asks what it loads. Found is: another exception than ``CalliperError``, an answer
that is NaN, a crash, more than 5 seconds, more memory than allowed, anything run, imported, written
or opened on the way, an altered file that is read though its hash was not renewed, and an error
that nobody raised on purpose when what was read is asked.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import numpy as np

import calliper
import calliper.scale._device  # which is imported late, where a file names an engine
from calliper import ErrorModel
from calliper.exceptions import CalliperError
from calliper.files import _codec, _file
from cases.kept import answers, brought, forging_cases
from checks.fuzzing.machines import is_named

#: Seconds of processor time that loading and asking may each take, and bytes that they may add.
MOST_SECONDS, MOST_BYTES = 5, 400 << 20

#: Rows of a file that is large, and numbers of an array that is made so.
MANY, MOST_TILED, FEW_BYTES = 20_000, 1 << 20, 8 * 20_000

#: What must not happen while a file is read.
FORBIDDEN = ("exec", "compile", "subprocess", "os.", "socket")
FORBIDDEN += ("pickle", "marshal", "ctypes", "shutil")

#: What a refusal must not be about.
BLOWN = ("MemoryError", "RuntimeWarning", "Segmentation")

#: Values that stand where others are expected.
STRANGE = [
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**62, 2**63, 10**18, -(10**9), 10**400, 1e308, -1e308, 0.5, 1e-320,
    "", "x" * 300, "__class__", "../../etc/passwd", "inf", "core", "median", "auto", "torch:cuda:9", "cosine",
    [], {}, [[]], [1, 2, 3], {"dict": []}, {"tuple": []}, {"tuple": 3}, {"float": "nan"}, {"float": "inf"},
    {"float": "-inf"}, {"float": 3}, {"array": 0}, {"array": 1}, {"array": -1}, {"array": 10**9}, {"array": True},
    {"brought": 0}, {"brought": 7}, {"brought": True}, {"opened": ["core", 0]}, {"opened": ["whole", 3]}, {"opened": ["x", 0]},
    {"brought": "embed"}, {"brought": ["embed"]}, {"ellipsis": True}, {"date": "0000-00-00"}, {"time": "25:00"},
    {"cells": [["a", "b"], [2]]}, {"cells": [["a" * 500, ""], [2]]}, {"cells": "ab"}, {"cells": [[1, 2], [10**12]]},
    {"cells": [[], [0, 10**12]]}, {"cells": [[None], [1]]}, {"timedelta": [10**12, 0, 0]},
    {"datetime": "9999-12-31T23:59:59"}, {"dict": [[[1], 2]]}, {"dict": [[{"tuple": [1]}, 2]]}, {"nothing": 1},
    {"RandomState": [{"array": 0}, 0, 0, 0.0]}, {"RandomState": [{"array": 0}, 10**6, 0, 0.0]}, {"RandomState": 7}, {"dict": [[k * (2**61 - 1), 0] for k in range(4)]},
]  # fmt: skip
COLUMN_TYPES = ["S2000000000", "datetime64[ns, dateutil//etc/passwd]", "Sparse[S2000000000, b'']"]
COLUMN_TYPES += [
    "Array",
    "Struct",
    "List",
    "Decimal",
    "Enum",
    "object",
    "U9",
    "period[D]",
    "category",
]
CLASSES = [name for module in _codec.CLASSES for name in _codec.classes_of(module)]
CLASSES += ["Tree", "RandomForestRegressor", "Pipeline", "os:system", "builtins:eval"]
CLASSES += ["", 7, None, ["Split"]]
NUMBERS = [0, 1, -1, -2, 2, 3, 7, 255, 2**15, 2**30, 2**31 - 1, -(2**31), 2**62]
NUMBERS += [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e-300, 0.5]
TYPES = ["bool", "int8", "int32", "int64", "uint8", "uint32", "float16", "float32", "float64"]
TYPES += ["complex128", "M8[ns]", "U4"]


class Base:
    """A good file, taken apart."""

    def __init__(self, name, case, folder):
        self.name, self.case = name, case
        self.before = answers(case.made, case.X, case.asked)
        path = folder / f"{name}.calliper"
        calliper.save(case.made, path)
        self.data = path.read_bytes()
        self.members = members_of(self.data)
        self.nodes = _file.read(path).nodes
        self.texts = [json.dumps(each) for each in (_file.read(path).header, self.nodes)]
        self.arrays = _file.read(path).arrays
        self.brought = brought(case.made)

    def parts(self):
        """Header, nodes and arrays of their own, to be changed."""
        header, nodes = (json.loads(each) for each in self.texts)
        return header, nodes, [array.copy() for array in self.arrays]


def members_of(data):
    """The parts of a file, by name."""
    first = data.index(b"\n")
    second = data.index(b"\n", first + 1)
    numbers = second + 1 + -(second + 1) % _file.ALIGNED
    parts = data[:first], data[first + 1 : second], data[numbers : -_file.HASH], data[-_file.HASH :]
    return dict(zip(("header", "object", "numbers", "hash"), parts, strict=True))


def joined(members):
    """The parts as a file."""
    text = members.get("header", b"") + b"\n" + members.get("object", b"") + b"\n"
    text += bytes(-len(text) % _file.ALIGNED)
    return text + members.get("numbers", b"") + members.get("hash", b"")


def rehashed(members):
    """The file with a hash that is right."""
    data = joined({**members, "hash": b""})
    return data + sha256(data).digest()


def raw(base, rng):
    """Bytes changed, cut off, repeated or blanked."""
    data = bytearray(base.data)
    how = rng.randrange(6)
    if how == 0:
        for _ in range(rng.choice([1, 1, 1, 2, 5, 30])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(len(data)) :]
    elif how == 2:
        start = rng.randrange(len(data))
        del data[start : start + rng.choice([1, 4, 100])]
    elif how == 3:
        start = rng.randrange(len(data))
        data[start:start] = rng.randbytes(rng.choice([1, 8, 200]))
    elif how == 4:  # the directory at the end, where sizes are
        start = len(data) - rng.randrange(1, 900)
        data[start : start + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, rng.randbytes(4)])
    else:
        start, length = rng.randrange(len(data)), rng.choice([1, 16, 512])
        data[start : start + length] = bytes(length)
    return bytes(data)


def members_changed(base, rng):
    """Parts swapped, dropped, repeated, inflated, and a table of arrays that says otherwise."""
    members = dict(base.members)
    name, other = rng.choice(list(members)), rng.choice(list(members))
    how = rng.randrange(5)
    if how == 0:
        members[name], members[other] = members[other], members[name]
    elif how == 1:
        del members[name]
    elif how == 2:
        members[name] += rng.choice([members[name], members[other], b"\n", b"\0" * 64])
    elif how == 3:
        members[name] = bytes(rng.choice([1 << 10, 1 << 20, 1 << 24]))
    else:  # an array that says it is another
        whole = json.loads(members["object"])
        entry = rng.choice(whole["arrays"] or [["f8", [1], "C"]])
        place = rng.randrange(3)
        others = ["O", "f4", "<f8", "U9", "M8[ns]", "M8[9Y]", "U99999999", None]
        entry[place] = rng.choice([*others, [9], [-1], [2**40], "F", 7])
        members["object"] = json.dumps(whole).encode()
        return rehashed(members)
    return joined(members)


def nodes_of(graph):
    """All places in a graph: (container, key)."""
    found, stack = [], [graph]
    while stack:
        here = stack.pop()
        keys = here if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                stack.append(here[key])
    return found


def forged(base, rng):
    """A file whose hash is right, and that says something else."""
    header, nodes, arrays = base.parts()
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        # Nothing is left to be changed so, or a number does not fit.
        with suppress(LookupError, RuntimeError, TypeError, ValueError, OverflowError):
            rng.choices(FORGERIES, FORGED)[0](header, nodes, arrays, rng)
    return packed(header, nodes, arrays)


def packed(header, nodes, arrays):
    """The bytes of a file that holds this."""
    target = io.BytesIO()
    _file._write(target, _file.Contents(header, nodes, arrays))
    return target.getvalue()


def _numbers(header, nodes, arrays, rng):
    """A few numbers of an array are others, or all of them."""
    array = arrays[rng.randrange(len(arrays))]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number = np.float64(rng.choice(NUMBERS)).astype(array.dtype)
        flat = array.reshape(-1)
        for _ in range(rng.choice([1, 1, 3, 50])):
            flat[rng.randrange(array.size)] = number
        if rng.random() < 0.1:
            flat[:] = number
        elif rng.random() < 0.1:
            flat[:] = flat[::-1].copy()


def _arrays(header, nodes, arrays, rng):
    """An array of another type, shape, length or order, or another's place."""
    place, other = rng.randrange(len(arrays)), rng.randrange(len(arrays))
    array, how = arrays[place], rng.randrange(7)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == 0:
            arrays[place] = array.astype(rng.choice(TYPES))
        elif how == 1:
            arrays[place], arrays[other] = arrays[other], array
        elif how == 2:
            arrays[place] = array[: rng.randrange(len(array) + 1)]
        elif how == 3:
            arrays[place] = np.concatenate([array, array])
        elif how == 4:
            arrays[place] = rng.choice([array.reshape(-1), array.T, array[None], array[..., None]])
        elif how == 5:
            arrays[place] = rng.choice(
                [array[:0], np.zeros((0, 7)), np.zeros(()), np.asfortranarray(array)]
            )
        else:
            arrays.append(arrays[other])


def _node(header, nodes, arrays, rng):
    """A node is another, strange one, or one of those elsewhere."""
    here, key = rng.choice(nodes_of(nodes))
    there, other = rng.choice(nodes_of(nodes))
    here[key] = deepcopy(rng.choice([rng.choice(STRANGE), there[other]]))


def _number_of_node(header, nodes, arrays, rng):
    """A number of the manifest is another."""
    numbers = [
        (here, key) for here, key in nodes_of(nodes) if type(here[key]) in (int, float, bool)
    ]
    here, key = rng.choice(numbers)
    twice = here[key] * 2 if abs(here[key]) < 1e300 else 1e308  # JSON has no infinity
    here[key] = rng.choice(
        [0, 1, -1, 2, here[key] + 1, twice, 10**6, 2**31, 1e300, 0.5, True, None, "1"]
    )


def _sharing(header, nodes, arrays, rng):
    """An array is named by many."""
    named = [(here, key) for here, key in nodes_of(nodes) if key == "array"]
    here, key = rng.choice(named)
    number = here[key] if type(here[key]) is int else 0
    for there, other in rng.sample(named, rng.randrange(1, len(named) + 1)):
        there[other] = number
    if rng.random() < 0.3:
        grown, place = rng.choice(nodes_of(nodes))
        grown[place] = [{"array": number} for _ in range(rng.choice([20, 2000]))]


def _name(header, nodes, arrays, rng):
    """A class, or the name of a parameter, is another; names are there more or less."""
    places = nodes_of(nodes)
    named = [(here, key) for here, key in places if key == "class"]
    how = rng.randrange(4)
    if how <= 1:
        here, key = rng.choice(named)
        here[key] = rng.choice(CLASSES)
        return
    here, key = rng.choice([each for each in places if isinstance(each[0], dict)])
    if how == 2:
        here[rng.choice(["array", "dict", "__init__", "predict", "state", "x"])] = here.pop(key)
    else:
        here.pop(key)


def _nesting(header, nodes, arrays, rng):
    """Something is nested deeply, or a list is longer, shorter or turned round."""
    here, key = rng.choice(nodes_of(nodes))
    if isinstance(here, list):
        more = json.loads(json.dumps(here[:50]))
        rng.choice([here.reverse, here.clear, lambda: here.extend(more)])()
    for _ in range(rng.choice([1, 50, 900])):
        here[key] = rng.choice([[here[key]], {"tuple": [here[key]]}])


def _head(header, nodes, arrays, rng):
    """The header says something else."""
    here, key = rng.choice(nodes_of(header))
    here[key] = deepcopy(rng.choice(STRANGE))  # which may be changed in its turn


def _emptied(header, nodes, arrays, rng):
    """No rows are there to ask a model about, and something else is null."""
    nodes["probe"] = {"dict": [["rows", None], ["said", {"dict": []}]]}
    here, key = rng.choice(nodes_of(nodes["object"]))
    here[key] = None if isinstance(key, str) else here[key]


def _many(header, nodes, arrays, rng):
    """Many rows: all that there are of the calibration rows, or of all rows, are tiled.

    Then each row may be a little off its copies, and optional arrays are null, or numbers large.
    """
    lengths = [len(array) for array in arrays if array.ndim and 8 <= len(array) <= 400]
    wanted = {rng.choice(lengths)} if rng.random() < 0.5 else {*lengths}
    apart = rng.choice([0.0, 1e-9, 0.1])
    for place, array in enumerate(arrays):
        for axis, size in enumerate(array.shape[:2]):
            if size in wanted and array.size * (MANY // size) <= MOST_TILED:
                array = np.repeat(array, MANY // size, axis=axis)  # as many of each, side by side
        if array.shape != arrays[place].shape and array.dtype.kind == "f" and array.ndim == 2:
            array = array + apart * np.random.default_rng(place).random(array.shape)
        arrays[place] = array
    optional = [(here, key) for here, key in nodes_of(nodes["object"]) if str(key).endswith("_")]
    for here, key in optional:
        if rng.random() < 0.2:
            here[key] = None
    whole = [(here, key) for here, key in nodes_of(nodes["object"]) if type(here[key]) is int]
    for here, key in whole:
        if key not in ("array", "brought") and isinstance(key, str) and rng.random() < 0.3:
            here[key] = 10**6


def retyped(nodes, kind, name):
    """Columns of the rows that are remembered, in a frame of this kind, have a type of this name."""
    frame = dict(nodes["probe"]["dict"])["rows"]["dict"]
    for pair in frame:
        pair[1] = kind if pair[0] == "kind" else pair[1]
    for column in dict(frame)["columns"]:
        (pairs,) = column.values()
        pairs[:] = [pair for pair in pairs if pair[0] != "type"] + [["type", name]]


def _types(header, nodes, arrays, rng):
    """Columns of a frame have a strange type, or one that does not fit."""
    fit = [
        "Int8",
        "Float32",
        "boolean",
        "Boolean",
        "string",
        "String",
        "Date",
        "Categorical",
        "Null",
    ]
    fit += ["Sparse[int64, nan]", "timestamp[ns][pyarrow]", "date32[day][pyarrow]", "x[pyarrow]"]
    retyped(nodes, rng.choice(["pandas", "polars"]), rng.choice([*COLUMN_TYPES, *fit]))


def _transplanted(header, nodes, arrays, rng):
    """A parameter is an object of some class, perhaps inside others."""
    node = deepcopy(rng.choice(GIVEN))
    for _ in range(rng.choice([0, 0, 1, 18])):
        outer = deepcopy(rng.choice([each for each in GIVEN if each["params"]]))
        outer["params"][rng.choice([*outer["params"]])], node = node, outer
    places = [here["params"] for here, key in nodes_of(nodes) if key == "params" and here[key]]
    params = rng.choice(places)
    params[rng.choice([*params])] = node


def _given():
    """Nodes of objects of every class that needs no parameters, not fitted."""
    for name in CLASSES:
        with suppress(TypeError, AttributeError, CalliperError):
            yield _codec.Writer().record(_codec.class_named(name)())


GIVEN = [*_given()]
FORGERIES = (_numbers, _arrays, _node, _number_of_node, _sharing, _name, _nesting, _head)
FORGERIES += (_emptied, _transplanted, _types, _many)
FORGED = (6, 4, 4, 4, 2, 2, 1, 1, 3, 2, 1, 2)


WAYS = {raw: 1, members_changed: 1, forged: 8}


def tampered(bases, number):
    """The file of a number, what it was made from, and whether its hash is right."""
    rng = random.Random(number)
    base = bases[number % len(bases)]
    way = rng.choices(list(WAYS), list(WAYS.values()))[0]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # nested deeper than a reader may go
    try:
        data = way(base, rng)
        return data, base, sha256(data[: -_file.HASH]).digest() == data[-_file.HASH :]
    finally:
        sys.setrecursionlimit(limit)


#: How ``inspect`` parses the signature that a built-in method has as text; to run it is "exec".
OF_A_BUILTIN = (b"def foo(self, *args, **kwargs): pass", "<unknown>")


class Watch:
    """What Python reports while it is on: anything run, imported, written, connected."""

    def __init__(self):
        self.on, self.seen, self.path = False, [], ""
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)) or "w" in str(
                mode
            )
            asks_the_machine = str(path).startswith(("/sys/", "/proc/"))  # how many cores it has
            if writes or (str(path) != self.path and not asks_the_machine):
                self.seen.append(f"open {str(path)[:60]}")
        elif (event, arguments) == ("compile", OF_A_BUILTIN):
            return
        elif event == "import" or event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {str(arguments)[:80]}")


def examine(bases, number, path, watch):
    """What is wrong with how one file is met; '' if nothing is, and how it ended."""
    data, base, has_hash = tampered(bases, number)
    path.write_bytes(data)
    resource.setrlimit(resource.RLIMIT_AS, (_used() + MOST_BYTES, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    watch.seen, watch.path, watch.on = [], str(path), True
    try:
        made = calliper.load(path, base.case.model, bring=base.brought)
    except CalliperError as error:
        wrong = next((each for each in BLOWN if each in str(error)), "")
        return wrong, f"refused {type(error).__name__}"
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"{type(error).__name__} {error!s:.80} {Path(at.filename).name}:{at.lineno}",
            "raised",
        )
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    if not has_hash:
        return "read without its hash", "raised"
    if len(data) > FEW_BYTES:
        return "", "many rows read"  # what is asked of them may be compared pair by pair
    try:
        found = answers(made, base.case.X, base.case.asked)
        calliper.save(made, path)
    except Exception as error:
        if is_named(error):  # such as rows of another width
            return "", f"asked {type(error).__name__}"
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        return f"asked {type(error).__name__} {error!s:.80} {where}", "raised"
    if np.isnan(found).any():
        return "NaN", "raised"
    same = found.shape == base.before.shape and np.array_equal(found, base.before, equal_nan=True)
    return "", "same" if same else "other"


def _used():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def examine_alone(bases, path, watch, number):
    """What is wrong with how one file is met, in a process that is watched; and how it ended."""
    try:
        wrong, ended = examine(bases, number, path, watch)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return (f"{wrong} {watch.seen[0]}" if watch.seen else wrong), ended


def good_files(folder):
    """Files that are tampered with."""
    with suppress(ImportError):
        import polars  # noqa: F401 (a kind of frame, or an engine, may be named, and is imported)
        import torch  # noqa: F401
    few = {"shift_trees": (5,), "side_trees": 5}  # small files are read sooner
    ErrorModel.__init__.__kwdefaults__.update(few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bases = [Base(name, case, folder) for name, case in forging_cases().items()]
        for base in bases:  # whatever is imported late is there when files are watched
            path = folder / f"{base.name}.calliper"
            again = calliper.load(path, base.case.model, bring=base.brought)
            assert np.array_equal(answers(again, base.case.X, base.case.asked), base.before)
    return bases
