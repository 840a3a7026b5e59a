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

#: ``command(...)`` is what ``calliper ...`` says, without the start of another process.
COMMAND = """
import contextlib, io, sys

def command(*args):
    from calliper.cli import main

    sys.argv = ["calliper", *args]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        code = main()
    assert code == 0, (args, said.getvalue())
    return said.getvalue()
"""

#: What a reader would try after each recipe.
TRIED = {
    "Add a calibrator": """
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
new = ["--new", "new.csv", "--output"]
assert "distance-split" in command("methods")
command("interval", *known, "--method", "distance-split", *new, "out.csv")
command("calibrate", *known, "--method", "distance-split", "--output", "kept.calliper")
command("interval", "--calibrated", "kept.calliper", *new, "kept.csv")
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
try:
    FullRescaled(Laplacian(-1)).fit(Z, errors)
except ValueError as error:
    assert "length_scale must be a positive" in str(error), error
else:
    raise AssertionError("a length scale below 0 must be refused")
MADSplit(Laplacian(0.1)).fit(Z, errors, training=(Z, errors)).predict_radius(Z)
table = np.column_stack([Z[:, 0], errors, 0 * errors])
np.savetxt("cal.csv", table, delimiter=",", header="x,y,y_pred", comments="")
known = "--calibration cal.csv --target y --prediction y_pred --features x --quiet".split()
np.savetxt("new.csv", table[::2] + 0.01, delimiter=",", header="x,y,y_pred", comments="")
known += ["--kernel", "laplacian"]
command("interval", *known, "--new", "new.csv", "--output", "out.csv")
command("compare", *known, "--test", "new.csv", "--output", "page.json")
""",
    "Add a score": """
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
known = "--calibration cal.csv --target y --prediction y_pred --score squared --quiet".split()
command("calibrate", *known, "--method", "split", "--output", "c.calliper")
command(*"interval --calibrated c.calliper --new new.csv --output out.csv --quiet".split())
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
import numpy as np

rng = np.random.default_rng(0)
for name in ("cal", "new"):
    rows = rng.normal(size=(50, 2))
    np.savetxt(f"{name}.csv", rows, delimiter=",", header="y,y_pred", comments="")
known = "--calibration cal.csv --target y --prediction y_pred --new new.csv --output o.csv".split()
assert "as ordered" in command("interval", *known, "--remark", "as ordered")
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

#: Examples of what recipes add.
DOCUMENTED = """
import doctest

for name in ("calibrators.DistanceSplit", "kernels.Laplacian", "scores.SquaredError"):
    kind = NAMES[f"calliper.{name}"]
    assert not lacks(kind), (name, lacks(kind))
    module = import_module(kind.__module__)
    tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried.attempted and not tried.failed
"""


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


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The source with all recipes followed, in a folder of its own, and the files they touched."""
    source = tmp_path_factory.mktemp("followed") / "src" / "calliper"
    shutil.copytree(ROOT / "src" / "calliper", source, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", source.parents[1])
    for name, recipe in recipes().items():
        assert follow(recipe, source) <= (3 if "option" in name else 2)
    steps = [step for recipe in recipes().values() for step in STEP.finditer(recipe)]
    return source.parents[1], sorted({step["path"] for step in steps})


def ran(folder, *command):
    known = {"PYTHONPATH": "src", "MYPYPATH": "src", "OMP_NUM_THREADS": "1"}
    how = {"cwd": folder, "env": os.environ | known, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *command], **how)


def test_recipes_work_as_written(followed):
    """What a reader would try after each of them, in one process."""
    folder, _ = followed
    lines = [COMMAND, *(f"{text}\nprint({name!r})" for name, text in TRIED.items())]
    (folder / "tried.py").write_text("\n".join(lines), encoding="utf-8")
    done = ran(folder, "tried.py")
    assert done.stdout.splitlines() == list(TRIED), done.stdout + done.stderr


@pytest.mark.long
def test_recipes_are_typed_and_in_order(followed):
    folder, files = followed
    for tool in ("ruff check", "ruff format --check", "mypy --follow-imports=silent"):
        done = ran(folder, "-m", *tool.split(), *files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_public_names_of_recipes_are_documented(followed):
    """As ``test_reference`` wants it, with examples that run."""
    folder, _ = followed
    lines = (ROOT / "tests" / "test_reference.py").read_text(encoding="utf-8"), DOCUMENTED
    (folder / "documented.py").write_text("\n".join(lines), encoding="utf-8")
    done = ran(folder, "documented.py")
    assert done.returncode == 0, done.stdout + done.stderr
