"""A trained network as its users see it: predictions, embeddings and targets in one small file.

Embeddings are rotated to their first principal axes, found on training rows, and stored in half
precision; the share of the variance that the kept axes hold is part of the note.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a task after the network: prediction, embedding, target, place in the data set."""

    y_pred: Array
    Z: Array
    y: Array
    index: Array


@dataclass(frozen=True, eq=False)
class Artefact:
    """Held-out rows, training rows (all, or a random part), and how they came about."""

    held_out: Rows
    train: Rows
    note: dict[str, Any]


def save(path: Path, held_out: Rows, train: Rows, *, dimensions: int, note: dict[str, Any]) -> None:
    """Write an artefact; the file appears whole or not at all."""
    centre, axes, kept = principal_axes(train.Z, dimensions)
    note = {
        **note,
        "embedding": {"from": train.Z.shape[1], "to": axes.shape[1], "variance kept": kept},
        "held out": fit_quality(held_out),
        "train": fit_quality(train),
    }
    arrays: dict[str, Any] = {"note": json.dumps(note)}
    for name, rows in (("held_out", held_out), ("train", train)):
        arrays[f"{name}_Z"] = ((rows.Z - centre) @ axes).astype(np.float16)
        arrays[f"{name}_y_pred"] = rows.y_pred.astype(np.float32)
        arrays[f"{name}_y"] = rows.y.astype(np.float64)
        arrays[f"{name}_index"] = rows.index.astype(np.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **arrays)
    unfinished.replace(path)


def load(path: Path) -> Artefact:
    """Read what :func:`save` wrote, in double precision."""
    with np.load(path, allow_pickle=False) as stored:

        def rows(name: str) -> Rows:
            y_pred, Z, y = (stored[f"{name}_{f}"].astype(float) for f in ("y_pred", "Z", "y"))
            return Rows(y_pred, Z, y, stored[f"{name}_index"])

        return Artefact(rows("held_out"), rows("train"), json.loads(str(stored["note"])))


def principal_axes(Z: Array, dimensions: int) -> tuple[Array, Array, float]:
    """Centre, first axes as columns, and the share of the variance along them."""
    Z = Z.astype(np.float64)
    centre = Z.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov((Z - centre).T))
    largest = np.argsort(variances)[::-1][:dimensions]
    return centre, axes[:, largest], float(variances[largest].sum() / variances.sum())


def fit_quality(rows: Rows) -> dict[str, float]:
    """Root mean squared error and R² of the predictions, over the rows given."""
    mse = float(np.mean((rows.y - rows.y_pred) ** 2))
    return {"rows": len(rows.y), "rmse": mse**0.5, "r2": 1 - mse / float(np.var(rows.y))}
