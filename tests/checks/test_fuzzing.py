"""A little of each campaign, and that those who look for faults see them; see ``campaign.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import _safe_indexing, check_array

from calliper import Split
from checks.fuzzing import campaign, machines, readers
from checks.promises import book

pytestmark = pytest.mark.long

#: Ends that some inputs come to, if they are any good.
SEEN = [
    *(("files", ended) for ended in ("refused DamagedFileError", "same", "other")),
    *(
        ("readers", ended)
        for ended in ("interval kept done", "interval kept refused", "calibrate done")
    ),
    *(("machines", ended) for ended in ("predict_radius answered", "fit refused", "load answered")),
]


def test_nothing_is_found():
    """In a process of its own, since it forks."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    options = ["--first", "1000000", "--jobs", "1", "--inputs", "300"]
    done = subprocess.run(
        [sys.executable, "-m", "checks.fuzzing", *options],
        capture_output=True, text=True, timeout=280, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for kind, ended in SEEN:
        assert f"{kind:10}{ended}" in done.stdout, done.stdout


def test_the_campaign_was_long_and_found_nothing():
    results = json.loads(campaign.RESULTS.read_text(encoding="utf-8"))
    assert sum(state["inputs"] for state in results.values()) >= 10**6
    assert all(state["found"] == [] for state in results.values())


def test_the_page_names_whose_levels_may_cross():
    sentences = " ".join(book.FUZZING.split()).split(". ")
    (said,) = [part for part in sentences if "its own for each level" in part]
    assert all(word in said for word in machines.EACH_LEVEL)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda self, Z, levels, shares=None: np.full((len(Z), len(levels)), np.nan), "NaN"),
        (lambda self, Z, levels, shares=None: -np.ones((len(Z), 1)) * levels, "narrower"),
        (lambda self, Z, levels, shares=None: np.full((len(Z), len(levels)), len(Z)), "alone"),
        (lambda self, Z, levels, shares=None: {}[0], "KeyError"),
    ],
)
def test_machines_see_what_is_wrong(monkeypatch, broken, said):
    monkeypatch.setattr(machines, "QUICK", ["Split"])
    machine = machines.UseCalibrator()
    machine.begin(place=1, often=1, d=1, n=9)
    monkeypatch.setattr(Split, "_radius", broken)
    with pytest.raises(AssertionError, match=said):
        machine.predict_radius("plain", [0.2, 0.5], 3, 1, None)


def _refused_and_then_not(given):
    if given is None:
        raise ValueError("nothing was given")
    return float(given)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: _refused_and_then_not(None), True),
        (lambda: _refused_and_then_not("word"), False),  # though a line that raises is near
        (lambda: _safe_indexing({1.0}, [0]), False),  # though in scikit-learn
        (lambda: check_array([["word"]], dtype=float), True),
        (lambda: Split().predict_radius([[1.0]]), True),
    ],
)
def test_machines_tell_refusals_from_accidents(call, named):
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert machines.is_named(error.value) == named


def test_rows_agree_but_for_rounding_of_what_was_added():
    assert not machines.close([1.0], [1.0 + 1e-8])
    assert not machines.close([1e274], [2e274], size=1e287)
    assert machines.close([1e274], [2e274], size=1e289)


def test_machines_see_what_a_refusal_changes(monkeypatch):
    def extend(self, Z, scores, **how):
        Split.fit(self, np.zeros((9, 1)), np.arange(9.0) + 100)
        raise ValueError("no")

    monkeypatch.setattr(machines, "QUICK", ["Split"])
    machine = machines.UseCalibrator()
    machine.begin(place=1, often=1, d=1, n=9)
    monkeypatch.setattr(Split, "extend", extend)
    with pytest.raises(AssertionError, match="otherwise than before"):
        machine.extend("plain", "plain", 3, 1, None)


GOOD = "y,p,f_a,f_b,g,w,note,lower,upper\n1,2,0,0,u,1,x,1.5,2.5\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (GOOD, ""),
        (GOOD.replace("1.5", "nan"), "NaN"),
        (GOOD.replace("1.5", "3"), "upside down"),
        (GOOD.replace("x,", "z,"), "cells were changed"),
        (GOOD + "1,2,0,0,u,1,x,1.5,2.5\n", "1 rows became 2"),
    ],
)
def test_readers_see_wrong_outputs(monkeypatch, tmp_path, written, said):
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    Path("odd.csv").write_text("y,p,f_a,f_b,g,w,note\n1,2,0,0,u,1,x\n")
    Path("out/kept.csv").write_text(written)
    words = ["interval", "--new", "odd.csv", "--output", "out/kept.csv"]
    assert said in readers._wrong_output(words, "odd.csv", "out/kept.csv")
    Path("out/.calliper-1.tmp").touch()
    assert "left" in readers._wrong_output(words, "odd.csv", "out/kept.csv")


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (2, "calliper: error: odd.csv: the file is empty\n", ""),
        (1, "calliper: error: odd.csv: the file is empty\n", "exit code 1"),
        (2, "calliper: error: \n", "said"),
        (2, "Traceback (most recent call last):\n  File\n", "said"),
    ],
)
def test_readers_see_wrong_refusals(monkeypatch, tmp_path, code, said, wrong):
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert wrong in readers._wrong_refusal(code, said, "", "out/x.csv", False)
    Path("out/x.csv").touch()
    assert readers._wrong_refusal(code, said, "", "out/x.csv", False)
