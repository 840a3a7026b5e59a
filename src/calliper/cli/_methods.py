"""The methods by their names on the command line, and ``calliper methods``, which lists them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import click

from calliper import calibrators
from calliper.calibrators import Calibrator
from calliper.cli import _output as out
from calliper.declarations import About
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, named_kernels
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.scores import QuantileError

DEFAULT = "full"

#: Methods that work on files of predictions, and those that call or refit the model itself.
METHODS = calibrators.methods()
_REFITTING = (JackknifePlus, CVPlus, JackknifeAfterBootstrap)
PYTHON_ONLY = {"CQR": QuantileError, **{kind.__name__: kind for kind in _REFITTING}}

_END = (
    f"The default is {DEFAULT}. 1−α is the coverage you ask for. All guarantees are marginal: they "
    f"hold on average over draws of the calibration rows and over all inputs (for locart, over "
    f"those in the leaf), not at each input. Training data is read from --training FILE."
)
_LETTERS = (
    "N calibration rows, M new ones, n training rows, d features, K neighbours. Finding the "
    "neighbours of a row takes O(K log N) with few features, and O(N d) with many."
)


@dataclass(frozen=True)
class MethodOptions:
    name: str
    kernel: str | None = None
    neighbors: int | None = None
    statistic: str | None = None
    offset: float | None = None
    seed: int = 0

    def check(self, *, has_training: bool) -> None:
        """Refuse options that this method cannot use."""
        given = {
            "kernel": (self.kernel, self.takes_kernel),
            "neighbors": (self.neighbors, self.kind.about.neighbors is not None),
            "statistic": (self.statistic, self._takes("statistic")),
            "offset": (self.offset, self._takes("offset")),
        }
        for name, (value, takes) in given.items():
            if value is not None and not takes:
                raise CalliperError(f"--method {self.name} does not use --{name}: omit it.")
        if self.offset is not None and not 0 <= self.offset < inf:
            raise CalliperError("--offset must be a finite number, at least 0.")
        if self.kernel is not None and self.neighbors is not None:
            kernel: Any = named_kernels()[self.kernel]()
            if "n_neighbors" not in kernel.get_params():
                what = f"--kernel {self.kernel} has no number of neighbours"
                raise CalliperError(f"{what}: omit --neighbors.")
        if (uses := self.build().uses).needs and not has_training:
            what = f"--method {self.words} learns from {uses.in_words()}"
            other = f"use --method {DEFAULT}, which needs none"
            raise CalliperError(f"{what}: pass --training FILE, or {other}.")

    @property
    def kind(self) -> type[Calibrator]:
        return METHODS[self.name]

    @property
    def words(self) -> str:
        """The method with its kernel, as typed after --method."""
        return self.name if self.kernel is None else f"{self.name} --kernel {self.kernel}"

    @property
    def takes_kernel(self) -> bool:
        """Whether it judges nearness by a kernel that can be chosen."""
        return self.kind.about.neighbors not in (None, "n_neighbors")

    def _takes(self, parameter: str) -> bool:
        return parameter in self.kind().get_params(deep=False)

    def build(self, kernel: Any = None) -> Any:
        """The calibrator, not yet fitted; with this kernel, or with the one that is named."""
        given: dict[str, Any] = {"statistic": self.statistic, "offset": self.offset}
        if self._takes("random_state"):
            given["random_state"] = self.seed
        parameter = self.kind.about.neighbors
        if kernel is None and self.kernel is not None:
            how = {} if self.neighbors is None else {"n_neighbors": self.neighbors}
            kernel = named_kernels()[self.kernel](**how)
        elif kernel is None and self.neighbors is not None:
            kernel = self.neighbors if parameter == "n_neighbors" else KNN(self.neighbors)
        if parameter is not None:
            given[parameter] = kernel
        return self.kind(**{name: v for name, v in given.items() if v is not None})


@click.command()
@click.option("--long", is_flag=True, help="Also print the cost and the Python class of each.")
def methods(long: bool) -> None:
    """List the methods: their guarantee, what they need, when to choose them.

    \b
    calliper methods --long
    """  # noqa: D301
    _print_choice("For calliper interval --method NAME", METHODS)
    _print_choice("In Python only, since they call or refit the model", PYTHON_ONLY)
    if long:
        _print_costs()
    able = [name for name, kind in METHODS.items() if kind().has_distribution]
    lawful = [name for name, kind in METHODS.items() if kind.has_law]
    weighted = [name for name, kind in METHODS.items() if "weights" in kind().uses]
    _print_text(_END)
    _print_text(
        f"--group works with all methods; --weight and --shifted-to with {', '.join(weighted)}; "
        f"--confidence with {', '.join(lawful)}. Distributions (in Python) work with "
        f"{', '.join(able)}."
    )


def _print_choice(title: str, kinds: dict[str, Any]) -> None:
    body = []
    for name, kind in kinds.items():
        about, needs = kind.about, kind.about.needs or kind().uses.in_words()
        body.append((name, about.width, about.guarantee, needs, about.when))
    columns = ("name", "width", "guarantee", "also needs", "when to choose it")
    _print_table(title, columns, (max(map(len, kinds)), None, 11, 10, None), body)


def _print_costs() -> None:
    body, neighbors, usual = [], [], About(width="").usual_neighbors
    for name, kind in {**METHODS, **PYTHON_ONLY}.items():
        about, python = kind.about, kind.about.python or kind.__name__
        body.append(("" if name == python else name, python, about.cost))
        if about.neighbors is not None and about.usual_neighbors != usual:
            neighbors.append(f"{name}: {about.usual_neighbors}")
    _print_table("What they cost", ("name", "Python", "cost"), (14, 23, None), body)
    _print_text(_LETTERS)
    _print_text(f"Nearest points without --neighbors: {'; '.join(neighbors)}; others: {usual}.")


def _print_table(title: str, names: Sequence[str], widths: Any, body: Any) -> None:
    looks = [{"width": width, "ratio": None if width else 1} for width in widths]
    columns, room = dict(zip(names, looks, strict=True)), min(out.console().width, out.WIDTH)
    out.print_table(title, columns, body, padding=(0, 1, 0, 0), pad_edge=False, width=room)
    click.echo()


def _print_text(text: str) -> None:
    click.echo(f"{out.wrapped(text)}\n")
