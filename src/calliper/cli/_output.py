"""Output: files that appear when they are complete, or not at all, and messages.

Notes, warnings and progress go to standard error, where they cannot get into the data.
"""

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import click

from calliper._writing import whole_file
from calliper.exceptions import CalliperError

WIDTH = 100  # of a table; a pipe has no width of its own
_FIGURES = (".png", ".pdf", ".svg")

#: Advice of the library for Python, and the same for the command line.
_OPTIONS = {
    r"Pass X_train to calibrate \(.*?\), or embed=\.": "Pass --training FILE to standardise them.",
    r"\bmore neighbours, or pass offset > 0": "more --neighbors, or --offset > 0",
    r"\bfewer neighbours\b": "fewer --neighbors",
    r" \(shuffle=False where calliper splits\)": "",
    r"Raise min_leaf, lower max_leaves, or calibrate": "Calibrate",
    r"calibration rows are also training rows": "rows of --calibration are also in --training",
    r"\bbounds=": "--bounds ",
    r"\btolerated=": "--tolerated",
    r"\bonline=True": "--online",
    r"\bn_calibration=": "--calibrated or --n-calibration",
    r"Leave it out, or use one of [\w, ]+\.": "Leave out --confidence, or choose a "
    "method that 'calliper methods' lists for it.",
    r"\blearning_part=None": "--learning-part none",
    r"\blearning_part must be 'auto', None,": "--learning-part must be auto, none,",
    r"\blearning_part=\S+ is not used": "--learning-part is not used",
    r", or error_model is None\.": ".",
    r"\bX_train( and y_train|, y_train)?\b": "--training FILE",
}

#: Called with the share of the work that is done, or ``None`` if that is not known.
Progress = Callable[[float | None], None]


def check_output(path: str, inputs: Sequence[str] = ()) -> None:
    """Refuse an output that cannot be written, or is one of the inputs."""
    target, wrong = Path(os.path.realpath(path)), ""
    if path == "-":
        if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.name == os.devnull:
            raise CalliperError("cannot write to standard output: it is closed; name a file.")
    elif any(is_same(each, path) for each in inputs):
        raise CalliperError(f"--output {path} is also an input: choose another file.")
    elif not target.parent.is_dir():
        wrong = f"there is no folder {target.parent}; create it"
    elif target.is_dir():
        wrong = "it is a folder; name a file in it"
    elif target.exists() and not target.is_file():
        wrong = "not a plain file; use --output - and redirect"
    elif target.exists() and not os.access(target, os.W_OK):
        wrong = "it is read-only; choose another file"
    if wrong:
        raise CalliperError(f"cannot write {path}: {wrong}.")


def is_same(path: str, other: str) -> bool:
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Standard output for ``-``, otherwise a file that appears when it is complete."""
    check_output(path)
    file = _standard_output() if path == "-" else whole_file(path)
    with writing(path), file as handle:
        yield handle


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn a failure to write into an error that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "to standard output" if path == "-" else path
        raise CalliperError(f"cannot write {where}: {error.strerror or error}.") from error


def need(*packages: str) -> None:
    """Refuse to start work whose result needs a missing package."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)


def check_figure_name(output: str) -> None:
    """Refuse a figure that cannot be drawn or written, before any work is done."""
    need("matplotlib")
    if not output.lower().endswith(_FIGURES):
        raise CalliperError(f"{output}: a figure's name must end in {', '.join(_FIGURES)}.")
    check_output(output)


def write_file(path: str, content: bytes) -> None:
    with open_output(path) as handle:
        handle.write(content)


def drawn(figure: Any, path: str) -> bytes:
    """A Matplotlib figure in the format of its file name."""
    picture = BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:].lower())
    return picture.getvalue()


def write_figure(figure: Any, path: str) -> None:
    """A file of a Matplotlib figure, and a note that it is there."""
    write_file(path, drawn(figure, path))
    note(f"figure written to {path}")


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BaseException as error:
        # Discard the buffer, so that it cannot fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader has stopped reading (``| head``), which is no error: 128 + SIGPIPE.
            raise SystemExit(141) from None
        raise


def in_options(text: str) -> str:
    """A message of the library in one line, with options instead of arguments."""
    for python, option in _OPTIONS.items():
        text = re.sub(python, option, text)
    return " ".join(text.split())


def note(message: str) -> None:
    click.echo(message, err=True)


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """A list that gets each distinct user warning, unless the block raises an error."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        yield texts
    texts += dict.fromkeys(str(warning.message) for warning in caught)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each distinct warning once when the work is done; if it fails, only its error."""
    with recorded_warnings() as texts:
        yield
    for text in dict.fromkeys(in_options(f"warning: {text}") for text in texts):
        note(text)


@contextmanager
def progress(title: str, *, hidden: bool = False) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        yield lambda part: bar.update(task, total=part and 1.0, completed=part or 0.0)


def console() -> Any:
    """Where tables are printed: the terminal at its width, a pipe at :data:`WIDTH`."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def print_table(
    title: str, columns: Any, rows: Sequence[Sequence[str]], line_after: int = -1, **style: Any
) -> None:
    """Print a table, with a line after one row; columns and ``style`` are what rich takes."""
    from rich import box
    from rich.table import Table

    look: Any = {"title_justify": "left", "title_style": "bold", "show_edge": False}
    table = Table(title=title, box=box.SIMPLE_HEAD, **look, **style)
    for name, how in columns.items():
        table.add_column(name, **how)
    for index, row in enumerate(rows):
        table.add_row(*row, end_section=index == line_after)
    console().print(table)


def wrapped(text: str, *, indent: str = "") -> str:
    """The text in lines that fit the terminal; all but the first are indented."""
    columns = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    return click.wrap_text(text, width=min(WIDTH - 2, columns), subsequent_indent=indent)
