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
from calliper.kernels import Bag, LeaveTwoOut
from calliper.quantile import Shares, conformal_rank, row_thresholds
from calliper.scale._device import DeviceRows, Tensor, import_torch, to_columns
from calliper.scale._torch import BY_ROW, Strips, squared_distances

torch = import_torch()

#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11

#: Thresholds are enlarged by this part.
ENLARGED = 1e-10

#: Arrays of the size of a tile that are alive at a time, counting double precision twice.
ALIVE = 12


class TorchRadial:
    """Exponents −d²/2l² to points on a device, and weights made of them.

    Parameters
    ----------
    rows : (N, d) there
    length_scale, smoothing, step : as of :class:`RBF`
    """

    def __init__(
        self, rows: DeviceRows, length_scale: float, smoothing: float, step: float
    ) -> None:
        self.rows, self.two_l2 = rows, 2 * length_scale**2
        self.floor, self.side = smoothing / len(rows), step * length_scale if step else 0.0
        self.strips = Strips(rows.device)

    def leave_two_out(self, magnitudes: FloatArray, offset: float) -> LeaveTwoOut:
        """Scales of the Jackknife+."""
        return LeaveTwoOutTorchRadial(self, magnitudes, offset)

    def bag(self, magnitudes: FloatArray, scores: FloatArray, offset: float) -> Bag:
        """Thresholds of full conformal."""
        return BagTorchRadial(self, magnitudes, scores, offset)

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
        """(3, N): mean of the others, sum of their weights, and the exponent of weight one."""
        sums, columns = self.there(magnitudes), self.points[0]

        def average(rows: slice) -> Tensor:
            weight, largest = self.weights(self.exponents(columns[:, rows], rows))
            total = weight.sum(dim=1)
            return torch.stack([weight @ sums / total, total, largest])

        return self.in_strips(average, columns, axis=1)

    def in_strips(
        self, work: Callable[[slice], Tensor], columns: Tensor, axis: int = 0
    ) -> FloatArray:
        """The results of ``work`` on all strips of queries, joined in main memory."""
        parts = self.strips.of(
            lambda rows: work(rows).cpu().numpy(), columns.shape[1], ALIVE * len(self.rows)
        )
        return np.concatenate([*parts], axis=axis)


class BagTorchRadial(Bag):
    """Thresholds t_i with radial weights, on a device."""

    def __init__(
        self, radial: TorchRadial, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.radial, self.magnitudes, self.scores, self.offset = radial, magnitudes, scores, offset
        self.mean, self.weight, self.largest = radial.mean_of_others(magnitudes)

    def calibration_scale(self, level: float) -> FloatArray:
        return np.asarray(self.mean + self.offset)

    def order_statistics(
        self, Z: Any, levels: list[float], shares: Shares | None = None, slope: float = 0.0
    ) -> FloatArray:
        if shares is not None or slope:
            return row_thresholds(self.thresholds(Z, slope=slope), levels, shares)
        ranks = [conformal_rank(level, len(self.scores)) for level in levels]
        x, solve = self.radial.placed(Z), self._solver(0.0)
        return self.radial.in_strips(lambda rows: ranked(solve(x[:, rows]), ranks), x)

    def thresholds(self, Z: Any, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        x, solve = self.radial.placed(Z), self._solver(slope)
        return self.radial.in_strips(lambda rows: solve(x[:, rows]), x)

    def _solver(self, slope: float) -> Callable[[Tensor], Tensor]:
        """A function of queries, (d, m), that gives their thresholds, (m, N)."""
        arrays = (self.scores, self.magnitudes, self.weight, self.largest)
        scores, magnitudes, others, largest = (self.radial.there(each) for each in arrays)
        linear = others * self.radial.there(self.mean + self.offset)

        def solve(x: Tensor) -> Tensor:
            exponent = self.radial.exponents(x)
            weight, _ = self.radial.weights(exponent)
            product = scores * ((weight @ magnitudes / weight.sum(dim=1)) + self.offset)[:, None]
            # A new point nearer than all others shrinks their weights instead of growing its own.
            excess = torch.sub(largest, exponent, out=weight)
            shrink = torch.exp(excess.clamp(max=0))
            entering = excess.clamp_(min=0).neg_().exp_().add_(self.radial.floor)
            total = shrink * others + entering
            rest = shrink.mul_(linear).add_(self.offset * entering)
            if slope:
                found = signed_root(
                    slope + entering / total, rest / total - slope * scores, product
                )
            else:
                found = positive_root(entering, rest, product.mul_(total))
            return found.mul_(1 + ENLARGED)

        return solve


class LeaveTwoOutTorchRadial(LeaveTwoOut):
    """Radial means with one or two points left out, on a device."""

    def __init__(self, radial: TorchRadial, magnitudes: FloatArray, offset: float) -> None:
        self.radial, self.magnitudes, self.offset = radial, magnitudes, offset
        self.without_one: FloatArray = radial.mean_of_others(magnitudes)[0] + offset

    def without_each(self, Z: Any) -> FloatArray:
        x, sums = self.radial.placed(Z), self.radial.there(self.magnitudes)
        return self.radial.in_strips(lambda rows: self._means(x[:, rows], sums), x)

    def order_statistics(
        self, Z: Any, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            return super().order_statistics(Z, asked, shares)
        x, sums = self.radial.placed(Z), self.radial.there(self.magnitudes)
        rescaled = self.radial.there(self.rescaled)

        def select(rows: slice) -> Tensor:
            value = self._means(x[:, rows], sums).mul_(rescaled)
            return ranked(value.masked_fill_(torch.isinf(rescaled), torch.inf), [*asked])

        return self.radial.in_strips(select, x)

    def _means(self, x: Tensor, sums: Tensor) -> Tensor:
        """(m, N), with the offset, a little enlarged."""
        exponent = self.radial.exponents(x)
        weight, _ = self.radial.weights(exponent)
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
