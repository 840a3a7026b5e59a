"""What a kernel provides: the contract between kernels and the methods that use them.

A method uses one of a few things and never checks the type of the kernel: scales without two
points (Jackknife+), thresholds over a bag (full conformal), a mean or a quantile of other data. A
kernel overrides what it can do; the rest is refused by name. To add one, write a file with a
subclass of :class:`Kernel` and name it in ``kernels/__init__.py``. If its weights do not depend on
scores, ``Weights`` of ``_weighted.py`` is all there is to write.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray
from calliper._validation import check_size
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import rescale, times
from calliper.quantile import Shares, row_order_statistics, row_thresholds, with_signs
from calliper.rows import Rows

#: What draws samples.
Rng = np.random.RandomState
#: Rows, or numbers for each, where they are known.
Known = FloatArray | None
#: Results that a file holds, by name.
Stored = Mapping[str, Any]
NOTHING: Stored = MappingProxyType({})
#: A parameter of a kernel, whose products with others are finite.
check_parameter = partial(check_size, most=1e30)
#: Scales at some level, (candidates, N).
ScalesAtLevel = Callable[[float], FloatArray]
#: Quantiles of other data at rows and levels, (m, L).
LocalQuantile = Callable[[FloatArray, Sequence[float]], FloatArray]


def named_kernels() -> "dict[str, type[Kernel]]":
    """Every kernel that has a name on the command line, by that name."""
    from calliper import kernels

    every = [getattr(kernels, name) for name in kernels.__all__]
    named = [each for each in every if isinstance(each, type) and issubclass(each, Kernel)]
    return {each.cli: each for each in sorted(named, key=lambda each: each.cli or "") if each.cli}


def stored(known: Stored, name: str) -> Any:
    """What a file holds under this name; refused if it lacks that. None where there is no file."""
    if known and known.get(name) is None:
        raise CalliperError(f"the file lacks {name!r} of its points, which is not computed again.")
    return known.get(name)


class Bag(ABC):
    """Thresholds t_i of the full method: scores, (N,), are divided by scales plus an offset."""

    offset: float
    scores: FloatArray

    def for_file(self) -> dict[str, Any]:
        """What a file stores because it is expensive, by name."""
        return {}

    @abstractmethod
    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration rows without the new one, (N,)."""

    @abstractmethod
    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        """All t_i of a few rows, (m, N); the level is for quantiles, slope·t is added to scales."""

    def with_offset(self, offset: float) -> Self:
        """The same bag with another constant; nothing is searched or summed again."""
        other = copy(self)
        other.offset = offset
        return other

    def extended(self, rows: Rows) -> "Bag | None":
        """A bag of these points, of which the first are the present ones; None if no gain."""
        return None

    def order_statistics(
        self, Z: FloatArray, asked: Any, shares: Any = None, slope: float = 0.0, signs: Any = None
    ) -> FloatArray:
        """Thresholds t_i at levels, by weight if given, or at ranks of ±t_i with signs: (m, L).

        With a slope, of levels with the same scale.
        """

        def select(rows: slice) -> FloatArray:
            if signs is not None:
                values = with_signs(self.thresholds(Z[rows], slope=slope), signs)
                return row_order_statistics(values, asked)
            own = shares and shares.of_rows(rows)
            return row_thresholds(self.thresholds(Z[rows], asked[0], slope), asked, own)

        return np.concatenate(map_row_blocks(select, len(Z), 4 * len(self.scores)))


class LeaveTwoOut:
    """Scales that the Jackknife+ compares: without the point, (N,), and without it and the new one.

    ``means`` has ``to``, which gives (m, N) means at new rows without each calibration row.
    """

    #: How many folds are left out, or None where single points are.
    n_folds: int | None = None

    def __init__(self, means: Any, offset: float, without_one: FloatArray) -> None:
        self.means, self.offset, self.without_one = means, offset, without_one

    def for_file(self) -> dict[str, Any]:
        """What a file stores because it was drawn or is expensive, by name."""
        return {"without_one": self.without_one}

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows without each calibration row."""
        means: FloatArray = self.means.to(Z)
        return means + self.offset if self.offset else means

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}, which are kept."""
        self.rescaled = rescale(scores, self.without_one)
        return self.rescaled

    def order_statistics(
        self, Z: FloatArray, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        """Order statistics of ŝ_{N+1,i} s_i⁺ over i, at ranks, or at levels by weight: (m, L)."""

        def select(rows: slice) -> FloatArray:
            values = times(self.without_each(Z[rows]), self.rescaled)
            if shares is None:
                return row_order_statistics(values, asked)
            return row_thresholds(values, asked, shares.of_rows(rows))

        return np.concatenate(map_row_blocks(select, len(Z), 4 * len(self.without_one)))

    def largest(self, Z: FloatArray) -> FloatArray:
        """For each row, the largest of the scales without each point, (m,)."""
        blocks = map_row_blocks(
            lambda rows: self.without_each(Z[rows]).max(axis=1), len(Z), len(self.without_one)
        )
        return np.concatenate(blocks)


class Kernel:
    """Which points count for a new point, and how much.

    Attributes
    ----------
    cli : its name on the command line, if it has one
    needs : what :meth:`resolved` requires, in the words of ``fit`` of a method
    learns_on_errors : whether :meth:`fixed` needs training or left-out errors
    takes_inputs : whether features are raw inputs rather than points in a space with distances
    by_distance : whether nearness is a fixed function of distances
    counts_neighbors : whether a fixed number of points count, all equally
    smoothing : how many points the mean of all counts for in a local mean
    engines : names of engines, besides NumPy, that can compute it
    engine : the engine to use, if not the one that holds the rows
    moved : maps rows to the space that the kernel was fixed in; None where that is their own

    Examples
    --------
    >>> from calliper import KNN
    >>> isinstance(KNN(10), Kernel), KNN(10).counts_neighbors
    (True, True)
    """

    cli: str | None = None
    needs: tuple[str, ...] = ()
    takes_inputs: bool = False
    learns_on_errors: bool = False
    by_distance: bool = False
    counts_neighbors: bool = False
    smoothing: float = 0.0
    engines: tuple[str, ...] = ()
    engine: str | None = None
    moved: Any = None

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> "Kernel":
        """A copy with parameters checked, and those that training inputs determine filled in."""
        return self

    def fixed(self, Z_train: Known, scores_train: Known, rng: Rng) -> "Kernel":
        """A kernel that depends on training data alone: tuned or learnt on training errors."""
        return self

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None, known: Stored = NOTHING
    ) -> LeaveTwoOut:
        """Leave-two-out scales of the Jackknife+ from magnitudes of N ≥ 2 rows, plus a constant.

        ``known`` is what ``for_file`` returned for the same rows; ``rng`` draws for tuned kernels.
        """
        raise TypeError(
            f"{self!r} does not support leave-two-out scales: use FullRescaled, or another kernel."
        )

    def bag(self, rows: Rows, *, statistic: str, offset: float, known: Stored = NOTHING) -> Bag:
        """Thresholds of full conformal; new rows come in the form that :meth:`moved` returns.

        The statistic is the "mean", "rms" (then squares are given) or "quantile" of the neighbours'
        magnitudes, by which scores are divided; ``known`` is what ``for_file`` returned before.
        """
        raise TypeError(f"{self!r} does not support scales over a bag: use another kernel.")

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> Any:
        """The local mean of ``magnitudes`` observed at ``Z``; its ``predict`` takes new rows."""
        raise TypeError(
            f"{self!r} does not support local means: use FullRescaled, or another kernel."
        )

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        """The local quantile, at new rows and levels, of ``scores`` observed at ``Z``."""
        raise TypeError(
            f"SLCP takes KNN, RBF without smoothing, TunedKNN or TunedRBF; got {self!r}."
        )

    def widened(self, multiple: float, most: int) -> "Kernel":
        """A copy with its reach multiplied; ``most`` is the largest number of neighbours."""
        raise TypeError(f"{self!r} has no wider version.")

    @classmethod
    def scales_of_others(
        cls, kernels: Sequence[Any], Z: FloatArray, magnitudes: FloatArray, *, statistic: str
    ) -> ScalesAtLevel:
        """Scales of all points without themselves, for several kernels of this class at once."""
        raise TypeError(f"{cls.__name__} defines no scales to compare.")


def as_kernel(given: Any, default: Kernel | None = None) -> Kernel:
    """The kernel given, or the default in place of None."""
    kernel = default if given is None else given
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be KNN(...), RBF(...), GradedKNN(...), ForestProximity(...), "
            f"Mahalanobis(...), TunedKNN(...) or TunedRBF(...); got {kernel!r}."
        )
    return kernel
