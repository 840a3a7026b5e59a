"""Files that appear when they are complete, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from calliper.exceptions import CalliperError

#: What a shell reports of a program whose reader went away (128 + SIGPIPE).
_PIPE_CLOSED = 141


def check_output(output: str, inputs: Sequence[str]) -> None:
    """Whether the output could be written, and is none of the inputs under whatever name."""
    if output == "-":
        return
    for path in inputs:
        if os.path.exists(path) and os.path.exists(output) and os.path.samefile(path, output):
            raise CalliperError(f"--output {output} is also an input: choose another file.")
    _check_writable(Path(os.path.realpath(output)), output)


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Standard output for ``-``, else a file that takes its name when all is written.

    Until then it lies beside its place under another name; whatever ends the block early
    removes it.
    """
    if path == "-":
        with _standard_output() as handle:
            yield handle
        return
    target = Path(os.path.realpath(path))  # through a link, which stays a link
    _check_writable(target, path)
    temporary = target.with_name(f".calliper-{secrets.token_hex(8)}.tmp")
    try:
        with _create(temporary, path) as handle:
            yield handle
            with writing(path):
                handle.flush()
                os.fsync(handle.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        with writing(path):
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Say of a failure to write what it was that could not be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "to standard output" if path == "-" else path
        raise CalliperError(f"cannot write {where}: {error.strerror or error}.") from error


def _check_writable(target: Path, path: str) -> None:
    if not target.parent.is_dir():
        raise CalliperError(f"cannot write {path}: there is no folder {target.parent}; create it.")
    if not target.exists():
        return
    if target.is_dir():
        raise CalliperError(f"cannot write {path}: it is a folder; name a file in it.")
    if not target.is_file():
        raise CalliperError(f"cannot write {path}: not a plain file; use --output - and redirect.")
    if not os.access(target, os.W_OK):
        raise CalliperError(f"cannot write {path}: it is read-only; choose another file.")


def _create(temporary: Path, path: str) -> BinaryIO:
    try:
        return open(temporary, "xb")
    except OSError as error:
        raise CalliperError(
            f"cannot write {path}: {error.strerror} in {temporary.parent}; choose another folder."
        ) from error


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        with writing("-"):
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has seen enough (``| head``): nothing to say.
        _forget_standard_output()
        raise SystemExit(_PIPE_CLOSED) from None
    except BaseException:
        _forget_standard_output()
        raise


def _forget_standard_output() -> None:
    """Send what is left in the buffer nowhere, lest it fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
