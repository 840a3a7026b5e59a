"""Studies and benchmarks use the library as anybody can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for name in ("studies", "checks/promises") for path in (ROOT / name).rglob("*.py")
)
PRIVATE = re.compile(r"calliper(\.\w+)*\._[a-z]|from calliper(\.\w+)* import .*\b_[a-z]")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_are_imported(path):
    assert PRIVATE.findall(path.read_text(encoding="utf-8")) == []


def test_the_pattern_finds_private_names():
    for line in (
        "from calliper._types import A",
        "from calliper.x import _y",
        "import calliper.x._y",
    ):
        assert PRIVATE.search(line)
    assert not PRIVATE.search("from calliper.kernels import KNN, learn_metric")
