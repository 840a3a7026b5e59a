"""The ``calliper`` command: intervals from files, and a demonstration."""

import sys

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
        # Double quotes, which every shell understands.
        sys.stderr.write(
            f"calliper: error: this command needs {package}, which comes with the extra cli: "
            'pip install "calliper[cli]"\n'
        )
        return 2
