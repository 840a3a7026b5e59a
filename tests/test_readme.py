"""What the README shows runs as written."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))


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
    assert any("docs/promises.md" in line for line in lines[:25])
    measured = [line for line in lines if "make peers-table" in line]
    page = (ROOT / "docs" / "peers.md").read_text()
    figures = re.findall(r"0\.\d\d\d", "".join(measured))
    assert len(figures) >= 6 and all(figure in page for figure in figures)


@pytest.mark.usefixtures("all_trees")
def test_which_method_runs_as_written():
    rng = np.random.default_rng(0)
    size = rng.uniform(size=1200)
    X = pd.DataFrame({"size": size, "city": pd.Categorical(rng.choice(["Bern", "Thun"], 1200))})
    y = size + (1 + 3 * X["city"].cat.codes.to_numpy()) * rng.normal(size=1200)
    model = HistGradientBoostingRegressor(max_iter=20).fit(X[:400], y[:400])
    names = {"X": X[:800], "y": y[:800], "X_new": X[800:], "model": model}
    names |= {"X_train": X[:400], "y_train": y[:400], "X_cal": X[400:800], "y_cal": y[400:800]}
    found = []
    for block in blocks(ROOT / "docs/which-method.md"):
        exec(block, names)
        found.append(names.pop("intervals", None))
    _, left_out, by_city, quantiles = found
    assert len(left_out.left_out_.numbers) == 400
    assert quantiles.guaranteed_coverage(0.9) >= 0.9
    inside = by_city.predict_interval(X[800:]).contains(y[800:])
    for city in ("Bern", "Thun"):  # about 200 rows each: three standard errors below 0.9
        assert inside[X["city"][800:] == city].mean() > 0.8


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
