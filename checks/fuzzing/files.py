"""Files that were tampered with, by the hundred thousand: each must be refused by name.

Each number makes one file: bytes changed, the zip rebuilt with other members, or the contents
changed in a way that has a meaning and the hash computed anew, so that the readers inside are
reached. A worker process that is not allowed much memory or time loads it and asks what it loads.
Found is: another exception than ``CalliperError``, a crash, more than 5 seconds, more memory than
allowed, anything run, imported, written or opened on the way, and an altered file whose hash was
not renewed that is read otherwise than it was saved.
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
import zipfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

import calliper
from calliper.exceptions import CalliperError
from calliper.files import _file
from calliper.space import ErrorModel
from cases.kept import answers, small_cases

#: Seconds of processor time that loading and asking may each take, and bytes that they may add.
MOST_SECONDS, MOST_BYTES = 5, 400 << 20

#: What must not happen while a file is read.
FORBIDDEN = (
    "exec",
    "compile",
    "subprocess",
    "os.",
    "socket",
    "pickle",
    "marshal",
    "ctypes",
    "shutil",
)
#: What reading the file itself, and a clock, are reported as.
HARMLESS = ("os.fwalk",)

#: Values that stand where others are expected.
STRANGE = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**18, -(10**9), 10**400, 1e308, float("nan"), 0.5, "", "x" * 300,
    "__class__", "../../etc/passwd", "inf", [], {}, [[]], {"dict": []}, {"tuple": []}, {"float": "nan"},
    {"float": "inf"}, {"object": 0}, {"object": 1}, {"object": 10**6}, {"object": -1}, {"array": 0},
    {"array": 1}, {"array": -1}, {"array": 10**9}, {"scalar": {"array": 0}}, {"model": 0}, {"model": 7},
    {"opened": "core", "of": 0}, {"opened": "whole", "of": 3}, {"constant": "MEMBERS"},
    {"constant": "os"}, {"method": [{"model": 0}, "predict"]}, {"method": [{"object": 0}, "to"]},
    {"method": [{"object": 0}, "__class__"]}, {"method": ["", "predict"]}, {"trusted": "os:system"},
    {"texts": {"array": 0}, "type": "U"}, {"texts": {"array": 1}, "type": "U1000000000"},
    {"times": {"array": 0}, "type": "<M8[ns]"}, {"times": {"array": 0}, "type": "<M8[99999999Y]"},
    {"cells": [1, 2], "shape": [10**12]}, {"cells": [], "shape": [0, 10**12]},
    {"slice": [0, 10**18, 1]}, {"slice": [1]}, {"timedelta": [10**12, 0, 0]}, {"date": "0000-00-00"},
    {"datetime": "9999-12-31T23:59:59"}, {"set": [[1]]}, {"frozenset": [{"array": 0}]},
    {"ellipsis": True}, {"dict": [["__class__", 1]]}, {"dict": [[[1], 2]]}, {"nothing": 1},
]  # fmt: skip
CLASSES = [
    "Tree", "TreePredictor", "loss", "RandomState", "Generator", "sparse", "PredictionAndSpread",
    "IsotonicRegression", "NeighborSearch", "BoostedTrees", "Split", "LoCart", "ConformalRegressor",
    "sklearn:DecisionTreeRegressor", "sklearn:GradientBoostingRegressor", "sklearn:PCA",
    "sklearn:OneHotEncoder", "sklearn:RandomForestRegressor", "sklearn:HistGradientBoostingRegressor",
    "os:system", "builtins:eval", "subprocess:Popen", "", 7, None, ["Split"],
]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    -2,
    2,
    7,
    255,
    2**15,
    2**31 - 1,
    -(2**31),
    2**62,
    float("nan"),
    float("inf"),
    1e300,
    0.5,
]


class Base:
    """A good file, taken apart."""

    def __init__(self, name, case, folder):
        self.name, self.case = name, case
        self.before = answers(case.made, case.X, case.asked)
        path = folder / f"{name}.calliper"
        calliper.save(case.made, path)
        self.data = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            self.members = {each: archive.read(each) for each in archive.namelist()}
        self.arrays = {
            each.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(data))
            for each, data in self.members.items()
            if each.endswith(".npy")
        }

    def parts(self):
        """Header, graph and arrays of their own, to be changed."""
        header, whole = (json.loads(self.members[name]) for name in (_file.HEADER, _file.OBJECT))
        return header, whole, {name: array.copy() for name, array in self.arrays.items()}


def zipped(members, compress=zipfile.ZIP_STORED, extra=()):
    """A zip of (name, bytes), which may be told to be compressed, and have what else it likes."""
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w") as archive:
        warnings.simplefilter("ignore")
        for place, (name, data) in enumerate(members):
            info = zipfile.ZipInfo(name)
            if place in extra:
                info.external_attr, info.create_system = 0o120777 << 16, 3  # a symbolic link
            archive.writestr(info, data, compress_type=compress if place in extra else None)
    return target.getvalue()


def rehashed(members):
    """The zip with a hash that is right."""
    total, kept = sha256(), {name: data for name, data in members.items() if name != _file.HASH}
    for name in (each for each in _file.ORDER if each in kept):
        total.update(name.encode())
        total.update(kept[name])
    return zipped([*kept.items(), (_file.HASH, total.hexdigest().encode())])


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
    """Members swapped, dropped, repeated, renamed, compressed, linked, declared to be huge."""
    members = list(base.members.items())
    place, other = rng.randrange(len(members)), rng.randrange(len(members))
    name, data = members[place]
    how = rng.randrange(8)
    if how == 0:
        members[place], members[other] = (name, members[other][1]), (members[other][0], data)
    elif how == 1:
        del members[place]
    elif how == 2:
        members.append((name, rng.choice([data, members[other][1], b""])))
    elif how == 3:
        climbing = [
            "../" * 8 + "tmp/x",
            "/tmp/x",
            "C:\\x",
            name.upper(),
            name + "\0",
            "x" * 60000,
            "",
        ]
        members[place] = rng.choice(climbing), data
    elif how == 4:
        bomb = bytes(rng.choice([1 << 10, 1 << 20, 1 << 24]))
        members[place] = name, rng.choice([bomb, data])
        kind = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
        return zipped(members, kind, {place})
    elif how == 5:
        return zipped(members, extra={place})
    elif how == 6:  # flags, sizes and offsets in the directory
        whole = bytearray(zipped(members))
        entry = whole.find(b"PK\x01\x02", rng.randrange(len(whole)))
        entry = whole.find(b"PK\x01\x02") if entry < 0 else entry
        field, value = rng.choice([(8, 1), (8, 0xFFFF), (10, 8), (20, 2**31), (24, 2**31), (24, 2**32 - 1),
                                   (42, 2**31), (42, 0), (28, 0xFFFF), (30, 0xFFFF)])  # fmt: skip
        n = 2 if field in (8, 10, 28, 30) else 4
        whole[entry + field : entry + field + n] = value.to_bytes(n, "little")
        return bytes(whole)
    else:  # an array that says it is another
        for each, content in members:
            if each.endswith(".npy") and rng.random() < 0.5:
                said = content.replace(b"'shape': (", b"'shape': (9", 1).replace(b" \n", b"\n", 1)
                options = [
                    said,
                    content.replace(b"<", b">", 1),
                    content.replace(b"'<f8'", b"'|O8'"),
                ]
                return rehashed({**base.members, each: rng.choice(options)})
    return zipped(members)


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


def meaning_changed(base, rng):
    """Contents that say something else, under a hash that is right."""
    header, whole, arrays = base.parts()
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        with suppress(LookupError, TypeError):  # nothing is left where this would change it
            _change(header, whole, arrays, rng)
    return rehashed(_members(header, whole, arrays))


def _change(header, whole, arrays, rng):
    how = rng.randrange(10)
    if how <= 2:
        here, key = rng.choice(nodes_of(whole["graph"]))
        there, other = rng.choice(nodes_of(whole["graph"]))
        value = rng.choice([rng.choice(STRANGE), there[other]])
        here[key] = json.loads(json.dumps(value))
    elif how == 3:
        objects = whole["graph"].get("objects") if isinstance(whole["graph"], dict) else None
        if isinstance(objects, list) and objects:
            each = rng.choice(objects)
            if isinstance(each, list) and each:
                each[0] = rng.choice(CLASSES)
    elif how == 4:
        table = whole["arrays"]
        entry, other = rng.choice(table), rng.choice(table)
        place = rng.randrange(4)
        options = [
            other[place],
            rng.choice(STRANGE),
            [2**31, 2**31],
            [0, 2**60],
            [1] * 70,
            "F",
            "float64",
        ]
        entry[place] = rng.choice(options)
    elif how == 5 and len(whole["arrays"]) > 1:
        table = whole["arrays"]
        i, j = rng.randrange(len(table)), rng.randrange(len(table))
        table[i], table[j] = table[j], table[i]
    elif how in (6, 7) and arrays:
        array = arrays[rng.choice(list(arrays))]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(rng.choice([1, 3, 50]) if array.size else 0):
                number = np.float64(rng.choice(NUMBERS)).astype(array.dtype)
                array[rng.randrange(array.size)] = number
    elif how == 8:
        here, key = rng.choice(nodes_of(header))
        here[key] = rng.choice(STRANGE)
    else:
        here, key = rng.choice(nodes_of(whole))
        deep = rng.choice([50, 900, 3000])
        if rng.random() < 0.1:
            for _ in range(deep):
                here[key] = rng.choice([[here[key]], {"tuple": [here[key]]}])
        elif isinstance(here, list):
            rng.choice([here.reverse, here.clear, lambda h=here: h.extend(h[:50])])()
        elif isinstance(here, dict):
            here[rng.choice(["object", "array", "dict", "__init__", "predict"])] = here.pop(key)


def _members(header, whole, arrays):
    texts = [json.dumps(each).encode() for each in (header, whole)]
    members = dict(zip((_file.HEADER, _file.OBJECT), texts, strict=True))
    for name, array in arrays.items():
        members[f"{name}.npy"] = b"".join(_file._npy(name, [array]))
    return members


WAYS = {raw: 3, members_changed: 2, meaning_changed: 5}


def tampered(bases, number):
    """The file of a number, what it was made from, and whether its hash was renewed."""
    rng = random.Random(number)
    base = bases[number % len(bases)]
    way = rng.choices(list(WAYS), list(WAYS.values()))[0]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # nested deeper than a reader may go
    try:
        return way(base, rng), base, way is not meaning_changed
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
    data, base, as_saved = tampered(bases, number)
    path.write_bytes(data)
    resource.setrlimit(resource.RLIMIT_AS, (_used() + MOST_BYTES, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    watch.seen, watch.path, watch.on = [], str(path), True
    try:
        made = calliper.load(path, base.case.model)
    except CalliperError as error:
        memory = as_saved and "MemoryError" in str(error)
        return ("memory" if memory else ""), f"refused {type(error).__name__}"
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"{type(error).__name__} {error!s:.80} {Path(at.filename).name}:{at.lineno}",
            "raised",
        )
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        found = answers(made, base.case.X, base.case.asked)
    except Exception as error:
        return ("cannot be asked" if as_saved else ""), f"asked {type(error).__name__}"
    same = found.shape == base.before.shape and np.array_equal(found, base.before, equal_nan=True)
    return ("read otherwise" if as_saved and not same else ""), "same" if same else "other"


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
    few = {"shift_trees": (5,), "side_trees": 5}  # small files are read sooner
    ErrorModel.__init__.__kwdefaults__.update(few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bases = [Base(name, case, folder) for name, case in small_cases().items()]
        for base in bases:  # whatever is imported late is there when files are watched
            path = folder / f"{base.name}.calliper"
            again = calliper.load(path, base.case.model)
            assert np.array_equal(answers(again, base.case.X, base.case.asked), base.before)
    return bases
