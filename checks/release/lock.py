"""Write requirements-dev.lock: every package of the tests and the site, by version and hash.

pip resolves for this interpreter; the hashes are those of all files of a version, so that the lock
serves other platforms as well. ``python -m checks.release.lock``
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-dev.lock"
INDEX = "https://pypi.org/simple"
HEAD = """\
# Renewed by make lock; pip install --require-hashes -r requirements-dev.lock
# Resolved for Python {}.{}; then: pip install --no-deps --no-build-isolation --editable .
"""


def resolved() -> dict[str, str]:
    """Versions that pip would install into an empty environment, by normal name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        asked = [f"{ROOT}[docs,release,test]", "hatchling"]
        subprocess.run([*pip, f"--report={report}", *asked], check=True)
        chosen = [each["metadata"] for each in json.loads(report.read_text("utf-8"))["install"]]
    versions = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in chosen}
    del versions["calliper"]
    return dict(sorted(versions.items()))


def hashes(name: str, version: str) -> list[str]:
    """SHA-256 of every wheel and source archive of a version, as the index states them."""
    with urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode("utf-8")
    links = re.findall(r'href="[^"#]*/([^"/#]+)#sha256=([0-9a-f]{64})"', unescape(page))
    stem = re.sub(r"[-_.]+", "[-_.]+", re.escape(name).replace(r"\-", "-"))
    own = re.compile(rf"{stem}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)$", re.IGNORECASE)
    found = sorted({digest for file, digest in links if own.match(file)})
    if not found:
        raise SystemExit(f"{name} {version}: the index at {INDEX} lists no file with a hash.")
    return found


def main() -> None:
    """Resolve, ask for hashes, write."""
    lines = [HEAD.format(*sys.version_info)]
    for name, version in resolved().items():
        lines.append(f"{name}=={version} \\\n")
        lines.append(" \\\n".join(f"    --hash=sha256:{each}" for each in hashes(name, version)))
        lines.append("\n")
    LOCK.write_text("".join(lines), "utf-8")
    print(f"{LOCK.name} written")


if __name__ == "__main__":
    main()
