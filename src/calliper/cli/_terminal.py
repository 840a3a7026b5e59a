"""What is said on standard error: notes, warnings and progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from calliper.exceptions import UnscaledFeaturesWarning, ZeroScaleWarning

#: The options behind the advice that a warning of the library gives in terms of Python.
_OPTIONS: dict[type[Warning], str] = {
    UnscaledFeaturesWarning: "Here: --training FILE.",
    ZeroScaleWarning: "Here: --neighbors and --offset.",
}

#: Told how much of the work is done, between 0 and 1, or ``None`` if that is not known.
Progress = Callable[[float | None], None]


def one_line(text: str) -> str:
    """The text with every run of white space, line ends among them, as one space."""
    return " ".join(text.split())


def note(message: str) -> None:
    """Say something that is no error, where it cannot get into the data."""
    click.echo(message, err=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each different warning once, as one line, when the work is done.

    Not before: if the work fails, its error is the one thing to read.
    """
    seen: dict[str, None] = {}

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        seen[one_line(f"warning: {message} {_OPTIONS.get(category, '')}")] = None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield
    for text in seen:
        note(text)


@contextmanager
def progress(title: str, *, hidden: bool = False) -> Iterator[Progress]:
    """A bar on standard error while the work lasts, if someone is there to see it."""
    if hidden or not sys.stderr.isatty():
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update(fraction: float | None) -> None:
            total = None if fraction is None else 1.0
            bar.update(task, total=total, completed=fraction or 0.0)

        yield update
