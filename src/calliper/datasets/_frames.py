"""Parquet tables as arrays, with whichever reader is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper.exceptions import CalliperError


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Columns of a table, by name and in order."""
    try:
        import pandas as pd

        table = pd.read_parquet(path, columns=None if columns is None else list(columns))
    except ImportError as error:
        raise CalliperError(
            f"Reading {path.name} needs pandas and pyarrow; install them with "
            "pip install 'calliper[datasets]'."
        ) from error
    return {str(name): np.asarray(table[name]) for name in table.columns}
