"""What the README shows runs as written."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for folder in (".", "docs", "docs/decisions", "studies/**", "checks/**")
    for page in sorted(ROOT.glob(f"{folder}/*.md"))
    if "local" not in page.relative_to(ROOT).parts  # what make paper-quick writes
]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


BLOCKS = blocks(ROOT / "README.md")


@pytest.mark.usefixtures("all_trees")
def test_three_lines():
    X, y = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(X[:200], y[:200])
    names = {"model": model, "X_cal": X[200:400], "y_cal": y[200:400], "X_new": X[400:]}
    exec(BLOCKS[0], names)
    assert len(BLOCKS[0].strip().splitlines()) == 4  # an import, a blank and the two calls
    assert np.mean((names["lower"] <= y[400:]) & (y[400:] <= names["upper"])) > 0.7


def test_short_and_honest():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 90
    assert any("docs/guarantees.md" in line for line in lines[:25])
    measured = [line for line in lines if "make peers-table" in line]
    page = (ROOT / "studies" / "records" / "peers.md").read_text()
    figures = re.findall(r"0\.\d\d\d", "".join(measured))
    assert len(figures) >= 6 and all(figure in page for figure in figures)


#: Whose code makes modules; ``test_recipes.py`` follows it.
RECIPES = "CONTRIBUTING.md"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page) and page.name != RECIPES], ids=lambda p: p.name
)
def test_what_pages_import_is_there(page):
    for line in re.findall(r"^from calliper.*", "\n".join(blocks(page)), flags=re.MULTILINE):
        exec(line, {})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
