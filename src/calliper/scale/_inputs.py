"""Inputs of networks that are no table: dicts of arrays, and batches from a ``DataLoader``.

Inputs may come by name (a dict, or a dict for each row), or in batches from a ``DataLoader``, which
is read once, whole and in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.models import as_array, as_tensor, is_tensor


class NamedInputs(dict[str, Any]):
    """A dict of arrays or tensors with one entry per row; ``len`` is the number of rows."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__(
            {name: part if is_tensor(part) else np.asarray(part) for name, part in parts.items()}
        )
        shapes = {name: tuple(part.shape) for name, part in self.items()}
        if not shapes or len({shape[:1] for shape in shapes.values()} | {()}) != 2:
            what = "named inputs must be arrays or tensors with one entry per row"
            raise CalliperError(f"{what}; got shapes {shapes}.")
        self.shape = next(iter(shapes.values()))[:1]

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, which: Any) -> Any:
        """A part by its name, or some of the rows."""
        if isinstance(which, str):
            return super().__getitem__(which)
        rows = which[0] if isinstance(which, tuple) else which  # as scikit-learn indexes arrays
        return NamedInputs({name: part[rows] for name, part in self.items()})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """All parts side by side, (n, d), sorted by name, since dicts may differ in order."""
        named = [self[name] for name in sorted(self)]
        parts = [as_array(part) if is_tensor(part) else part for part in named]
        return np.hstack([part.reshape(len(self), -1) for part in parts]).astype(dtype)


def gathered(X: Any, y: Any = None) -> tuple[Any, Any]:
    """Rows that can be counted and indexed, and targets, of dicts or a ``DataLoader``.

    A loader that shuffles or drops rows is refused: answers would belong to other rows.
    """
    if isinstance(X, list):
        return _joined([{name: as_tensor(row[name])[None] for name in row} for row in X]), y
    if isinstance(X, Mapping):
        return X if isinstance(X, NamedInputs) else NamedInputs(X), y
    from torch.utils.data import IterableDataset, SequentialSampler

    batching = X.batch_sampler
    sampler = X.sampler if batching is None else getattr(batching, "sampler", batching)
    in_order = isinstance(sampler, SequentialSampler) or isinstance(X.dataset, IterableDataset)
    if not in_order or getattr(batching, "drop_last", False):
        order = f"changes the order of its rows (by a {type(sampler).__name__})"
        raise CalliperError(
            f"the DataLoader {'drops the last rows' if in_order else order}, so predictions could "
            "not be matched to rows: create it with shuffle=False and drop_last=False."
        )
    batches = [_inputs_and_targets(batch) for batch in X]
    if not batches:
        raise CalliperError("X must have rows; got a DataLoader without batches.")
    rows, targets = _joined([inputs for inputs, _ in batches]), [each for _, each in batches]
    if targets[0] is None:
        return rows, y
    if y is not None:
        raise CalliperError("the DataLoader has targets, and y was passed too: leave one out.")
    known = np.asarray(_joined(targets))
    return rows, known.reshape(-1) if known.shape[1:] == (1,) else known


def _inputs_and_targets(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets, or None, of a batch: (inputs, targets), inputs, or a dict."""
    if isinstance(batch, Mapping):
        return {name: batch[name] for name in batch if name != "labels"}, batch.get("labels")
    listed = isinstance(batch, list | tuple) and 1 <= len(batch) <= 2
    inputs, targets = (*batch, None)[:2] if listed else (batch, None)
    if not isinstance(inputs, Mapping) and not hasattr(inputs, "shape"):
        what = "batches of a DataLoader must be (inputs, targets)"
        got = f"inputs a tensor or a dict of tensors; got a {type(batch).__name__}"
        how = "Pass several inputs by name, as in {'ids': ids, 'mask': mask}"
        raise CalliperError(f"{what}, {got}. {how}.")
    return inputs, targets


def _joined(parts: Sequence[Any]) -> Any:
    """Concatenated tensors, arrays, or dicts of them."""
    if isinstance(parts[0], Mapping):
        other = next((part for part in parts if {*part} != {*parts[0]}), None)
        if other is not None:
            raise CalliperError(
                f"all rows must have the same named inputs; got {[*parts[0]]} and {[*other]}."
            )
        return NamedInputs({name: _joined([part[name] for part in parts]) for name in parts[0]})
    try:
        if is_tensor(parts[0]):
            import torch

            return torch.cat([*parts])
        return np.concatenate([np.asarray(part) for part in parts])
    except (RuntimeError, ValueError) as error:
        shapes = sorted({tuple(np.shape(part))[1:] for part in parts})
        what = f"all rows must have one shape; got {str(shapes[:4])[1:-1]}"
        raise CalliperError(f"{what}: pad them to one length ({error}).") from error
