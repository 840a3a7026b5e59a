"""The result: a lower and an upper end for each row, level and target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import get_config

from calliper._notebook import aligned, card, interval_bars, sampled, table
from calliper._types import BoolArray, FloatArray, Frame, IntArray
from calliper._validation import check_option, check_vector, labels_of
from calliper._writing import plain, to_text
from calliper.exceptions import CalliperError
from calliper.rows import same_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: Rows shown at the start and at the end, and targets that a notebook draws.
N_SHOWN, N_TARGETS_SHOWN = 5, 6


class Ends:
    """A lower and an upper end, arrays of the same shape."""

    lower: FloatArray
    upper: FloatArray

    def __iter__(self) -> Iterator[FloatArray]:
        yield self.lower
        yield self.upper

    @property
    def width(self) -> FloatArray:
        """Upper minus lower end; infinite where an end is."""
        with np.errstate(over="ignore"):
            return self.upper - self.lower


@dataclass(frozen=True, eq=False)
class Intervals(Ends):
    """Closed prediction intervals; unpacks as ``lower, upper``.

    ``intervals[rows]``, with a slice, a mask or row numbers, gives the intervals of these rows,
    ``np.asarray(intervals)`` both ends side by side: (m, 2), or (m, 2, L) for L levels.

    Parameters
    ----------
    lower, upper : (m,), or (m, L) for L levels; ``-inf`` and ``inf`` mean "no bound"
    coverage : float or tuple of floats, optional; the requested level or levels
    index : optional; row labels of the frame that they belong to, by default those of ``lower``
    centre : (m,), optional; the prediction, corrected by its expected error if known

    Examples
    --------
    >>> intervals = Intervals(np.array([1.0, 2.0]), np.array([3.0, 2.5]))
    >>> lower, upper = intervals
    >>> intervals.width, intervals.contains([3.0, 2.6])
    (array([2. , 0.5]), array([ True, False]))
    >>> intervals[intervals.width < 1]
    Intervals(1 row)
       lower  upper
    0      2    2.5
    """

    lower: FloatArray
    upper: FloatArray
    coverage: float | tuple[float, ...] | None = None
    index: Any = None
    centre: FloatArray | None = None

    def __post_init__(self) -> None:
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if lower.shape != upper.shape or lower.ndim not in (1, 2):
            what = "lower and upper must have the same shape, (m,) or (m, L)"
            raise CalliperError(f"{what}; got {lower.shape} and {upper.shape}.")
        wrong = np.argwhere(~(lower <= upper) | ((lower == upper) & np.isinf(lower)))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise CalliperError(
                "lower must not exceed upper, and an open end is -inf below and inf above; at "
                f"{at} they are {lower[at]} and {upper[at]} ({len(wrong)} in total)."
            )
        n, n_levels = lower.shape[-1:], np.shape(np.atleast_1d(np.asarray(self.coverage)))
        if self.coverage is not None and lower.ndim == 2 and n_levels != n:
            raise CalliperError(f"lower has {n[0]} columns, but coverage {n_levels[0]} levels.")
        if lower is not self.lower or upper is not self.upper:  # arrays have no labels
            same_rows(self.lower, "lower", upper=self.upper)
            if self.index is None:
                object.__setattr__(self, "index", labels_of(self.lower))
            object.__setattr__(self, "lower", lower)
            object.__setattr__(self, "upper", upper)

    def __len__(self) -> int:
        raise TypeError(
            "len() is not defined for Intervals, which unpack as lower, upper = intervals: use "
            f"len(intervals.lower) for the number of rows, {len(self.lower)}."
        )

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, rows: Any) -> Intervals:
        """The intervals of some rows: a slice, a mask, or row numbers."""
        if not isinstance(rows, slice):
            rows = self._row_numbers(rows)
        labels = self.index
        if labels is not None:
            numbers = np.arange(len(self.lower))[rows]
            held = hasattr(labels, "equals")  # a slice of a pandas index is of its kind
            labels = labels[rows] if held else [labels[i] for i in numbers]
        centre = None if self.centre is None else np.asarray(self.centre)[rows]
        return Intervals(self.lower[rows], self.upper[rows], self.coverage, labels, centre)

    def _row_numbers(self, rows: Any) -> IntArray:
        """Rows that a mask or numbers pick, (n,)."""
        found, every = np.asarray(rows), np.arange(len(self.lower))
        if found.dtype == object and all(isinstance(each, bool | np.bool_) for each in found.flat):
            found = found.astype(bool)  # a nullable mask of pandas
        known = found.dtype.kind in "biu" or not found.size
        if isinstance(rows, tuple) or found.ndim != 1 or not known:
            what = "intervals[...] selects rows by a slice, a mask or numbers, as intervals[[0]]"
            ends = "The lower and upper ends are intervals.lower and intervals.upper"
            level = "for one level, use intervals.at(level)"
            raise CalliperError(f"{what}; got {rows!r:.60}. {ends}; {level}.")
        if found.dtype == bool:
            same_rows(self, "intervals", mask=rows)
        try:
            return np.asarray(every[found if found.dtype == bool else found.astype(np.intp)])
        except IndexError as error:
            raise IndexError(
                f"there are {len(every)} intervals: a mask must have one value for each, and "
                f"numbers must be below {len(every)}; got {rows!r:.60}."
            ) from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """Lower and upper ends side by side: (m, 2), or (m, 2, L) for L levels."""
        if copy is False:
            raise ValueError("an array of both ends is always a copy: leave out copy=False.")
        return np.stack([self.lower, self.upper], axis=1).astype(dtype or float, copy=False)

    def contains(self, y: Any) -> BoolArray:
        """Whether each target lies in its interval, ends included; (m, L) for L levels.

        If the rows and ``y`` have labels, as in pandas, they must be in the same order.
        """
        (y,) = same_rows(self, "intervals", y=y)
        target = check_vector(y, "y", n=len(self.lower))
        target = target.reshape(-1, *[1] * (self.lower.ndim - 1))
        return np.asarray((self.lower <= target) & (target <= self.upper))

    def at(self, coverage: float) -> Intervals:
        """The intervals at one of the requested levels."""
        levels = np.atleast_1d(np.asarray(self.coverage, float))
        found = np.flatnonzero(np.isclose(levels, coverage, rtol=0, atol=1e-12))
        if self.coverage is None or not len(found):
            raise CalliperError(
                f"no intervals at level {coverage}; the levels are {self.coverage}."
            )
        if self.lower.ndim == 1:
            return self
        column = int(found[0])
        lower, upper = self.lower[:, column], self.upper[:, column]
        return replace(self, lower=lower, upper=upper, coverage=float(levels[column]))

    def column_names(self) -> list[str]:
        """Columns of :meth:`to_frame`: ``lower`` and ``upper``, with the level if several."""
        if self.lower.ndim == 1:
            return ["lower", "upper"]
        return [f"{end}_{level}" for level in self._levels() for end in ("lower", "upper")]

    def __repr__(self) -> str:
        return "\n".join([self._summary(), *aligned(self._shown())])

    def _repr_html_(self) -> str:
        return self._drawn(self._summary(), table(self._shown()))

    def _drawn(self, title: str, *more: str) -> str:
        """Widths at up to three levels in words, and a few intervals as bars, for notebooks."""
        known = self.centre is not None and np.shape(self.centre) == self.lower.shape[:1]
        picture = interval_bars(self.lower, self.upper, self.centre if known else None)
        words, width = [], self.width if self.lower.ndim == 2 else self.width[:, None]
        for at in sampled(width.shape[1], 3) if width.size else ():
            each, level = width[:, at], "" if self.lower.ndim == 1 else f" at {self._levels()[at]}"
            half = f"half of them below {np.median(each):.4g}"
            words.append(f"Width{level}: {each.min():.4g} to {each.max():.4g}, {half}")
        return card(title, words, picture, *more)

    def _levels(self) -> FloatArray:
        """Levels of the columns of ends, or column numbers if no levels are known."""
        known = range(self.lower.shape[1]) if self.coverage is None else self.coverage
        return np.atleast_1d(known)

    def _summary(self) -> str:
        """How many there are, at which level, and the share of infinite ones."""
        m, levels = len(self.lower), "" if self.coverage is None else f", coverage {self.coverage}"
        infinite = float(np.isinf(self.width).mean()) if m else 0.0
        unbounded = f", {infinite:.1%} infinite" if infinite else ""
        return f"Intervals({m:,} {'row' if m == 1 else 'rows'}{levels}{unbounded})"

    def _shown(self) -> list[list[str]]:
        """Column names, then the ends of the first and last rows."""
        m = len(self.lower)
        shown = [*range(m)] if m <= 2 * N_SHOWN else [*range(N_SHOWN), *range(m - N_SHOWN, m)]
        labels = range(m) if self.index is None else self.index
        ends = self.ends()
        rows = [[str(labels[i]), *(f"{end:.6g}" for end in ends[i])] for i in shown]
        if m > 2 * N_SHOWN:
            rows.insert(N_SHOWN, ["…"] * (1 + ends.shape[1]))
        return [["", *self.column_names()], *rows]

    def to_frame(self, library: str | None = None) -> pd.DataFrame | pl.DataFrame:
        """A "pandas" frame (with the index of the rows) or "polars" frame with the ends as columns.

        By default of that which scikit-learn is set to (``transform_output``), else pandas.
        """
        return as_frame(self.ends(), self.column_names(), self.index, library)

    def ends(self) -> FloatArray:
        """Lower and upper ends side by side, a column for each of :meth:`column_names`."""
        shape = len(self.lower), len(self.column_names())
        return np.stack([self.lower, self.upper], axis=-1).reshape(shape)

    def to_dict(self) -> dict[str, Any]:
        """A dict for strict JSON, by attribute name.

        An end without a bound is the text ``"-inf"`` or ``"inf"``; labels such as dates are text.
        """
        given = {"lower": self.lower, "upper": self.upper, "coverage": self.coverage}
        labels = None if self.index is None else [_label(each) for each in self.index]
        return {**plain(given), "index": labels, "centre": plain(self.centre)}

    def to_json(self) -> str:
        """:meth:`to_dict` as text; :meth:`from_json` reads it back exactly."""
        return to_text(self.to_dict())

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> Intervals:
        """Intervals from the text of :meth:`to_json`, or from the values of :meth:`to_dict`."""
        try:
            read = source if isinstance(source, Mapping) else json.loads(source)
            level, labels, centre = (read.get(name) for name in ("coverage", "index", "centre"))
            lower, upper = (np.array(read[end], dtype=np.float64) for end in ("lower", "upper"))
            if isinstance(level, list):
                level = tuple(level)
                if not lower.size:
                    lower = upper = np.empty((0, len(level)))
            labels = labels and [tuple(each) if isinstance(each, list) else each for each in labels]
            centre = None if centre is None else np.array(centre, dtype=np.float64)
            return cls(lower, upper, level, labels, centre)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CalliperError(
                f"expected the output of Intervals.to_json; it cannot be read ({error!r})."
            ) from error


def as_frame(
    ends: FloatArray, names: list[str], index: Any, library: str | None
) -> pd.DataFrame | pl.DataFrame:
    """Columns as a frame of a library; None means the one that scikit-learn is set to use."""
    if library is not None:
        check_option(library, ("pandas", "polars"), "library")
    if (library or get_config()["transform_output"]) == "polars":
        import polars as pl

        return pl.DataFrame(ends, schema=names, orient="row")
    import pandas as pd

    return pd.DataFrame(ends, columns=names, index=index)


def _label(value: Any) -> Any:
    """A row label for JSON; multi-level labels become lists."""
    if isinstance(value, tuple):
        return [_label(each) for each in value]
    known = plain(value)
    return known if isinstance(known, str | int | float | None) else str(value)


@dataclass(frozen=True, eq=False)
class Boxes(Ends):
    """A closed interval for each target of each row; unpacks as ``lower, upper``.

    Parameters
    ----------
    intervals : one ``Intervals`` for each of k targets, of the same rows and levels
    names : of the targets; ``boxes[name]`` are the intervals of one
    joint : whether the level holds for all targets together, or for each by itself

    Examples
    --------
    >>> sides = Intervals([0.0, 1.0], [2.0, 3.0]), Intervals([0.0, 0.0], [10.0, 5.0])
    >>> boxes = Boxes(sides, ("height", "weight"))
    >>> boxes, boxes.contains([[1.0, 5.0], [2.0, 9.0]])
    (Boxes(2 rows, 2 targets: height, weight; joint), array([ True, False]))
    """

    intervals: tuple[Intervals, ...]
    names: tuple[Any, ...]
    joint: bool = True

    def __getitem__(self, name: Any) -> Intervals:
        if name not in self.names:
            raise KeyError(f"no target {name!r}; there are {listed(self.names)}.")
        return self.intervals[self.names.index(name)]

    @property
    def lower(self) -> FloatArray:  # type: ignore[override]
        """Lower ends, (m, k), or (m, k, L) for L levels."""
        return np.stack([each.lower for each in self.intervals], axis=1)

    @property
    def upper(self) -> FloatArray:  # type: ignore[override]
        """Upper ends, (m, k), or (m, k, L) for L levels."""
        return np.stack([each.upper for each in self.intervals], axis=1)

    @property
    def volume(self) -> FloatArray:
        """Product of the widths, (m,), or (m, L); infinite where one of them is."""
        width = self.width
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(np.isinf(width).any(axis=1), np.inf, width.prod(axis=1))

    def contains(self, y: Any) -> BoolArray:
        """Whether all targets of a row, (m, k), lie in their intervals: (m,), or (m, L)."""
        same_rows(self.intervals[0], "intervals", y=y)
        columns = check_targets(y, "y", self.names).T
        inside = [each.contains(y) for each, y in zip(self.intervals, columns, strict=True)]
        return np.asarray(np.all(inside, axis=0))

    def to_frame(self, library: str | None = None) -> pd.DataFrame | pl.DataFrame:
        """Columns ``<target>_lower``, ``<target>_upper``, …; see :meth:`Intervals.to_frame`."""
        ends = np.concatenate([each.ends() for each in self.intervals], axis=1)
        columns = self.intervals[0].column_names()
        names = [f"{name}_{column}" for name in self.names for column in columns]
        return as_frame(ends, names, self.intervals[0].index, library)

    def __repr__(self) -> str:
        m, level = len(self.intervals[0].lower), self.intervals[0].coverage
        names = f"{len(self.names)} targets: {listed(self.names)}"
        together = "joint" if self.joint else "each by itself, not joint"
        return f"Boxes({m:,} rows, {names}; {f'coverage {level}, ' if level else ''}{together})"

    def _repr_html_(self) -> str:
        shown = [*zip(self.names, self.intervals, strict=True)][:N_TARGETS_SHOWN]
        parts = (each._drawn(f"target {name}") for name, each in shown)
        rest = len(self.names) - len(shown)
        return card(repr(self), [f"and {rest} more targets"] if rest else [], *parts)


def check_targets(y: Any, name: str, names: tuple[Any, ...]) -> FloatArray:
    """Finite targets, (n, k), in the order of ``names``: by name where a frame has them."""
    found = target_names(y)
    if set(found) == set(names):
        y = y[list(names)] if isinstance(y, Frame) else y
    elif len(found) != len(names) or (isinstance(y, Frame) and names != (*range(len(names)),)):
        what = f"{name} must have {len(names)} targets"
        raise CalliperError(f"{what}: {listed(names)}; got {len(found)}: {listed(found)}.")
    columns = enumerate(np.asarray(y).T)
    return np.stack([check_vector(each, f"{name} ({names[j]})") for j, each in columns], axis=1)


def target_names(y: Any) -> tuple[Any, ...]:
    """Names of the columns of a frame; 0, 1, … of anything else that has columns."""
    if isinstance(y, Frame):
        return tuple(y.columns)
    shape = np.asarray(y).shape
    if len(shape) != 2 or not shape[1]:
        what = f"y must have a column for each target, shape (n, k); got shape {shape}"
        raise CalliperError(f"{what}. Use ConformalRegressor for one target, or y.reshape(-1, 1).")
    return tuple(range(shape[1]))


def listed(names: tuple[Any, ...]) -> str:
    """Names, with commas."""
    return ", ".join(map(str, names))
