"""What a method declares beside its code: what it uses, and what people choose it by.

The frame of methods, the regressor, the command line, evaluation, comparison and the tested
promises read this; nothing about a method is declared anywhere else.
"""

from dataclasses import dataclass
from typing import Self

from calliper.rows import Rows

#: What a method may use beyond features and scores of the calibration points; descriptions of what
#: it may need, the most specific first.
WORDS = (
    *("magnitudes", "signs", "weights", "length_scale"),
    *("training", "errors", "targets", "left_out", "groups"),
)
IN_WORDS = {"errors": "training errors", "targets": "training targets", "training": "training rows"}


class Uses(frozenset[str]):
    """What a method uses beyond features and scores of the calibration points.

    Parameters
    ----------
    *words : of each calibration point ``"magnitudes"``, ``"signs"``, ``"weights"``; a
        ``"length_scale"``; ``"training"`` rows, of which ``"errors"`` or ``"targets"``;
        ``"left_out"`` rows with the errors of models that have not seen them
    needs : those that are required
    refusal : the error message if one of these is missing; empty if a kernel has its own

    Examples
    --------
    >>> uses = Uses("training", "errors", "weights", needs=("training", "errors"))
    >>> "weights" in uses, "signs" in uses, uses.in_words()
    (True, False, 'training errors')
    """

    needs: tuple[str, ...]
    refusal: str

    def __new__(cls, *words: str, needs: tuple[str, ...] = (), refusal: str = "") -> Self:  # noqa: D102
        unknown = sorted({*words, *needs} - {*WORDS})
        if unknown:
            raise ValueError(f"a method uses {', '.join(WORDS)}; not {', '.join(unknown)}.")
        made = super().__new__(cls, (*words, *needs))
        made.needs, made.refusal = needs, refusal
        return made

    def has_needs(self, training: Rows | None) -> bool:
        """Whether training rows have all that is required."""
        if training is None:
            return not self.needs
        known = {"errors": training.scores, "targets": training.targets}
        return all(known[need] is not None for need in self.needs if need in known)

    def in_words(self) -> str:
        """What is required, in words."""
        return next((text for need, text in IN_WORDS.items() if need in self.needs), "none")


@dataclass(frozen=True, kw_only=True)
class About:
    """What people choose a method by, on the command line and in its list.

    Attributes
    ----------
    cli : its name on the command line, None if it works only in Python
    width : what intervals look like
    guarantee : what is proved, as a formula; 1−α is the requested coverage
    when : when to choose it
    cost : of N calibration points, M new ones, n training points, d features, K neighbours
    order : its place in lists, the most useful first
    needs : requirements beyond those of ``Uses``, in words
    python : what it is in Python; by default the name of the class
    neighbors : the parameter that takes nearest neighbours, as a number or as a kernel
    usual_neighbors : the default of ``--neighbors``
    """

    cli: str | None = None
    width: str
    guarantee: str = "1−α"
    when: str = ""
    cost: str = ""
    order: int = 100
    needs: str = ""
    python: str = ""
    neighbors: str | None = None
    usual_neighbors: str = "10"
