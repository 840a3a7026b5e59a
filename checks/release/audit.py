"""Look every locked package up among known weaknesses. ``python -m checks.release.audit``

Without a network nothing can be looked up; that is said, and is an error only where
CALLIPER_REQUIRE_AUDIT=1 asks for it, as the public workflow does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.error import URLError
from urllib.request import urlopen

from checks.release.lock import LOCK

DATABASE = "https://pypi.org/pypi/pip/24.0/json"  # one version of one package, as pip-audit asks


def reachable() -> bool:
    """Whether the database answers."""
    try:
        with urlopen(DATABASE, timeout=20) as answer:
            return b'"vulnerabilities"' in answer.read()
    except (URLError, TimeoutError):
        return False


def main() -> int:
    """0: looked up and nothing found, or not looked up where that is allowed."""
    if not reachable():
        print("NOT AUDITED: the database of weaknesses (pypi.org) cannot be reached from here.")
        return int(os.environ.get("CALLIPER_REQUIRE_AUDIT") == "1")
    tool = [sys.executable, "-m", "pip_audit", "--strict", "--disable-pip"]
    return subprocess.run([*tool, "--requirement", str(LOCK)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
