"""A comparison as one self-contained HTML page that works offline."""

import base64
import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import isfinite, isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calliper._version import __version__
from calliper._writing import to_text
from calliper.lab._words import number, percent, percent_down, seconds, with_error
from calliper.lab.comparison import Comparison
from calliper.lab.comparison._comparison import Record
from calliper.lab.metrics import MEASURES
from calliper.lab.report.page._figures import figure_items

__all__ = ["Provenance", "render_page"]

_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("data.js", "theme.js", "figures.js", "words.js", "report.js")
#: Most test points drawn; all of them are counted. More would be slow and unreadable.
PAGE_POINTS = 2_000
#: Most of these drawn with their intervals.
MOST_INTERVALS = 150
#: Characters of an id that are shown.
LONGEST_ID = 40


@dataclass(frozen=True)
class Provenance:
    """How to reproduce a comparison.

    Attributes
    ----------
    command : as it was typed
    files : of each file read, the ``name``, the ``part`` (its use), ``n_rows`` and ``sha256``
    notes : for example how rows were split
    use : a command that applies the result, with placeholders ``{method}`` and ``{coverage}``

    Examples
    --------
    >>> Provenance(command="python compare.py", notes=("split at random",)).notes
    ('split at random',)
    """

    command: str = ""
    files: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    use: str = ""

    def values(self) -> dict[str, Any]:
        """Values for JSON, with versions of what the numbers depend on."""
        packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "bokeh")}
        own = {"calliper": __version__, "python": platform.python_version()}
        return {**asdict(self), "versions": own | packages}


def render_page(
    comparison: Comparison,
    *,
    title: str = "",
    provenance: Provenance | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> str:
    """One self-contained HTML page: verdict, guarantee, figures, table, warnings, provenance.

    It does not use the network, and forbids it. Needs the extra ``cli`` (Bokeh, Jinja).

    Parameters
    ----------
    comparison : from :func:`calliper.lab.comparison.compare`
    title : shown above the verdict
    provenance : command and files, to reproduce it
    descriptions : a line for each method, by name; by default the first one of its docstring

    Returns
    -------
    str

    Examples
    --------
    >>> from calliper import Split
    >>> from calliper.lab.comparison import Points, compare
    >>> cal, test = (Points(x, x, 0 * x) for x in np.random.default_rng(0).normal(size=(2, 200)))
    >>> render_page(compare(cal, test, methods={"split": Split()}))[:15]
    '<!doctype html>'
    """
    from bokeh.resources import INLINE
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    source, what = provenance or Provenance(), dict(descriptions or {})
    tables = [table_rows(comparison, level) for level in comparison.levels]
    use = [
        source.use.replace("{method}", each.method).replace("{coverage}", f"{each.level:g}")
        if each.method
        else ""
        for each in comparison.verdicts
    ]
    asked = comparison.levels.index(comparison.coverage)
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,  # names of columns, files and groups are not trusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "breakable": _breakable}
    page: str = environment.get_template("page.html.j2").render(
        comparison=comparison,
        title=title or "Prediction intervals compared",
        verdict=comparison.verdict,
        void=comparison.is_void,
        failures=[answer for answer in comparison.answers if answer.failure is not None],
        columns=PAGE_COLUMNS,
        rows=tables[asked],
        values=_script_json({**payload(comparison), "tables": tables, "use": use}),
        figures=_script_json(figure_items()),
        bokeh="\n".join(INLINE.js_raw[:1]),
        script="\n".join((_TEMPLATES / name).read_text("utf-8") for name in _SCRIPTS),
        style=(_TEMPLATES / "style.css").read_text("utf-8"),
        provenance=source,
        use=use[asked],
        what={a.method: what.get(a.method, a.what) for a in comparison.answers},
        versions=source.values()["versions"],
    )
    return page


def _breakable(name: str) -> Any:
    """A name that may wrap after an underscore, a slash or a full stop."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_/.])(?=\w)", r"\1<wbr>", str(escape(name))))


def _script_json(values: Mapping[str, Any]) -> str:
    """JSON for a script element, which nothing in it can close."""
    text = to_text(values, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def payload(comparison: Comparison) -> dict[str, Any]:
    """The numbers and points that the script of the page reads, for JSON."""
    values = comparison.to_values()
    wanted = ("coverage", "levels", "methods", "n_test", "verdicts", "records", "parts", "deciles")
    chosen: dict[str, Any] = {
        **{name: values[name] for name in wanted},
        "yardstick": next(a.method for a in comparison.answers if a.constant),
        "is_void": comparison.is_void,
        "group_name": comparison.group_name,
    }
    # The points are packed already, and their centres keep all digits.
    return {**rounded(chosen), "points": _points(comparison)}


def rounded(values: Any) -> Any:
    """Values of JSON, with numbers rounded to ten digits, at half the size."""
    return json.loads(to_text(values), parse_float=lambda text: float(f"{float(text):.10g}"))


def _points(comparison: Comparison) -> dict[str, Any]:
    """A random sample of the test points, as arrays of 32-bit numbers, which hold seven digits.

    Predictions and features are distances from a centre: targets of 10⁹ ± 1 stay distinct.
    """
    test, n = comparison.test, len(comparison.test)
    rows = np.random.default_rng(comparison.random_state).permutation(n)[:PAGE_POINTS]
    answers = {a.method: a.intervals for a in comparison.answers if a.intervals is not None}
    ids = test.ids or [f"row {number}" for number in range(1, n + 1)]
    return {
        "n": len(rows),
        "n_intervals": min(MOST_INTERVALS, len(rows)),
        "ids": [ids[row][:LONGEST_ID] for row in rows],
        "error": _packed((test.y - test.y_pred)[rows]),  # with its sign
        "y_pred": _centred(test.y_pred[rows]),
        "features": [test.feature_names[i] for i in comparison.shown_features],
        "Z": [_centred(test.Z[rows, i]) for i in comparison.shown_features],
        # Level after level; the intervals are symmetric about the prediction.
        "half_width": {name: _packed(each.width[rows].T / 2) for name, each in answers.items()},
        # Not computed from the 32 bits of the half-width, which could change the side.
        "inside": {
            name: _packed(each.contains(test.y)[rows].T, "u1") for name, each in answers.items()
        },
    }


def _centred(values: Any) -> dict[str, Any]:
    centre = float(np.median(values))
    return {"centre": centre, "from_centre": _packed(values - centre)}


def _packed(values: Any, kind: str = "<f4") -> str:
    """Little-endian bytes in base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


class PageColumn(NamedTuple):
    """A column of the table: its text, the field of a record to sort by, heading and meaning."""

    name: str
    text: Callable[[Record], str]
    title: str
    meaning: str
    best: str


def _measure(name: str, text: Callable[[Record], str], field: str | None = None) -> PageColumn:
    """The column of a registered measure, whose field in a record may have another name."""
    measure = MEASURES[name]
    best = "low" if measure.best == "smaller" else "high"
    return PageColumn(field or name, text, measure.label or name, measure.meaning, best)


def _relative(record: Record) -> str:
    ratio, error = record.relative_score, record.relative_score_error
    if ratio == 1 and error == 0:
        return "100\u00a0%"
    if not isfinite(ratio) or isnan(error):
        return number(ratio)
    return f"{100 * ratio:.1f} ± {100 * error:.1f}\u00a0%"


def _plain(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}".replace("-", "−")


_PROVED = "the coverage that is proved if the assumptions hold"
_AGAINST = "interval score in percent of that of split; below 100 % is better than a constant width"
_TIME = "time to fit and predict at all levels"
PAGE_COLUMNS = (
    PageColumn("proved", lambda r: percent_down(r.proved), "proved", _PROVED, "high"),
    _measure("coverage", lambda r: f"{percent(r.coverage)} ± {100 * r.coverage_error:.1f}"),
    _measure("mean_width", lambda r: number(r.mean_width)),
    _measure("median_width", lambda r: number(r.median_width)),
    _measure("interval_score", lambda r: with_error(r.score, r.score_error), "score"),
    PageColumn("relative_score", _relative, "score against constant width", _AGAINST, "low"),
    _measure("worst_by_prediction", lambda r: percent(r.worst_by_prediction)),
    _measure("worst_by_width", lambda r: percent(r.worst_by_width)),
    _measure("tau_si", lambda r: _plain(r.tau_si)),
    _measure("r2_sqi", lambda r: "< −10" if r.r2_sqi < -10 else _plain(r.r2_sqi)),
    _measure("fraction_infinite", lambda r: percent(r.fraction_infinite)),
    PageColumn("seconds", lambda r: seconds(r.seconds), "seconds", _TIME, "low"),
)


def table_rows(comparison: Comparison, level: float) -> list[dict[str, Any]]:
    """The table at one level, in the given order of the methods.

    ``note`` is shown next to the name of a method; a cell shows ``text`` and sorts by ``value``.
    """
    chosen, rows = comparison.verdicts[comparison.levels.index(level)].method, []
    for record in (each for each in comparison.records if each.level == level):
        cells = [{"text": c.text(record), "value": vars(record)[c.name]} for c in PAGE_COLUMNS]
        note = "" if comparison.is_void else _note(record, chosen)
        rows.append({"method": record.method, "note": note, "cells": cells})
    return rows


def _note(record: Record, chosen: str | None) -> str:
    if record.method == chosen:
        return "use this"
    if record.fraction_infinite == 1:
        return "infinite"
    if record.coverage < record.chance_low:
        return "covers too little"
    return "covers more than asked" if record.coverage > record.chance_high else ""
