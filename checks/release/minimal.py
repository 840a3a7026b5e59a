"""The lowest versions that pyproject.toml allows, as constraints for pip.

``python -m checks.release.minimal > lowest.txt``
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: What users run; tools of the tests may be new.
EXTRAS = ("cli", "demo", "experiments", "frames")
#: Of the tools, one that hands its tables to the library.
READ_AS_FRAMES = ("polars",)


def lowest(project: dict[str, Any]) -> Iterator[str]:
    """``name==version`` for every requirement that names its lowest version."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    wanted += [each for each in extras["test-core"] if each.startswith(READ_AS_FRAMES)]
    for requirement in sorted(set(wanted)):
        if bound := re.match(r"([\w.-]+)>=([\d.]+)", requirement):
            yield f"{bound[1]}=={bound[2]}"
        elif not requirement.startswith("calliper["):
            raise SystemExit(f"{requirement}: expected a lowest version, as in numpy>=1.26.")


if __name__ == "__main__":
    print(*lowest(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]), sep="\n")
