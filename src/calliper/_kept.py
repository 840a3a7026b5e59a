"""How a class declares what a file keeps of it: each number with its type, shape and range.

``keeps`` of a class maps names to the declarations below; a :class:`Keeps` has it from its fields,
``reach: Annotated[FloatArray, Array("float64", ("N",))]``. ``calliper.files`` checks every value of
a file against them before anything uses it; then constructors run, and ``fit`` computes the rest.
Sizes in shapes are names: N calibration rows, d features, n other rows. The same name means the
same size throughout one object.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import get_annotations
from math import inf
from typing import Any, ClassVar, get_args

import numpy as np

from calliper.exceptions import CalliperError


@dataclass(frozen=True)
class Array:
    """Numbers of one type in a file, which ``becomes`` another in memory.

    Sizes are numbers or names; ``most`` may name a size, which the numbers must be below.
    """

    dtype: str
    shape: tuple[str | int, ...]
    least: float = -inf
    most: float | str = inf
    finite: bool = True
    optional: bool = False
    becomes: str | None = None


@dataclass(frozen=True)
class Number:
    """One number, of type float, int or bool, in a range."""

    kind: type = float
    least: float = -inf
    most: float = inf
    finite: bool = True
    optional: bool = False


@dataclass(frozen=True)
class Text:
    """A text, one of ``choices`` if there are any."""

    choices: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Part:
    """An instance of a module's classes that files may contain, fitted; or a list of them."""

    module: str
    optional: bool = False
    several: bool = False


@dataclass(frozen=True)
class Inline:
    """An object of this class, which the file does not name; or a list of them."""

    kind: Any
    optional: bool = False
    several: bool = False


@dataclass(frozen=True)
class OneOf:
    """An object of one of several classes, each with a name of its own in the file."""

    kinds: Mapping[str, Any]


@dataclass(frozen=True)
class Opened:
    """The user's model taken apart, to which a file only refers."""


@dataclass(frozen=True)
class NameList:
    """Names of columns or targets: texts, numbers, or whatever else can be one."""

    optional: bool = False


@dataclass(frozen=True)
class Plain:
    """Any value of a parameter: numbers, texts, lists, arrays, or an object that files know.

    An object of the user's is passed again to ``load``, by its ``name`` if it has one here.
    """

    name: str = ""


Field = Array | Number | Text | Part | Inline | OneOf | Opened | NameList | Plain

#: The columns of the rows that a regressor was given.
COLUMN_FIELDS: dict[str, Field] = {"n_columns": Number(int, 0, optional=True), "names": NameList()}


class Keeps:
    """A plain class whose objects are restored from what ``keeps`` declares."""

    keeps: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hints = get_annotations(cls, eval_str=True).items()
        own = {n: how for n, hint in hints for how in get_args(hint)[1:] if isinstance(how, Field)}
        cls.keeps = {**cls.keeps, **own}

    def for_file(self) -> dict[str, Any]:
        """What a file holds of it, by the names of ``keeps``."""
        return {name: getattr(self, name) for name in self.keeps}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Any:
        """The object, from checked values."""
        made = cls(**state)
        made.check_kept()
        return made

    def check_kept(self) -> None:
        """Refuse values of a file that do not fit one another."""


def columns_for_file(estimator: Any) -> dict[str, Any]:
    """The columns that it was fitted to, for a file: how many, and their names."""
    own = vars(estimator)
    return {"n_columns": own.get("n_features_in_"), "names": [*own.get("feature_names_in_", ())]}


def restore_columns(estimator: Any, state: Mapping[str, Any]) -> None:
    """Remember the columns that a file holds."""
    if state["n_columns"] is not None:
        estimator.n_features_in_ = state["n_columns"]
    if state["names"]:
        if state["n_columns"] not in (None, len(state["names"])):  # inputs by name have no columns
            raise CalliperError("the numbers of names and of columns differ.")
        estimator.feature_names_in_ = np.array(state["names"], dtype=object)
