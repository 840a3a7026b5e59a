"""Where nearness is judged: from inputs to features.

Whatever is learnt here is learnt on training rows. A scaler fitted to the calibration rows would
place them, and not the new row, at the centre of their own cloud: new and calibration points
would no longer be treated alike, and the proof of coverage needs that they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse
from calliper.exceptions import CalliperError, UnscaledFeaturesWarning

#: Ratio of the spreads of two raw inputs beyond which the larger alone decides who is near.
SPREAD_RATIO = 100.0


class Embedding:
    """A fitted map from inputs to features of fixed width."""

    def __init__(self, mapping: Callable[[Any], Any] | None, scaler: StandardScaler | None) -> None:
        self.mapping, self.scaler = mapping, scaler

    def transform(self, X: Any) -> FloatArray:
        """Features of each row, (m, d)."""
        features = _as_features(X if self.mapping is None else self.mapping(X), X)
        return features if self.scaler is None else np.asarray(self.scaler.transform(features))


def fit_embedding(embed: Any, X_train: Any, X_calibration: Any) -> Embedding:
    """The map that ``embed`` asks for, learnt on training rows where there are any."""
    if embed is None:
        if X_train is not None:
            return Embedding(None, StandardScaler().fit(_as_features(X_train, X_train)))
        _warn_if_unscaled(_as_features(X_calibration, X_calibration))
        return Embedding(None, None)
    if hasattr(embed, "transform"):
        return Embedding(_fit_transformer(embed, X_train).transform, None)
    if callable(embed):
        return Embedding(embed, None)
    raise TypeError(
        f"embed must be a function of the inputs or a transformer with a transform method; "
        f"got {embed!r}."
    )


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


def _as_features(values: Any, X: Any) -> FloatArray:
    refuse_sparse(values, "X")
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if getattr(values, "ndim", 2) == 1:
        values = np.asarray(values).reshape(-1, 1)
    try:
        features = check_features(values, "X")
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise CalliperError(
            f"nearness needs numbers, but the inputs hold text ({error}): pass embed=, a "
            f"transformer or function that turns inputs into numbers."
        ) from error
    if len(features) != n_rows(X):
        raise CalliperError(
            f"embed turned {n_rows(X)} rows into {len(features)}; it must keep rows."
        )
    return features


def _warn_if_unscaled(features: FloatArray) -> None:
    spread = features.std(axis=0)
    spread = spread[spread > 0]
    if len(spread) > 1 and spread.max() > SPREAD_RATIO * spread.min():
        warnings.warn(
            f"Nearness is judged on raw inputs whose standard deviations range from "
            f"{spread.min():.3g} to {spread.max():.3g}: the widest decide. Pass X_train to "
            f"calibrate (it standardises the inputs), or embed=.",
            UnscaledFeaturesWarning,
            stacklevel=4,
        )
