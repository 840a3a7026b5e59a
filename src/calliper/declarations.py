"""What a method declares about itself: what it uses, and when to choose it.

The frame of methods, the regressor, the command line, evaluation and comparison read this.
"""

from dataclasses import dataclass
from typing import Self

from calliper.exceptions import CalliperError
from calliper.rows import Rows

#: What a method may use beyond features and scores of the calibration rows; descriptions of what
#: it may need, the most specific first; what it may require.
WORDS = (
    *("magnitudes", "signs", "weights", "length_scale"),
    *("training", "errors", "targets", "left_out", "groups"),
)
NEEDS = ("training", "errors", "targets", "groups")
IN_WORDS = {"errors": "training errors", "targets": "training targets", "training": "training rows"}


class Uses(frozenset[str]):
    """What a method uses beyond features and scores of the calibration rows.

    Parameters
    ----------
    *words : of each calibration row ``"magnitudes"``, ``"signs"``, ``"weights"``; a
        ``"length_scale"``; ``"training"`` rows, of which ``"errors"`` or ``"targets"``;
        ``"left_out"`` rows with the errors of models that have not seen them
    needs : those that are required, of training rows and groups
    learns : what it learns from training rows; empty if a kernel says so itself
    instead : what to do without them

    Examples
    --------
    >>> uses = Uses("training", "errors", "weights", needs=("training", "errors"))
    >>> "weights" in uses, "signs" in uses, uses.in_words()
    (True, False, 'training errors')
    """

    needs: tuple[str, ...]
    learns: str
    instead: str

    def __new__(  # noqa: D102
        cls,
        *words: str,
        needs: tuple[str, ...] = (),
        learns: str = "",
        instead: str = "use FullRescaled, which needs none",
    ) -> Self:
        for given, known in ((words, WORDS), (needs, NEEDS)):
            if unknown := sorted({*given} - {*known}):
                raise ValueError(f"Uses takes {', '.join(known)}; got {', '.join(unknown)}.")
        made = super().__new__(cls, (*words, *needs))
        made.needs, made.learns, made.instead = needs, learns, instead
        return made

    def refuse_missing(self, training: Rows | None, method: str) -> None:
        """Refuse training rows that lack what the method learns from."""
        rows = training or Rows(None)
        known = {"training": training, "errors": rows.scores, "targets": rows.targets}
        if all(known.get(need, self) is not None for need in self.needs):
            return
        shape = "(Z, None, targets)" if "targets" in self.needs else "(Z, scores)"
        raise CalliperError(
            f"{method} learns {self.learns or 'its scale'} from {self.in_words()}: pass training="
            f"{shape if len(self.needs) > 1 else 'Z'} to fit (X_train and y_train to "
            f"ConformalRegressor.calibrate), or {self.instead}."
        )

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
    cost : of N calibration rows, M new ones, n training points, d features, K neighbours
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
    needs: str = ""
    python: str = ""
    neighbors: str | None = None
    usual_neighbors: str = "10"
