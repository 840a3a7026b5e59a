"""``calliper demo``, ``--help`` and ``--version`` from outside."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

import calliper as library
from calliper.cli._demo import calibrators


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


def test_the_seed_decides(calliper, done, tmp_path):
    same, other = (calliper("demo", "--seed", seed, "--output", "demo.svg") for seed in (0, 1))
    assert same.stdout == done.stdout != other.stdout
    assert "<svg" in (tmp_path / "demo.svg").read_text()[:1000]


def test_letters_that_the_terminal_lacks_do_no_harm(folder):
    command = [sys.executable, "-m", "calliper", "demo", "--output", "other.svg"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"FullRescaled" in done.stdout
    (folder / "other.svg").unlink()
    (folder / "other.html").unlink()


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
