"""What the README shows runs as written."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import calliper

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


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


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
