"""From what the user passes as ``embed`` to a fitted space."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from calliper._models import predictions
from calliper._types import FloatArray
from calliper.embedding._auto import choose_space
from calliper.embedding._embedding import RAW, Embedding
from calliper.embedding._features import as_features
from calliper.embedding._layer import Layer, Network
from calliper.embedding._spaces import Mapped, Prediction, Space
from calliper.exceptions import UnscaledFeaturesWarning

#: Ratio of the spreads of two raw inputs beyond which the larger alone decides who is near.
SPREAD_RATIO = 100.0


def fit_embedding(
    embed: Any,
    X_train: Any,
    X_calibration: Any,
    *,
    model: Any = None,
    n_outputs: int = 1,
    y_train: FloatArray | None = None,
    raw: bool = False,
) -> Embedding:
    """The map that ``embed`` asks for, learnt from the model and training rows alone.

    Parameters
    ----------
    embed : "auto", "inputs" (or None), "prediction", transformer or callable
    X_train : rows that the model was trained on, or None
    X_calibration : rows on which the map is tried out; nothing is learnt from them
    model : fitted regressor or callable, for "auto" and "prediction"
    n_outputs : predictions that the model makes for each row
    y_train : targets of the training rows, or None
    raw : whether "auto" and "inputs" shall mean the inputs as they are, which no distance is asked
        of: kernels that are made of a model of their own
    """
    if raw and (embed is None or (isinstance(embed, str) and embed in ("auto", "inputs"))):
        return Embedding(RAW, model, n_outputs)
    space = _space(embed, X_train, X_calibration, model, n_outputs, y_train)
    return Embedding(space, model, n_outputs)


def _space(
    embed: Any,
    X_train: Any,
    X_calibration: Any,
    model: Any,
    n_outputs: int,
    y_train: FloatArray | None,
) -> Space:
    if embed is None or (isinstance(embed, str) and embed == "inputs"):
        return _inputs(X_train, X_calibration)
    if isinstance(embed, str) and embed == "auto":
        predict = partial(predictions, model, n_outputs=n_outputs)
        return choose_space(
            model, X_train, X_calibration, predict=predict, n_outputs=n_outputs, y_train=y_train
        )
    if isinstance(embed, str) and embed == "prediction":
        return Prediction()
    if hasattr(embed, "transform"):
        fitted = _fit_transformer(embed, X_train)
        return Mapped(fitted.transform, None, type(fitted).__name__)
    if isinstance(embed, Layer) and embed.module is model:
        return Network(embed)
    if callable(embed):
        return Mapped(embed, None, _name(embed))
    raise TypeError(
        f"embed must be a function of the inputs, a transformer with a transform method, 'auto', "
        f"'inputs' or 'prediction'; got {embed!r}."
    )


def _inputs(X_train: Any, X_calibration: Any) -> Space:
    if X_train is not None:
        scaler = StandardScaler().fit(as_features(X_train, X_train))
        return Mapped(None, scaler, "standardised inputs")
    _warn_if_unscaled(as_features(X_calibration, X_calibration))
    return RAW


def _fit_transformer(transformer: Any, X_train: Any) -> Any:
    if X_train is not None:
        return clone(transformer).fit(X_train)
    try:
        check_is_fitted(transformer)
    except NotFittedError as error:
        raise NotFittedError(
            f"{type(transformer).__name__} is not fitted: fit it on training inputs, or pass "
            f"X_train to calibrate. Fitting it to the calibration rows would cost the guarantee."
        ) from error
    return transformer


def _name(mapping: Any) -> str:
    """What a function calls itself; a ``Layer`` has a name in words."""
    name = getattr(mapping, "name_in_words", None) or getattr(mapping, "__name__", None)
    return "function" if name in (None, "<lambda>") else str(name)


def _warn_if_unscaled(features: FloatArray) -> None:
    spread = features.std(axis=0)
    spread = spread[spread > 0]
    if len(spread) > 1 and spread.max() > SPREAD_RATIO * spread.min():
        warnings.warn(
            f"Nearness is judged on raw inputs whose standard deviations range from "
            f"{spread.min():.3g} to {spread.max():.3g}: the widest decide. Pass X_train to "
            f"calibrate (it standardises the inputs), or embed=.",
            UnscaledFeaturesWarning,
            stacklevel=6,
        )
