"""``calliper methods``: what there is, what is proved of it, and when to choose it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from calliper.cli._methods import DEFAULT, METHODS, Description
from calliper.cli._methods_python import PYTHON_ONLY

if TYPE_CHECKING:
    from rich.console import Console

#: Letters that the table may take; a pipe has no width of its own.
_WIDTH = 100

_END = (
    f"The default is {DEFAULT}. 1−α is the coverage asked for. All guarantees are marginal: they "
    f"hold on average over draws of the calibration points and over all inputs (for locart, over "
    f"those of the leaf), not at each input. Training data is read from --training FILE."
)
_LETTERS = (
    "N calibration points, M new ones, n training points, d features, K neighbours. To find the "
    "neighbours of a row takes O(K log N) with few features, and O(N d) with many."
)


@click.command()
@click.option("--long", is_flag=True, help="Also what each costs, and its class in Python.")
def methods(long: bool) -> None:
    """List the methods: their guarantee, what they need, when to choose them.

    \b
    calliper methods --long
    """  # noqa: D301
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    _print_choice(console, "For calliper interval --method NAME", METHODS.values())
    _print_choice(console, "In Python only, since they ask or refit the model", PYTHON_ONLY)
    if long:
        _print_costs(console)
    _print_text(console, _END)


def _print_choice(console: Console, title: str, rows: Collection[Description]) -> None:
    body = [(row.name, row.what, row.guarantee, row.needs, row.when) for row in rows]
    header = ("name", "width", "guarantee", "also needs", "when to choose it")
    first = max(len(row.name) for row in rows)
    _print_table(console, title, header, (first, None, 11, 10, None), body)


def _print_costs(console: Console) -> None:
    rows = chain(METHODS.values(), PYTHON_ONLY)
    body = [("" if row.name == row.python else row.name, row.python, row.cost) for row in rows]
    _print_table(console, "What they cost", ("name", "Python", "cost"), (14, 23, None), body)
    _print_text(console, _LETTERS)


def _print_table(
    console: Console,
    title: str,
    header: Sequence[str],
    widths: Sequence[int | None],
    body: Sequence[Sequence[str]],
) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        width=min(console.width, _WIDTH),
    )
    for name, width in zip(header, widths, strict=True):
        table.add_column(name, width=width, ratio=None if width else 1)
    for row in body:
        table.add_row(*row)
    console.print(table)
    console.print()


def _print_text(console: Console, text: str) -> None:
    console.print(text, width=min(console.width, _WIDTH), highlight=False)
    console.print()
