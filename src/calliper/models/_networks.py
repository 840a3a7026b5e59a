"""Networks: a PyTorch module predicts in batches, and one of its layers is the space for distances.

The last hidden layer of a network that was trained on y holds what it knows of an input, one linear
map away from the prediction: nearness is judged there, as in the paper.

Inputs may come by name (``scale/_inputs.py``). A module whose ``forward`` has parameters of these
names is given the parts by name, any other the dict.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import Signature, signature
from threading import RLock
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from calliper._types import FloatArray
from calliper._validation import at_least, n_rows
from calliper.exceptions import CalliperError
from calliper.models._asking import is_module, is_tensor
from calliper.rows import gathered

# Modes and hooks belong to the module and not to the thread that sets them: one at a time.
_ONE_AT_A_TIME = RLock()


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode; afterwards every part returns to the mode it was in."""
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


def _batches(module: Any, X: Any, batch_rows: int) -> Iterator[Any]:
    """Rows as tensors on the module's device, of its floating type; integers stay integers."""
    import torch

    X, _ = gathered(X, model=module)
    weight = next(module.parameters(), torch.zeros(0))

    def moved(part: Any) -> Any:
        dtype = weight.dtype if part.is_floating_point() else part.dtype
        return part.to(weight.device, dtype)

    rows = _each_part(X, as_tensor)
    for start in range(0, max(1, n_rows(rows)), batch_rows):
        yield _each_part(rows[start : start + batch_rows], moved)


def _each_part(X: Any, turn: Callable[[Any], Any]) -> Any:
    """``turn`` applied to rows, or to each part of inputs by name."""
    if not isinstance(X, Mapping):
        return turn(X)
    kind: Any = type(X)
    return kind({name: turn(part) for name, part in X.items()})


def as_tensor(part: Any) -> Any:
    """An array or a tensor as a tensor."""
    import torch

    # Frames share read-only memory, which torch warns about.
    return part if torch.is_tensor(part) else torch.as_tensor(np.require(part, requirements="W"))


def _ask(module: Any, batch: Any) -> Any:
    """The module's output, given inputs by name where its parameters have these names."""
    takes = signature(module.forward)
    if isinstance(batch, Mapping) and _fits(takes, **batch):
        return _tensor(module(**batch))
    if isinstance(batch, Mapping) and not _fits(takes, batch):
        what = f"{type(module).__name__}.forward takes {', '.join(takes.parameters)}"
        given = f"but the inputs are named {', '.join(batch)}"
        raise CalliperError(f"{what}, {given}. Give them the names of its parameters.")
    return _tensor(module(batch))


def _fits(takes: Signature, *given: Any, **named: Any) -> bool:
    try:
        takes.bind(*given, **named)
    except TypeError:
        return False
    return True


def _tensor(answer: Any) -> Any:
    """A tensor, the ``logits`` of an answer that has some, or anything."""
    return answer if is_tensor(answer) else getattr(answer, "logits", answer)


def as_array(tensor: Any) -> FloatArray:
    """The numbers of a tensor on any device."""
    return np.asarray(tensor.detach().cpu().double().numpy())


class Layer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that returns the output of a PyTorch layer; it needs no fitting.

    Rows go through the module in batches, in evaluation mode and without gradients, on the device
    where the module is; every part is then put back into the mode that it was in.

    Parameters
    ----------
    module : torch.nn.Module
        Takes a batch of rows, or of inputs by name. Arrays become tensors of the module's own
        floating type; integers stay integers.
    name : str, optional
        A layer by its name in ``module.named_modules()``; its output, flattened, is used. By
        default the input of the last linear layer: the penultimate layer.
    batch_size : int, default 1024

    Examples
    --------
    >>> ConformalRegressor(predict, embed=Layer(module, "body.3"))  # doctest: +SKIP
    >>> ConformalRegressor(module, embed=make_pipeline(Layer(module), PCA(5)))  # doctest: +SKIP
    """

    def __init__(self, module: Any, name: str | None = None, *, batch_size: int = 1024) -> None:
        if not is_module(module):
            raise TypeError(f"Layer takes a torch.nn.Module; got {type(module).__name__}.")
        layers = dict(module.named_modules())
        if name is not None and name not in layers:
            known = ", ".join(repr(key) for key in layers if key) or "none"
            raise CalliperError(f"{type(module).__name__} has no layer {name!r}; it has: {known}.")
        self.module, self.name = module, name
        self.batch_size = at_least(batch_size, 1, "batch_size")

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Do nothing: the module is already trained."""
        return self

    def transform(self, X: Any) -> FloatArray:
        """Output of the layer for each row, (m, d)."""
        return self.predict_and_locate(X)[1]

    __call__ = transform

    def predict_and_locate(self, X: Any) -> tuple[FloatArray | None, FloatArray]:
        """Predictions (None unless they are a tensor) and coordinates, (m, d), in one pass."""
        seen: list[Any] = []
        answers, found = [], []
        with _evaluating(self.module), ExitStack() as hooks:
            for hook in self._listen(seen):
                hooks.enter_context(hook)
            for batch in _batches(self.module, X, self.batch_size):
                seen.clear()
                answers.append(_ask(self.module, batch))
                found.append(self._coordinates(seen, len(batch)))
        tensors = all(is_tensor(answer) for answer in answers)
        y_pred = np.concatenate([as_array(answer) for answer in answers]) if tensors else None
        return y_pred, np.concatenate(found)

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
        """The coordinates in words."""
        known = {None: "penultimate layer", "": "output"}
        return f"{known.get(self.name, f'layer {self.name!r}')} of {type(self.module).__name__}"

    def _listen(self, seen: list[Any]) -> list[Any]:
        """Hooks that append the layer's output to ``seen``; the last of a batch counts."""
        from torch.nn import Linear

        if self.name is not None:
            layer = dict(self.module.named_modules())[self.name]
            return [layer.register_forward_hook(lambda _, given, out: seen.append(_copy(out)))]
        linear = [part for part in self.module.modules() if isinstance(part, Linear)]
        if not linear:
            raise CalliperError(
                f"{type(self.module).__name__} has no linear layer, and so no penultimate layer: "
                f"name one of {[name for name, _ in self.module.named_modules() if name]}."
            )

        def note(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            seen.append(_copy(given[0] if given else named["input"]))

        return [part.register_forward_pre_hook(note, with_kwargs=True) for part in linear]

    def _coordinates(self, seen: list[Any], n: int) -> FloatArray:
        if not seen:
            raise CalliperError(
                f"the module does not use {self.name_in_words} when it predicts: name another."
            )
        if not is_tensor(seen[-1]) or len(seen[-1]) != n:
            found = tuple(seen[-1].shape) if is_tensor(seen[-1]) else f"a {type(seen[-1]).__name__}"
            raise CalliperError(
                f"{self.name_in_words} must be a tensor with an entry for each of {n} rows, or "
                f"have logits; got {found}: name another layer, or pass a function as the model "
                "(for mean and variance, one that returns scipy.stats.norm(mean, sd))."
            )
        return as_array(seen[-1]).reshape(n, -1)


def _copy(value: Any) -> Any:
    """A copy: a later layer may write into the same memory."""
    value = _tensor(value)
    return value.detach().clone() if is_tensor(value) else value
