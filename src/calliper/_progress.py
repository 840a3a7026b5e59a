"""How far long work has come, for whoever asked to see it with ``progress=True``.

In a notebook it is a bar that moves in place; elsewhere one line on standard error that is written
over. Nothing needs to be installed for either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from time import perf_counter
from typing import Any

#: Is told the share of the work that is done, from 0 to 1; may raise to stop.
Progress = Callable[[float], Any]

#: Seconds between two looks.
PAUSE = 0.2


def reporter(progress: Progress | bool | None, work: str) -> Progress:
    """What to tell the share to: the caller's own function, a bar for True, nobody for None."""
    if progress is True:
        return _Shown(work)
    return progress if callable(progress) else _nobody


def _nobody(fraction: float) -> None:
    """Report to nobody."""


class _Shown:
    """A bar, or a line, that is shown from the first report until all is done."""

    def __init__(self, work: str) -> None:
        self.work, self.fraction, self.left = work, 0.0, ""
        self.start: float | None = None
        self.shown = float("-inf")
        self.handle: Any = None

    def __call__(self, fraction: float) -> None:
        now, finished = perf_counter(), self.fraction >= 1
        if self.start is None:
            self.start, self.first = now, fraction
        if finished or (now - self.shown < PAUSE and fraction < 1):
            return
        self.shown, self.fraction, self.left = now, fraction, ""
        if self.first < fraction < 1:
            rest = (now - self.start) * (1 - fraction) / (fraction - self.first)
            self.left = f", about {rest:.0f} s left"
        if self.handle is not None:
            self.handle.update(self)
        elif _in_notebook():
            from IPython.display import display

            self.handle = display(self, display_id=True)
        else:
            end = "\n" if fraction >= 1 else ""
            sys.stderr.write(f"\r{self!r}".ljust(50) + end)
            sys.stderr.flush()

    def __repr__(self) -> str:
        return f"{self.work}: {self.fraction:.0%}{self.left}"

    def _repr_html_(self) -> str:
        return f'<progress max="1" value="{self.fraction:.4f}"></progress> {escape(repr(self))}'


def _in_notebook() -> bool:
    """Whether a kernel runs this, which shows HTML; IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
