"""Boosters trained again on a part of their rows, where not all is known of their first training.

XGBoost, LightGBM and CatBoost stop early by an ``eval_set``. Who knows it passes it on, and each
copy stops by itself. A model that came fitted has not kept it: copies then grow as many rounds as
it has settled on, at the same rate, and no longer look for the best. Nor are columns kept that
``fit`` was told are categories; the trees know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calliper._models import fresh, open_model, untrained_core
from calliper.space._boosters import library_of

#: Names by which the libraries know the number of rounds, and by which two of them stop early.
ROUNDS = (
    *("n_estimators", "iterations", "max_iter", "n_iter", "nrounds", "num_boost_round"),
    *("num_iteration", "num_iterations", "num_round", "num_rounds", "num_tree", "num_trees"),
)
STOPPING = ("early_stopping", "early_stopping_round", "early_stopping_rounds", "n_iter_no_change")


def trainable(model: Any, fit_params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An untrained copy of a fitted model, and what its ``fit`` needs beside ``fit_params``."""
    copied, fitted = fresh(model), open_model(model).core
    core = untrained_core(copied)
    library = library_of(core)
    if library is None or type(core) is not type(fitted):
        return copied, {}
    told, params = {name.rpartition("__")[2] for name in fit_params}, core.get_params()
    watched = not told.isdisjoint(("eval_set", "eval_X"))
    if library == "xgboost":
        _clear_callbacks(core, keep=watched)
    rounds = None if watched else _settled_rounds(library, fitted, params)
    if rounds:
        core.set_params(**_fixed(library, params, fitted, rounds))
    if library == "catboost" and "cat_features" not in {*params, *told}:
        found = fitted.get_cat_feature_indices()
        core.set_params(**({"cat_features": found} if found else {}))
    if library == "lightgbm" and core is copied:
        found = fitted.booster_.params.get("categorical_column")
        return copied, {"categorical_feature": found} if found else {}
    return copied, {}


def _settled_rounds(library: str, fitted: Any, params: Mapping[str, Any]) -> int | None:
    """Rounds at which it stopped early; None if it did not."""
    if library == "xgboost":
        best = getattr(fitted, "best_iteration", None)
        return None if best is None else int(best) + 1
    if library == "lightgbm":
        return fitted.best_iteration_ or None
    asked = next((params[name] for name in ROUNDS if name in params), 1000)
    stopped = fitted.tree_count_ < asked or params.get("use_best_model")
    return int(fitted.tree_count_) if stopped else None


def _fixed(library: str, params: dict[str, Any], fitted: Any, rounds: int) -> dict[str, Any]:
    """Parameters that make so many rounds and stop nowhere else."""
    fixed: dict[str, Any] = {name: rounds for name in ROUNDS if params.get(name) is not None}
    fixed = fixed or {"iterations" if library == "catboost" else "n_estimators": rounds}
    if library != "catboost":
        return fixed | {name: None for name in STOPPING if params.get(name) is not None}
    if not {"learning_rate", "eta"} & {*params}:  # which follows from the number of rounds
        fixed["learning_rate"] = fitted.learning_rate_
    return fixed | ({"use_best_model": False} if params.get("use_best_model") else {})


def _clear_callbacks(core: Any, *, keep: bool) -> None:
    """Callbacks that stop early are dropped, or forget the training that they have seen."""
    others = []
    for callback in core.callbacks or ():
        stops = hasattr(callback, "stopping_history")
        if stops:
            callback.stopping_history, callback.best_scores, callback.current_rounds = {}, {}, 0
        if keep or not stops:
            others.append(callback)
    core.set_params(callbacks=others or None)
