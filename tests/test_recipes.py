"""The recipes of CONTRIBUTING, followed to the letter in a copy of the source."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEP = re.compile(
    r"\*\*(File|Line|End)\*\*(?: of)? `(?P<path>[^`]+)`(?:, after `(?P<after>.+?)`)?[.:;,].*?"
    r"```\w+\n(?P<code>.*?)```",
    re.DOTALL,
)

#: What a reader would try after each recipe; prints "done" if all of it works.
TRIED = {
    "Add a calibrator": """
import subprocess, sys
import numpy as np
from sklearn.linear_model import LinearRegression
from calliper import ConformalRegressor, compare, evaluate, load, save
from calliper.calibrators import DistanceSplit, Split
from calliper.lab.comparison import Points
from calliper.lab.evaluation import Problem

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(600, 1))
y = X[:, 0] + (1 + abs(X[:, 0])) * rng.normal(size=600)
model = LinearRegression().fit(X[:200], y[:200])
made = ConformalRegressor(model, DistanceSplit()).calibrate(X[200:400], y[200:400])
before = made.predict_interval(X[400:])
assert 0.8 < before.contains(y[400:]).mean() < 1
save(made, "made.calliper")
after = load("made.calliper", model).predict_interval(X[400:])
assert np.array_equal(before.lower, after.lower)
try:
    DistanceSplit().fit(X, abs(y), training=(X, abs(y)))
except TypeError as error:
    assert "DistanceSplit" in str(error), error
else:
    raise AssertionError("what a method does not use must be refused")

header = ["x", "y", "y_pred"]
for name, part in (("cal", slice(200, 400)), ("new", slice(400, 600))):
    table = np.column_stack([X[part, 0], y[part], model.predict(X[part])])
    np.savetxt(f"{name}.csv", table, delimiter=",", header=",".join(header), comments="")
known = "--calibration cal.csv --target y --prediction y_pred --features x --quiet".split()
for command in (
    ["methods"],
    ["interval", *known, "--new", "new.csv", "--method", "distance-split", "--output", "out.csv"],
    ["calibrate", *known, "--method", "distance-split", "--output", "kept.calliper"],
    ["interval", "--calibrated", "kept.calliper", "--new", "new.csv", "--output", "kept.csv"],
):
    command = [sys.executable, "-m", "calliper", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    assert "methods" not in command or "distance-split" in done.stdout
assert open("out.csv").read() == open("kept.csv").read()

methods = {"distance": DistanceSplit(), "split": Split()}
y_pred = model.predict(X)
records = evaluate(Problem("fan", Z=X, y=y, y_pred=y_pred), methods, n_splits=2, n_calibration=200)
assert {row["method"] for row in records.where(split=0)} == set(methods)
cal, test = (Points(X[i::2], y[i::2], y_pred[i::2]) for i in (0, 1))
found = compare(cal, test, methods=methods, coverage=0.9)
assert found.record("distance", 0.9).coverage > 0.8
""",
    "Add a kernel": """
import subprocess, sys
import numpy as np
from calliper import FullRescaled, JackknifeRescaled, load, save
from calliper.calibrators import MADSplit
from calliper.kernels import Laplacian

rng = np.random.default_rng(0)
Z = rng.uniform(size=(300, 1))
errors = Z[:, 0] * abs(rng.normal(size=300))
for method in (FullRescaled(Laplacian(0.1)), JackknifeRescaled(Laplacian(0.1))):
    radius = method.fit(Z, errors).predict_radius([[0.1], [0.9]])
    assert radius[0] < radius[1]
    save(method, "kept.calliper")
    assert np.array_equal(load("kept.calliper").predict_radius([[0.1], [0.9]]), radius)
MADSplit(Laplacian(0.1)).fit(Z, errors, training=(Z, errors)).predict_radius(Z)
table = np.column_stack([Z[:, 0], errors, 0 * errors])
np.savetxt("cal.csv", table, delimiter=",", header="x,y,y_pred", comments="")
known = "--calibration cal.csv --target y --prediction y_pred --features x --quiet".split()
np.savetxt("new.csv", table[::2] + 0.01, delimiter=",", header="x,y,y_pred", comments="")
for command in (
    ["interval", *known, "--new", "new.csv", "--kernel", "laplacian", "--output", "out.csv"],
    ["compare", *known, "--test", "new.csv", "--kernel", "laplacian", "--output", "page.json"],
):
    command = [sys.executable, "-m", "calliper", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
""",
    "Add a score": """
import subprocess, sys
import numpy as np
from sklearn.linear_model import LinearRegression
from calliper import ConformalRegressor, Split, load, save
from calliper.scores import SquaredError

rng = np.random.default_rng(0)
X, noise = rng.uniform(size=(400, 1)), rng.normal(size=400)
y = X[:, 0] + X[:, 0] * noise
model = LinearRegression().fit(X[:100], y[:100])
made = ConformalRegressor(model, Split(), score_function=SquaredError())
lower, upper = made.calibrate(X[100:300], y[100:300]).predict_interval(X[300:])
plain = ConformalRegressor(model, Split()).calibrate(X[100:300], y[100:300])
assert np.allclose(upper, plain.predict_interval(X[300:]).upper)
save(made, "kept.calliper")
assert np.array_equal(load("kept.calliper", model).predict_interval(X[300:]).upper, upper)
for name, part in (("cal", slice(100, 300)), ("new", slice(300, 400))):
    table = np.column_stack([X[part, 0], y[part], model.predict(X[part])])
    np.savetxt(f"{name}.csv", table, delimiter=",", header="x,y,y_pred", comments="")
command = "calibrate --calibration cal.csv --target y --prediction y_pred --score squared --method"
for command in (
    [*command.split(), "split", "--output", "c.calliper", "--quiet"],
    "interval --calibrated c.calliper --new new.csv --output out.csv --quiet".split(),
):
    command = [sys.executable, "-m", "calliper", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
out = np.loadtxt("out.csv", delimiter=",", skiprows=1)
assert np.allclose(out[:, -1], upper)
""",
    "Add a model family": """
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from calliper import ConformalRegressor


class HalvesRegressor(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        right = X[:, 0] > 0.5
        self.mean_ = np.array([y[~right].mean(), y[right].mean()])
        self.deviation_ = np.array([y[~right].std(), y[right].std()])
        return self

    def predict(self, X):
        return self.mean_[(X[:, 0] > 0.5).astype(int)]


rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 2))
y = X[:, 0] + X[:, 0] * rng.normal(size=600)
made = ConformalRegressor(HalvesRegressor().fit(X[:200], y[:200])).calibrate(X[200:], y[200:])
assert "deviation of each half" in repr(made), repr(made)
""",
    "Add a command-line option": """
import subprocess, sys
import numpy as np

rng = np.random.default_rng(0)
for name in ("cal", "new"):
    rows = rng.normal(size=(50, 2))
    np.savetxt(f"{name}.csv", rows, delimiter=",", header="y,y_pred", comments="")
known = "--calibration cal.csv --target y --prediction y_pred --new new.csv --output o.csv".split()
command = [sys.executable, "-m", "calliper", "interval", *known, "--remark", "as ordered"]
done = subprocess.run(command, capture_output=True, text=True)
assert done.returncode == 0 and "as ordered" in done.stderr, done.stderr
""",
    "Add a metric": """
import numpy as np
from calliper import Split, evaluate
from calliper.lab.evaluation import Problem

rng = np.random.default_rng(0)
Z, y = rng.normal(size=(200, 1)), rng.normal(size=200)
problem = Problem("noise", Z=Z, y=y, y_pred=np.zeros(200))
records = evaluate(problem, {"split": Split()}, n_splits=2, n_calibration=100)
assert all(row["widest"] > 0 for row in records.where(split=0))
""",
}


def recipes():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^### (.+)$", text.partition("## Recipes")[2].partition("\n## ")[0])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def follow(recipe, source):
    steps = list(STEP.finditer(recipe))
    assert steps
    for step in steps:
        path = source.parent / step["path"].removeprefix("src/")
        if step[1] == "File":
            assert not path.exists()
            path.write_text(step["code"], encoding="utf-8")
            continue
        text = path.read_text(encoding="utf-8")
        if step[1] == "End":
            path.write_text(f"{text}\n\n{step['code']}", encoding="utf-8")
            continue
        before, line, rest = text.partition(step["after"] + "\n")
        assert line, (step["path"], step["after"])
        path.write_text(before + line + step["code"] + rest, encoding="utf-8")
    return len(steps)


def test_every_recipe_is_tried():
    assert list(recipes()) == list(TRIED)


@pytest.mark.parametrize("name", TRIED)
def test_a_recipe_works_as_written(name, tmp_path):
    source = tmp_path / "calliper"
    shutil.copytree(ROOT / "src" / "calliper", source, ignore=shutil.ignore_patterns("*.pyc"))
    n_steps = follow(recipes()[name], source)
    assert n_steps <= (3 if "option" in name else 2)
    script = tmp_path / "tried.py"
    script.write_text(TRIED[name] + "\nprint('done')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip().endswith("done"), done.stdout + done.stderr
