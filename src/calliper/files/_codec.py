"""Objects as names and checked numbers, and back, by what their classes declare.

An object of a class that files know is ``{"class": name, "params": {…}, "state": {…}}``: its
parameters as its constructor takes them, and what ``fit`` was given and learnt, null before. Null,
booleans, finite numbers, texts and lists stand as they are. Anything else is its kind and simpler
values: ``{"tuple": […]}``, ``{"float": "inf"}``, and so on by :data:`WAYS`; besides

    {"array": 3}             an array of the file: numbers, texts or times
    {"brought": 0}           the user's model, which is not in the file
    {"brought": "embed"}     something else of the user's, likewise
    {"opened": ["core", 0]}  a model taken apart
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cache
from hashlib import sha1
from importlib import import_module
from inspect import isabstract
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from calliper import _kept as kept
from calliper.calibrators import Calibrator
from calliper.exceptions import CannotSaveError, DamagedFileError
from calliper.files._file import is_kept
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
    "scale._cells": "Cells FixedCells",
}
#: Larger whole numbers do not fit into an array either.
LARGEST_INT = 2**63
#: Most references to one array; arrays of more bytes are stored once and referred to.
MOST_SHARED, FEW_BYTES = 16, 256
#: Parameters that say how to compute and not what, and are not kept.
NOT_KEPT = frozenset({"n_jobs", "progress"})
#: A parameter that is not declared, and the modules of classes whose objects may stand in it; in
#: others, or in what is declared, those of these modules.
PARAMETER, ANYWHERE = kept.Plain(), "kernels scores calibrators"
OBJECTS = dict.fromkeys(("random_state", "slope"), "") | {"learnt_": "kernels", "score": "scores"}
OBJECTS |= dict.fromkeys(("embed", "mapping"), "models kernels")
OBJECTS |= {"cells": "scale._cells", "error_model": "space", "weights": "shift"}
OBJECTS |= {"about": "shift"}
#: How deep objects may be in one another, since each makes scikit-learn's ``repr`` take twice as
#: long; and how many names may hash alike, as tuples of a file can.
MOST_NESTED, MOST_ALIKE = 9, 64
#: What may be a key of a dict.
KEYS = (str, int, float, bool, type(None), date, datetime, timedelta)


@cache
def classes_of(module: str) -> dict[str, Any]:
    """Classes of a module that files know, by name."""
    known = import_module(f"calliper.{module}")
    names = (*CLASSES[module].split(), *(known.__all__ if module in WHOLE else ()))
    found = {name: getattr(known, name) for name in names}
    able = {name: kind for name, kind in found.items() if isinstance(kind, type)}
    bases = (BaseEstimator, kept.Keeps)
    return {n: kind for n, kind in able.items() if issubclass(kind, bases) and not isabstract(kind)}


def class_named(name: Any, module: str | None = None) -> Any:
    """The class with this name in files, of some modules or of any; else None."""
    modules = CLASSES if module is None else module.split()
    return next((classes_of(m)[name] for m in modules if name in classes_of(m)), None)


def name_of(value: Any) -> str | None:
    """What files call the class of an object; None if they may not name it."""
    name = type(value).__name__
    return name if class_named(name) is type(value) else None


def fields_of(kind: Any) -> tuple[Mapping[str, kept.Field], Mapping[str, kept.Field]]:
    """What a class declares of its parameters, and of what is fitted."""
    keeps: Mapping[str, kept.Field] = getattr(kind, "keeps", {})
    if not issubclass(kind, BaseEstimator):
        return keeps, {}
    params = [name for name in kind._get_param_names() if name not in NOT_KEPT]
    state = {name: each for name, each in keeps.items() if name not in params}
    return {name: keeps.get(name, PARAMETER) for name in params}, state


def refuse(why: str) -> Any:
    """Raise the error for contents that are not what they should be."""
    raise DamagedFileError(f"the file is not what calliper.save writes: {why}.")


def _listed(node: Any) -> list[Any]:
    return node if isinstance(node, list) else refuse(f"{node!r:.40} is not a list")


def _dict(pairs: Any) -> dict[Any, Any]:
    if not all(len(_listed(pair)) == 2 and type(pair[0]) in KEYS for pair in _listed(pairs)):
        refuse("a dict has keys of a type that is not allowed")
    return dict(pairs)


def _generator(node: Any) -> Any:
    key, *at = _listed(node)
    whole = isinstance(key, np.ndarray) and key.shape == (624,) and key.dtype == np.uint32
    whole = whole and [*map(type, at)] == [int, int, float] and math.isfinite(at[2])
    if not whole or not 0 <= at[0] <= 624 or at[1] not in (0, 1):
        refuse("the state of a random generator is invalid")
    made = np.random.RandomState(0)
    made.set_state(("MT19937", key, *at))
    return made


def _cells(node: Any) -> NDArray[Any]:
    items, shape = map(_listed, node)
    if len(shape) > 8 or not all(type(each) is int and 0 <= each <= len(items) for each in shape):
        refuse(f"{shape!r:.40} is not a shape of {len(items)} values")
    flat = np.empty(len(items), dtype=object)
    for number, each in enumerate(items):
        flat[number] = each
    return flat.reshape(shape)


#: By kind: its type, what writes a value as simpler ones, and what restores the value from them.
WAYS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (tuple, list, lambda node: tuple(_listed(node))),
    "dict": (dict, lambda value: [list(pair) for pair in list(value.items())], _dict),
    "float": (float, repr, {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.__getitem__),
    "ellipsis": (type(...), lambda value: True, lambda node: Ellipsis),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "timedelta": (
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda node: timedelta(*node),
    ),
    "RandomState": (np.random.RandomState, lambda value: list(value.get_state()[1:]), _generator),
    "cells": (np.ndarray, lambda value: [list(value.ravel()), list(value.shape)], _cells),
}


def way_of(value: Any) -> str | None:
    """The kind of a value in files, "array" for one of numbers, texts or times; None for others."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return "array" if is_kept(value.dtype) else None
    kind = np.ndarray if isinstance(value, np.ndarray) else type(value)
    return next((way for way, (own, *_) in WAYS.items() if own is kind), None)


@dataclass
class Writer:
    """Makes nodes of objects, and gathers arrays and what must be brought again.

    The user's models are not written: a number stands for each.
    """

    models: Sequence[tuple[Any, int]] = ()
    arrays: list[NDArray[Any]] = field(default_factory=list)
    brought: dict[str, Any] = field(default_factory=dict)
    _seen: dict[Any, tuple[int, int]] = field(default_factory=dict)

    def record(self, value: Any) -> dict[str, Any]:
        """An object of a class that files know."""
        name, (params, state) = name_of(value), fields_of(type(value))
        if name is None:
            raise CannotSaveError(
                f"files can hold only calliper's own classes; got {in_words(value)}: use one of "
                "these, or pickle."
            )
        estimator = isinstance(value, BaseEstimator)
        fitted = None
        if not estimator or (state and value.__sklearn_is_fitted__()):
            fitted = value.for_file()
        # What is fitted may know better which parameters it was fitted with.
        given = {**(value.get_params(deep=False) if estimator else {}), **(fitted or {})}
        return {
            "class": name,
            "params": self.fields(params, given),
            "state": self.fields(state, fitted) if estimator and fitted is not None else None,
        }

    def fields(self, keeps: Mapping[str, kept.Field], values: dict[str, Any]) -> dict[str, Any]:
        """Values by name, each as declared."""
        return {name: self.write(each, values[name], name) for name, each in keeps.items()}

    def write(self, declared: kept.Field, value: Any, name: str) -> Any:
        """The node of a value that is declared so."""
        if isinstance(declared, kept.Part | kept.Inline) and declared.several:
            return [self.write(replace(declared, several=False), each, name) for each in value]
        if isinstance(declared, kept.Opened):
            return self._opened(value)
        if isinstance(declared, kept.OneOf):
            word = next(each for each, kind in declared.kinds.items() if kind is type(value))
            return {word: self.fields(value.keeps, value.for_file())}
        if isinstance(declared, kept.Inline) and value is not None:
            return self.fields(declared.kind.keeps, value.for_file())
        if isinstance(declared, kept.Number) and value is not None:
            value = declared.kind(value)
        if isinstance(declared, kept.Array) and value is not None:
            if not isinstance(value, np.ndarray):
                raise CannotSaveError(
                    f"{name} is a {type(value).__name__}: objects calibrated on a device "
                    "cannot be saved. Calibrate on arrays in main memory instead."
                )
            return self._array(np.asarray(value, dtype=declared.dtype))
        if isinstance(declared, kept.Plain) and declared.name and not self.holds(value):
            self.brought[declared.name] = value  # fitted, instead of what it was fitted from
            return {"brought": declared.name}
        return self.plain(value, name)

    def holds(self, value: Any) -> bool:
        """Whether a file can, or the value is one of the models."""
        simple = value is None or isinstance(value, bool | int | str | list | np.generic)
        model = any(value is model for model, _ in self.models)
        return simple or model or bool(name_of(value) or way_of(value))

    def plain(self, value: Any, name: str) -> Any:
        """The node of any value; ``name`` is the parameter that it belongs to."""
        for model, number in self.models:
            if value is model:
                return {"brought": number}
        value = value.item() if isinstance(value, np.generic) else value
        if type(value) is list:
            return [self.plain(each, name) for each in value]
        small = type(value) is int and abs(value) < LARGEST_INT
        finite = type(value) is float and math.isfinite(value)
        if value is None or type(value) in (bool, str) or small or finite:
            return value
        way = way_of(value)
        if way == "array":
            return self._array(value)
        if way is not None:
            return {way: self.plain(WAYS[way][1](value), name)}
        learnt = isinstance(value, Calibrator) and value.__sklearn_is_fitted__()
        # What was learnt from rows cannot be passed to ``load``: an unknown class is refused.
        return self.record(value) if learnt or name_of(value) else self._bring(value, name)

    def _array(self, array: NDArray[Any]) -> dict[str, int]:
        """An array by its number; the same numbers are written once, for a few who hold them."""
        order = np.isfortran(array)
        key = array.dtype.str, array.shape, order, sha1(array.tobytes()).digest()
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
                    return {"opened": [how, number]}
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


def has_brought(method: BaseEstimator) -> bool:
    """Whether a parameter of it, or of its parameters, is something that no file holds."""
    given, holds = method.get_params().items(), Writer().holds
    return not all(holds(v) for name, v in given if name.rpartition("__")[2] not in NOT_KEPT)


def ways_to_open(model: Any) -> dict[str, OpenedModel]:
    """A model taken apart to its core; and as a whole."""
    return {"core": open_model(model), "whole": OpenedModel(core=unwrapped(model))}


class Reader:
    """Makes objects from nodes; every value is checked against its declaration first.

    A node of another kind, such as a number where names are expected, raises an error by itself,
    and ``load`` refuses the file.
    """

    def __init__(self, arrays: list[NDArray[Any]], brought: Mapping[Any, Any]) -> None:
        self.arrays, self.brought = arrays, brought
        self._left = dict.fromkeys(range(len(arrays)), MOST_SHARED)
        self._depth = 0

    def record(self, node: Any, module: str | None = None, *, fitted: bool = True) -> Any:
        """An object of a class that files know, of these modules if any are named."""
        if set(node) != {"class", "params", "state"}:
            refuse(f"{node!r:.60} is not an object")
        name = node["class"]
        kind: Any = class_named(name, module) if isinstance(name, str) else None
        if kind is None:
            refuse(f"it names a class {name!r:.60}, which does not belong there")
        (params, state), sizes = fields_of(kind), dict[str, int]()
        given = self.fields(params, node["params"], sizes, name)
        if not issubclass(kind, BaseEstimator):
            return kind.again(given)
        made = kind(**given)
        if node["state"] is not None:
            if not state:
                refuse(f"{name} has no fitted state")
            made.restore(self.fields(state, node["state"], sizes, name))
        elif fitted and state:
            refuse(f"{name} is not fitted")
        return made

    def fields(
        self, keeps: Mapping[str, kept.Field], nodes: Any, sizes: dict[str, int], owner: str
    ) -> dict[str, Any]:
        """Values by name, each as declared; sizes are the same throughout."""
        if not isinstance(nodes, dict) or set(nodes) != set(keeps):
            refuse(f"{owner} must have {', '.join(keeps)}")
        self._depth += 1
        if self._depth > MOST_NESTED:
            refuse("objects are nested too deeply")
        found = {
            name: self.read(each, nodes[name], sizes, f"{name} of {owner}")
            for name, each in keeps.items()
        }
        self._depth -= 1
        return found

    def read(self, declared: kept.Field, node: Any, sizes: dict[str, int], name: str) -> Any:
        """The value of a node that is declared so."""
        if isinstance(declared, kept.Part | kept.Inline) and declared.several:
            one = replace(declared, several=False)
            return tuple(self.read(one, each, {}, name) for each in _listed(node))
        if isinstance(declared, kept.Plain):
            own = name.partition(" ")[0]
            node = {"brought": node["brought"]} if own == "estimator" else node  # nothing of ours
            return self.plain(node, OBJECTS.get(own, ANYWHERE if declared is PARAMETER else ""))
        if isinstance(declared, kept.Opened):
            how, number = node["opened"]
            return ways_to_open(self._brought(number))[how]
        if isinstance(declared, kept.OneOf):
            ((word, fields),) = node.items()
            return self.read(kept.Inline(declared.kinds[word]), fields, {}, name)
        if node is None and declared.optional:
            return None
        if isinstance(declared, kept.Array):
            return _checked(declared, self._array(node["array"]), sizes, name)
        if isinstance(declared, kept.Number):
            return _number(declared, self.plain(node), name)
        if isinstance(declared, kept.Text):
            if not isinstance(node, str) or (declared.choices and node not in declared.choices):
                refuse(f"{name} is {node!r:.40}")
            return node
        if isinstance(declared, kept.Inline):
            kind = declared.kind
            return kind.again(self.fields(kind.keeps, node, {}, kind.__name__))
        if isinstance(declared, kept.NameList):
            names = self.plain(node)
            hashes = map(hash, names if isinstance(names, list | tuple) else refuse(name))
            if max(Counter(hashes).values(), default=0) > MOST_ALIKE:
                refuse(f"{name} holds many names that hash alike")
            return names
        if declared.module == "kernels" and set(node) == {"brought"}:  # of the user's own class
            return self.plain(node)
        return self.record(node, declared.module)

    def plain(self, node: Any, modules: str = "") -> Any:
        """A value that is made of plain ones, and of objects of classes of some modules."""
        if node is None or type(node) in (bool, str, float):
            return node
        if type(node) is int:
            return node if abs(node) < LARGEST_INT else refuse("a number is too large")
        if isinstance(node, list):
            return [self.plain(each, modules) for each in node]
        if "class" in node:
            return self.record(node, modules, fitted=False)
        kind, inner = next(iter(node.items())) if len(node) == 1 else ("", None)
        own = {"array": self._array, "brought": self._brought}
        if kind in own:
            return own[kind](inner)
        if kind not in WAYS:
            refuse(f"{node!r:.60} is not a known value")
        return WAYS[kind][2](self.plain(inner, modules))

    def _array(self, number: Any) -> NDArray[Any]:
        if type(number) is not int or not self._left.get(number):
            refuse(f"array {number!r:.40} is not there, or is referenced more often than allowed")
        self._left[number] -= 1
        array: NDArray[Any] = self.arrays[number]
        return array

    def _brought(self, name: Any) -> Any:
        if type(name) not in (int, str) or name not in self.brought:
            refuse(f"it needs {name!r:.40}, which its header does not list")
        return self.brought[name]


def _checked(
    declared: kept.Array, array: NDArray[Any], sizes: dict[str, int], name: str
) -> NDArray[Any]:
    """An array that is as declared."""
    if array.dtype != declared.dtype or array.ndim != len(declared.shape):
        refuse(f"{name} is an array of {array.dtype}, {array.shape}, not {declared.dtype}")
    for size, wanted in zip(array.shape, declared.shape, strict=True):
        if size != (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, size)):
            refuse(f"{name} has shape {array.shape} where {declared.shape} was declared")
    if not (np.isfinite(array) if declared.finite else ~np.isnan(array)).all():
        refuse(f"{name} holds numbers that are not finite, or NaN")
    least, most = declared.least, declared.most
    most = sizes.get(most, 0) - 1 if isinstance(most, str) else most
    if array.size and not least <= array.min() <= array.max() <= most:
        refuse(f"{name} holds {array.min()} to {array.max()}, not {least:g} to {most:g}")
    return array if declared.becomes is None else array.astype(declared.becomes)


def _number(declared: kept.Number, value: Any, name: str) -> Any:
    wanted = (float, int) if declared.kind is float else (declared.kind,)
    if type(value) not in wanted:
        refuse(f"{name} is {value!r:.40}, not {declared.kind.__name__}")
    number = float(value)
    usual = math.isfinite(number) and declared.least <= number <= declared.most
    if not usual and (declared.finite or math.isfinite(number)):
        refuse(f"{name} is {value!r:.40}, not from {declared.least:g} to {declared.most:g}")
    return declared.kind(value)
