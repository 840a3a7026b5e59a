"""An object as names and numbers, and back: attributes of known classes, and nothing that runs.

What an object is made of becomes a *node*: numbers, texts and None as they are, and

    {"tuple": […]}  {"dict": [[key, value], …]}  {"set": […]}  {"float": "inf"}  {"slice": […]}
    {"array": 3}    {"scalar": 3}                  an array of the file, or its one number
    {"texts": 3, "type": "U"} {"times": 3, "type": …}  an array of the file, read as texts or dates
    {"cells": […], "shape": […]}                   an array of objects
    {"object": 7}                                  the 7th of the table of objects
    {"model": 0}    {"opened": …}                  the user's model, which is not in the file
    {"constant": "MEMBERS"}  {"method": […]}       what a known module has by that name
    {"trusted": "module:name"}                     a function that the reader must name

and the table holds, of each object, its class and its attributes. An object that several others
share is there once. Reading makes an empty object of the class and gives it the attributes: no
constructor runs, and a class is found by its name in a list, never by importing what a file says.
"""

from __future__ import annotations

import copyreg
import datetime
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from inspect import getattr_static
from types import BuiltinFunctionType, EllipsisType, FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper.exceptions import CannotSaveError, DamagedFileError
from calliper.files._classes import (
    CONSTANTS,
    METHODS,
    SPECIAL,
    class_named,
    constant,
    flaw,
    full_name,
    name_of_class,
    name_of_constant,
    special_name,
)
from calliper.files._file import NUMBERS
from calliper.models import OpenedModel, open_model, unwrapped

#: What may stand in a node as it is.
PLAIN = (bool, int, str)

#: Kinds of texts, and the numbers that their signs are.
TEXTS = {"U": np.uint32, "S": np.uint8}

#: Types of dates and of spans of time.
TIMES = frozenset(
    f"<{kind}8[{unit}]"
    for kind in "mM"
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
)

#: The attribute that has a few rows as they came, of whatever kind; see ``_rows.py``.
PROBE = "_probe"

#: What a class does, which no attribute may hide.
CODE = (FunctionType, MethodType, property)


class GraphWriter:
    """Makes nodes of what it is given, and gathers objects and arrays on the way.

    Parameters
    ----------
    models : those of the user, which are not written, with the number that stands for each
    """

    def __init__(self, models: Sequence[tuple[Any, int]] = ()) -> None:
        self.models = list(models)
        self.objects: list[Any] = []
        self.arrays: list[NDArray[Any]] = []
        self.trusted: set[str] = set()
        self._seen: dict[Any, dict[str, Any]] = {}
        self._alive: list[Any] = []  # an id means something for as long as its object is there

    def node(self, value: Any, path: str = "") -> Any:
        """The node of a value; ``path`` says where it is, for a refusal."""
        if value is None or type(value) in PLAIN:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        for model, place in self.models:
            if value is model:
                return {"model": place}
        write = self._simple(value)
        if write is not None:
            return write(value, path)
        if isinstance(value, FunctionType | BuiltinFunctionType | np.ufunc | type):
            return self._named(value, path)
        return self._shared(value, path)

    def _simple(self, value: Any) -> Callable[[Any, str], Any] | None:
        """How a value of a kind that has no identity of its own is written; None for others."""
        if isinstance(value, np.ndarray):
            return self._array
        if isinstance(value, np.generic):
            return lambda each, path: {"scalar": self._array(np.asarray(each), path)}
        kinds: dict[Any, Callable[[Any, str], Any]] = {
            list: self._items,
            tuple: lambda each, path: {"tuple": self._items(each, path)},
            set: lambda each, path: {"set": self._items(sorted(each, key=repr), path)},
            frozenset: lambda each, path: {"frozenset": self._items(sorted(each, key=repr), path)},
            dict: self._dict,
            slice: lambda s, path: {"slice": self._items([s.start, s.stop, s.step], path)},
            EllipsisType: lambda each, path: {"ellipsis": True},
            datetime.datetime: lambda each, path: {"datetime": each.isoformat()},
            datetime.date: lambda each, path: {"date": each.isoformat()},
            datetime.time: lambda each, path: {"time": each.isoformat()},
            datetime.timedelta: lambda each, path: {
                "timedelta": [each.days, each.seconds, each.microseconds]
            },
            MethodType: self._method,
            OpenedModel: self._opened,
        }
        return kinds.get(type(value))

    def _items(self, values: Any, path: str) -> list[Any]:
        return [self.node(each, f"{path}[{place}]") for place, each in enumerate(values)]

    def _dict(self, values: dict[Any, Any], path: str) -> Any:
        pairs = [
            [self.node(key, path), self.node(each, f"{path}[{key!r}]")]
            for key, each in list(values.items())  # another thread may add to a cache
        ]
        return {"dict": pairs}

    def _array(self, array: NDArray[Any], path: str) -> Any:
        """An array by its number; of equal views of the same memory, one."""
        kind = array.dtype
        if kind.kind in "mM":
            if kind.str.replace(">", "<") not in TIMES:
                raise CannotSaveError(f"{path} is an array of {kind}, which cannot be saved.")
            numbers = array.astype(kind.newbyteorder("=")).view(np.int64)
            return {"times": self._array(numbers, path), "type": kind.str.replace(">", "<")}
        if kind.kind in TEXTS:
            numbers = np.array(
                array, dtype=kind.newbyteorder("=") if kind.itemsize else f"{kind.kind}1"
            )
            numbers = numbers.reshape(*array.shape, 1).view(TEXTS[kind.kind])
            return {"texts": self._array(numbers, path), "type": kind.kind}
        if kind.kind == "O":
            return {"cells": self._items(array.ravel().tolist(), path), "shape": list(array.shape)}
        if kind.name not in NUMBERS:
            raise CannotSaveError(f"{path} is an array of {kind}, which cannot be saved.")
        pointer = array.__array_interface__["data"][0] if array.size else id(array)
        key = pointer, array.shape, array.strides, kind.str
        if key not in self._seen:
            self._seen[key] = {"array": len(self.arrays)}
            self.arrays.append(array)
        return self._seen[key]

    def _opened(self, opened: OpenedModel, path: str) -> Any:
        """Which of the models was opened, and whether to its core."""
        for model, place in self.models:
            for how, again in _ways_to_open(model).items():
                if again.core is opened.core and len(again.targets) == len(opened.targets):
                    return {"opened": how, "of": place}
        raise CannotSaveError(f"{path} is a part of a model that is not the one of this object.")

    def _method(self, method: MethodType, path: str) -> Any:
        name = method.__name__
        if name not in METHODS:
            raise _cannot(method, path, "it is a method of an object")
        return {"method": [self.node(method.__self__, path), name]}

    def _named(self, value: Any, path: str) -> Any:
        """A class or function: one that the library knows, or one that the reader must name."""
        known = name_of_constant(value)
        if known is not None:
            return {"constant": known}
        name = full_name(value)
        if "<" in name or (name.startswith("__main__:") and not value.__name__.isidentifier()):
            raise _cannot(value, path, "a file can only hold its name, and it has none")
        self.trusted.add(name)
        return {"trusted": name}

    def _shared(self, value: Any, path: str) -> Any:
        """An object by its number in the table, written when it is met first."""
        key = id(value)
        if key in self._seen:
            return self._seen[key]
        known = name_of_constant(value)
        if known is not None:
            return {"constant": known}
        self._alive.append(value)
        self._seen[key], number = {"object": len(self.objects)}, len(self.objects)
        self.objects.append(None)
        special = special_name(value)
        if special is not None:
            state: Any = SPECIAL[special].state(value)
            self._alive.append(state)
            self.objects[number] = [special, self.node(state, path)]
            return self._seen[key]
        name = name_of_class(type(value)) or self._trusted_class(value, path)
        state, wrong = _state(value), flaw(value)
        if wrong is not None:
            raise CannotSaveError(f"{path.lstrip('.')} cannot be saved: it has {wrong}.")
        if not isinstance(state, dict):
            raise _cannot(value, path, "what it keeps are not attributes")
        self._alive.append(state)
        attributes = [[k, self.node(each, f"{path}.{k}")] for k, each in state.items()]
        self.objects[number] = [name, {"dict": attributes}]
        return self._seen[key]

    def _trusted_class(self, value: Any, path: str) -> str:
        """The name of a class of the user's, whose attributes are written like any others."""
        name = full_name(type(value))
        if name.startswith("calliper."):
            raise CannotSaveError(f"{path.lstrip('.')} is a {name}, which files do not know yet.")
        if "<" in name or not hasattr(value, "__dict__") or _reduces(value):
            raise _cannot(value, path, "it is of a class that does not keep plain attributes")
        self.trusted.add(name)
        return name


def _ways_to_open(model: Any) -> dict[str, OpenedModel]:
    """A model taken apart to its core; and as a whole."""
    return {"core": open_model(model), "whole": OpenedModel(core=unwrapped(model))}


def _state(value: Any) -> Any:
    """Attributes to be written: as the class says, or all but what is computed when asked for."""
    own = type(value).__module__.partition(".")[0] != "sklearn"
    says = own and any("__getstate__" in base.__dict__ for base in _own_bases(type(value)))
    if says:
        return value.__getstate__()
    kind: Any = type(value)
    dropped = _computed(kind) | {PROBE}  # rows of any kind, which are kept apart
    return {name: each for name, each in list(vars(value).items()) if name not in dropped}


@cache
def _computed(kind: Any) -> set[str]:
    """Names of what objects of a class compute when it is first asked for."""
    return {name for name in dir(kind) if isinstance(getattr_static(kind, name), cached_property)}


def _own_bases(kind: type) -> list[type]:
    """The class and those it is derived from, but for scikit-learn's and Python's own."""
    foreign = ("sklearn", "builtins", "typing", "abc")
    return [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in foreign]


def _reduces(value: Any) -> bool:
    """Whether it is taken apart in a way of its own, other than by attributes."""
    names = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
    own = any(name in base.__dict__ for base in _own_bases(type(value)) for name in names)
    return own or type(value) in copyreg.dispatch_table


def _cannot(value: Any, path: str, why: str) -> CannotSaveError:
    what = getattr(value, "__qualname__", None) or type(value).__qualname__
    return CannotSaveError(
        f"{path.lstrip('.')} ({what}) cannot be saved: {why}. Make it a function of a module, or a "
        f"class of a module whose instances keep arrays, numbers, texts and the like (with "
        f"__getstate__ and __setstate__ if need be); load then takes it in trusted=[…]."
    )


class GraphReader:
    """Makes objects of nodes again.

    Parameters
    ----------
    objects, arrays : the tables
    models : those of the user
    trusted : functions and classes of the user's by their names
    """

    def __init__(
        self, objects: Any, arrays: list[Any], models: Sequence[Any], trusted: dict[str, Any]
    ) -> None:
        self.objects, self.arrays = objects, arrays
        self.models, self.trusted = models, trusted
        self._made: dict[int, Any] = {}

    def value(self, node: Any) -> Any:
        """What a node stands for."""
        if node is None or type(node) in (*PLAIN, float):
            return node
        if isinstance(node, list):
            return [self.value(each) for each in node]
        if not isinstance(node, dict) or not node:
            raise DamagedFileError(f"the file holds a node that means nothing: {node!r:.80}")
        kind = next(iter(node))
        read = getattr(self, f"_read_{kind}", None) if kind in KINDS else None
        if read is None:
            raise DamagedFileError(f"the file holds a node of unknown kind {kind!r:.40}.")
        return read(node[kind], node)

    def _read_tuple(self, items: Any, node: Any) -> Any:
        return tuple(self.value(each) for each in items)

    def _read_set(self, items: Any, node: Any) -> Any:
        return set(self._read_tuple(items, node))

    def _read_frozenset(self, items: Any, node: Any) -> Any:
        return frozenset(self._read_tuple(items, node))

    def _read_dict(self, pairs: Any, node: Any) -> Any:
        return {self.value(key): self.value(each) for key, each in pairs}

    def _read_float(self, text: str, node: Any) -> float:
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text]

    def _read_slice(self, ends: Any, node: Any) -> slice:
        return slice(*(self.value(each) for each in ends))

    def _read_ellipsis(self, _: Any, node: Any) -> Any:
        return Ellipsis

    def _read_timedelta(self, parts: Any, node: Any) -> Any:
        return datetime.timedelta(*parts)

    def _read_datetime(self, text: str, node: Any) -> Any:
        return datetime.datetime.fromisoformat(text)

    def _read_date(self, text: str, node: Any) -> Any:
        return datetime.date.fromisoformat(text)

    def _read_time(self, text: str, node: Any) -> Any:
        return datetime.time.fromisoformat(text)

    def _read_array(self, place: int, node: Any) -> Any:
        return self.arrays[_number(place, self.arrays)]

    def _read_scalar(self, inner: Any, node: Any) -> Any:
        return self.value(inner)[()]

    def _read_times(self, inner: Any, node: Any) -> Any:
        if node["type"] not in TIMES:
            raise DamagedFileError(f"{node['type']!r:.40} is no type of dates.")
        return self._numbers(inner, np.int64).view(node["type"])

    def _read_texts(self, inner: Any, node: Any) -> Any:
        """Texts of one length, from the numbers of their signs."""
        signs = np.ascontiguousarray(self._numbers(inner, TEXTS[node["type"]]))
        if signs.max(initial=0) > sys.maxunicode:
            raise DamagedFileError("the file holds a sign that no text has.")
        return signs.view(f"{node['type']}{signs.shape[-1]}")[..., 0]

    def _numbers(self, inner: Any, kind: Any) -> Any:
        numbers = self.value(inner)
        if not isinstance(numbers, np.ndarray) or numbers.dtype != kind:
            raise DamagedFileError(f"the file holds no array of {kind} where there should be one.")
        return numbers

    def _read_cells(self, items: Any, node: Any) -> Any:
        flat = np.empty(len(items), dtype=object)
        for place, each in enumerate(items):
            flat[place] = self.value(each)
        return flat.reshape(node["shape"])

    def _read_model(self, place: int, node: Any) -> Any:
        return self.models[_number(place, self.models)]

    def _read_opened(self, how: str, node: Any) -> Any:
        return _ways_to_open(self._read_model(node["of"], node))[how]

    def _read_method(self, parts: Any, node: Any) -> Any:
        owner, name = self.value(parts[0]), parts[1]
        if name not in METHODS:
            raise DamagedFileError(f"the file holds an unknown method {name!r:.40}.")
        return getattr(owner, name)

    def _read_constant(self, name: str, node: Any) -> Any:
        if name not in CONSTANTS:
            raise DamagedFileError(f"the file names {name!r:.40}, which this version has not.")
        return constant(name)

    def _read_trusted(self, name: str, node: Any) -> Any:
        return self.trusted[name]

    def _read_object(self, place: int, node: Any) -> Any:
        place = _number(place, self.objects)
        if place not in self._made:
            name, state = self.objects[place]
            if name in SPECIAL:
                self._made[place] = SPECIAL[name].build(self.value(state))
            else:
                self._made[place] = self._filled(place, self._class(name), state)
        return self._made[place]

    def _class(self, name: str) -> type:
        found = self.trusted[name] if name in self.trusted else class_named(name)
        if not isinstance(found, type):
            raise DamagedFileError(f"the file names a class {name!r:.60}, which is not known.")
        return found

    def _filled(self, place: int, kind: type, state: Any) -> Any:
        """An object of the class with these attributes, and no constructor run."""
        made: Any = object.__new__(kind)
        self._made[place] = made
        attributes = self.value(state)
        if not isinstance(attributes, dict) or not all(type(name) is str for name in attributes):
            raise DamagedFileError(f"attributes of {kind.__name__} are not named.")
        hidden = [name for name in attributes if isinstance(getattr(kind, name, None), CODE)]
        if hidden or any(name.startswith("__") for name in attributes):
            raise DamagedFileError(f"attributes of {kind.__name__} hide what it does.")
        if any("__setstate__" in base.__dict__ for base in _own_bases(kind)):
            made.__setstate__(attributes)
        else:
            made.__dict__.update(attributes)
        wrong = flaw(made)
        if wrong is not None:
            raise DamagedFileError(f"a {kind.__name__} of the file has {wrong}.")
        return made


#: Kinds of nodes that :class:`GraphReader` knows.
KINDS = frozenset(
    name.removeprefix("_read_") for name in vars(GraphReader) if name.startswith("_read_")
)


def _number(place: Any, table: Sequence[Any]) -> int:
    """The place, if it is one of the table's."""
    if type(place) is not int or not 0 <= place < len(table):
        raise DamagedFileError(f"the file asks for part {place!r:.40} of {len(table)}.")
    return place
