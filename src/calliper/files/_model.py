"""The user's model, which stays outside the file: how it is known again.

A file remembers the class of the model, its parameters, a few calibration rows as they came, and
what was predicted of them. Loading asks the model that it is given about the same rows: another
model, or the same one trained again, answers differently and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from calliper._stored import CalibratedOnStored, stored_predictions
from calliper._types import FloatArray
from calliper.exceptions import CalliperError, DamagedFileError, OtherModelError
from calliper.files._codec import in_words
from calliper.models import unwrapped
from calliper.refitting import RefittedRegressor
from calliper.regressor import ConformalRegressor
from calliper.targets import MultiTargetRegressor, column_of

#: By how much answers may differ, in units of the largest: networks compute in single precision,
#: and in another order on another machine.
SAME_ANSWER = 1e-5

#: Targets of one model that a file may ask for, each by itself.
MOST_TARGETS = 10_000

#: Characters of a parameter that are written down.
MOST_SIGNS = 80


def slots_of(calibrated: Any) -> list[tuple[Any, int]]:
    """Models that belong to an object, each with the number that stands for it in the file."""
    if isinstance(calibrated, CalibratedOnStored):
        return [(stored_predictions, 0)]
    if isinstance(calibrated, RefittedRegressor):
        known = [getattr(calibrated, "estimator_", calibrated.estimator), *calibrated.models_]
        return [(calibrated.estimator, 0), *((model, place) for place, model in enumerate(known))]
    if not isinstance(calibrated, ConformalRegressor | MultiTargetRegressor):
        return []
    slots = [(calibrated.estimator_, 0), (calibrated.estimator, 0)]
    for place, part in enumerate(parts_of(calibrated), 1):
        slots += [(part.estimator_, place), (part.estimator, place)]
    return slots


def parts_of(calibrated: Any) -> tuple[ConformalRegressor, ...]:
    """The regressors of single targets, where each has its own."""
    if not isinstance(calibrated, MultiTargetRegressor) or len(calibrated.regressors_) == 1:
        return ()
    return calibrated.regressors_


def needed(calibrated: Any) -> dict[str, int]:
    """What loading must be given: how many models, and of how many columns of the one."""
    parts, stored = len(parts_of(calibrated)), isinstance(calibrated, CalibratedOnStored)
    n = 0 if stored else len({place for _, place in slots_of(calibrated)})
    return {"models": n - parts, "columns": parts}


def models_again(given: Any, needs: dict[str, int], what: str) -> list[Any]:
    """Models by their numbers, from what the user gave."""
    n, k = needs["models"], needs["columns"]
    if not all(type(each) is int and 0 <= each <= MOST_TARGETS for each in (n, k)):
        raise DamagedFileError(f"the file needs {n!r:.20} models and {k!r:.20} columns of one.")
    if n == 0:
        if given is not None:
            raise CalliperError(f"the file holds {what} without a model: leave out model=.")
        return []
    several = n > 1 and isinstance(given, Sequence)
    models = list(given) if several else [given]
    for each in models:
        refuse_class(each, "model")
    if given is None or len(models) != n:
        count = "pass the fitted model, model=…" if n == 1 else f"pass its {n} models, model=[…]"
        raise CalliperError(f"the file holds {what} around a model, which is not in it: {count}.")
    return models + [column_of(models[0], place, k) for place in range(k)]


def refuse_class(given: Any, name: str) -> None:
    """Ask for something fitted where a class was given."""
    if isinstance(given, type):
        raise CalliperError(
            f"{name} is the class {given.__name__}: pass a fitted one, the one that was calibrated."
        )


def fingerprint(model: Any) -> dict[str, Any]:
    """Class and parameters in words."""
    core = unwrapped(model)
    given = core.get_params(deep=False) if hasattr(core, "get_params") else {}
    words = {str(name): shorten(repr(value), MOST_SIGNS) for name, value in given.items()}
    return {"class": in_words(core), "parameters": words}


def shorten(text: str, most: int) -> str:
    """A text that is cut if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def ask(calibrated: Any, X: Any) -> dict[str, FloatArray]:
    """Predictions of rows, and their places if they have any."""
    if isinstance(calibrated, RefittedRegressor):
        return {"y_pred": calibrated.predictions_of_models(X)}
    if parts_of(calibrated):
        return {"y_pred": calibrated.predict(X)}
    y_pred, Z = calibrated.embedding_.predict_and_transform(X)
    plain = isinstance(Z, np.ndarray) and Z.dtype.kind == "f"
    return {"y_pred": y_pred, **({"Z": Z} if plain else {})}


def check_same(
    calibrated: Any, X: Any, expected: dict[str, FloatArray], made_for: str, embed: str | None
) -> None:
    """Refuse a model that answers differently from the calibrated one; or an ``embed``, if brought.

    ``made_for`` and ``embed`` are what there was when it was saved, in words.
    """
    model = type(unwrapped(getattr(calibrated, "estimator_", calibrated.estimator))).__name__
    placed_by, either, one = model, model, "model"
    if embed is not None:
        placed_by, made_for, one = (
            "the embed that was passed",
            f"{made_for} and embed={embed}",
            "one",
        )
        either = f"{placed_by}, or {model},"
    advice = f"This file was made for {made_for}; pass the same {one}, trained as it was then."
    try:
        found = ask(calibrated, X)
    except Exception as error:  # whatever a model may raise that meets strange columns
        raise OtherModelError(
            f"{either} failed on the rows stored in the file ({type(error).__name__}: {error}). "
            f"{advice}"
        ) from error
    for name, before in expected.items():
        now = found.get(name)
        if now is None or now.shape != before.shape or _differs(now, before):
            who, does = (model, "predicts") if name == "y_pred" else (placed_by, "places")
            shown = [
                np.array2string(np.ravel(np.asarray(each))[:3], precision=6)
                for each in (now, before)
            ]
            raise OtherModelError(
                f"{who} {does} the {len(before)} rows stored in the file differently: {shown[0]} "
                f"instead of {shown[1]} for the first. {advice}"
            )


def refuse_unfitted(model: Any) -> None:
    """Ask for the fitted one where an estimator was never trained."""
    try:
        with suppress(TypeError):  # which is no estimator of scikit-learn
            check_is_fitted(unwrapped(model))
    except NotFittedError as error:
        raise OtherModelError(
            f"the {type(unwrapped(model)).__name__} is not fitted: pass the model that was "
            "calibrated, trained as it was then."
        ) from error


def check_class(model: Any, before: dict[str, Any]) -> None:
    """Refuse a model of another class, where no row could be kept to ask it about."""
    now = fingerprint(model)
    if now["class"] != before["class"]:
        raise OtherModelError(
            f"the model is a {now['class']}; this file was made for a {before['class']}: pass "
            "the same model, trained as it was then."
        )


def _differs(now: FloatArray, before: FloatArray) -> bool:
    largest = float(np.abs(before).max(initial=0.0))
    return bool((np.abs(now - before) > SAME_ANSWER * max(largest, 1e-300)).any())
