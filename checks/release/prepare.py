"""Name and date a version wherever it is named. ``python -m checks.release.prepare 1.0.0 [DATE]``

From 1.0.0 on it is called stable. The address of the project is filled in once, as Source in
[project.urls] of pyproject.toml, and copied from there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def prepared(texts: dict[str, str], version: str, date: str) -> dict[str, str]:
    """The files with the version and its date, by path; each place must be there once."""
    urls = tomllib.loads(texts["pyproject.toml"])["project"].get("urls", {})
    edits = [
        ("src/calliper/_version.py", r'(__version__ = )"[^"]+"', rf'\g<1>"{version}"'),
        ("checks/release/recipe.yaml", r'(  version: )"[^"]+"', rf'\g<1>"{version}"'),
        ("CHANGELOG.md", r"## \[Unreleased\]\n(?!\n## )", rf"\g<0>\n## [{version}] - {date}\n"),
        ("CITATION.cff", r"(?m)^version: .*\n(date-released: .*\n)?", _cited(version, date, urls)),
    ]
    if int(version.partition(".")[0]) >= 1:
        stable = "Development Status :: 5 - Production/Stable"
        edits.append(("pyproject.toml", r"Development Status :: [^\"]+", stable))
    made = dict(texts)
    for path, pattern, text in edits:
        made[path], n = re.subn(pattern, text, made[path])
        if n != 1:
            raise SystemExit(f"{path}: expected one match of {pattern}, found {n}.")
    return made


def _cited(version: str, date: str, urls: dict[str, str]) -> str:
    source = f'repository-code: "{urls["Source"]}"\n' if "Source" in urls else ""
    return f"version: {version}\ndate-released: {date}\n{source}"


FILES = (
    *("src/calliper/_version.py", "checks/release/recipe.yaml", "CHANGELOG.md"),
    *("CITATION.cff", "pyproject.toml"),
)


def main() -> None:
    """Write the files."""
    version, *given = sys.argv[1:]
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"expected MAJOR.MINOR.PATCH; got {version}.")
    date = given[0] if given else datetime.now(UTC).date().isoformat()
    texts = {path: (ROOT / path).read_text("utf-8") for path in FILES}
    for path, text in prepared(texts, version, date).items():
        (ROOT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
