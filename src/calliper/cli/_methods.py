"""Every method by the name that the command line gives it, and ``calliper methods``, their list.

What a method needs beyond calibration rows, its class says. Letters in the costs: N calibration
points, M new ones, n training points, d features, K neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import click

from calliper._types import FloatArray
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    JackknifeMinmaxRescaled,
    JackknifeRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    Split,
)
from calliper.cli._output import WIDTH, console, titled_table
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, TunedRBF

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT = "full"
STATISTICS = ("mean", "rms", "quantile")

#: What a parameter of ``fit`` is in words, the most telling first.
_NEEDS = {
    "scores_train": "training errors",
    "y_train": "training targets",
    "Z_train": "training rows",
}

_END = (
    f"The default is {DEFAULT}. 1−α is the coverage asked for. All guarantees are marginal: they "
    f"hold on average over draws of the calibration points and over all inputs (for locart, over "
    f"those of the leaf), not at each input. Training data is read from --training FILE."
)
_LETTERS = (
    "N calibration points, M new ones, n training points, d features, K neighbours. To find the "
    "neighbours of a row takes O(K log N) with few features, and O(N d) with many."
)


@dataclass(frozen=True)
class Description:
    """What a user chooses by."""

    name: str
    what: str
    guarantee: str
    needs: str
    cost: str
    when: str
    python: str


@dataclass(frozen=True)
class ListedMethod(Description):
    """A method that works on a file of predictions.

    ``neighbors`` is the parameter of ``kind`` that takes nearest neighbours, as a number or as a
    kernel, and ``None`` where there is none.
    """

    kind: type[Any]
    neighbors: str | None = None

    @property
    def needs_training(self) -> bool:
        """Whether it cannot do without training rows."""
        return bool(self.kind().needs)

    def takes(self, parameter: str) -> bool:
        """Whether the class has this parameter."""
        return parameter in self.kind().get_params(deep=False)


def _listed(
    name: str,
    kind: type[Any],
    what: str,
    guarantee: str,
    *,
    cost: str,
    when: str,
    neighbors: str | None = None,
) -> ListedMethod:
    own = kind().needs
    needs = next((words for needed, words in _NEEDS.items() if needed in own), "none")
    return ListedMethod(
        name=name,
        what=what,
        guarantee=guarantee,
        needs=needs,
        cost=cost,
        when=when,
        python=kind.__name__,
        kind=kind,
        neighbors=neighbors,
    )


_ALL = (
    _listed(
        "full",
        FullRescaled,
        "wide where calibration errors near by are large",
        "1−α",
        cost="neighbours of N + M rows among N, and the reverse",
        when="unless there is a reason for another",
        neighbors="kernel",
    ),
    _listed(
        "jackknife",
        JackknifeRescaled,
        "as full, by the paper's leave-two-out scales",
        "1−2α",
        cost="neighbours of N + M rows among N, O(K log K) a new row",
        when="to reproduce the paper, or with --scales from 'calliper tune'",
        neighbors="kernel",
    ),
    _listed(
        "minmax",
        JackknifeMinmaxRescaled,
        "as jackknife, a tenth or two wider",
        "1−α",
        cost="neighbours of N + M rows among N, O(K) a row",
        when="to compare: full promises the same and is narrower",
        neighbors="kernel",
    ),
    _listed(
        "split",
        Split,
        "the same width everywhere",
        "1−α",
        cost="O(N log N + M)",
        when="if one width is wanted, or as the yardstick",
    ),
    _listed(
        "conditional",
        ConditionalCalibration,
        "a linear function of the features; infinite far outside",
        "1−α",
        cost="O(N d²) to fit, then about d times O(N (d + log N)) a new row and level",
        when="if coverage must hold along each feature too; by groups in Python",
    ),
    _listed(
        "mad-split",
        MADSplit,
        "wide where training errors near by were large",
        "1−α",
        cost="neighbours of N + M rows among n",
        when="if training errors resemble new ones, or calibration points are few",
        neighbors="scale",
    ),
    _listed(
        "slcp",
        SLCP,
        "a local quantile of training errors, plus a constant",
        "1−α",
        cost="neighbours of N + M rows among n",
        when="if the shape of errors changes, not only their size",
        neighbors="kernel",
    ),
    _listed(
        "rcp",
        RCP,
        "a learnt quantile of training errors, times a constant",
        "1−α",
        cost="a fit to n rows and N + M predictions, for each level",
        when="with many features and many training rows",
        neighbors="kernel",
    ),
    _listed(
        "locart",
        LoCart,
        "one width in each leaf of a tree of training errors",
        "1−α in each leaf",
        cost="O(n log²n · d) and O(N log N), then O(log n) a new row",
        when="if coverage must hold in regions, and the regions be readable",
    ),
    _listed(
        "normalized-knn",
        NormalizedKNN,
        "wide far away from training rows",
        "1−α",
        cost="neighbours of n + N + M rows among n, O(K d) a row",
        when="if errors grow where training rows are sparse",
        neighbors="n_neighbors",
    ),
    _listed(
        "lcp",
        LCP,
        "a local quantile of calibration errors, its level corrected",
        "1−α",
        cost="O(n² (d + log n)) to tune, n ≤ 2,000; O(N² d) to fit; "
        "O(N (d + log N)) a new row and level",
        when="if the shape of errors changes and N is a few thousand at most",
    ),
    _listed(
        "rlcp",
        RLCP,
        "a local quantile of calibration errors around a random centre",
        "1−α",
        cost="O(n² d) to tune, n ≤ N; O(N d) a new row",
        when="if coverage should hold nearly locally; widths are partly chance",
    ),
    _listed(
        "lvd",
        LVD,
        "a local quantile in a learnt metric; often infinite",
        "none proved",
        cost="O(n² + n d) a step of learning, n ≤ 2,000; O(N + d) a new row and level",
        when="to compare with the literature",
    ),
)

METHODS = {method.name: method for method in _ALL}

#: Methods that ask or refit the model itself, which a file of predictions cannot do.
PYTHON_ONLY = (
    Description(
        name="CQR",
        what="that of two predicted quantiles, plus a constant",
        guarantee="1−α",
        needs="a model of quantiles",
        cost="a fit of each quantile; O(N log N + M)",
        when="if the model can be trained for quantiles: QuantileError and Split",
        python="QuantileError and Split",
    ),
    Description(
        name="JackknifePlus",
        what="nearly the same width everywhere",
        guarantee="1−2α",
        needs="a model to refit",
        cost="n fits of the model, n M predictions",
        when="if rows are too few to set some aside",
        python="JackknifePlus",
    ),
    Description(
        name="CVPlus",
        what="nearly the same width everywhere",
        guarantee="1−2α−√(2/n)",
        needs="a model to refit",
        cost="a fit for each fold, and M predictions by each",
        when="as JackknifePlus, if n fits take too long",
        python="CVPlus",
    ),
    Description(
        name="JackknifeAfterBootstrap",
        what="nearly the same width everywhere",
        guarantee="1−2α",
        needs="a model to refit",
        cost="a fit for each bootstrap, and M predictions by each",
        when="as JackknifePlus, if the model is a bagged ensemble",
        python="JackknifeAfterBootstrap",
    ),
)


@dataclass(frozen=True)
class MethodOptions:
    """A method as the options name it; ``None`` where an option was not given."""

    name: str
    neighbors: int | None = None
    statistic: str | None = None
    offset: float | None = None
    seed: int = 0

    def check(self, *, has_training: bool, has_scales: bool = False) -> None:
        """Refuse options that this method cannot or would not heed."""
        if has_scales:
            self._check_with_scales()
        if self.offset is not None and not 0 <= self.offset < inf:
            raise CalliperError("--offset must be a finite number, at least 0.")
        if self.listed.needs_training and not has_training:
            raise CalliperError(
                f"--method {self.name} learns from {self.listed.needs}: give --training FILE, or "
                f"use --method full, which needs none."
            )
        if self.statistic is not None and self.name != "full":
            raise CalliperError(f"--statistic is for --method full only, not {self.name}.")
        self._refuse_unheeded()

    @property
    def listed(self) -> ListedMethod:
        """What there is to know of this method."""
        return METHODS[self.name]

    def _refuse_unheeded(self) -> None:
        unheeded = []
        if self.neighbors is not None and self.listed.neighbors is None:
            unheeded.append("--neighbors")
        if self.offset is not None and not self.listed.takes("offset"):
            unheeded.append("--offset")
        if unheeded:
            them = "them" if len(unheeded) > 1 else "it"
            raise CalliperError(
                f"--method {self.name} takes no {' and no '.join(unheeded)}: omit {them}."
            )

    def _check_with_scales(self) -> None:
        if self.name == "full":
            raise CalliperError(
                "--scales were chosen on calibration errors, which would void the guarantee of "
                "--method full: use --method jackknife, whose proof allows for it."
            )
        if self.name != "jackknife":
            raise CalliperError(f"--scales are for --method jackknife only, not {self.name}.")
        if self.neighbors is not None:
            raise CalliperError("--scales and --neighbors exclude one another: give one.")

    def build(self, chosen: FloatArray | None = None) -> Any:
        """The calibrator, not yet fitted; ``chosen`` length scales replace the neighbours."""
        given: dict[str, Any] = {"statistic": self.statistic, "offset": self.offset}
        if self.listed.takes("random_state"):
            given["random_state"] = self.seed
        place = self.listed.neighbors
        if place is not None and chosen is not None:
            given[place] = TunedRBF(chosen=chosen)
        elif place is not None and self.neighbors is not None:
            given[place] = self.neighbors if place == "n_neighbors" else KNN(self.neighbors)
        return self.listed.kind(**{name: v for name, v in given.items() if v is not None})


@click.command()
@click.option("--long", is_flag=True, help="Also what each costs, and its class in Python.")
def methods(long: bool) -> None:
    """List the methods: their guarantee, what they need, when to choose them.

    \b
    calliper methods --long
    """  # noqa: D301
    terminal = console()
    _print_choice(terminal, "For calliper interval --method NAME", METHODS.values())
    _print_choice(terminal, "In Python only, since they ask or refit the model", PYTHON_ONLY)
    if long:
        _print_costs(terminal)
    _print_text(terminal, _END)


def _print_choice(terminal: Console, title: str, rows: Collection[Description]) -> None:
    body = [(row.name, row.what, row.guarantee, row.needs, row.when) for row in rows]
    header = ("name", "width", "guarantee", "also needs", "when to choose it")
    first = max(len(row.name) for row in rows)
    _print_table(terminal, title, header, (first, None, 11, 10, None), body)


def _print_costs(terminal: Console) -> None:
    rows = chain(METHODS.values(), PYTHON_ONLY)
    body = [("" if row.name == row.python else row.name, row.python, row.cost) for row in rows]
    _print_table(terminal, "What they cost", ("name", "Python", "cost"), (14, 23, None), body)
    _print_text(terminal, _LETTERS)


def _print_table(
    terminal: Console,
    title: str,
    header: Sequence[str],
    widths: Sequence[int | None],
    body: Sequence[Sequence[str]],
) -> None:
    table = titled_table(
        title, padding=(0, 1, 0, 0), pad_edge=False, width=min(terminal.width, WIDTH)
    )
    for name, width in zip(header, widths, strict=True):
        table.add_column(name, width=width, ratio=None if width else 1)
    for row in body:
        table.add_row(*row)
    terminal.print(table)
    terminal.print()


def _print_text(terminal: Console, text: str) -> None:
    terminal.print(text, width=min(terminal.width, WIDTH), highlight=False)
    terminal.print()
