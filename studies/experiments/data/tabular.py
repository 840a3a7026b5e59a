"""Ten regression tables on which conformal methods are compared in the literature.

A table is known by the SHA-256 of its column names and numbers, not of a file: a parquet file that
anyone prepared passes if it holds the same table, and so does the publisher's text file after its
columns were brought into order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper import CalliperError
from studies.experiments import FloatArray
from studies.experiments.data.fetching import DataSource, RemoteFile, cached, fetch, read_parquet
from studies.experiments.data.tabular_sources import TABLES, PublishedText, Table

#: Columns of numbers by name, in order.
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Tabular:
    """Numbers in columns.

    Attributes
    ----------
    X : array of shape (n, d)
    y : array of shape (n,)
    feature_names : tuple of str
        Names of the columns of X.
    source : DataSource
    """

    X: FloatArray
    y: FloatArray
    feature_names: tuple[str, ...]
    source: DataSource = field(repr=False)


def load_tabular(name: str) -> Tabular:
    """One of ten regression tables: numbers in columns, and a number to predict.

    Taken from the cache folder, named by the environment variable ``CALLIPER_DATA``: the file
    ``tabular/<name>.parquet`` if it is there. For boston_housing, protein_casp_rmsd and yacht the
    publisher's text file will do as well, and is fetched if neither is there. What is read is
    checked each time against the SHA-256 of the table's names and numbers.

    Parameters
    ----------
    name : str
        bike_kaggle_10886, blog_feedback_6000, boston_housing, california_housing_20640,
        communities_crime, concrete, energy_heating, protein_casp_rmsd, star_2161 or yacht.

    Returns
    -------
    Tabular
        With ``X``, ``y``, ``feature_names`` and ``source``. Rows are in the published order, which
        may mean something (time, place): shuffle before you split.
    """
    if not isinstance(name, str) or name not in TABLES:
        raise CalliperError(f"name must be one of {', '.join(TABLES)}; got {name!r}.")
    table = TABLES[name]
    prepared = RemoteFile(
        f"tabular/{name}.parquet",
        table.sha256,
        advice=_advice(name, table),
        digest=_digest_by(read_parquet),
    )
    stored = cached(prepared)
    if stored is None and table.published is not None:
        columns = _read_text(fetch(_published(name, table, table.published)), table.published)
    else:
        columns = read_parquet(stored or fetch(prepared))
    y = columns.pop("y").astype(float)
    X = np.column_stack([column.astype(float) for column in columns.values()])
    return Tabular(X, y, tuple(columns), table.source)


def sha256_of_table(columns: Columns) -> str:
    """Hexadecimal SHA-256 of the names, a line each, and of the numbers, row by row.

    The numbers are taken in single precision: readers of text may differ in the last bit of a
    double.
    """
    # Adding zero makes the two zeros one.
    numbers = np.column_stack([column.astype("<f4") for column in columns.values()]) + np.float32(0)
    names = "".join(f"{name}\n" for name in columns)
    return hashlib.sha256(names.encode() + numbers.astype("<f4").tobytes()).hexdigest()


def _published(name: str, table: Table, text: PublishedText) -> RemoteFile:
    return RemoteFile(
        f"tabular/{text.address.rsplit('/', 1)[1]}",
        table.sha256,
        (text.address,),
        advice=f"Save {text.address} yourself under that name. {_advice(name, table)}",
        digest=_digest_by(lambda path: _read_text(path, text)),
    )


def _read_text(path: Path, text: PublishedText) -> Columns:
    rows = np.loadtxt(path, delimiter=text.delimiter, skiprows=text.header_lines, ndmin=2)
    features = np.delete(rows, text.target, axis=1)
    return {"y": rows[:, text.target]} | {f"x{j}": x for j, x in enumerate(features.T)}


def _digest_by(read: Callable[[Path], Columns]) -> Callable[[Path], str]:
    def digest(path: Path) -> str:
        try:
            return sha256_of_table(read(path))
        except CalliperError:  # a package is missing, which says nothing about the file
            raise
        except (OSError, TypeError, ValueError) as error:
            return f"none, for it cannot be read as this table ({error})"

    return digest


def _advice(name: str, table: Table) -> str:
    return (
        f"A table of your own passes as tabular/{name}.parquet in the cache folder if its names "
        f"and numbers have that SHA-256: first column y, then the features. Take the data from "
        f"{table.page}; {table.recipe}. See studies/experiments/data/README.md"
    )
