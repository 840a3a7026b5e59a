"""The ``calliper`` command: intervals from files, and a demonstration."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

#: Packages of the extra ``cli``, none of which the library itself needs.
_EXTRA = {"bokeh", "click", "jinja2", "matplotlib", "pyarrow", "rich"}


def main() -> int:
    """Run the command that was typed; the result is the exit code."""
    try:
        from calliper.cli._app import run

        return run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        missing = " ".join(name for name in sorted(_EXTRA) if find_spec(name) is None)
        sys.stderr.write(f"calliper: error: this command needs {package}: pip install {missing}\n")
        return 2
