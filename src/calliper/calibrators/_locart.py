"""LoCart: a regression tree cuts the inputs into leaves, and each leaf is calibrated on its own.

A tree grown on training errors groups inputs whose errors are alike. Split conformal among the
calibration rows of a leaf then holds for new points in that leaf:

    Δ(x) = Q_A-th smallest of {s_i : X_i ∈ A},   A ∋ x a leaf,   Q_A = ⌈(1−α)(N_A + 1)⌉,

and ∞ if Q_A > N_A: a leaf with fewer than (1−α)/α calibration rows supports no finite radius.

Letters: A → the leaves of ``nodes_``, N_A → ``leaf_sizes_``, s_i → ``scores``. The paper grows the
tree on a part of the calibration set; here it is grown on training errors, so that none is lost.

Guarantee: 1−α *in each leaf*, more sharply Q_A/(N_A + 1), the smallest of which is what
``guaranteed_coverage`` returns: given that the new point falls into A, and marginal over the draw
of the calibration rows, exchangeable with the new one and independent of the training data.

Reference: Cabezas, Otto, Izbicki, Stern (2025), "Regression trees for fast and adaptive
prediction intervals", Information Sciences, doi:10.1016/j.ins.2024.121369.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np

from calliper._kept import Field, Inline
from calliper._trees import PlainTrees
from calliper._types import FloatArray
from calliper._validation import at_least
from calliper.calibrators._calibrator import Calibrator
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.quantile import Shares, conformal_thresholds, required_calibration_size
from calliper.rows import Rows

#: Calibration rows that the smallest leaf expects by default. A level of 0.9 needs 9 and one of
#: 0.95 needs 19; chance leaves a leaf of 40 expected points with fewer than 19 once in 10,000.
EXPECTED_IN_LEAF = 40
#: Training points that a leaf holds at least by default: fewer say little about its errors.
LEAST_TRAINING = 20


@dataclass(eq=False, repr=False)
class LoCart(Calibrator):
    """Split conformal in each leaf of a tree grown on training errors; takes any real score.

    Parameters
    ----------
    min_leaf : int, optional
        Training points that a leaf holds at least. By default max(20, ⌈40 n/N⌉), so that the
        smallest leaf expects 40 of the N calibration rows: enough for levels up to 0.95.
    max_leaves : int, optional; leaves at most; 1 is plain ``Split``
    random_state : int, RandomState or None; settles ties between splits of the tree

    Attributes
    ----------
    tree_, nodes_ : the fitted ``DecisionTreeRegressor``, not in files, and its nodes, plain arrays
    leaf_sizes_ : calibration rows in each leaf, in the order of its nodes

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = LoCart().fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.52])
    >>> method.leaf_sizes_
    array([66, 36, 53, 40, 43, 62])
    """

    uses = Uses(needs=("training", "errors"), learns="its tree")
    about = About(
        cli="locart",
        width="one width in each leaf of a tree grown on training errors",
        guarantee="1−α in each leaf",
        when="if coverage must hold in regions that people can read",
        cost="O(n log²n · d) and O(N log N), then O(log n) per new row",
    )
    takes_any_score = True
    by_rank = False  # each leaf reaches what its own points do
    _rounded = True
    learns: ClassVar[Mapping[str, Field]] = {"nodes_": Inline(PlainTrees)}

    _: KW_ONLY
    min_leaf: int | None = None
    max_leaves: int | None = None
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        train = self._training
        self.nodes_ = self._once("nodes_", lambda: self._grow(train.Z, train.scores, len(rows)))
        if len(self.nodes_.sizes) != 1:
            raise CalliperError(f"LoCart needs one tree; got {len(self.nodes_.sizes)}.")
        self._leaves = np.flatnonzero(self.nodes_.left < 0)
        leaf = self._leaf(rows.Z)
        self.leaf_sizes_ = np.bincount(leaf, minlength=len(self._leaves))
        ordered = rows.scores[np.lexsort((rows.scores, leaf))]
        self._ordered = np.split(ordered, np.cumsum(self.leaf_sizes_)[:-1])

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The guarantee, which holds in each leaf as well."""
        promise = super().guarantee(coverage, confidence)
        also = (
            f" It also holds among the new rows of each of the {len(self._leaves)} leaves alone: "
            f"the inputs that it averages over are then those of the leaf."
        )
        return replace(promise, also=also)

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        sizes = self.leaf_sizes_
        short = [level for level in levels if required_calibration_size(level) > sizes.min()]
        if short:
            level, least = short[0], required_calibration_size(short[0])
            warn(
                f"{(sizes < least).sum()} of {len(sizes)} leaves hold fewer than the {least} "
                f"calibration rows that coverage {level:g} requires, so intervals there are "
                f"infinite. Raise min_leaf, lower max_leaves, or calibrate on more rows.",
                SmallCalibrationWarning,
            )
        thresholds = [conformal_thresholds(ordered, levels) for ordered in self._ordered]
        return np.asarray(np.stack(thresholds)[self._leaf(Z)])

    def _proved(self, level: float) -> float:
        return min(conformal_coverage(level, int(n)) for n in self.leaf_sizes_)

    def _grow(self, Z: FloatArray, scores: FloatArray, n_calibration: int) -> PlainTrees:
        from sklearn.tree import DecisionTreeRegressor

        for name, value in (("min_leaf", self.min_leaf), ("max_leaves", self.max_leaves)):
            if value is not None:
                at_least(value, 1, name)
        n = len(Z)
        default = max(LEAST_TRAINING, ceil(EXPECTED_IN_LEAF * n / n_calibration))
        tree = DecisionTreeRegressor(
            min_samples_leaf=n if self.max_leaves == 1 else min(self.min_leaf or default, n),
            max_leaf_nodes=None if self.max_leaves is None else max(2, self.max_leaves),
            random_state=self.random_state,
        )
        self.tree_ = tree.fit(_refuse_beyond_single(Z, "Z of training"), scores)
        return PlainTrees.of([tree.tree_], Z.shape[1])

    def _leaf(self, Z: FloatArray) -> Any:
        """The number of each row's leaf, (m,)."""
        single = _refuse_beyond_single(Z, "Z").astype(np.float32)
        return np.searchsorted(self._leaves, self.nodes_.leaves(single)[0])


def _refuse_beyond_single(Z: FloatArray, name: str) -> FloatArray:
    """The rows, unless they hold numbers that a tree cannot tell from infinity."""
    largest = np.abs(Z).max(initial=0.0)
    if largest > np.finfo(np.float32).max:
        raise CalliperError(
            f"LoCart grows a tree, which takes features of up to {np.finfo(np.float32).max:.2g} in "
            f"size; got {largest:.3g} in {name}. Divide the features by a constant."
        )
    return Z
