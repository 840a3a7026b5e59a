"""Asking a PyTorch module: in batches, in evaluation mode, without gradients, where it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError

#: Rows that go through a module together.
BATCH_ROWS = 1024

# Modes and hooks belong to the module and not to the thread that sets them: one at a time.
_ASKING = RLock()


def is_module(model: Any) -> bool:
    """Whether it is a ``torch.nn.Module``; who has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode for the time being; every part then returns to the mode it was in."""
    import torch

    with _ASKING:
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes:
                part.training = mode


def batches(module: Any, X: Any, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Rows as tensors on the module's device, of its floating type; integers stay integers."""
    import torch

    weight = next(module.parameters(), torch.zeros(0))
    rows = X if torch.is_tensor(X) else torch.as_tensor(np.asarray(X))
    for start in range(0, max(1, n_rows(rows)), batch_rows):
        batch = rows[start : start + batch_rows]
        dtype = weight.dtype if batch.is_floating_point() else batch.dtype
        yield batch.to(weight.device, dtype)


def outputs(module: Any, X: Any) -> FloatArray:
    """What a module answers to rows: (m,) or (m, n_outputs)."""
    with evaluating(module):
        answers = [module(batch) for batch in batches(module, X)]
    if not hasattr(answers[0], "detach"):
        raise CalliperError(
            f"{type(module).__name__} must answer with a tensor; got a "
            f"{type(answers[0]).__name__}: pass a function that takes the predictions out of it."
        )
    return np.concatenate([as_array(answer) for answer in answers])


def as_array(tensor: Any) -> FloatArray:
    """A tensor's numbers, wherever it is."""
    return np.asarray(tensor.detach().cpu().double().numpy())
