"""A family of models: the questions that each answers, and the families there are.

The space where nearness is judged is made of what a model knows of its own doubt: prediction m and
spreads v, on the scale of about the standard deviation of the targets (``space/_spaces.py`` has the
formula). A family says where its models keep their spread. See ``models/__init__.py`` for how to
add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.models._asking import predictions

#: Families by file and class, asked in this order; read when a model first comes.
FAMILIES = (
    "_forests:Members",
    "_libraries:XGBoost",
    "_libraries:LightGBM",
    "_libraries:CatBoost",
    "_boosting:TreeStages",
    "_boosting:Stages",
    "_linear:StatedDeviation",
)

#: Part of the unit below which steps and residuals are all alike: they are smaller than spreads.
STEP_FLOOR = 0.003


class UnreadableError(Exception):
    """A model looks as if it kept a spread, and does not; says why, to follow "since"."""


class ModelFamily:
    """A fitted model, read once, as its family answers for it.

    What is here are the answers of a model of no family, which predicts and says nothing of its
    doubt. A reading must pickle.

    Parameters
    ----------
    core : the fitted model, without what is wrapped around it; ``UnreadableError`` says why it has
        no spread although it looks like one of the family

    Attributes
    ----------
    weights : of the logarithm of each spread, the prediction having 1
    in_unit : whether each spread is in the unit of y, or has none
    floor : part of the unit below which spreads are all alike; near 0 logarithms show rounding
    """

    weights: ClassVar[tuple[float, ...]] = (2.0,)
    in_unit: ClassVar[tuple[bool, ...]] = (True, True)
    floor: ClassVar[float] = 0.01

    def __init__(self, core: Any) -> None:
        self.core = core

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        """Whether a fitted model is one of the family, by the look of it."""
        return True

    @classmethod
    def is_known(cls, core: Any) -> bool:
        """Whether its class is known to predict what ``measure`` says that it does."""
        return True

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Prediction (m,) and spreads (k, m) of prepared rows, in the unit of y, in one pass."""
        y_pred = predictions(self.core, rows)
        return y_pred, np.empty((0, len(y_pred)))

    def describe(self) -> str:
        """What the spread is, in words."""
        return ""

    def unit(self) -> float | None:
        """Standard deviation of the targets that it was trained on; None if it is not kept."""
        return None

    def guess(self) -> float | None:
        """About that deviation, for losses other than the square; mostly less."""
        return None

    def left_out(
        self, X: Any, prepare: Callable[[Any], Any]
    ) -> tuple[IntArray, FloatArray, FloatArray] | None:
        """Which training rows X some members had not seen, (r,), and their ``measure``.

        None if there are no such rows. ``prepare(X)`` is what the core was trained on.
        """
        return None

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Prepare ``core``, an untrained copy of ``fitted``, for a part of the rows.

        Returns what its ``fit`` needs beside the parameters of which the names are ``told``.
        """
        return {}


@cache
def families() -> tuple[type[ModelFamily], ...]:
    """All of them, in the order in which they are asked."""
    names = (name.split(":") for name in FAMILIES)
    return tuple(getattr(import_module(f"calliper.models.{file}"), kind) for file, kind in names)


def family_of(core: Any) -> type[ModelFamily]:
    """The first family that a fitted model is of; ``ModelFamily`` itself for none."""
    return next((family for family in families() if family.is_mine(core)), ModelFamily)


def explained_deviation(leaves: Iterable[tuple[Any, Any]], rate: float) -> float:
    """Deviation of what stages of trees, grown by squared errors at a rate, have learnt of y.

    A stage of rate ν lowers the variance of the residuals by (2/ν − 1) times that of its own
    values, given for each stage with the numbers of rows in the leaves; the sum over stages is
    what is explained. Regularised leaves make it smaller.
    """
    explained = sum(leaf_values_deviation(values, counts) ** 2 for values, counts in leaves)
    return float(np.sqrt((2 / float(rate) - 1) * explained))


def leaf_values_deviation(values: Any, weights: Any) -> float:
    """Standard deviation of values at leaves, each with the weight of its rows."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def tree_deviation(tree: Any) -> float:
    """Standard deviation of one tree's predictions of the rows that it was grown on."""
    leaves = tree.children_left < 0
    return leaf_values_deviation(tree.value.ravel()[leaves], tree.weighted_n_node_samples[leaves])


def root_deviation(tree: Any) -> float:
    """Standard deviation of the targets, where impurity is their variance."""
    return float(np.sqrt(tree.impurity[0]))
