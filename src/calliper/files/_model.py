"""The user's model and whatever else stays outside the file: how they are recognised.

A file remembers the class of the model, its parameters, a few calibration rows as they came, and
what the model predicted of them. Loading asks the model that is passed for the same predictions:
another one, or the same one trained again, predicts differently and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper._estimator import CalibratedRegressor
from calliper._stored import CalibratedOnStored, stored_predictions
from calliper._types import FloatArray
from calliper.calibrators import Calibrator, Grouped
from calliper.exceptions import CalliperError, DamagedFileError, OtherModelError, unheard
from calliper.files._codec import has_brought, in_words
from calliper.models import is_fitted, unwrapped
from calliper.refitting import RefittedRegressor
from calliper.regressor import ConformalRegressor
from calliper.rows import row_values
from calliper.targets import MultiTargetRegressor, column_of

#: By how much answers may differ, in units of the largest: networks compute in single precision,
#: and in another order on another machine.
SAME_ANSWER = 1e-5
#: Targets of one model that a file may ask for, each by itself.
MOST_TARGETS = 10_000
#: Calibrators, and calibration rows of each, that are asked for the radius that they gave before.
N_ASKED = 5


def slots_of(calibrated: Any) -> list[tuple[Any, int]]:
    """Models that belong to an object, each with the number that stands for it in the file."""
    if isinstance(calibrated, CalibratedOnStored):
        return [(stored_predictions, 0)]
    if isinstance(calibrated, RefittedRegressor):
        known = [getattr(calibrated, "estimator_", calibrated.estimator), *calibrated.models_]
        return [(calibrated.estimator, 0), *((model, number) for number, model in enumerate(known))]
    if not isinstance(calibrated, ConformalRegressor | MultiTargetRegressor):
        return []
    owners = enumerate([calibrated, *parts_of(calibrated)])
    return [(each, n) for n, own in owners for each in (own.estimator_, own.estimator)]


def parts_of(calibrated: Any) -> tuple[ConformalRegressor, ...]:
    """The regressors of single targets, where each has its own."""
    if not isinstance(calibrated, MultiTargetRegressor) or len(calibrated.regressors_) == 1:
        return ()
    return calibrated.regressors_


def needed(calibrated: Any) -> dict[str, int]:
    """What loading must be given: how many models, and of how many columns of the one."""
    parts, stored = len(parts_of(calibrated)), isinstance(calibrated, CalibratedOnStored)
    n = 0 if stored else len({number for _, number in slots_of(calibrated)})
    return {"models": n - parts, "columns": parts}


def models_again(given: Any, needs: dict[str, int], what: str) -> list[Any]:
    """Models by their numbers, from what the user gave."""
    n, k = needs["models"], needs["columns"]
    if not all(type(each) is int and 0 <= each <= MOST_TARGETS for each in (n, k)):
        raise DamagedFileError(f"invalid numbers of models ({n!r:.20}) and columns ({k!r:.20}).")
    if n == 0:
        if given is not None:
            raise CalliperError(f"the file holds {what} without a model: leave out model=.")
        return []
    several = n > 1 and isinstance(given, Sequence)
    models = list(given) if several else [given]
    for each in models:
        refuse_class(each, "model")
    if given is None or len(models) != n:
        wanted = "the fitted model as model=" if n == 1 else f"its {n} models as a list, model=[…]"
        raise CalliperError(f"the file contains {what} but not its model: pass {wanted}.")
    return models + [column_of(models[0], number, k) for number in range(k)]


def refuse_class(given: Any, name: str) -> None:
    """Ask for something fitted where a class was given."""
    if isinstance(given, type):
        raise CalliperError(
            f"{name} is the class {given.__name__}: pass the fitted object that was used at "
            "calibration."
        )


def fingerprint(model: Any) -> tuple[str, str]:
    """Its class, and how it was called; long lists of parameters are cut."""
    core = unwrapped(model)
    given = core.get_params(deep=False) if hasattr(core, "get_params") else {}
    kind, words = in_words(core), ", ".join(f"{n}={v!r:.80}" for n, v in given.items())
    return kind, f"{kind.rpartition('.')[2]}({words})"[:200]


def methods_of(calibrated: Any) -> tuple[Calibrator, ...]:
    """Its fitted calibrators, one for each tail or target; none of what has no such."""
    if isinstance(calibrated, CalibratedOnStored):
        calibrated = calibrated.regressor
    if isinstance(calibrated, CalibratedRegressor):
        return tuple(calibrated.calibrators_)
    return (calibrated,) if isinstance(calibrated, Calibrator) else ()


def answering(calibrated: Any) -> list[Calibrator]:
    """Calibrators that give radii: of tails, and of groups."""
    parts = (
        each.calibrators_.values() if isinstance(each, Grouped) else [each]
        for each in methods_of(calibrated)
    )
    return [each for part in parts for each in part]


def ask(calibrated: Any, X: Any) -> dict[str, NDArray[Any]]:
    """What must be the same after loading, by name; radii of what needs objects of the user's."""
    found: dict[str, NDArray[Any]] = {}
    if isinstance(calibrated, CalibratedRegressor) and X is not None:
        given = vars(calibrated.calibration_.per_row).items()
        found |= {name: row_values(each, X, name) for name, each in given if callable(each)}
    if isinstance(calibrated, RefittedRegressor) and X is not None:
        found["y_pred"] = calibrated.predictions_of_models(X)
    elif parts_of(calibrated) and X is not None:
        found["y_pred"] = calibrated.predict(X)
    elif X is not None:
        found["y_pred"], Z = calibrated.embedding_.predict_and_transform(X)
        found |= {"Z": Z} if isinstance(Z, np.ndarray) and Z.dtype.kind == "f" else {}
    several = filter(has_brought, answering(calibrated)[:N_ASKED])
    return found | {f"radius {number}": _radius(each) for number, each in enumerate(several)}


def _radius(method: Calibrator) -> FloatArray:
    """What it answers at its first points; nothing if that is random, or cannot be asked for."""
    asked, rows, none = set(method.levels_asked_), method._rows, np.empty(0)
    weights = None if rows.weights is None else rows.weights[:N_ASKED]
    possible = isinstance(rows.Z, np.ndarray) and len(rows.Z) and (weights is None or all(weights))
    if not possible or getattr(method, "basis", None) is not None:
        return none
    with unheard(Warning):
        once, again = (method.predict_radius(rows.Z[:N_ASKED], 0.9, weights=weights) for _ in "12")
    method.levels_asked_ = asked  # that it was asked is forgotten
    return once if np.array_equal(once, again) else none


def check_same(calibrated: Any, X: Any, expected: dict[str, Any], header: dict[str, Any]) -> None:
    """Refuse a model, or another object that was brought, that answers differently than before."""
    model = type(unwrapped(getattr(calibrated, "estimator_", None))).__name__
    brought, made_for = header["brought"], header["model"]
    embed = f" and embed={brought['embed']}" if "embed" in brought else ""
    advice = f"This file was made for {made_for}{embed}: pass that model."
    located_by = "the embed that was passed" if embed else model
    blamed = {
        "y_pred": (f"{model} predicts", advice),
        "Z": (f"{located_by} locates", advice),
        "groups": ("the function for groups labels", "Pass the function used at calibration."),
        "weights": ("the function for weights weighs", "Pass the function used at calibration."),
    }
    try:
        found = ask(calibrated, X)
    except Exception as error:  # whatever a model may raise that meets strange columns
        either = f"{located_by}, or {model}," if embed else model
        raise OtherModelError(
            f"{either} failed on the rows stored in the file ({type(error).__name__}: {error}). "
            f"{advice}"
        ) from error
    again = f"Pass what it was calibrated with ({', '.join(brought)}), fitted as it was then."
    for name, before in expected.items():
        if differs(found.get(name), before):
            who, what = blamed.get(name, ("it gives radii at", again))
            now, then = (
                np.array2string(np.ravel(each)[:3], precision=6)
                for each in (found.get(name, ()), before)
            )
            raise OtherModelError(
                f"{who} the {len(before)} rows stored in the file differently: the first "
                f"answers are {now}, but {then} in the file. {what}"
            )


def differs(now: NDArray[Any] | None, before: NDArray[Any], within: Any = 0.0) -> bool:
    """Whether answers are not the same, but for rounding and what is ``within`` each column."""
    if now is None or now.shape != before.shape:
        return True
    if before.dtype.kind != "f" or now.dtype.kind != "f":
        return not np.array_equal(now, before)
    largest = np.abs(before[np.isfinite(before)]).max(initial=1e-300)
    return not np.isclose(now, before, rtol=0.0, atol=within + SAME_ANSWER * largest).all()


def refuse_unfitted(model: Any) -> None:
    """Ask for the fitted one where an estimator was never trained."""
    if is_fitted(unwrapped(model)) is False:
        kind = type(unwrapped(model)).__name__
        raise OtherModelError(
            f"the {kind} is not fitted: pass the fitted model that was calibrated."
        )


def check_class(model: Any, before: str) -> None:
    """Refuse a model of another class, where no row could be kept to ask it about."""
    now, _ = fingerprint(model)
    if now != before:
        raise OtherModelError(
            f"the model is a {now}, but this file was made for a {before}: pass the same fitted "
            "model."
        )
