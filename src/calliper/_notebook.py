"""What a notebook shows: cards of text with a small picture, as HTML and SVG, and progress.

Everything is drawn in ``currentColor``, for light and dark pages, without scripts or style sheets.
Text is escaped here, and only here. Pictures show a sample of the rows. Progress
(``progress=True``) is a line on standard error.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from time import perf_counter
from typing import Any

import numpy as np

from calliper._types import FloatArray

#: Rows that are drawn, and rows that they are chosen from.
DRAWN, LOOKED_AT = 40, 2000
#: Size of a picture in pixels.
WIDTH_PX, HEIGHT_PX = 320, 90
#: Seconds between two updates of progress.
PAUSE = 0.2

#: Called with the share of the work that is done, from 0 to 1; may raise to stop.
Progress = Callable[[float], Any]


def card(title: str, lines: Iterable[str] = (), *parts: str) -> str:
    """A title, lines of text, and parts that are HTML already."""
    said = "<br>".join(escape(line) for line in lines if line)
    return (
        '<div style="max-width:48em;line-height:1.45">'
        + (f"<strong>{escape(title)}</strong>" if title else "")
        + (f'<div style="margin:.3em 0">{said}</div>' if said else "")
        + "".join(parts)
        + "</div>"
    )


def folded(title: str, text: str) -> str:
    """Text that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{card('', text.splitlines())}</details>"


def aligned(rows: Sequence[Sequence[str]], first: Any = str.rjust) -> list[str]:
    """A line for each row of text, in columns of equal width; ``first`` aligns the first one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([first(row[0], widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return ["  ".join(each).rstrip() for each in cells]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, the first of them column names."""
    head, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    head = head.replace("td>", "th>")
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"


def sampled(m: int, n: int) -> Any:
    """At most n of the positions 0 … m−1, evenly spread from the first to the last."""
    return np.unique(np.linspace(0, m - 1, min(m, n)).round().astype(np.intp))


def interval_bars(lower: FloatArray, upper: FloatArray, centre: FloatArray | None) -> str:
    """A sample of intervals, (m,) or (m, L), as bars from low to high, dotted without a bound."""
    if not lower.size:
        return ""
    ends = np.stack([each.reshape(len(each), -1) for each in (lower, upper)])
    some = sampled(len(lower), LOOKED_AT)
    # Ends without a bound do not count for the middle.
    low, high = ends[:, some, 0]
    low = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    middle = low / 2 + np.where(np.isfinite(high), high, low) / 2
    some = some[np.argsort(middle, kind="stable")]
    some = some[sampled(len(some), DRAWN)]
    ends = ends[:, some][:, :, sampled(ends.shape[2], 3)]
    dots = np.full(len(some), np.nan) if centre is None else np.asarray(centre, float)[some]
    share, edges = _shares(np.append(ends, dots))
    y = HEIGHT_PX - 6 - (HEIGHT_PX - 12) * share
    bars, step = y[: ends.size].reshape(ends.shape), min(16.0, (WIDTH_PX - 8) / len(some))
    marks = []
    for row, dot in enumerate(y[ends.size :]):
        x = 4 + step * (row + 0.5)
        for column in reversed(range(ends.shape[2])):
            bottom, top = bars[:, row, column]
            look: Any = {"stroke_opacity": f"{0.6 / (1 + column):.2f}", "stroke_width": step * 0.6}
            if np.isinf(ends[:, row, column]).any():
                look["stroke_dasharray"] = "2 3"
            marks.append(_mark("line", x1=x, x2=x, y1=bottom, y2=top, **look))
        if np.isfinite(dot):
            marks.append(_mark("circle", cx=x, cy=dot, r=1.8, stroke="none"))
    shown = "all" if len(some) == len(lower) else f"{len(some)} of {len(lower):,}"
    between = "" if edges is None else f", between {edges[0]:.4g} and {edges[1]:.4g}"
    return _figure(marks, f"{shown} intervals in the order of their centres{between}")


def _shares(values: FloatArray) -> tuple[FloatArray, tuple[float, float] | None]:
    """Where numbers lie in their finite range, from 0 to 1; and that range, if there is one."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    half = high / 2 - low / 2  # the whole range may overflow
    share = (values / 2 - low / 2) / half if half > 0 else np.where(np.isnan(values), values, 0.5)
    share = np.where(np.isinf(values), values > 0, np.clip(share, 0.0, 1.0))
    return share, (low, high) if len(finite) else None


def floored(share: float) -> str:
    """A proved share with four digits, rounded down."""
    return f"{np.floor(share * 1e4) / 1e4:g}"


def _mark(tag: str, **given: Any) -> str:
    """A mark of a picture; numbers have one digit after the point."""
    texts = {name: v if isinstance(v, str) else f"{v:.1f}" for name, v in given.items()}
    told = " ".join(f'{name.replace("_", "-")}="{text}"' for name, text in texts.items())
    return f"<{tag} {told}/>"


def _figure(marks: list[str], said: str) -> str:
    """A picture with its description below."""
    size = f'width="{WIDTH_PX}" height="{HEIGHT_PX}" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}"'
    return (
        '<figure style="margin:.4em 0;display:inline-block;vertical-align:top">'
        f'<svg {size} role="img" aria-label="{escape(said)}" style="max-width:100%" '
        f'fill="currentColor" stroke="currentColor">{"".join(marks)}</svg>'
        f'<figcaption style="font-size:85%;max-width:{WIDTH_PX}px;color:inherit;text-align:left">'
        f"{escape(said)}</figcaption></figure>"
    )


def reporter(progress: Progress | bool | None, work: str) -> Progress:
    """The function to report progress to: the caller's own, a line for True, nothing for None."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress must be True, None or a function; got {progress!r}.")
    if progress is True:
        return _Shown(work)
    return progress if callable(progress) else lambda fraction: None


class _Shown:
    """A line on standard error that is shown from the first report until the work is done."""

    def __init__(self, work: str) -> None:
        self.work, self.done, self.shown = work, False, float("-inf")
        self.first: Any = None  # when, and how much was done

    def __call__(self, fraction: float) -> None:
        now = perf_counter()
        start, first = self.first = self.first or (now, fraction)
        if self.done or (now - self.shown < PAUSE and fraction < 1):
            return
        self.shown, self.done, left = now, fraction >= 1, ""
        if first < fraction < 1:
            left = f", about {(now - start) * (1 - fraction) / (fraction - first):.0f} s left"
        end = "\n" if self.done else ""
        sys.stderr.write(f"\r{self.work}: {fraction:.0%}{left}".ljust(50) + end)
        sys.stderr.flush()
