"""What a method says of itself, beside its code: what it uses, and what people choose it by.

The frame of methods, the regressor, the command line, evaluation, comparison and the promises that
are attacked read this, and nothing is said of a method anywhere else.
"""

from dataclasses import dataclass
from typing import Self

from calliper.rows import Rows

#: What a method may use beyond features and scores of the calibration points, by the words of
#: ``Uses``; what cannot be done without, in words, the most telling first.
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
    needs : those of them that it cannot do without
    refusal : what to say if one of these is missing; empty if a kernel will say it

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
        """Whether training rows tell all that it cannot do without."""
        if training is None:
            return not self.needs
        known = {"errors": training.scores, "targets": training.targets}
        return all(known[need] is not None for need in self.needs if need in known)

    def in_words(self) -> str:
        """What it cannot do without, in words."""
        return next((text for need, text in IN_WORDS.items() if need in self.needs), "none")


@dataclass(frozen=True, kw_only=True)
class About:
    """What people choose a method by, on the command line and in its list.

    Attributes
    ----------
    cli : its name on the command line, None where it works in Python alone
    width : what intervals look like
    guarantee : what is proved, in letters; 1−α is the coverage asked for
    when : when to choose it
    cost : of N calibration points, M new ones, n training points, d features, K neighbours
    order : its place in lists, the most useful first
    needs : what it cannot do without beyond what ``Uses`` says, in words
    python : what it is in Python; by default the name of the class
    neighbors : the parameter that takes nearest neighbours, as a number or as a kernel
    usual_neighbors : what is taken where ``--neighbors`` is not given
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
