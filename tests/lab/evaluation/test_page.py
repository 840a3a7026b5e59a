"""What docs/evaluation.md shows runs as written."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "evaluation.md"


def test_the_page_runs():
    result = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert result.attempted > 15 and result.failed == 0
