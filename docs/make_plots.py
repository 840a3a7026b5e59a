"""Draw every figure of plots.md with the code that stands there: ``python docs/make_plots.py``.

The page is the program: its Python blocks run in order, in one namespace, and save the images.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def blocks(page: str = "plots.md") -> list[str]:
    """The Python blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def draw(folder: Path) -> dict[str, Any]:
    """Run all blocks with ``folder`` as the working directory; images go to its ``images``."""
    import matplotlib

    matplotlib.use("Agg")
    (folder / "images").mkdir(exist_ok=True)
    names: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for number, block in enumerate(blocks(), start=1):
            exec(compile(block, f"plots.md, block {number}", "exec"), names)
    finally:
        os.chdir(before)
    return names


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
