"""Every method by the name that its class gives it, and ``calliper methods``, their list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import click

from calliper import calibrators
from calliper.calibrators import Calibrator
from calliper.cli._output import WIDTH, console, titled_table
from calliper.declarations import About
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, named_kernels
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.scores import QuantileError

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT = "full"

#: Methods that work on files, by their names there, and those that ask or refit the model itself,
#: which a file of predictions cannot do.
METHODS = calibrators.methods()
PYTHON_ONLY = {
    "CQR": QuantileError,
    **{kind.__name__: kind for kind in (JackknifePlus, CVPlus, JackknifeAfterBootstrap)},
}

#: What methods do where --neighbors is not given.
USUAL = About(width="").usual_neighbors
UNUSUAL = {
    name: kind.about.usual_neighbors
    for name, kind in METHODS.items()
    if kind.about.neighbors is not None and kind.about.usual_neighbors != USUAL
}

_END = (
    f"The default is {DEFAULT}. 1−α is the coverage you ask for. All guarantees are marginal: they "
    f"hold on average over draws of the calibration points and over all inputs (for locart, over "
    f"those in the leaf), not at each input. Training data is read from --training FILE."
)
_LETTERS = (
    "N calibration points, M new ones, n training points, d features, K neighbours. Finding the "
    "neighbours of a row takes O(K log N) with few features, and O(N d) with many."
)


@dataclass(frozen=True)
class MethodOptions:
    """A method as the options name it; ``None`` where an option was not given."""

    name: str
    kernel: str | None = None
    neighbors: int | None = None
    statistic: str | None = None
    offset: float | None = None
    seed: int = 0

    def check(self, *, has_training: bool) -> None:
        """Refuse options that this method cannot use."""
        if self.offset is not None and not 0 <= self.offset < inf:
            raise CalliperError("--offset must be a finite number, at least 0.")
        if self.kind().uses.needs and not has_training:
            raise CalliperError(
                f"--method {self.name} learns from {self.kind().uses.in_words()}: give --training "
                f"FILE, or use --method full, which needs none."
            )
        if self.statistic is not None and not self._takes("statistic"):
            raise CalliperError(f"--statistic is for --method full only, not {self.name}.")
        self._refuse_unused()
        if self.kernel is not None and not has_training and (uses := self.build().uses).needs:
            raise CalliperError(
                f"--kernel {self.kernel} learns from {uses.in_words()}: give --training FILE, or "
                f"use --kernel knn, which needs none."
            )

    @property
    def kind(self) -> type[Calibrator]:
        """Its class."""
        return METHODS[self.name]

    @property
    def words(self) -> str:
        """What follows --method to name it, with its kernel."""
        return self.name if self.kernel is None else f"{self.name} --kernel {self.kernel}"

    @property
    def takes_kernel(self) -> bool:
        """Whether it judges nearness by a kernel that can be chosen."""
        return self.kind.about.neighbors not in (None, "n_neighbors")

    def _takes(self, parameter: str) -> bool:
        """Whether the class has this parameter."""
        return parameter in self.kind().get_params(deep=False)

    def _refuse_unused(self) -> None:
        unused = []
        if self.kernel is not None and not self.takes_kernel:
            unused.append("--kernel")
        if self.neighbors is not None and self.kind.about.neighbors is None:
            unused.append("--neighbors")
        if self.offset is not None and not self._takes("offset"):
            unused.append("--offset")
        if unused:
            them = "them" if len(unused) > 1 else "it"
            raise CalliperError(
                f"--method {self.name} takes no {' and no '.join(unused)}: omit {them}."
            )
        if self.kernel is not None and self.neighbors is not None and not self._counts():
            raise CalliperError(
                f"--kernel {self.kernel} has no number of neighbours: omit --neighbors."
            )

    def _counts(self) -> bool:
        """Whether the kernel that is named has a number of neighbours."""
        kernel: Any = named_kernels()[str(self.kernel)]()
        return "n_neighbors" in kernel.get_params()

    def build(self, kernel: Any = None) -> Any:
        """The calibrator, not yet fitted; with this kernel, or with the one that is named."""
        given: dict[str, Any] = {"statistic": self.statistic, "offset": self.offset}
        if self._takes("random_state"):
            given["random_state"] = self.seed
        parameter = self.kind.about.neighbors
        if parameter is not None and kernel is not None:
            given[parameter] = kernel
        elif parameter is not None and self.kernel is not None:
            how = {} if self.neighbors is None else {"n_neighbors": self.neighbors}
            given[parameter] = named_kernels()[self.kernel](**how)
        elif parameter is not None and self.neighbors is not None:
            number = parameter == "n_neighbors"
            given[parameter] = self.neighbors if number else KNN(self.neighbors)
        return self.kind(**{name: v for name, v in given.items() if v is not None})


@click.command()
@click.option("--long", is_flag=True, help="Also print the cost and the Python class of each.")
def methods(long: bool) -> None:
    """List the methods: their guarantee, what they need, when to choose them.

    \b
    calliper methods --long
    """  # noqa: D301
    terminal = console()
    _print_choice(terminal, "For calliper interval --method NAME", METHODS)
    _print_choice(terminal, "In Python only, since they call or refit the model", PYTHON_ONLY)
    if long:
        _print_costs(terminal)
    able = [name for name, kind in METHODS.items() if kind().has_distribution]
    lawful = [name for name, kind in METHODS.items() if kind.has_law]
    weighted = [name for name, kind in METHODS.items() if "weights" in kind().uses]
    _print_text(terminal, _END)
    _print_text(
        terminal,
        f"--group works with all of them, --weight and --shifted-to with {', '.join(weighted)}; "
        f"--confidence with {', '.join(lawful)}. Whole distributions, in Python, with "
        f"{', '.join(able)}.",
    )


def _print_choice(terminal: Console, title: str, kinds: dict[str, Any]) -> None:
    body = [
        (name, about.width, about.guarantee, about.needs or kind().uses.in_words(), about.when)
        for name, kind in kinds.items()
        for about in (kind.about,)
    ]
    header = ("name", "width", "guarantee", "also needs", "when to choose it")
    _print_table(terminal, title, header, (max(map(len, kinds)), None, 11, 10, None), body)


def _print_costs(terminal: Console) -> None:
    every = {**METHODS, **PYTHON_ONLY}
    named = {name: kind.about.python or kind.__name__ for name, kind in every.items()}
    body = [
        ("" if name == named[name] else name, named[name], kind.about.cost)
        for name, kind in every.items()
    ]
    _print_table(terminal, "What they cost", ("name", "Python", "cost"), (14, 23, None), body)
    _print_text(terminal, _LETTERS)
    asked = "; ".join(f"{name}: {text}" for name, text in UNUSUAL.items())
    _print_text(terminal, f"Nearest points without --neighbors: {asked}; others: {USUAL}.")


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
