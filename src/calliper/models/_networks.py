"""Networks: a PyTorch module is asked in batches; a layer of it may say who is near.

A module answers in evaluation mode and without gradients, on the device where it is; every part is
then put back into the mode that it was in. The last hidden layer of a network that was trained on y
holds what it knows of an input in the form from which one more linear map makes the prediction:
nearness is judged there, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError
from calliper.models._asking import is_module, is_tensor

#: Rows that go through a module together.
BATCH_ROWS = 1024

# Modes and hooks belong to the module and not to the thread that sets them: one at a time.
_ONE_AT_A_TIME = RLock()


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode for the time being; every part then returns to the mode it was in."""
    import torch

    with _ONE_AT_A_TIME:
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes:
                part.training = mode


def _batches(module: Any, X: Any, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Rows as tensors on the module's device, of its floating type; integers stay integers."""
    import torch

    weight = next(module.parameters(), torch.zeros(0))
    # Frames hand out memory that must not be written to, which torch warns of.
    rows = X if torch.is_tensor(X) else torch.as_tensor(np.require(X, requirements="W"))
    for start in range(0, max(1, n_rows(rows)), batch_rows):
        batch = rows[start : start + batch_rows]
        dtype = weight.dtype if batch.is_floating_point() else batch.dtype
        yield batch.to(weight.device, dtype)


def outputs(module: Any, X: Any) -> FloatArray:
    """What a module answers to rows: (m,) or (m, n_outputs)."""
    with _evaluating(module):
        answers = [module(batch) for batch in _batches(module, X)]
    if not is_tensor(answers[0]):
        raise CalliperError(
            f"{type(module).__name__} must answer with a tensor; got a "
            f"{type(answers[0]).__name__}: pass a function that takes the predictions out of it."
        )
    return np.concatenate([as_array(answer) for answer in answers])


def as_array(tensor: Any) -> FloatArray:
    """A tensor's numbers, wherever it is."""
    return np.asarray(tensor.detach().cpu().double().numpy())


class Layer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Output of a layer of a PyTorch module, as an embedding; a transformer with nothing to fit.

    Rows go through the module in batches, in evaluation mode and without gradients, on the device
    where the module is; every part is then put back into the mode that it was in.

    Parameters
    ----------
    module : torch.nn.Module
        Takes a batch of rows. Rows that are not tensors are turned into tensors of the module's
        own floating type; integers stay integers.
    name : str, optional
        A layer by its name in ``module.named_modules()``; its output is the place, flattened. By
        default the input of the last linear layer: the penultimate layer.
    batch_size : int, default 1024

    Examples
    --------
    >>> ConformalRegressor(predict, embed=Layer(module, "body.3"))  # doctest: +SKIP
    >>> ConformalRegressor(module, embed=make_pipeline(Layer(module), PCA(5)))  # doctest: +SKIP
    """

    def __init__(
        self, module: Any, name: str | None = None, *, batch_size: int = BATCH_ROWS
    ) -> None:
        if not is_module(module):
            raise TypeError(f"Layer takes a torch.nn.Module; got {type(module).__name__}.")
        layers = dict(module.named_modules())
        if name is not None and name not in layers:
            known = ", ".join(repr(key) for key in layers if key) or "none"
            raise CalliperError(
                f"{type(module).__name__} has no layer {name!r}; those that it has: {known}."
            )
        if not isinstance(batch_size, int) or batch_size < 1:
            raise CalliperError(f"batch_size must be a whole number >= 1; got {batch_size!r}.")
        self.module, self.name, self.batch_size = module, name, batch_size

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing: the module is trained already."""
        return self

    def transform(self, X: Any) -> FloatArray:
        """Place of each row, (m, d)."""
        return self.predict_and_place(X)[1]

    __call__ = transform

    def predict_and_place(self, X: Any) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, None if the module answers with no tensor; places, (m, d): in one pass."""
        seen: list[Any] = []
        answers, places = [], []
        with _evaluating(self.module):
            hooks = self._listen(seen)
            try:
                for batch in _batches(self.module, X, self.batch_size):
                    seen.clear()
                    answers.append(self.module(batch))
                    places.append(self._place(seen, len(batch)))
            finally:
                for hook in hooks:
                    hook.remove()
        tensors = all(is_tensor(answer) for answer in answers)
        y_pred = np.concatenate([as_array(answer) for answer in answers]) if tensors else None
        return y_pred, np.concatenate(places)

    def __repr__(self) -> str:
        layer = "" if self.name is None else f", {self.name!r}"
        return f"Layer({type(self.module).__name__}{layer})"

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        """A trained module is used as it is, never copied."""
        return self

    @property
    def name_in_words(self) -> str:
        """What the coordinates are."""
        layer = "penultimate layer" if self.name is None else f"layer {self.name!r}"
        return f"{layer} of {type(self.module).__name__}"

    def _listen(self, seen: list[Any]) -> list[Any]:
        """Hooks that append to ``seen`` what passes the layer; the last of a batch counts."""
        from torch.nn import Linear

        if self.name is not None:
            layer = dict(self.module.named_modules())[self.name]
            return [layer.register_forward_hook(lambda _, given, out: seen.append(_copy(out)))]
        linear = [part for part in self.module.modules() if isinstance(part, Linear)]
        if not linear:
            raise CalliperError(
                f"{type(self.module).__name__} has no linear layer, so that no layer is the last "
                f"but one: name one of {[name for name, _ in self.module.named_modules() if name]}."
            )

        def note(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            seen.append(_copy(given[0] if given else named["input"]))

        return [part.register_forward_pre_hook(note, with_kwargs=True) for part in linear]

    def _place(self, seen: list[Any], n: int) -> FloatArray:
        if not seen:
            raise CalliperError(
                f"{self.name_in_words} is not used when the module predicts: name another."
            )
        if not is_tensor(seen[-1]):
            raise CalliperError(
                f"{self.name_in_words} gives a {type(seen[-1]).__name__} and not a tensor: name a "
                f"layer before or after it."
            )
        places = as_array(seen[-1])
        if len(places) != n:
            raise CalliperError(
                f"{self.name_in_words} turned {n} rows into {len(places)}; it must keep rows."
            )
        return places.reshape(n, -1)


def _copy(value: Any) -> Any:
    """What passed, as it was: a layer that comes later may write into the same memory."""
    return value.detach().clone() if is_tensor(value) else value
