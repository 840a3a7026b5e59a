"""Objects as names and checked numbers, and back, by what their classes declare.

An object of a class that files know is ``{"class": name, "params": {…}, "state": {…}}``: its
parameters as its constructor takes them, and what ``fit`` was given and learnt, null before. Plain
values stand as they are; besides

    {"array": 3}                                   an array of the file
    {"tuple": […]}  {"dict": [[key, value], …]}  {"float": "inf"}  {"date": …}  {"given": true}
    {"texts": […], "shape": …}  {"times": 3, "type": …}  {"cells": […], "shape": …}
    {"model": 0}    {"opened": "core", "of": 0}    the user's model, which is not in the file
    {"brought": "embed"}                           something else of the user's, likewise
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha1
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from calliper._kept import (
    PLAIN,
    Array,
    Field,
    Inline,
    Keeps,
    Number,
    OneOf,
    Opened,
    Part,
    Plain,
    Text,
)
from calliper.calibrators import Calibrator
from calliper.exceptions import CalliperError, CannotSaveError, DamagedFileError, OtherModelError
from calliper.files._file import NUMBERS
from calliper.models import OpenedModel, open_model, unwrapped

#: Modules whose classes files know as soon as their ``__all__`` names them.
WHOLE = ("calibrators", "kernels", "scores")
#: Every other class that a file may name, by the module that it is known from.
CLASSES = {
    "_stored": "CalibratedOnStored",
    "targets": "MultiTargetRegressor",
    "calibrators": "",
    "kernels": "LearntKernel",
    "monitoring": "CoverageMonitor ExchangeabilityMonitor",
    "online": "Controller",
    "refitting": "CVPlus JackknifeAfterBootstrap JackknifePlus",
    "regressor": "ConformalRegressor",
    "scores": "",
    "shift": "LikelihoodRatio",
    "models": "Layer",
    "space": "ErrorModel",
    "scale._cells": "Cells PlacedCells",
}
#: Types of dates and of spans of time.
TIMES = frozenset(
    f"<{kind}8[{unit}]"
    for kind in "mM"
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
)
#: Whole numbers beyond have no place in an array either.
LARGEST_INT = 2**63
#: How many may hold one array, and from how many bytes on it is written once for them.
MOST_SHARED, FEW_BYTES = 16, 256
#: Parameters that say how to compute and not what, and are not kept.
NOT_KEPT = frozenset({"n_jobs", "progress"})
#: What may be a key of a dict.
KEYS = (str, int, float, bool, type(None), datetime.date, datetime.datetime, datetime.timedelta)


@cache
def classes_of(module: str) -> dict[str, Any]:
    """Classes of a module that files know, by name."""
    known = import_module(f"calliper.{module}")
    names = (*CLASSES[module].split(), *(known.__all__ if module in WHOLE else ()))
    found = {name: getattr(known, name) for name in names}
    able = (BaseEstimator, Keeps)
    kinds = [each for each in found.values() if isinstance(each, type) and issubclass(each, able)]
    frames = {base for kind in kinds for base in kind.__mro__[1:]}  # such as that of all scores
    return {kind.__name__: kind for kind in kinds if kind not in frames}


def class_named(name: Any, module: str | None = None) -> Any:
    """The class with this name in files, of one module or of any; else None."""
    modules = CLASSES if module is None else (module,)
    return next((classes_of(m)[name] for m in modules if name in classes_of(m)), None)


def name_of(value: Any) -> str | None:
    """What files call the class of an object; None if they may not name it."""
    name = type(value).__name__
    return name if class_named(name) is type(value) else None


def fields_of(kind: Any) -> tuple[list[str], Mapping[str, Field]]:
    """Names of parameters, and all declarations of a class."""
    keeps: Mapping[str, Field] = getattr(kind, "keeps", {})
    if not issubclass(kind, BaseEstimator):
        return list(keeps), keeps
    return [name for name in kind._get_param_names() if name not in NOT_KEPT], keeps


@dataclass
class Writer:
    """Makes nodes of objects, and gathers arrays and what must be brought again.

    Attributes
    ----------
    models : the user's, which are not written, with the number that stands for each
    arrays : what nodes name by number
    brought : what else of the user's is not written, by name
    """

    models: Sequence[tuple[Any, int]] = ()
    arrays: list[NDArray[Any]] = field(default_factory=list)
    brought: dict[str, Any] = field(default_factory=dict)
    _seen: dict[Any, tuple[int, int]] = field(default_factory=dict)

    def record(self, value: Any) -> dict[str, Any]:
        """An object of a class that files know."""
        name, (params, keeps) = name_of(value), fields_of(type(value))
        if name is None:
            raise CannotSaveError(
                f"{in_words(value)} is a class of your own, and files hold calliper's classes "
                "only: save one of these, or use pickle."
            )
        if not issubclass(type(value), BaseEstimator):
            return {"class": name, "params": self.fields(keeps, value.for_file()), "state": None}
        state = {each: keeps[each] for each in keeps if each not in params}
        fitted = value.for_file() if state and value.__sklearn_is_fitted__() else None
        # What is fitted may know better which parameters it was fitted with.
        given = {**value.get_params(deep=False), **(fitted or {})}
        written = {each: self.write(keeps.get(each, PLAIN), given[each], each) for each in params}
        return {
            "class": name,
            "params": written,
            "state": None if fitted is None else self.fields(state, fitted),
        }

    def fields(self, keeps: Mapping[str, Field], values: dict[str, Any]) -> dict[str, Any]:
        """Values by name, each as declared."""
        return {name: self.write(each, values[name], name) for name, each in keeps.items()}

    def write(self, declared: Field, value: Any, name: str) -> Any:
        """The node of a value that is declared so."""
        if isinstance(declared, Array) and value is not None:
            return self._declared_array(declared, value, name)
        if isinstance(declared, Part | Inline) and declared.several:
            return [self.write(replace(declared, several=False), each, name) for each in value]
        if isinstance(declared, Inline) and value is not None:
            return self.fields(declared.kind.keeps, value.for_file())
        if isinstance(declared, OneOf):
            word = next(each for each, kind in declared.kinds.items() if kind is type(value))
            return {"kind": word, "fields": self.fields(value.keeps, value.for_file())}
        if isinstance(declared, Opened):
            return self._opened(value)
        if isinstance(declared, Number) and value is not None:
            return self.plain(declared.kind(value), name)
        if isinstance(declared, Plain) and declared.name and not self._holds(value):
            self.brought[declared.name] = value  # fitted, in the place of what it was fitted from
            return {"brought": declared.name}
        return self.plain(value, name)

    def _holds(self, value: Any) -> bool:
        """Whether a file can hold it."""
        simple = value is None or type(value) in (bool, str, int, float)
        model = any(value is model for model, _ in self.models)
        return simple or model or bool(name_of(value)) or self._simple(value, "") is not None

    def _declared_array(self, declared: Array, value: Any, name: str) -> Any:
        if not isinstance(value, np.ndarray):
            raise CannotSaveError(
                f"{name} is a {type(value).__name__}: objects calibrated on a device or in shards "
                "cannot be saved. Calibrate on arrays in main memory instead."
            )
        return self._array(np.asarray(value, dtype=declared.dtype))

    def plain(self, value: Any, name: str) -> Any:
        """The node of any value; ``name`` is the parameter that it belongs to."""
        for model, number in self.models:
            if value is model:
                return {"model": number}
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            return value if abs(value) < LARGEST_INT else self._bring(value, name)
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        write = self._simple(value, name)
        if write is not None:
            return write(value)
        learnt = isinstance(value, Calibrator) and value.__sklearn_is_fitted__()
        # What was learnt from the rows nobody can bring: a class that is not known is refused.
        return self.record(value) if learnt or name_of(value) else self._bring(value, name)

    def _simple(self, value: Any, name: str) -> Callable[[Any], Any] | None:
        """How a value built from plain values is written; None for others."""

        def items(values: Any) -> list[Any]:
            return [self.plain(each, name) for each in values]

        if isinstance(value, np.ndarray):
            return lambda each: self._any_array(each, name)
        if isinstance(value, np.generic):
            return lambda each: self.plain(each.item(), name)
        ways: dict[Any, Callable[[Any], Any]] = {
            list: items,
            tuple: lambda each: {"tuple": items(each)},
            dict: lambda each: {"dict": [items(pair) for pair in list(each.items())]},
            type(Ellipsis): lambda each: {"given": True},
            datetime.datetime: lambda each: {"datetime": each.isoformat()},
            datetime.date: lambda each: {"date": each.isoformat()},
            datetime.time: lambda each: {"time": each.isoformat()},
            datetime.timedelta: lambda each: {
                "timedelta": [each.days, each.seconds, each.microseconds]
            },
            np.random.RandomState: self._random,
        }
        return ways.get(type(value))

    def _random(self, rng: Any) -> Any:
        _, key, *rest = rng.get_state()
        return {"random": self._array(key)["array"], "at": rest}

    def _any_array(self, array: NDArray[Any], name: str) -> Any:
        shape, kind = list(array.shape), array.dtype
        if kind.kind in "mM" and kind.str.replace(">", "<") in TIMES:
            numbers = array.astype(kind.newbyteorder("=")).view(np.int64)
            return {"times": self._array(numbers)["array"], "type": f"<{kind.str[1:]}"}
        if kind.kind == "U":
            return {"texts": array.ravel().tolist(), "shape": shape}
        if kind.kind == "O":
            return {"cells": [self.plain(each, name) for each in array.ravel()], "shape": shape}
        if kind.kind not in "biuf" or kind.name not in NUMBERS:
            return self._bring(array, name)
        return self._array(array)

    def _array(self, array: NDArray[Any]) -> dict[str, int]:
        """An array by its number; the same numbers are written once, for a few who hold them."""
        key: Any = array.dtype.str, array.shape, sha1(np.ascontiguousarray(array).data).digest()
        number, left = self._seen.get(key, (0, 0))
        if not left:
            number, left = len(self.arrays), MOST_SHARED if array.nbytes > FEW_BYTES else 1
            self.arrays.append(array)
        self._seen[key] = number, left - 1
        return {"array": number}

    def _opened(self, opened: OpenedModel) -> Any:
        for model, number in self.models:
            for how, again in ways_to_open(model).items():
                if again.core is opened.core and len(again.targets) == len(opened.targets):
                    return {"opened": how, "of": number}
        raise CannotSaveError("the space belongs to a different model than this object.")

    def _bring(self, value: Any, name: str) -> dict[str, str]:
        """What no file can hold, by a name that is its own."""
        if name == "labels":
            raise CannotSaveError(
                f"group {value!r:.40} is a {type(value).__name__}: files store strings, numbers "
                "and dates only. Label groups with these."
            )
        numbers = (name, *(f"{name}_{number}" for number in range(2, 1000)))
        free = next(each for each in numbers if _alike(self.brought.get(each, value), value))
        self.brought.setdefault(free, value)
        return {"brought": free}

    @property
    def needs(self) -> dict[str, str]:
        """What must be brought again, by name, in words."""
        return {name: in_words(each) for name, each in self.brought.items()}


def _alike(one: Any, other: Any) -> bool:
    """Whether both are one thing, or an estimator and its clone: one of them is brought."""
    if one is other:
        return True
    estimators = isinstance(one, BaseEstimator) and type(one) is type(other)
    return estimators and repr(one) == repr(other)


def in_words(value: Any) -> str:
    """A function or object of the user's."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"[:200]


def ways_to_open(model: Any) -> dict[str, OpenedModel]:
    """A model taken apart to its core; and as a whole."""
    return {"core": open_model(model), "whole": OpenedModel(core=unwrapped(model))}


def refuse(why: str) -> Any:
    """Raise the error for contents that are not what they should be."""
    raise DamagedFileError(f"the file is not what calliper.save writes: {why}.")


def made_of(make: Callable[[dict[str, Any]], Any], state: dict[str, Any]) -> Any:
    """What a class makes of values; what it refuses is the file's fault."""
    try:
        return make(state)
    except (DamagedFileError, OtherModelError):
        raise
    except CalliperError as error:
        raise DamagedFileError(f"the file is not what calliper.save writes: {error}") from error


class Reader:
    """Makes objects from nodes; every value is checked against its declaration first."""

    def __init__(
        self, arrays: list[NDArray[Any]], models: Sequence[Any], brought: Mapping[str, Any]
    ) -> None:
        self.arrays, self.models, self.brought = arrays, models, brought
        self._left = [MOST_SHARED] * len(arrays)

    def record(self, node: Any, module: str | None = None) -> Any:
        """An object of a class that files know, of this module if one is named."""
        if not isinstance(node, dict) or set(node) != {"class", "params", "state"}:
            refuse(f"{node!r:.60} is not an object")
        name = node["class"]
        kind: Any = class_named(name, module) if isinstance(name, str) else None
        if kind is None:
            refuse(f"it names a class {name!r:.60}, which does not belong there")
        params, keeps = fields_of(kind)
        sizes: dict[str, int] = {}
        given = self.fields(
            {each: keeps.get(each, PLAIN) for each in params}, node["params"], sizes, name
        )
        if not issubclass(kind, BaseEstimator):
            return made_of(kind.again, given)
        made = kind(**given)
        state = {each: keeps[each] for each in keeps if each not in params}
        if node["state"] is not None:
            if not state:
                refuse(f"{name} has no fitted state")
            made_of(made.restore, self.fields(state, node["state"], sizes, name))
        return made

    def fields(
        self, keeps: Mapping[str, Field], nodes: Any, sizes: dict[str, int], owner: str
    ) -> dict[str, Any]:
        """Values by name, each as declared; sizes are the same throughout."""
        if not isinstance(nodes, dict) or set(nodes) != set(keeps):
            refuse(f"{owner} must have {', '.join(keeps)}")
        return {
            name: self.read(each, nodes[name], sizes, f"{name} of {owner}")
            for name, each in keeps.items()
        }

    def read(self, declared: Field, node: Any, sizes: dict[str, int], name: str) -> Any:
        """The value of a node that is declared so."""
        if isinstance(declared, Opened):
            return self._opened(node)
        if isinstance(declared, Plain):
            return self.plain(node)
        if isinstance(declared, Part | Inline) and declared.several:
            one = replace(declared, several=False)
            return tuple(self.read(one, each, {}, name) for each in _listed(node))
        if isinstance(declared, OneOf):
            return self._one_of(declared, node)
        if node is None and declared.optional:
            return None
        if isinstance(declared, Array):
            return self._declared_array(declared, node, sizes, name)
        if isinstance(declared, Number):
            return _number(declared, self.plain(node), name)
        if isinstance(declared, Text):
            if not isinstance(node, str) or (declared.choices and node not in declared.choices):
                refuse(f"{name} is {node!r:.40}")
            return node
        if isinstance(declared, Inline):
            return self._inline(declared.kind, node)
        return self._part(declared, node)

    def _inline(self, kind: Any, node: Any) -> Any:
        return made_of(kind.again, self.fields(kind.keeps, node, {}, kind.__name__))

    def _one_of(self, declared: OneOf, node: Any) -> Any:
        if not isinstance(node, dict) or set(node) != {"kind", "fields"}:
            refuse(f"{node!r:.40} does not say its kind")
        kind = declared.kinds.get(node["kind"]) if isinstance(node["kind"], str) else None
        if kind is None:
            refuse(f"it names a kind {node['kind']!r:.40}, which does not belong there")
        return self._inline(kind, node["fields"])

    def _part(self, declared: Part, node: Any) -> Any:
        if isinstance(node, dict) and set(node) == {"brought"}:
            return self._brought(node)
        return self.record(node, declared.module)

    def _declared_array(
        self, declared: Array, node: Any, sizes: dict[str, int], name: str
    ) -> NDArray[Any]:
        array = self._array(node)
        if array.dtype != declared.dtype or array.ndim != len(declared.shape):
            refuse(f"{name} is an array of {array.dtype}, {array.shape}, not {declared.dtype}")
        for size, wanted in zip(array.shape, declared.shape, strict=True):
            if size != (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, size)):
                refuse(f"{name} has shape {array.shape} where {declared.shape} was declared")
        if declared.finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            refuse(f"{name} holds numbers that are not finite")
        if not declared.finite and np.isnan(array).any():
            refuse(f"{name} holds NaN")
        most = declared.most
        most = sizes.get(most, 0) - 1 if isinstance(most, str) else most
        if array.size and declared.least is not None and not array.min() >= declared.least:
            refuse(f"{name} holds {array.min()}, below {declared.least}")
        if array.size and most is not None and not array.max() <= most:
            refuse(f"{name} holds {array.max()}, above {most}")
        return array if declared.becomes is None else array.astype(declared.becomes)

    def plain(self, node: Any) -> Any:
        """A value that is made of plain ones."""
        if node is None or type(node) in (bool, str, float):
            return node
        if type(node) is int:
            return node if abs(node) < LARGEST_INT else refuse("a number is too large")
        if isinstance(node, list):
            return [self.plain(each) for each in node]
        if isinstance(node, dict) and "class" in node:
            return self.record(node)
        kind = next(iter(node)) if isinstance(node, dict) and node else None
        read: Any = self._ways.get(kind) if isinstance(kind, str) else None
        if read is None or set(node) - {kind} != set(_BESIDE.get(str(kind), ())):
            refuse(f"{node!r:.60} is not a known value")
        return read(node)

    @property
    def _ways(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "tuple": lambda node: tuple(self.plain(_listed(node["tuple"]))),
            "dict": self._dict,
            "float": lambda node: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[
                node["float"]
            ],
            "given": lambda node: Ellipsis,
            "datetime": lambda node: datetime.datetime.fromisoformat(node["datetime"]),
            "date": lambda node: datetime.date.fromisoformat(node["date"]),
            "time": lambda node: datetime.time.fromisoformat(node["time"]),
            "timedelta": lambda node: datetime.timedelta(*node["timedelta"]),
            "array": self._array,
            "texts": self._texts,
            "times": self._times,
            "cells": self._cells,
            "random": self._random,
            "model": lambda node: self.models[_index(node["model"], self.models)],
            "brought": self._brought,
        }

    def _dict(self, node: Any) -> dict[Any, Any]:
        pairs = self.plain(_listed(node["dict"]))
        if not all(len(_listed(pair)) == 2 and type(pair[0]) in KEYS for pair in pairs):
            refuse("a dict has keys of a type that is not allowed")
        return dict(pairs)

    def _array(self, node: Any) -> NDArray[Any]:
        if not isinstance(node, dict) or set(node) != {"array"}:
            refuse(f"{node!r:.40} is not an array")
        number = _index(node["array"], self.arrays)
        self._left[number] -= 1
        if self._left[number] < 0:
            refuse("an array is referenced more often than allowed")
        return self.arrays[number]

    def _texts(self, node: Any) -> NDArray[Any]:
        texts = _listed(node["texts"])
        longest = max((len(each) for each in texts if isinstance(each, str)), default=1)
        if not all(isinstance(each, str) for each in texts):
            refuse("texts must be strings")
        if longest * len(texts) > 64 + 4 * sum(map(len, texts)):
            return _shaped(np.array(texts, dtype=object), node["shape"])
        return _shaped(np.array(texts, dtype=str), node["shape"])

    def _times(self, node: Any) -> NDArray[Any]:
        array = self._array({"array": node["times"]})
        if node["type"] not in TIMES or array.dtype != np.int64:
            refuse(f"{node['type']!r:.40} is not a type of dates")
        return array.view(node["type"])

    def _cells(self, node: Any) -> NDArray[Any]:
        items = self.plain(_listed(node["cells"]))
        flat = np.empty(len(items), dtype=object)
        for place, each in enumerate(items):
            flat[place] = each
        return _shaped(flat, node["shape"])

    def _random(self, node: Any) -> Any:
        key, at = self._array({"array": node["random"]}), self.plain(_listed(node["at"]))
        whole = key.shape == (624,) and key.dtype == np.uint32 and len(at) == 3
        whole = whole and type(at[0]) is int and 0 <= at[0] <= 624 and at[1] in (0, 1)
        if not whole or type(at[2]) is not float or not math.isfinite(at[2]):
            refuse("the state of a random generator is invalid")
        made = np.random.RandomState(0)
        made.set_state(("MT19937", key, *at))
        return made

    def _brought(self, node: Any) -> Any:
        if not isinstance(node["brought"], str) or node["brought"] not in self.brought:
            refuse(f"it needs {node['brought']!r:.40}, which its header does not list")
        return self.brought[node["brought"]]

    def _opened(self, node: Any) -> Any:
        if not isinstance(node, dict) or set(node) != {"opened", "of"}:
            refuse(f"{node!r:.40} is not a model")
        return ways_to_open(self.models[_index(node["of"], self.models)])[node["opened"]]


#: What else nodes of a kind have.
_BESIDE = {"texts": ("shape",), "times": ("type",), "cells": ("shape",), "random": ("at",)}


def _number(declared: Number, value: Any, name: str) -> Any:
    wanted = (float, int) if declared.kind is float else (declared.kind,)
    if type(value) not in wanted:
        refuse(f"{name} is {value!r:.40}, not {declared.kind.__name__}")
    number = float(value)
    usual = math.isfinite(number) and declared.least <= number <= declared.most
    if not usual and (declared.finite or math.isfinite(number)):
        refuse(f"{name} is {value!r:.40}, not from {declared.least:g} to {declared.most:g}")
    return declared.kind(value)


def _listed(node: Any) -> list[Any]:
    return node if isinstance(node, list) else refuse(f"{node!r:.40} is not a list")


def _index(number: Any, table: Sequence[Any]) -> int:
    """The number, if it is one of the table's."""
    if type(number) is not int or not 0 <= number < len(table):
        refuse(f"it refers to part {number!r:.40} of {len(table)}")
    return int(number)


def _shaped(flat: NDArray[Any], shape: Any) -> NDArray[Any]:
    sizes = _listed(shape)
    if len(sizes) > 8 or not all(type(each) is int and 0 <= each <= flat.size for each in sizes):
        refuse(f"{shape!r:.40} is not a shape of {flat.size} values")
    return flat.reshape(sizes)
