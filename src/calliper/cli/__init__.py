"""The ``calliper`` command: intervals from files, and a demonstration."""

import sys

__all__ = ["main"]

#: Packages that the library itself does not need, and the extra that they come with.
_EXTRAS = dict.fromkeys(("bokeh", "click", "jinja2", "matplotlib", "pyarrow", "rich"), "cli")
_EXTRAS |= {"dask": "distributed", "distributed": "distributed"}


def main() -> int:
    """Run the command that was typed; the result is the exit code."""
    try:
        from calliper.cli._app import run

        return run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra = _EXTRAS[package]
        # Double quotes, which every shell understands.
        what = f"this command needs {package}, which comes with the extra {extra}"
        sys.stderr.write(f'calliper: error: {what}: pip install "calliper[{extra}]"\n')
        return 2
