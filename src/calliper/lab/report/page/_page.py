"""A comparison as one self-contained HTML page."""

import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calliper._version import __version__
from calliper._writing import to_text
from calliper.lab._words import percent
from calliper.lab.comparison import Comparison
from calliper.lab.report.page._figures import figure_items
from calliper.lab.report.page._payload import PAGE_COLUMNS, payload, table_rows

_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("data.js", "theme.js", "figures.js", "words.js", "report.js")
_PACKAGES = ("numpy", "scipy", "scikit-learn", "bokeh")


@dataclass(frozen=True)
class SourceFile:
    """A file that the numbers come from.

    Parameters
    ----------
    name : str
    part : str
        Its use, such as "calibration".
    n_rows : int
    sha256 : str
        Of its content.

    Examples
    --------
    >>> SourceFile("cal.csv", "calibration", 500, "9f86d0").n_rows
    500
    """

    name: str
    part: str
    n_rows: int
    sha256: str


@dataclass(frozen=True)
class Provenance:
    """How to reproduce a comparison.

    Attributes
    ----------
    command : as it was typed
    files : the files read
    notes : for example how rows were split
    use : a command that applies the result, with placeholders ``{method}`` and ``{coverage}``

    Examples
    --------
    >>> Provenance(command="python compare.py", notes=("split at random",)).notes
    ('split at random',)
    """

    command: str = ""
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()
    use: str = ""

    def to_use(self, method: str | None, level: float) -> str:
        """The command that applies this method, or an empty string."""
        if method is None:
            return ""
        return self.use.replace("{method}", method).replace("{coverage}", f"{level:g}")

    def values(self) -> dict[str, Any]:
        """Values for JSON, with versions."""
        return {**asdict(self), "versions": versions()}


def versions() -> dict[str, str]:
    """Versions of the packages that the numbers depend on."""
    packages = {name: version(name) for name in _PACKAGES}
    return {"calliper": __version__, "python": platform.python_version(), **packages}


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
    comparison : Comparison
        From :func:`calliper.lab.comparison.compare`.
    title : str
        Shown above the verdict.
    provenance : Provenance, optional
        Command and files, to reproduce it.
    descriptions : mapping of methods to text, optional
        A line for each method; by default the first line of its docstring.

    Returns
    -------
    str
        The page, to write to a file.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import FullRescaled
    >>> from calliper.lab.comparison import Points, compare
    >>> cal, test = (Points(x, x, 0 * x) for x in np.random.default_rng(0).normal(size=(2, 200)))
    >>> found = compare(cal, test, methods={"full": FullRescaled()})
    >>> render_page(found, title="Noise that grows")[:15]
    '<!doctype html>'
    """
    from bokeh.resources import INLINE

    values = payload(comparison)
    tables = [table_rows(comparison, level) for level in comparison.levels]
    values["tables"] = tables
    source, what = provenance or Provenance(), dict(descriptions or {})
    values["use"] = [source.to_use(v.method, v.level) for v in comparison.verdicts]
    return str(
        _environment()
        .get_template("page.html.j2")
        .render(
            comparison=comparison,
            title=title or "Prediction intervals compared",
            verdict=comparison.verdict,
            void=comparison.is_void,
            failures=[answer for answer in comparison.answers if answer.failure is not None],
            columns=PAGE_COLUMNS,
            rows=tables[comparison.levels.index(comparison.coverage)],
            values=_script_json(values),
            figures=_script_json(figure_items()),
            bokeh="\n".join(INLINE.js_raw[:1]),
            script="\n".join((_TEMPLATES / name).read_text("utf-8") for name in _SCRIPTS),
            style=(_TEMPLATES / "style.css").read_text("utf-8"),
            provenance=source,
            use=source.to_use(comparison.verdict.method, comparison.coverage),
            what={a.method: what.get(a.method, a.what) for a in comparison.answers},
            versions=versions(),
        )
    )


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,  # names of columns, files and groups are not trusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["breakable"] = _breakable
    return environment


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
