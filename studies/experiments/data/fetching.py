"""Files by name and SHA-256: from the cache folder, or from their publisher.

A file is used only if its SHA-256 is the one written beside its loader, which is computed on every
load (a tenth of a second for the largest). A download goes to a temporary folder and takes its
final place after the same check, so that a broken connection or a changed file leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper import CalliperError

#: Names the cache folder; without it the operating system's usual place is taken.
VARIABLE = "CALLIPER_DATA"


def sha256_of_bytes(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, byte for byte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class DataSource:
    """Where a data set comes from and on what terms it may be used.

    Attributes
    ----------
    description : str
        What a row is and what y measures, with its unit.
    licence : str
    citation : str
        What to cite when results on these data are published.
    """

    description: str
    licence: str
    citation: str


@dataclass(frozen=True)
class RemoteFile:
    """A file that someone else publishes.

    Attributes
    ----------
    name : str
        Path inside the cache folder.
    sha256 : str
    addresses : tuple of str
        Where to fetch it, tried in turn; none for a file that cannot be fetched.
    advice : str
        How a person can obtain it if fetching fails or is not possible.
    digest : callable
        What the SHA-256 is taken of, as a function of the path: all bytes, or what matters in them.
    """

    name: str
    sha256: str
    addresses: tuple[str, ...] = ()
    advice: str = ""
    digest: Callable[[Path], str] = sha256_of_bytes


def cache_folder() -> Path:
    """The folder named by CALLIPER_DATA, or the operating system's cache folder for calliper."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(_pooch().os_cache("calliper"))


def cached(file: RemoteFile) -> Path | None:
    """The file in the cache, if it is there and whole."""
    path = cache_folder() / file.name
    return path if path.is_file() and file.digest(path) == file.sha256 else None


def fetch(file: RemoteFile) -> Path:
    """The file's path in the cache; it is fetched first if it is absent or not whole."""
    path = cached(file)
    if path is not None:
        return path
    path = cache_folder() / file.name
    if not file.addresses:
        raise CalliperError(_missing(path, file, "cannot be fetched automatically"))
    downloader, failures = _pooch().HTTPDownloader(timeout=60), []
    for address in file.addresses:
        try:
            _download(address, path, file, downloader)
            return path
        # requests' errors are OSErrors, and so is a folder that cannot be written to.
        except (OSError, CalliperError) as error:
            failures.append(f"{address}: {error}")
    raise CalliperError(_missing(path, file, "could not be fetched: " + "; ".join(failures)))


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Columns of a table, by name and in order."""
    try:
        import pandas as pd

        table = pd.read_parquet(path, columns=None if columns is None else list(columns))
    except ImportError as error:
        raise CalliperError(
            f"Reading {path.name} needs pandas and pyarrow; install them with "
            "pip install 'calliper[experiments]'."
        ) from error
    return {str(name): np.asarray(table[name]) for name in table.columns}


def _download(address: str, path: Path, file: RemoteFile, downloader: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that the move is one step of the file system.
    with TemporaryDirectory(dir=path.parent, prefix=".unfinished-") as folder:
        arrived = Path(folder) / path.name
        downloader(address, str(arrived), None)
        found = file.digest(arrived)
        if found != file.sha256:
            raise CalliperError(f"what came from there has SHA-256 {found}")
        arrived.replace(path)


def _missing(path: Path, file: RemoteFile, failure: str) -> str:
    state = "does not match" if path.is_file() else "is not there"
    advice = file.advice or f"Save {file.addresses[0]} yourself under that name"
    return (
        f"The data file {path} (SHA-256 {file.sha256}) {state} and {failure}. {advice}. "
        f"The folder is chosen by the environment variable {VARIABLE}."
    )


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise CalliperError(
            "Fetching data needs the package pooch; install it with "
            f"pip install 'calliper[experiments]', or set {VARIABLE} to a folder that holds them."
        ) from error
    return pooch
