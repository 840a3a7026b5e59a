"""What docs/keeping.md shows runs as written."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import calliper

PAGE = Path(__file__).parents[2] / "docs/keeping.md"


@pytest.mark.filterwarnings("ignore::calliper.exceptions.EmbeddingWarning")
def test_the_page_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 3))
    y = X[:, 0] + X[:, 1] * rng.normal(size=300)
    model = Ridge().fit(X[:100], y[:100])
    names = {"np": np, "__name__": "page", "model": model, "X_cal": X[100:], "y_cal": y[100:]}
    names["X_new"] = X[:20]
    names["intervals"] = calliper.ConformalRegressor(model).calibrate(X[100:], y[100:])
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(block, names)
    assert np.isfinite(names["lower"]).all() and len(names["upper"]) == 20
    assert "ConformalRegressor calibrated on 200 rows" in capsys.readouterr().out
