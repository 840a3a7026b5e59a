"""The site: ``make docs`` builds it, without a network, and any warning fails the build."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "src"))

import calliper  # noqa: E402

project = "calliper"
author = "The calliper developers"
copyright = author  # noqa: A001
version = release = calliper.__version__
language = "en"  # the British catalogue breaks the count of search results

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
#: Sites whose names are linked. The inventories in docs/inventories hold the names that the
#: reference mentions, so that no network is needed.
SITES = {
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
}
extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    name: (site, str(DOCS / "inventories" / f"{name}.inv")) for name, site in SITES.items()
}

exclude_patterns = [
    "_build",
    "_templates",
    "decisions",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.md",
]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]

# -- Reference: every public name, from the lists that the tests pin ------------------------------

toc_object_entries_show_parents = "hide"
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


#: What most readers look for, before the rest of the front door.
FIRST = ("ConformalRegressor", "MultiTargetRegressor", "Intervals", "Boxes", "save", "load")


def public_names() -> dict[str, list[str]]:
    """The public names of each module; one that the front door has is left to the front door."""
    names = {"calliper": [*FIRST, *(n for n in calliper.__all__ if n not in FIRST)]}
    topics = set(dir(calliper)) - {*calliper.__all__, "__version__", "lab", "metrics"}
    judging = {f"lab.{each}" for each in calliper.lab.__all__ if each != "datasets"}
    for module in sorted(topics | judging):
        there = importlib.import_module(f"calliper.{module}")
        names[f"calliper.{module}"] = [n for n in there.__all__ if n not in calliper.__all__]
    return names


def reference() -> str:
    """The page that lists them, a table for each module with its first line above."""
    said = "Every public name. Each page has an example that runs. Most programs need"
    said += " :class:`~calliper.ConformalRegressor` and what it returns, and no more."
    lines = ["Reference", "=========", "", said]
    for module, names in public_names().items():
        there = importlib.import_module(module)
        said = (inspect.getdoc(there) or "").split("\n\n")[0].replace("\n", " ")
        title = "The front door: ``calliper``" if module == "calliper" else f"``{module}``"
        lines += ["", title, "-" * len(title), "", said, "", f".. currentmodule:: {module}", ""]
        lines += [".. autosummary::", "   :toctree: generated", f"   :caption: {module}"]
        lines += ["   :nosignatures:", ""]
        lines += [f"   {name}" for name in names]
    return "\n".join(lines) + "\n"


def write_if_other(path: Path, text: str) -> None:
    """Leave a page alone that would stay the same, so that it is not built again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


write_if_other(DOCS / "reference" / "index.rst", reference())

# -- Gallery --------------------------------------------------------------------------------------

EXAMPLES = ROOT / "examples" / "gallery"


def settle(gallery_conf: dict[str, Any], fname: str) -> None:
    """Each example starts with the same style of figure, and fails on what calliper warns of."""
    import matplotlib

    matplotlib.rcParams.update({"figure.dpi": 100, "font.size": 10, "savefig.facecolor": "white"})
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")


sphinx_gallery_conf = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("calliper",),
    "reset_modules": ("matplotlib", settle),
    "image_srcset": ["2x"],
    "min_reported_time": 0,
    "show_memory": False,
    "remove_config_comments": True,
    "download_all_examples": True,
    "copyfile_regex": r".*\.md",
    "show_signature": False,
    "write_computation_times": False,
    "first_notebook_cell": "# pip install calliper[docs]",
}

# -- Pages ----------------------------------------------------------------------------------------

NEXT: dict[str, list[str]] = tomllib.loads((DOCS / "next.toml").read_text("utf-8"))


def where_next(page: str) -> list[str]:
    """The pages to read after this one: its own list, else that of its folder."""
    if page in NEXT:
        return NEXT[page]
    folders = [page.rsplit("/", n)[0] + "/*" for n in range(1, page.count("/") + 1)]
    return next((NEXT[folder] for folder in folders if folder in NEXT), NEXT["*"])


def lead_outside(app: Any, page: str, source: list[str]) -> None:
    """Offer records of the repository, which are no pages of the site, for download."""
    link = r"\[([^\]]+)\]\(((?:\.\./checks|\.\./studies|decisions)/[^)]+\.md)\)"
    source[0] = re.sub(link, r"{download}`\1 <\2>`", source[0])


def lead_on(app: Any, page: str, source: list[str]) -> None:
    """End every page with where to go next."""
    targets = [target for target in where_next(page) if target != page]
    if page == "index" or not targets:
        return
    if Path(app.env.doc2path(page)).suffix == ".md":
        links = "\n".join(f"- {{doc}}`/{target}`" for target in targets)
        source[0] += f"\n\n:::{{rubric}} Where to go next\n:heading-level: 2\n:::\n\n{links}\n"
    else:
        links = "\n".join(f"- :doc:`/{target}`" for target in targets)
        source[0] += f"\n\n.. rubric:: Where to go next\n\n{links}\n"


def skip_routing(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    theirs = ("get_metadata_routing", "set_output", "_request")
    return True if name.endswith(theirs) else None


def as_mathml(translator: Any, node: Any) -> None:
    """Formulas that the browser itself draws: no script, no fonts, no network."""
    from docutils.nodes import SkipNode
    from docutils.utils.math.latex2mathml import tex2mathml

    block = node.tagname == "math_block"
    drawn = tex2mathml(node.astext(), as_block=block)
    # docutils puts the index of an accented letter below it, not beside it.
    below = r"<munderover>\s*(<mi>[^<]*</mi>)(.*?)(<mo [^>]*>[ˆ˜¯~]</mo>)\s*</munderover>"
    beside = r"<msub><mover>\1\3</mover><mrow>\2</mrow></msub>"
    drawn = re.sub(below, beside, drawn, flags=re.DOTALL)
    translator.body.append(f'<div class="math">{drawn}</div>' if block else drawn)
    raise SkipNode


def write_llms(app: Any, exception: Exception | None) -> None:
    """The pages by title in llms.txt, for programs that read documentation."""
    if exception is None and app.builder.format == "html":
        apart = ("gallery/", "reference/", "decisions/", "paper/")
        pages = sorted(page for page in app.env.found_docs if not page.startswith(apart))
        lines = [f"- [{app.env.titles[page].astext()}]({page}.html)" for page in pages]
        about = "> Prediction intervals for any regression model, in Python."
        text = "\n".join(["# calliper", "", about, "", "## Pages", "", *lines, ""])
        Path(app.outdir, "llms.txt").write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (as_mathml, None), (as_mathml, None))
    app.connect("source-read", lead_outside)
    app.connect("source-read", lead_on)
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("build-finished", write_llms)


html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "calliper"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["calliper.css"]
html_favicon = "_static/mark.svg"
html_show_sourcelink = False
html_theme_options = {
    "logo": {
        "image_light": "_static/mark.svg",
        "image_dark": "_static/mark.svg",
        "text": "calliper",
    },
    "navbar_align": "left",
    "navbar_center": ["links.html"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_nav_level": 1,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "**": ["pages.html"]}
