"""Every method through the command, and the table that lists them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from calliper import KNN, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.cli._methods import METHODS, PYTHON_ONLY, MethodOptions
from calliper.kernels import named_kernels
from calliper.rows import Rows

CALIBRATORS = {
    "full": FullRescaled(random_state=0),
    "jackknife": JackknifeRescaled(random_state=0),
    "minmax": JackknifeMinmaxRescaled(random_state=0),
    "split": Split(),
    "conditional": ConditionalCalibration(),
    "mad-split": MADSplit(random_state=0),
    "slcp": SLCP(random_state=0),
    "rcp": RCP(random_state=0),
    "locart": LoCart(random_state=0),
    "normalized-knn": NormalizedKNN(),
    "lcp": LCP(random_state=0),
    "rlcp": RLCP(random_state=0),
    "lvd": LVD(random_state=0),
}
WITH_OPTIONS = {
    "minmax --neighbors 7": JackknifeMinmaxRescaled(KNN(7), random_state=0),
    "minmax --offset 0.1": JackknifeMinmaxRescaled(offset=0.1, random_state=0),
    "mad-split --neighbors 7": MADSplit(KNN(7), random_state=0),
    "slcp --neighbors 30": SLCP(KNN(30), random_state=0),
    "rcp --neighbors 30 --offset 0.1": RCP(kernel=KNN(30), offset=0.1, random_state=0),
    "normalized-knn --neighbors 7": NormalizedKNN(7),
    "rlcp --seed 5": RLCP(random_state=5),
}
TRAINED = [name for name, entry in METHODS.items() if entry().uses.needs]
LEVELS = [0.8, 0.9]
ENDS = ("lower_0.8", "lower_0.9", "upper_0.8", "upper_0.9")


def columns(path, *names):
    with open(path, newline="") as file:
        return np.array([[float(row[name]) for name in names] for row in csv.DictReader(file)])


def python_ends(folder, calibrator):
    """Ends of the intervals around the rows of new.csv, by the library."""
    (X, y), (X_train, y_train), (X_new, _) = (
        (both[:, :2], both[:, 2])
        for both in (columns(folder / f"{name}.csv", *"aby") for name in ("cal", "train", "new"))
    )
    # The "model" of the files' predictions, as conftest.py writes them.
    model = ConformalRegressor(
        lambda X: X[:, 0] + X[:, 1] / 1000, calibrator, embed="inputs", learning_part=None
    )
    with threadpool_limits(1):  # as in conftest.py
        model.calibrate(X, y, X_train=X_train, y_train=y_train)
        return np.hstack([*model.predict_interval(X_new, LEVELS)])


def run(calliper, base, options, *training):
    levels = [text for level in LEVELS for text in ("--coverage", level)]
    args = ["--new", "new.csv", "--features", "a,b", *levels, *training]
    return calliper(*base, *args, "--method", *options.split())


def test_every_method_is_tried_here():
    assert [*CALIBRATORS] == [*METHODS]
    for name, calibrator in CALIBRATORS.items():
        assert METHODS[name] is type(calibrator)


@pytest.mark.parametrize("options", [*CALIBRATORS, *WITH_OPTIONS])
def test_every_method_equals_python_digit_for_digit(calliper, files, base, options):
    done = run(calliper, base, options, "--training", "train.csv")
    assert done.returncode == 0, done.stderr
    calibrator = (CALIBRATORS | WITH_OPTIONS)[options]
    assert f"50 rows written to out.csv ({type(calibrator).__name__}, 300" in done.stderr
    expected = python_ends(files, calibrator)
    np.testing.assert_array_equal(columns(files / "out.csv", *ENDS), expected)


def test_help_and_docs_say_what_runs_without_neighbors(calliper):
    """Numbers by asking for them, the rule of full by its result."""
    rng = np.random.default_rng(0)
    Z, Z_train, Z_new = rng.normal(size=(3, 90, 2))
    scores, trained = abs(rng.normal(size=(2, 90)))
    page = Path(__file__).parents[2].joinpath("docs/command-line.md").read_text("utf-8")
    rows = [re.split(r" *\| *", line) for line in page.splitlines() if line.startswith("| `")]
    said = {row[1].strip("`"): row[5] for row in rows if row[1].strip("`") in METHODS}
    said_in_help = " ".join(calliper("methods", "--long").stdout.split())
    assert "√" not in calliper("interval", "--help").stdout
    assert "slcp: 20; rcp: trees instead; others: 10" in said_in_help
    for name in METHODS:
        if not said[name].isdigit():
            continue
        given, default = (MethodOptions(name, neighbors=k).build() for k in (int(said[name]), None))
        rows, training = Rows(Z, scores), Rows(Z_train, trained, targets=trained)
        radii = [
            method.fit_to(rows, training=training).predict_radius(Z_new)
            for method in (given, default)
        ]
        np.testing.assert_array_equal(*radii)
        assert int(said[name]) == (20 if name == "slcp" else 10)
    assert said["full"] == "see below"
    text = "the 20 nearest (at most half of all points), their mean mixed with the median error"
    assert f"full: {text} by 8/√N, at least 0.2 and at most 0.5" in said_in_help
    assert "with 64 features or more, the K and 4K nearest, where K = 2.25·N^(1/6)" in said_in_help
    for n in (30, 90, 400, 4000):
        Z, scores = rng.normal(size=(n, 64)), abs(rng.normal(size=n))
        graded = FullRescaled().fit(Z, scores).kernel_
        assert graded.n_neighbors == min(round(2.25 * n ** (1 / 6)), n // 8)
        locality = FullRescaled().fit(Z[:, :1], scores).locality_
        assert locality.kernel.n_neighbors == min(20, n // 2)
        assert locality.shrinkage == pytest.approx(np.clip(8 / np.sqrt(n), 0.2, 0.5), abs=1e-3)


@pytest.mark.parametrize("name", [*METHODS])
def test_the_prediction_alone_is_enough(calliper, files, base, name):
    done = calliper(*base, "--new", "new.csv", "--training", "train.csv", "--method", name)
    assert done.returncode == 0, done.stderr
    ends = columns(files / "out.csv", "lower", "upper")
    assert len(ends) == 50 and (ends[:, 0] < ends[:, 1]).all()


def test_who_needs_training_rows():
    assert [*METHODS][:5] == [name for name in METHODS if name not in TRAINED]


@pytest.mark.parametrize("name", [*METHODS])
def test_without_training_rows(calliper, files, base, name):
    done = run(calliper, base, name)
    assert done.returncode == (2 if name in TRAINED else 0), done.stderr
    if name in TRAINED:
        assert done.stderr == (
            f"calliper: error: --method {name} learns from {METHODS[name]().uses.in_words()}: pass "
            f"--training FILE, or use --method full, which needs none.\n"
        )
        assert not (files / "out.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("lcp --neighbors 3", "--method lcp does not use --neighbors: omit it."),
        ("locart --neighbors 3", "--method locart does not use --neighbors: omit it."),
        ("conditional --neighbors 3", "--method conditional does not use --neighbors: omit it."),
        ("slcp --offset 0.1", "--method slcp does not use --offset: omit it."),
        ("lvd --neighbors 3 --offset 1", "--method lvd does not use --neighbors: omit it."),
        ("split --kernel rbf", "--method split does not use --kernel: omit it."),
        ("full --kernel rbf --neighbors 3", "--kernel rbf has no number of neighbours: omit --n"),
        ("jackknife --kernel graded-knn", "--kernel graded-knn cannot be combined with --method"),
        ("minmax --statistic rms", "--method minmax does not use --statistic: omit it."),
    ],
)
def test_options_that_a_method_would_not_heed(calliper, files, base, options, words):
    done = run(calliper, base, options, "--training", "train.csv")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert words in done.stderr


@pytest.mark.parametrize("kernel", [*named_kernels()])
def test_what_a_kernel_lacks_is_said_in_options(calliper, files, base, kernel):
    for name in ("full", "jackknife", "minmax"):
        done = run(calliper, base, f"{name} --kernel {kernel}")
        error = done.stderr.partition("calliper: error: ")[2]
        assert done.returncode == 0 or f"--kernel {kernel}" in error
        assert not re.search(r"=|\bfit\b|[a-z][A-Z]", done.stderr.partition("error")[2])


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].about.neighbors])
def test_more_neighbours_than_rows_is_no_traceback(calliper, files, base, name):
    done = run(calliper, base, f"{name} --neighbors 5000", "--training", "train.csv")
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr and "5000" in done.stderr


def test_an_unknown_method_is_told_all_names(calliper, files, base):
    done = run(calliper, base, "best")
    assert done.returncode == 2
    assert "'best' is not one of " + ", ".join(map(repr, METHODS)) in done.stderr


def cells(text):
    """The rows of the tables: the first line of each, by name."""
    return {line.split()[0]: line for line in text.splitlines() if line and line[0] != " "}


def test_the_list_names_every_method_and_its_guarantee(calliper):
    done = calliper("methods")
    assert (done.returncode, done.stderr) == (0, "")
    rows = cells(done.stdout)
    for name, kind in (METHODS | PYTHON_ONLY).items():
        first = kind.about.guarantee.removesuffix(" leaf")
        assert f" {first} " in rows[name], name
    assert max(map(len, done.stdout.splitlines())) <= 100
    words = " ".join(done.stdout.split())
    assert "The default is full." in words and "All guarantees are marginal" in words
    assert "FullRescaled" not in words


def test_the_long_list_adds_cost_and_class(calliper):
    short, long = calliper("methods"), calliper("methods", "--long")
    words = " ".join(long.stdout.split())
    for kind in (METHODS | PYTHON_ONLY).values():
        assert f"{kind.about.python or kind.__name__} {kind.about.cost}" in words
    assert set(short.stdout.splitlines()) < set(long.stdout.splitlines())


def test_help_names_every_method(calliper):
    text = calliper("interval", "--help").stdout
    assert all(name in text for name in METHODS)
    assert "calliper methods" in calliper().stdout


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_what_the_list_promises_is_what_the_classes_prove(coverage):
    """In words here, in numbers there: with many points they agree."""
    rng = np.random.default_rng(0)
    Z, scores = rng.uniform(size=(2, 999, 1)), rng.exponential(size=(2, 999))
    wanted = {"1−α": coverage, "1−2α": 2 * coverage - 1, "none proved": 0.0}
    for name, calibrator in CALIBRATORS.items():
        rows, training = Rows(Z[0], scores[0]), Rows(Z[1], scores[1], targets=scores[1])
        fitted = clone(calibrator).fit_to(rows, training=training)
        proved = fitted.guaranteed_coverage(coverage)
        least = wanted[METHODS[name].about.guarantee.removesuffix(" in each leaf")]
        assert least - 1e-9 <= proved <= least + 0.03, name
