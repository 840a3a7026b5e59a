"""The crosswalk to the paper: every numbered item is in it, and every name that it gives exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").partition("## Crosswalk")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| paper")
]
#: All that the paper numbers; the supplement goes on counting equations and tables.
NUMBERED = {
    *(f"Eq. {n}" for n in range(1, 38)),
    *(f"Table {n}" for n in (1, 2, 3)),
    *(f"Figure {n}" for n in ("1", "2", "S.1", "S.2", "S.3", "S.4", "S.5")),
    *("Algorithm S.1", "Algorithm S.2", "Definition 1", "Theorem S.2", "Lemma S.3"),
    *(f"Proposition {n}" for n in ("1", "2", "3", "S.1")),
}
NAMES = [
    name
    for row in ROWS
    for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\(.*?\))?`", row[1])
    if row[1]
]


def test_every_numbered_item_is_there_once():
    found = []
    for head in (row[0].partition(":")[0] for row in ROWS):
        for kind, first, last in re.findall(r"(Eq\.) (\d+)(?:–(\d+))?", head):
            found += [f"{kind} {n}" for n in range(int(first), int(last or first) + 1)]
        found += re.findall(
            r"(?:Table|Figure|Algorithm|Definition|Proposition|Theorem|Lemma) (?:S\.)?\d", head
        )
    assert sorted(found) == sorted(NUMBERED)


@pytest.mark.parametrize("name", sorted({name for name in NAMES if not name.startswith("make")}))
def test_every_name_exists(name):
    path = name if name.startswith("studies.") else f"calliper.{name}"
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ModuleNotFoundError as error:
            if error.name == "torch":
                pytest.skip("torch is not installed")
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return
    pytest.fail(f"{name} is not there")


def test_every_file_and_command_exists():
    for row in ROWS:
        for link in re.findall(r"\]\(([^)h][^)]*)\)", " ".join(row[1:])):
            assert (PAGE.parent / link).exists(), link
        for target in re.findall(r"`make ([\w-]+)`", " ".join(row)):
            text = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", text, re.M), target
