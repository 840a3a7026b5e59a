"""What training rows tell a calibrator: places and errors, seen and left out.

Nothing is computed that the calibrator does not name, and nothing here sees a calibration row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from calliper._types import FloatArray
from calliper.embedding._embedding import Embedding
from calliper.embedding._expected_error import expect_errors
from calliper.embedding._left_out import LeftOut, left_out
from calliper.exceptions import CalliperError

#: Refits behind left-out errors, where nothing else was said.
N_FOLDS = 5
#: Training rows as seen by models that were not trained on them.
LEFT_OUT = {"Z_left_out", "scores_left_out"}
#: Training rows as seen by the model itself.
SEEN = {"Z_train", "scores_train"}


def check_folds(folds: Any) -> None:
    """``left_out_folds`` is None, 0, or a number of folds."""
    whole = isinstance(folds, Integral) and not isinstance(folds, bool)
    if folds is not None and not (whole and (folds == 0 or folds >= 2)):
        raise CalliperError(
            f"left_out_folds must be None, 0 (never refit) or a whole number of at least 2; got "
            f"{folds!r}."
        )


@dataclass(frozen=True)
class Training:
    """The rows that a model was trained on, as far as they were handed over.

    Parameters
    ----------
    X, y : training rows and targets, or None
    may_refit : whether the model was trained here, so that training it again is no surprise
    folds : number of refits that the user asks for, None to decide
    random_state : deals rows to folds
    """

    X: Any = None
    y: FloatArray | None = None
    may_refit: bool = False
    folds: int | None = None
    random_state: Any = None

    def learn(self, embedding: Embedding, score: Any, *, chosen: bool) -> Learnt:
        """Left-out errors, if there are any, and the space with the error that they let expect.

        ``chosen`` says whether the space was chosen here, and may be added to.
        """
        if self.X is None or self.y is None:
            return Learnt(embedding)
        folds = (N_FOLDS if self.may_refit else 0) if self.folds is None else self.folds
        unseen = left_out(embedding, self.X, self.y, n_folds=folds, random_state=self.random_state)
        if unseen is None:
            return Learnt(embedding)
        errors = score.magnitude(self.y[unseen.rows], unseen.y_pred)
        if chosen:
            embedding, unseen = expect_errors(embedding, unseen, self.X, self.y, errors)
        return Learnt(embedding, unseen, {"Z_left_out": unseen.Z, "scores_left_out": errors})

    def tell(self, named: set[str], embedding: Embedding, score: Any) -> dict[str, Any]:
        """What the model itself says of the rows that it was trained on, where it is named."""
        if self.X is None:
            return {}
        if self.y is None:
            return {"Z_train": embedding.transform(self.X)} if "Z_train" in named else {}
        told: dict[str, Any] = {"y_train": self.y}
        if named & SEEN:
            y_pred, told["Z_train"] = embedding.predict_and_transform(self.X)
            told["scores_train"] = score.magnitude(self.y, y_pred)
        return told


@dataclass(frozen=True)
class Learnt:
    """A space, and the left-out errors that it and a calibrator may learn from."""

    embedding: Embedding
    unseen: LeftOut | None = None
    extras: dict[str, Any] = field(default_factory=dict)
