"""Notebooks that readers download run from top to bottom, in a kernel of their own."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "gallery").glob("plot_*.py"))


def run(cells, folder):
    """Outputs of all cells of a notebook, run in a kernel of its own."""
    nbclient = pytest.importorskip("nbclient")
    client = nbclient.NotebookClient(
        cells, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=os.environ | {"OMP_NUM_THREADS": "1"})
    return [output for cell in cells.cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("example", EXAMPLES)
def test_notebooks_run_from_top_to_bottom(site, example):
    nbformat = pytest.importorskip("nbformat")
    page = (site / "gallery" / f"{example}.html").read_text(encoding="utf-8")
    (link,) = re.findall(rf'href="\.\./(_downloads/[^"]+/{example}\.ipynb)"', page)
    shown = run(nbformat.read(site / link, as_version=4), ROOT / "docs")
    assert any("image/png" in output.get("data", {}) for output in shown)


def test_a_kernel_shows_progress_and_cards(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    code = """
import numpy as np
from sklearn.linear_model import Ridge
from calliper import ConformalRegressor
X = np.random.default_rng(0).uniform(size=(400, 2))
model = ConformalRegressor(Ridge(), random_state=0, progress=True).fit(X, X[:, 0] ** 2)
model
"""
    cells = [code, "model.predict_interval(X[:50], [0.8, 0.9])", "model.guarantee(0.9)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    *lines, model, intervals, promise = run(notebook, tmp_path)
    line = "".join(each["text"] for each in lines)
    assert line.startswith("\rtraining: ") and line.rstrip().endswith("\rtraining: 100%")
    assert "calibrated on 100 rows" in model["data"]["text/html"]
    assert "<svg" in intervals["data"]["text/html"]
    assert "proved: " in promise["data"]["text/html"]
