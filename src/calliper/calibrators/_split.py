"""Split conformal: one radius for every input.

The Q-th smallest calibration score, Q = ⌈(1−α)(N+1)⌉, bounds the score of a new point with
probability at least 1−α, since its rank among N+1 exchangeable scores is uniform:

    Δ = s_(Q),    P(s_{N+1} ≤ Δ) ≥ Q/(N+1) ≥ 1−α.

Letters: s → ``scores``, Q → ``conformal_rank``, Δ → the radius.

Guarantee: 1−α, marginal, for exchangeable data. Given the calibration set, coverage follows
Beta(Q, N+1−Q) if scores have no ties.

References: Papadopoulos, Proedrou, Vovk, Gammerman (2002), "Inductive confidence machines for
regression", doi:10.1007/3-540-36755-1_29. Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018),
doi:10.1080/01621459.2017.1307116.
"""

from calliper._types import FloatArray
from calliper.calibrators._calibrator import Calibrator
from calliper.declarations import About, Uses
from calliper.rows import Rows


class Split(Calibrator):
    """Plain split conformal: the same radius everywhere; takes any real score.

    Pass absolute errors for intervals around predictions. The radius of signed errors, y − ŷ, is an
    upper bound on them only.

    Examples
    --------
    >>> import numpy as np
    >>> split = Split().fit(np.zeros((9, 1)), np.arange(1.0, 10.0))
    >>> split.predict_radius([[0.0], [5.0]], coverage=[0.5, 0.9])
    array([[5., 9.],
           [5., 9.]])
    """

    uses = Uses("signs", "weights")
    about = About(
        cli="split",
        width="the same width everywhere",
        when="if you want one width, or as a baseline",
        cost="O(N log N + M)",
    )
    judges_nearness = False
    takes_any_score = True
    has_law = True
    has_distribution = True
    _rounded = True

    def __init__(self) -> None:
        """It has no parameters."""

    def _learn(self, rows: Rows) -> None:
        self._rescale(rows)

    @property
    def scores_(self) -> FloatArray:
        """Calibration scores in ascending order."""
        return self.rescaled_scores_
