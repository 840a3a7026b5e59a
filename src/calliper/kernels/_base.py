"""What a kernel answers, and the arithmetic that all of them share.

A method asks a kernel for one of a few things and never asks what kernel it is: scales without
two points (Jackknife+), thresholds over a bag (full conformal), a mean or a quantile of other data.
A kernel overrides what it can do; the rest refuses by name. To add one, write a file with a
subclass of :class:`Kernel` and name it in ``kernels/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray
from calliper.quantile import Shares, row_order_statistics, row_thresholds, with_signs

#: Where one point carries more than this part of a sum, the rest is summed without it.
DOMINANT = 0.999

#: What draws samples.
Rng = np.random.RandomState

#: Rows, or numbers for each, where they are known.
Rows = FloatArray | None

#: Scales at some level, (candidates, N).
ScalesAtLevel = Callable[[float], FloatArray]

#: Quantiles of other data at rows and levels, (m, L).
LocalQuantile = Callable[[FloatArray, Sequence[float]], FloatArray]


class LocalMean(Protocol):
    """A mean over other data, at new rows."""

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean at each row, (m,)."""


class Bag(Protocol):
    """Thresholds t_i of the full method, with one constant added to every scale."""

    offset: float
    scores: FloatArray

    def with_offset(self, offset: float) -> Self:
        """The same bag with another constant; nothing is searched or summed again."""

    def extended(self, Z: FloatArray, magnitudes: FloatArray, scores: FloatArray) -> Self | None:
        """A bag of all these points, of which the first are those at hand; None if not known."""
        return None

    def for_file(self) -> dict[str, Any]:
        """What a file holds of it since it is dear, by name; nothing if it is quickly made."""
        return {}

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i, by weight if given: (m, L)."""

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        """All thresholds t_i of a few rows, (m, N), if slope·t is added to all scales.

        In the order of the calibration points. The level matters for quantiles of neighbours only.
        """

    def rising_order_statistic(
        self, Z: FloatArray, level: float, slope: float, shares: Shares | None = None
    ) -> FloatArray:
        """The same at one level, (m,), if slope·t is added to all scales; O(N) a row."""

        def select(rows: slice) -> FloatArray:
            own = shares and shares.of_rows(rows)
            return row_thresholds(self.thresholds(Z[rows], level, slope), [level], own)[:, 0]

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))

    def signed_order_statistics(
        self, Z: FloatArray, signs: FloatArray, ranks: list[int], *, slope: float = 0.0
    ) -> FloatArray:
        """For each row and rank, the rank-th smallest of ±t_i with signs (N,): (m, L)."""

        def select(rows: slice) -> FloatArray:
            values = with_signs(self.thresholds(Z[rows], slope=slope), signs)
            return row_order_statistics(values, ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))


class LeaveTwoOut(ABC):
    """Scales that the Jackknife+ compares: without the point, and without it and the new one.

    Attributes
    ----------
    without_one : (N,) scale at every calibration point without itself
    n_folds : number of folds that are left out, or None where single points are
    """

    without_one: FloatArray
    n_folds: int | None = None

    def for_file(self) -> dict[str, Any]:
        """What a file holds of it since it was drawn or is dear, by name."""
        return {}

    @abstractmethod
    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows without each calibration point."""

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}, which are kept."""
        self.rescaled = rescale(scores, self.without_one)
        return self.rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""

        def select(rows: slice) -> FloatArray:
            return row_order_statistics(times(self.without_each(Z[rows]), self.rescaled), ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.without_one)))

    def weighted_order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares
    ) -> FloatArray:
        """The same by weight, for each row and level: (m, L)."""

        def select(rows: slice) -> FloatArray:
            values = times(self.without_each(Z[rows]), self.rescaled)
            return row_thresholds(values, levels, shares.of_rows(rows))

        return np.concatenate(map_row_blocks(select, len(Z), 4 * len(self.without_one)))

    def largest(self, Z: FloatArray) -> FloatArray:
        """For each row, the largest of the scales without each point, (m,)."""

        def largest(rows: slice) -> FloatArray:
            return np.asarray(self.without_each(Z[rows]).max(axis=1))

        return np.concatenate(map_row_blocks(largest, len(Z), len(self.without_one)))


class Kernel:
    """Who speaks for a point, and how loudly.

    Attributes
    ----------
    learns_on_errors : whether :meth:`fixed` needs training or left-out errors
    takes_inputs : whether features are raw inputs, not places whose distances say who is near
    by_distance : whether nearness is a fixed function of distances, in whatever space
    counts_neighbors : whether a fixed number of points speak, all equally loud
    smoothing : how many points the mean of all counts for in a local mean
    takes_device : whether rows may be tensors on a torch device
    engine : where to compute, if not where rows are

    Examples
    --------
    >>> from calliper import KNN
    >>> isinstance(KNN(10), Kernel), KNN(10).counts_neighbors
    (True, True)
    """

    learns_on_errors: bool = False
    by_distance: bool = False
    counts_neighbors: bool = False
    smoothing: float = 0.0
    takes_device: bool = False
    engine: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what :meth:`resolved` cannot do without, as ``fit`` of a method names it."""
        return ()

    @property
    def takes_inputs(self) -> bool:
        """Whether features are raw inputs, and not places whose distances say who is near."""
        return False

    def resolved(self, Z_train: Rows = None, rng: Rng | None = None) -> Kernel:
        """A copy with its parameters checked and those that training inputs decide filled in."""
        return self

    def fixed(self, Z_train: Rows, scores_train: Rows, rng: Rng) -> Kernel:
        """A kernel that depends on training data alone: tuned or learnt on training errors."""
        return self

    def leave_two_out(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        offset: float,
        rng: Rng,
        Z_train: Rows = None,
    ) -> LeaveTwoOut:
        """Scales of the Jackknife+.

        Parameters
        ----------
        Z, magnitudes : (N, d) and (N,) calibration points, N ≥ 2, and what scales are made of
        offset : constant added to every scale
        rng : draws what a tuned kernel needs drawn
        Z_train : (n, d) training inputs, if there are any
        """
        raise TypeError(
            f"no leave-two-out scale is known for {self!r}: use FullRescaled, or another kernel."
        )

    def bag(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        statistic: str,
        offset: float,
    ) -> Bag:
        """Thresholds of full conformal.

        Parameters
        ----------
        Z, magnitudes : (N, d) and (N,) calibration points and what scales are made of
        scores : (N,) what is divided by scales
        statistic : "mean", "rms" or "quantile" of the neighbours; for "rms", squares are given
        offset : constant added to every scale
        """
        raise TypeError(f"no scale over the bag is known for {self!r}.")

    def leave_two_out_again(self, known: dict[str, Any], *given: Any, **how: Any) -> LeaveTwoOut:
        """As :meth:`leave_two_out`, with what it said in ``for_file`` before."""
        return self.leave_two_out(*given, **how)

    def bag_again(self, known: dict[str, Any], *given: Any, **how: Any) -> Bag:
        """As :meth:`bag`, with what it said in ``for_file`` before."""
        return self.bag(*given, **how)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> LocalMean:
        """The local mean, at new rows, of ``magnitudes`` observed at ``Z``."""
        raise TypeError(
            f"no local mean is known for {self!r}: use FullRescaled, or another kernel."
        )

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        """The local quantile, at new rows and levels, of ``scores`` observed at ``Z``."""
        raise TypeError(
            f"SLCP takes KNN, RBF without smoothing, TunedKNN or TunedRBF; got {self!r}."
        )

    def widened(self, multiple: float, most: int) -> Kernel:
        """The same with its reach multiplied; ``most`` is how many neighbours there may be."""
        raise TypeError(f"nothing is known that would be wider than {self!r}.")

    @classmethod
    def scales_of_others(
        cls,
        kernels: Sequence[Any],
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        statistic: str,
    ) -> ScalesAtLevel:
        """Scales of all points without themselves, for several kernels of this class at once."""
        raise TypeError(f"no scales to compare are known for {cls.__name__}.")


def as_kernel(given: Any, default: Kernel | None = None) -> Kernel:
    """The kernel given, or the default in place of None."""
    kernel = default if given is None else given
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be KNN(...), RBF(...), GradedKNN(...), ForestProximity(...), "
            f"Mahalanobis(...), TunedKNN(...) or TunedRBF(...); got {kernel!r}."
        )
    return kernel


def rescale(scores: FloatArray, scale: FloatArray) -> FloatArray:
    """S / ŝ; +∞ wherever ŝ = 0, even for s = 0.

    The rule follows from comparing scores by cross-multiplication, s_i ŝ_j > s_j ŝ_i: a point of
    zero scale loses no comparison, and only an infinite rescaled score never loses one. Likewise a
    ratio too small to have all its digits is raised to the next number, and never to zero.
    """
    rescaled = np.full_like(scores, np.inf)
    with np.errstate(over="ignore", under="ignore"):  # an infinite ratio is valid
        np.divide(scores, scale, out=rescaled, where=scale > 0)
    lossy = (scores > 0) & (rescaled < np.finfo(np.float64).tiny)
    return np.where(lossy, np.nextafter(rescaled, np.inf), rescaled) if lossy.any() else rescaled


def times(scale: FloatArray, rescaled: FloatArray) -> FloatArray:
    """ŝ · s⁺ in place of the scales; infinite where s⁺ is, even if the scale is zero."""
    with np.errstate(invalid="ignore"):
        scale *= rescaled
    np.copyto(scale, np.inf, where=np.isinf(rescaled))
    return scale


def positive_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The t ≥ 0 with quadratic·t² + linear·t = constant, for non-negative coefficients.

    2c / (b + √(b² + 4ac)) never subtracts. Where b = a = 0 nothing bounds t, unless c = 0 too
    and a > 0, when t = 0.
    """
    with np.errstate(over="ignore"):
        denominator = linear + np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    root: FloatArray = np.where((constant == 0) & (np.asarray(quadratic) > 0), 0.0, np.inf)
    np.divide(2 * constant, denominator, out=root, where=denominator > 0)
    return root


def signed_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The largest t ≥ 0 with quadratic·t² + linear·t ≤ constant.

    Here quadratic > 0 and constant ≥ 0, while the linear term may have any sign; whichever of
    the two forms of the root does not subtract is taken.
    """
    root = np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    outer = (np.maximum(-linear, 0.0) + root) / (2 * quadratic)
    return np.where(linear < 0, outer, positive_root(quadratic, np.maximum(linear, 0.0), constant))
