"""A few rows of the user's, of any kind, kept so that a model can be recognised by its answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from calliper.exceptions import DamagedFileError

#: Types of Polars whose columns can be made again by name.
POLARS = frozenset(
    {"Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}
    | {"Float32", "Float64", "String", "Date", "Categorical"}
)

#: Types of pandas with gaps of their own.
PANDAS = frozenset(
    {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
    | {"Float32", "Float64", "boolean", "string", "str"}
)


def state_of(X: Any) -> dict[str, Any] | None:
    """Rows as plain values; None for kinds that cannot be made again."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        columns = [_pandas_column(X.iloc[:, place]) for place in range(X.shape[1])]
        if any(each is None for each in columns):
            return None
        return {"kind": "pandas", "names": list(X.columns), "columns": columns}
    if hasattr(X, "get_columns"):
        types = [type(each).__name__ for each in X.dtypes]
        if not set(types) <= POLARS:
            return None
        cells = [each.to_list() for each in X.get_columns()]
        return {"kind": "polars", "names": list(X.columns), "types": types, "columns": cells}
    if hasattr(X, "detach"):
        return {"kind": "tensor", "rows": X.detach().cpu().numpy()}
    if isinstance(X, np.ndarray | list) or sparse.issparse(X):
        return {"kind": "rows", "rows": sparse.csr_array(X) if sparse.issparse(X) else X}
    return None


def _pandas_column(column: Any) -> dict[str, Any] | None:
    kind = column.dtype
    if isinstance(kind, np.dtype):
        return {"values": column.to_numpy()}
    if type(kind).__name__ == "CategoricalDtype":
        codes, categories = np.asarray(column.cat.codes), list(column.cat.categories)
        return {"codes": codes, "categories": categories, "ordered": bool(kind.ordered)}
    if str(kind).startswith("datetime64"):  # with a time zone
        return None
    if str(kind) not in PANDAS:
        return None
    missing = column.isna().to_numpy()
    cells = [None if gap else cell for cell, gap in zip(column.tolist(), missing, strict=True)]
    return {"cells": cells, "type": str(kind)}


def rows_again(state: dict[str, Any]) -> Any:
    """The rows that :func:`state_of` took apart."""
    kind = state["kind"]
    if kind == "pandas":
        import pandas as pd

        columns = [_pandas_again(pd, each) for each in state["columns"]]
        frame = pd.concat(columns, axis=1)
        frame.columns = state["names"]
        return frame
    if kind == "polars":
        import polars as pl

        parts = zip(state["names"], state["columns"], state["types"], strict=True)
        series = [
            pl.Series(name, cells, dtype=getattr(pl, each))
            for name, cells, each in parts
            if each in POLARS
        ]
        return pl.DataFrame(series)
    if kind == "tensor":
        import torch

        return torch.as_tensor(state["rows"])
    return state["rows"]


def _pandas_again(pd: Any, column: dict[str, Any]) -> Any:
    if "codes" in column:
        kind = pd.CategoricalDtype(column["categories"], ordered=column["ordered"])
        return pd.Series(pd.Categorical.from_codes(column["codes"], dtype=kind))
    if "cells" in column:
        if column["type"] not in PANDAS:
            raise DamagedFileError(f"{column['type']!r:.40} is no type of columns.")
        return pd.Series(column["cells"], dtype=column["type"])
    return pd.Series(column["values"])
