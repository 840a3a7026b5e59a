"""Radial weights on a torch device: all N thresholds of a row are solved there, and one selected.

The equations are those of ``_rbf.py`` (and of ``_weighted.py``, where weights have a floor), in
double precision. Exponents −d²/2l² come from one matrix product where that is accurate to
δ = 10⁻¹¹, and from direct differences where it is not. A weight is then right up to a factor
e^±δ, a mean or scale up to e^±2δ, and the root t of k t² + A t = C, which does not decrease in C
and does not increase in k and A, up to e^±4δ. Thresholds are enlarged by ten δ: they are never too
small, and exceed those of the plain engine by less than twenty δ.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import EXPONENT_ERROR, Bag, LeaveTwoOut
from calliper.quantile import Shares, conformal_rank, row_thresholds
from calliper.scale._device import DeviceRows, Tensor, import_torch, to_columns
from calliper.scale._torch import BY_ROW, in_strips, squared_distances

torch = import_torch()

#: Thresholds are enlarged by this part.
ENLARGED = 1e-10
#: Arrays of the size of a tile that are alive at a time, counting double precision twice.
ALIVE = 12


class TorchRadial:
    """Exponents −d²/2l² to points, (N, d), on a device, and weights of them; as :class:`RBF`."""

    def __init__(
        self, rows: DeviceRows, length_scale: float, smoothing: float, step: float
    ) -> None:
        self.rows, self.two_l2 = rows, 2 * length_scale**2
        self.floor, self.side = smoothing / len(rows), step * length_scale if step else 0.0

    def leave_two_out(self, *given: Any) -> LeaveTwoOut:
        """Scales of the Jackknife+."""
        return LeaveTwoOutTorchRadial(self, *given)

    def bag(self, *given: Any) -> Bag:
        """Thresholds of full conformal."""
        return BagTorchRadial(self, *given)

    def mean(self, magnitudes: FloatArray) -> Any:
        """Not supported on a device."""
        raise CalliperError(
            f"{self.rows.device} computes radial weights for FullRescaled and JackknifeRescaled "
            f"only: leave out engine=."
        )

    local_quantile = mean

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "points"}

    @cached_property
    def points(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points (d, N), their mean (d, 1), points less it, and their squared norms (N,)."""
        columns = self.placed(self.rows)
        centre = columns.mean(dim=1, keepdim=True)
        return columns, centre, columns - centre, (columns - centre).square().sum(dim=0)

    def placed(self, rows: Any) -> Tensor:
        """Rows as columns, rounded to the grid if there is one."""
        columns = to_columns(rows, self.rows.device)
        return torch.round(columns / self.side) * self.side if self.side else columns

    def there(self, values: FloatArray) -> Tensor:
        """An array on the device."""
        return torch.as_tensor(np.ascontiguousarray(values), device=self.rows.device)

    def exponents(self, x: Tensor, own: slice | None = None) -> Tensor:
        """(m, N) exponents of queries (d, m); −∞ at themselves if they are these points."""
        columns, centre, points, points_norm = self.points
        centred = x - centre
        norm, rounding = centred.square().sum(dim=0), 4 * (len(x) + 4) * np.finfo(float).eps
        size = float(norm.max() + points_norm.max() + centre.square().sum())
        if rounding * size <= EXPONENT_ERROR * self.two_l2:
            tile = torch.addmm(points_norm, centred.T, points, alpha=-2)
            tile += norm[:, None]
            tile.clamp_(min=0)
        else:
            tile = squared_distances(x, BY_ROW, columns, slice(None))
        tile /= -self.two_l2
        if own is not None:
            row = torch.arange(x.shape[1], device=x.device)
            tile[row, row + own.start] = -torch.inf
        return tile

    def weights(self, exponent: Tensor) -> tuple[Tensor, Tensor]:
        """Weights up to a factor of each row, and the exponent that has weight one, (m,).

        With a floor, there is no factor.
        """
        if not self.floor:
            largest = exponent.amax(dim=1)
            return torch.exp(exponent - largest[:, None]), largest
        weight = torch.exp(exponent).add_(self.floor)
        weight.masked_fill_(torch.isinf(exponent), 0.0)
        return weight, torch.zeros_like(weight[:, 0])

    def mean_of_others(self, magnitudes: FloatArray) -> FloatArray:
        """(N, 3): mean of the others, sum of their weights, and the exponent of weight one."""
        sums, columns = self.there(magnitudes), self.points[0]

        def average(rows: slice) -> Tensor:
            weight, largest = self.weights(self.exponents(columns[:, rows], rows))
            total = weight.sum(dim=1)
            return torch.stack([weight @ sums / total, total, largest], dim=1)

        return self._in_strips(average, columns.shape[1])

    def of_rows(self, rows: Any, work: Callable[[Tensor], Tensor]) -> FloatArray:
        """What ``work`` makes of the exponents of new rows, (m, N), in main memory."""
        x = self.placed(rows)
        return self._in_strips(lambda part: work(self.exponents(x[:, part])), x.shape[1])

    def _in_strips(self, work: Callable[[slice], Tensor], m: int) -> FloatArray:
        entries, device = ALIVE * len(self.rows), self.rows.device
        parts = in_strips(lambda rows: work(rows).cpu().numpy(), m, entries, device)
        return np.concatenate([*parts])


class BagTorchRadial(Bag):
    """Thresholds t_i with radial weights, on a device."""

    def __init__(
        self, radial: TorchRadial, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.radial, self.magnitudes, self.scores, self.offset = radial, magnitudes, scores, offset
        self.mean, self.weight, self.largest = radial.mean_of_others(magnitudes).T

    def calibration_scale(self, level: float) -> FloatArray:
        return np.asarray(self.mean + self.offset)

    def order_statistics(
        self, Z: Any, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            return row_thresholds(self.thresholds(Z), levels, shares)
        ranks, solve = (
            [conformal_rank(level, len(self.scores)) for level in levels],
            self._solver(0),
        )
        return self.radial.of_rows(Z, lambda exponent: ranked(solve(exponent), ranks))

    def thresholds(self, Z: Any, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        return self.radial.of_rows(Z, self._solver(slope))

    def _solver(self, slope: float) -> Callable[[Tensor], Tensor]:
        """A function of exponents, (m, N), that gives thresholds, (m, N)."""
        arrays = (self.scores, self.magnitudes, self.weight, self.largest, self.mean + self.offset)
        scores, magnitudes, others, largest, scale = map(self.radial.there, arrays)
        linear = others * scale

        def solve(exponent: Tensor) -> Tensor:
            weight, _ = self.radial.weights(exponent)
            product = scores * ((weight @ magnitudes / weight.sum(dim=1)) + self.offset)[:, None]
            # A new point nearer than all others shrinks their weights instead of growing its own.
            excess = torch.sub(largest, exponent, out=weight)
            shrink = torch.exp(excess.clamp(max=0))
            entering = excess.clamp_(min=0).neg_().exp_().add_(self.radial.floor)
            total = shrink * others + entering
            rest = shrink.mul_(linear).add_(self.offset * entering)
            linear_term = rest.div_(total).sub_(slope * scores)
            found = signed_root(entering.div_(total).add_(slope), linear_term, product)
            return found.mul_(1 + ENLARGED)

        return solve


class LeaveTwoOutTorchRadial(LeaveTwoOut):
    """Radial means with one or two points left out, on a device."""

    def __init__(self, radial: TorchRadial, magnitudes: FloatArray, offset: float) -> None:
        self.radial, self.magnitudes, self.offset = radial, magnitudes, offset
        self.without_one: FloatArray = radial.mean_of_others(magnitudes)[:, 0] + offset

    def without_each(self, Z: Any) -> FloatArray:
        return self.radial.of_rows(Z, self._means)

    def order_statistics(
        self, Z: Any, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            return super().order_statistics(Z, asked, shares)
        rescaled = self.radial.there(self.rescaled)

        def select(exponent: Tensor) -> Tensor:
            value = self._means(exponent).mul_(rescaled)
            return ranked(value.masked_fill_(torch.isinf(rescaled), torch.inf), [*asked])

        return self.radial.of_rows(Z, select)

    def _means(self, exponent: Tensor) -> Tensor:
        """(m, N), with the offset, a little enlarged."""
        sums, (weight, _) = self.radial.there(self.magnitudes), self.radial.weights(exponent)
        weighted, row = weight * sums, torch.arange(len(weight), device=weight.device)
        heavy = weighted.argmax(dim=1), weight.argmax(dim=1)
        rest = weight.sum(dim=1)[:, None] - weight
        mean = (weighted.sum(dim=1)[:, None] - weighted).div_(rest)
        # Where a point carries most of a sum, the sum is made without it: subtracting would round.
        for left_out in heavy:
            kept = exponent[row, left_out]
            exponent[row, left_out] = -torch.inf
            others, _ = self.radial.weights(exponent)
            exponent[row, left_out] = kept
            mean[row, left_out] = (others @ sums) / others.sum(dim=1)
        return mean.add_(self.offset).mul_(1 + ENLARGED)


def ranked(values: Tensor, ranks: list[int]) -> Tensor:
    """The rank-th smallest of each row of (m, N), for each rank: (m, L)."""
    return torch.stack([values.kthvalue(rank, dim=1).values for rank in ranks], dim=1)


def positive_root(quadratic: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """As :func:`calliper.kernels.positive_root`, where quadratic > 0."""
    denominator = linear + torch.hypot(linear, (quadratic * constant).sqrt_().mul_(2))
    unbounded = torch.where((constant == 0) & (quadratic > 0), 0.0, torch.inf)
    return torch.where(denominator > 0, 2 * constant / denominator, unbounded)


def signed_root(quadratic: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """As :func:`calliper.kernels.signed_root`."""
    root = torch.hypot(linear, (quadratic * constant).sqrt_().mul_(2))
    outer = (root - linear.clamp(max=0)) / (2 * quadratic)
    return torch.where(linear < 0, outer, positive_root(quadratic, linear.clamp(min=0), constant))
