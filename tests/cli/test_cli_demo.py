"""``calliper demo``, ``--help`` and ``--version`` from outside."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys

import pytest

import calliper as library
from calliper.cli import _demo
from calliper.cli._demo import calibrators

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def done(folder):
    command = [sys.executable, "-m", "calliper", "demo", "--output", "demo.png"]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")


def test_demo_prints_every_method(done):
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name in [*calibrators(0), "(oracle)"]:
        assert any(line.strip().startswith(f"{name} ") for line in lines), name
    assert "≥ 90.0 %" in done.stdout and "≥ 80." in done.stdout
    assert "marginal" in done.stdout
    assert max(map(len, lines)) <= 100
    assert "nan" not in done.stdout.split()


def test_demo_draws(done, folder):
    assert done.stderr.split("\n")[1:] == [
        "figure written to demo.png",
        "report written to demo.html: open it in a browser",
        "",
    ]
    picture = (folder / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert width >= 1500 and height >= 600
    assert sorted(path.name for path in folder.iterdir()) == ["demo.html", "demo.png"]


def test_demo_ends_with_a_page(done, folder):
    text = (folder / "demo.html").read_text("utf-8")
    assert "Use " in text and "Demonstration: noise that changes with x" in text
    for name in calibrators(0):
        assert f'data-method="{name}"' in text


def test_table_and_page_tell_the_same_numbers(done, folder):
    page = (folder / "demo.html").read_text("utf-8")
    values = re.search(r'<script type="application/json" id="values">(.*?)</script>', page)[1]
    records = {r["method"]: r for r in json.loads(values)["records"] if r["level"] == 0.9}
    assert [*records] == [*calibrators(0)]
    for method, record in records.items():
        row = next(line for line in done.stdout.splitlines() if line.startswith(f" {method}  "))
        said = row.removeprefix(f" {method}").partition("%")[2].split()
        worst = f"{record['worst_by_prediction']:.1%}"
        sizes = f"{record['mean_width']:.3f}", worst, f"{record['score']:.3f}"
        assert said == [f"{record['coverage']:.1%}", *sizes], method
    assert "τ" not in done.stdout and "R²" not in done.stdout


@pytest.fixture
def small(monkeypatch):
    """A demonstration of fewer points, in this process."""
    for name, size in {"N_TRAINING": 200, "N_CALIBRATION": 200, "N_TEST": 600}.items():
        monkeypatch.setattr(_demo, name, size)
    return _demo.demo.callback


def test_the_methods_are_calibrated_by_the_comparison_alone(small, monkeypatch, tmp_path):
    fits, compared = [], []

    def fit(self, *arguments, **more):
        fits.append(self)
        return original_fit(self, *arguments, **more)

    def compare(*arguments, **more):
        comparison = original_compare(*arguments, **more)
        compared.append(len(fits))
        return comparison

    original_fit, original_compare = library.Split.fit, _demo.compare
    monkeypatch.setattr(library.Split, "fit", fit)
    monkeypatch.setattr(_demo, "compare", compare)
    small(output=str(tmp_path / "demo.svg"), seed=0)
    assert compared == [len(fits)]


def test_the_seed_decides(small, capsys, tmp_path):
    def said(seed):
        small(output=str(tmp_path / "demo.svg"), seed=seed)
        return capsys.readouterr().out

    first, same, other = map(said, (0, 0, 1))
    assert first == same != other
    assert "<svg" in (tmp_path / "demo.svg").read_text()[:1000]


SMALL = """
import sys
from calliper.cli import _demo, main

_demo.N_TRAINING, _demo.N_CALIBRATION, _demo.N_TEST = 200, 200, 600
sys.argv = ["calliper", "demo", "--output", "other.svg"]
sys.exit(main())
"""


def test_letters_that_the_terminal_lacks_do_no_harm(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", SMALL]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"FullRescaled" in done.stdout


def test_version(calliper):
    assert calliper("--version").stdout == f"calliper {library.__version__}\n"


@pytest.mark.parametrize(
    ("args", "example"),
    [
        ([], "calliper interval --calibration cal.csv"),
        (["--help"], "calliper demo"),
        (["interval", "--help"], "--features-prefix emb_"),
        (["demo", "-h"], "calliper demo --seed 1"),
    ],
)
def test_help_has_an_example(calliper, args, example):
    done = calliper(*args)
    assert done.returncode == 0
    assert example in done.stdout
    assert done.stderr == ""
