"""What the README shows runs as written."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression

import calliper

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


BLOCKS = blocks(ROOT / "README.md")


def test_three_lines():
    X, y = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(X[:200], y[:200])
    names = {"model": model, "X_cal": X[200:400], "y_cal": y[200:400], "X_new": X[400:]}
    exec(BLOCKS[0], names)
    assert len(BLOCKS[0].strip().splitlines()) == 4  # an import, a blank and the two calls
    assert np.mean((names["lower"] <= y[400:]) & (y[400:] <= names["upper"])) > 0.7


def test_complete_script(capsys):
    exec(BLOCKS[1], {})
    printed = capsys.readouterr().out
    assert re.search(r"\d\d% of new targets are inside", printed)
    assert "with probability at least 0.9" in printed


def test_keeping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(X[:200], y[:200])
    before = calliper.ConformalRegressor(model, embed="prediction").calibrate(
        X[200:400], y[200:400]
    )
    (block,) = [block for block in BLOCKS if "calliper.save" in block]
    names = {"intervals": before, "model": model}
    exec(block, names)
    assert names["intervals"] is not before
    for end, again in zip(
        before.predict_interval(X[400:]), names["intervals"].predict_interval(X[400:]), strict=True
    ):
        np.testing.assert_array_equal(end, again)


def test_other_ways_in():
    X, y = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(X[:200], y[:200])

    class Net:
        predict = staticmethod(model.predict)
        embed = staticmethod(lambda X: X[:, :3])

    names = {
        **vars(calliper),
        "RandomForestRegressor": RandomForestRegressor,
        "X": X,
        "y": y,
        "net": Net,
        "model": model,
        "Z_cal": X[200:400],
        "y_cal": y[200:400],
        "y_pred_cal": model.predict(X[200:400]),
        "Z_new": X[400:],
    }
    exec(BLOCKS[2], names)
    assert names["radius"].shape == (42, 2)


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
    assert len(left_out.left_out_.rows) == 400
    assert quantiles.guaranteed_coverage(0.9) >= 0.9
    inside = by_city.predict_interval(X[800:]).contains(y[800:])
    for city in ("Bern", "Thun"):  # about 200 rows each: three standard errors below 0.9
        assert inside[X["city"][800:] == city].mean() > 0.8


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda p: p.name)
def test_what_pages_import_is_there(page):
    for line in re.findall(r"^from calliper.*", "\n".join(blocks(page)), flags=re.MULTILINE):
        exec(line, {})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
