"""Mutants are what they are said to be, and what is said of them follows from the results."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.mutants import campaign, mutators, page, touching

BROKEN = '''
"""Words."""
LIMIT = 3

def clip(x, *, low=0.5):
    """More words, 1 < 2."""
    if x <= low:
        raise ValueError(f"{x} < {1}")
    kept = x[1:LIMIT]
    kept.sort(axis=0)
    return max(kept) + 1 if kept and not low else None
'''

RETURNED = "return max(kept) + 1 if kept and (not low) else None"
OF_WHAT_IS_RETURNED = (
    "max(kept) + 1 if kept and (not low) else None → "
    "max(kept) + 1 if not (kept and (not low)) else None",
    "kept and (not low) → kept or not low",
    "kept and (not low) → kept and low",
    "max(kept) + 1 → min(kept) + 1",
    "max(kept) + 1 → max(kept) - 1",
    "max(kept) + 1 → max(kept) + 2",
    "max(kept) + 1 → max(kept) + 0",
)


@pytest.fixture
def changes(tmp_path, monkeypatch):
    monkeypatch.setattr(mutators, "SOURCE", tmp_path)
    (tmp_path / "small.py").write_text(BROKEN, encoding="utf-8")
    return [f"{m.unit}: {m.change}" for m in mutators.mutants_of("small.py")[1]]


def test_every_way_to_break_a_small_file(changes):
    assert changes == [
        "LIMIT: 3 → 4",
        "clip: 0.5 → 1.0 [low]",
        "clip: x <= low → not x <= low",
        "clip: x <= low → x < low",
        "clip: raise ValueError(f'{x} < {1}') → left out",
        "clip: 1:LIMIT → 2:LIMIT",
        "clip: 1:LIMIT → 0:LIMIT",
        "clip: 1:LIMIT → 1:LIMIT + 1",
        "clip: 1:LIMIT → 1:LIMIT - 1",
        "clip: kept.sort(axis=0) → left out",
        "clip: axis=0 → axis=1",
        f"clip: {RETURNED} → return None",
        *(f"clip: {change}" for change in OF_WHAT_IS_RETURNED),
    ]


#: In a process of its own, which nobody else needs whole.
BREAK = """
import calliper.quantile as core
from calliper import Split
from calliper.kernels import TunedRBF
from checks.mutants import campaign, mutators

functions = campaign.living_functions()

def install(unit, change, file="quantile.py"):
    tree, found = mutators.mutants_of(file)
    mutant = next(m for m in found if (m.unit, m.change) == (unit, change))
    campaign.install(mutant, tree, functions)

rank, before = core.conformal_rank, core.above(1.0, 1.0)
assert rank(0.9, 9) == 9
install("conformal_rank", "n + 1 → n - 1")
assert rank(0.9, 9) == 8, "a function is broken for all who hold it"
install("above", "1 → 2 [digits]")
assert core.above(1.0, 1.0) > before, "a default is broken"
install("TOLERANCE", "1e-12 → 2e-12")
assert core.TOLERANCE == 2e-12, "a constant is broken"
install("_Tuned.mi_neighbors", "3 → 4", "kernels/_tuned.py")
assert TunedRBF().mi_neighbors == 4, "a field is broken for all who inherit it"
install("ROWS", "least=0 → least=1", "calibrators/_calibrator.py")
assert Split.keeps["magnitudes"].least == 1, "what files keep is broken for all classes"
"""


def test_functions_defaults_and_constants_are_broken():
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(map(str, (root / "src", root)))
    command = [sys.executable, "-c", BREAK]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_unit_keeps_its_name_through_other_words_and_layout():
    def key(text):
        return mutators.key_of(ast.parse(text).body[0])

    assert key("def f(x):\n    'One.'\n    return x+1") == key("def f(x):\n\n    return x + 1")
    assert key("def f(x):\n    return x + 1") != key("def f(x):\n    return x + 2")


def test_the_page_is_what_the_results_say():
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


def test_reasons_are_given_for_survivors_alone():
    assert set(page.reasons()) <= {(file, change) for file, change, _ in page.survivors()}


def test_the_tests_that_are_run_are_there():
    """`make mutants` and `make coverage` run nothing if one of them was moved."""
    named = [*touching.TESTS, *touching._LAWS.split()]
    assert [path for path in named if not (mutators.ROOT / path).exists()] == []


def test_most_are_noticed():
    """Of those tried, with and without explained survivors: what was reached is not lost again."""
    count = sum(page.counts().values(), page.Counter())
    noticed = count["k"] + count["t"]
    assert noticed >= 0.99 * (noticed + count["s"])
    assert noticed >= 0.93 * (noticed + count["s"] + count["e"])


def test_results_are_of_the_code_that_stands():
    """Most units are as they were when they were tried; `make mutants` tries others."""
    known = campaign.read()
    same = [
        known.get(file, {}).get(unit, [""])[0] == mutators.key_of(node)
        for file in mutators.core_files()
        for unit, node in mutators.units(mutators.tree_of(file))
        if unit in known.get(file, {}) or mutators.edits_of(node)
    ]
    assert sum(same) >= 0.85 * len(same)
