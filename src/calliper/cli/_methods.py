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
from sklearn.utils.validation import has_fit_parameter

from calliper import calibrators
from calliper._types import FloatArray
from calliper.cli._output import WIDTH, console, titled_table
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, TunedRBF

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT = "full"
STATISTICS = ("mean", "rms", "quantile")

#: What methods do where --neighbors is not given; the first is the rule of ``FullRescaled``.
DEFAULT_NEIGHBORS = (
    "full: the 20 nearest (at most half of all points), their mean mixed with the median error by "
    "8/√N, at least 0.2 and at most 0.5, of 64 features or more the K and 4K nearest, "
    "K = 2.25·N^(1/6), at most N/8; slcp: 20; rcp: trees instead; others: 10"
)

#: What a parameter of ``fit`` is in words, the most telling first; and methods that need models.
_NEEDS = {
    "CQR": "a model of quantiles",
    **dict.fromkeys(("JackknifePlus", "CVPlus", "JackknifeAfterBootstrap"), "a model to refit"),
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
    """What a user chooses a method by: one row of the table below.

    ``neighbors`` is the parameter that takes nearest neighbours, as a number or as a kernel, and
    ``None`` where there is none.
    """

    name: str
    python: str
    neighbors: str | None
    guarantee: str
    what: str

    @property
    def kind(self) -> Any:
        """Its class; of a method that works on files."""
        return getattr(calibrators, self.python)

    @property
    def needs(self) -> str:
        """What it needs beyond calibration rows, in words."""
        if self.name in _NEEDS:
            return _NEEDS[self.name]
        return next((_NEEDS[need] for need in _NEEDS if need in self.kind().needs), "none")

    @property
    def needs_training(self) -> bool:
        """Whether it cannot do without training rows."""
        return bool(self.kind().needs)

    def takes(self, parameter: str) -> bool:
        """Whether the class has this parameter."""
        return parameter in self.kind().get_params(deep=False)


_ROWS = (
    ("full", "FullRescaled", "kernel", "1−α", "wide where calibration errors near by are large"),
    ("jackknife", "JackknifeRescaled", "kernel", "1−2α", "as full, by the paper's leave-two-out "
     "scales"),
    ("minmax", "JackknifeMinmaxRescaled", "kernel", "1−α", "as jackknife, a tenth or two wider"),
    ("split", "Split", None, "1−α", "the same width everywhere"),
    ("conditional", "ConditionalCalibration", None, "1−α", "a linear function of the features; "
     "infinite far outside"),
    ("mad-split", "MADSplit", "scale", "1−α", "wide where training errors near by were large"),
    ("slcp", "SLCP", "kernel", "1−α", "a local quantile of training errors, plus a constant"),
    ("rcp", "RCP", "kernel", "1−α", "a learnt quantile of training errors, times a constant"),
    ("locart", "LoCart", None, "1−α in each leaf", "one width in each leaf of a tree of training "
     "errors"),
    ("normalized-knn", "NormalizedKNN", "n_neighbors", "1−α", "wide far away from training rows"),
    ("lcp", "LCP", None, "1−α", "a local quantile of calibration errors, its level corrected"),
    ("rlcp", "RLCP", None, "1−α", "a local quantile of calibration errors around a random centre"),
    ("lvd", "LVD", None, "none proved", "a local quantile in a learnt metric; often infinite"),
)  # fmt: skip

METHODS = {row[0]: Description(*row) for row in _ROWS}

#: Methods that ask or refit the model itself, which a file of predictions cannot do.
_SAME = "nearly the same width everywhere"
PYTHON_ONLY = (
    Description("CQR", "QuantileError and Split", None, "1−α", "that of two predicted quantiles, "
                "plus a constant"),
    Description("JackknifePlus", "JackknifePlus", None, "1−2α", _SAME),
    Description("CVPlus", "CVPlus", None, "1−2α−√(2/n)", _SAME),
    Description("JackknifeAfterBootstrap", "JackknifeAfterBootstrap", None, "1−2α", _SAME),
)  # fmt: skip

_WHEN = {
    "full": "unless there is a reason for another",
    "jackknife": "to reproduce the paper, or with --scales from 'calliper tune'",
    "minmax": "to compare: full promises the same and is narrower",
    "split": "if one width is wanted, or as the yardstick",
    "conditional": "if coverage must hold along each feature too; by groups in Python",
    "mad-split": "if training errors resemble new ones, or calibration points are few",
    "slcp": "if the shape of errors changes, not only their size",
    "rcp": "with many features and many training rows",
    "locart": "if coverage must hold in regions, and the regions be readable",
    "normalized-knn": "if errors grow where training rows are sparse",
    "lcp": "if the shape of errors changes and N is a few thousand at most",
    "rlcp": "if coverage should hold nearly locally; widths are partly chance",
    "lvd": "to compare with the literature",
    "CQR": "if the model can be trained for quantiles: QuantileError and Split",
    "JackknifePlus": "if rows are too few to set some aside",
    "CVPlus": "as JackknifePlus, if n fits take too long",
    "JackknifeAfterBootstrap": "as JackknifePlus, if the model is a bagged ensemble",
}

_COST = {
    "full": "neighbours of N + M rows among N, and the reverse",
    "jackknife": "neighbours of N + M rows among N, O(K log K) a new row",
    "minmax": "neighbours of N + M rows among N, O(K) a row",
    "split": "O(N log N + M)",
    "conditional": "O(N d²) to fit, then about d times O(N (d + log N)) a new row and level",
    "mad-split": "neighbours of N + M rows among n",
    "slcp": "neighbours of N + M rows among n",
    "rcp": "a fit to n rows and N + M predictions, for each level",
    "locart": "O(n log²n · d) and O(N log N), then O(log n) a new row",
    "normalized-knn": "neighbours of n + N + M rows among n, O(K d) a row",
    "lcp": "O(n² (d + log n)) to tune, n ≤ 2,000; O(N² d) to fit; "
    "O(N (d + log N)) a new row and level",
    "rlcp": "O(n² d) to tune, n ≤ N; O(N d) a new row",
    "lvd": "O(n² + n d) a step of learning, n ≤ 2,000; O(N + d) a new row and level",
    "CQR": "a fit of each quantile; O(N log N + M)",
    "JackknifePlus": "n fits of the model, n M predictions",
    "CVPlus": "a fit for each fold, and M predictions by each",
    "JackknifeAfterBootstrap": "a fit for each bootstrap, and M predictions by each",
}


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
    def listed(self) -> Description:
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
    able = [name for name, row in METHODS.items() if row.kind.has_distribution]
    lawful = [name for name, row in METHODS.items() if row.kind.has_law is True]
    weighted = [name for name, row in METHODS.items() if has_fit_parameter(row.kind, "weights")]
    _print_text(terminal, _END)
    _print_text(
        terminal,
        f"--group goes with all of them, --weight and --shifted-to with {', '.join(weighted)}; "
        f"--confidence with {', '.join(lawful)}. Whole distributions, in Python, with "
        f"{', '.join(able)}.",
    )


def _print_choice(terminal: Console, title: str, rows: Collection[Description]) -> None:
    body = [(row.name, row.what, row.guarantee, row.needs, _WHEN[row.name]) for row in rows]
    header = ("name", "width", "guarantee", "also needs", "when to choose it")
    first = max(len(row.name) for row in rows)
    _print_table(terminal, title, header, (first, None, 11, 10, None), body)


def _print_costs(terminal: Console) -> None:
    rows = chain(METHODS.values(), PYTHON_ONLY)
    body = [
        ("" if row.name == row.python else row.name, row.python, _COST[row.name]) for row in rows
    ]
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
