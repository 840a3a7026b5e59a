"""MADSplit: rescale by an error model that was learnt on other data.

A model r̂ of the error, fitted to training errors, says how hard each input is. Calibration
scores are divided by it and the Q-th smallest ratio is multiplied back:

    σ_i = s_i / r̂(X_i),    Δ(x) = r̂(x) · σ_(Q),    Q = ⌈(1−α)(N+1)⌉        (paper, Eq. 2)

Letters: r̂ → ``scale``, σ → ``rescaled_scores_``. A known weakness: training errors are made on data
that the model has seen, and may be unlike errors on new data.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties.

Reference: Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), "Distribution-free predictive
inference for regression", §5.2, doi:10.1080/01621459.2017.1307116.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Field, Plain
from calliper._types import FloatArray
from calliper._validation import check_offset, check_vector, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator, fixed_kernel
from calliper.declarations import About, Uses
from calliper.kernels import KNN, Kernel
from calliper.rows import Rows


def is_fitted(model: Any) -> bool:
    """Whether it can be asked already."""
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        return False
    return True


class MADSplit(Calibrator):
    """Locally weighted split conformal with a scale learnt on training errors.

    Parameters
    ----------
    scale : kernel or scikit-learn regressor, default KNN(10)
        ``KNN(10)`` and ``RBF("median")`` are the paper's two variants; a regressor is cloned and
        fitted to the training errors. Negative predictions count as a scale of zero.
    offset : float, default 0
        Constant added to every scale, in the unit of y; choose it without calibration data.
    random_state : int, RandomState or None
        Draws training rows that a tuned kernel is tuned on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = MADSplit().fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.23, 1.  ])
    """

    uses = Uses("signs", "weights", needs=("training", "errors"), learns="its scale")
    about = About(
        cli="mad-split",
        width="wide where nearby training errors were large",
        when="if training errors resemble new ones, or there are few calibration points",
        cost="neighbours of N + M rows among n",
        order=6,
        neighbors="scale",
    )
    has_law = True
    has_distribution = True
    learns: ClassVar[Mapping[str, Field]] = {"learnt_": Plain("scale")}

    def __init__(self, scale: Any = None, *, offset: float = 0.0, random_state: Any = None) -> None:
        self.scale = scale
        self.offset = offset
        self.random_state = random_state

    def _learn(self, rows: Rows) -> None:
        self.offset_ = check_offset(self.offset)
        train, rng = self._training, check_random_state(self.random_state)
        self.learnt_ = self._once("learnt_", lambda: self._learn_scale(train.Z, train.scores, rng))
        if hasattr(self.learnt_, "fit") and not is_fitted(self.learnt_):  # brought as it was given
            self.learnt_ = clone(self.learnt_).fit(train.Z, train.scores)
        self.scale_ = self.learnt_
        if isinstance(self.learnt_, Kernel):
            kernel = self.learnt_ = self.learnt_.resolved()
            self.scale_ = kernel.mean(train.Z, train.scores)
        scale = self._local_scale(rows.Z)
        warn_if_zero_scales(scale)
        self._rescale(rows, scale)

    def _learn_scale(self, Z_train: FloatArray, scores_train: FloatArray, rng: Any) -> Any:
        """The fitted regressor, or the kernel that training errors lead to."""
        if hasattr(self.scale, "predict"):
            return clone(self.scale).fit(Z_train, scores_train)
        return fixed_kernel(self.scale, KNN(10), Z_train, scores_train, rng)

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        predicted = check_vector(self.scale_.predict(Z), "predictions of scale", n=len(Z))
        return np.maximum(predicted, 0.0) + self.offset_
