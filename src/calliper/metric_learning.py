"""A metric learnt from labels: distances in which near points have near labels.

Metric learning for kernel regression, with the smoothing of LVD. Inputs are standardised by
training mean and standard deviation; A maps them to d directions; every label is predicted from
all others, and from their mean with the weight b of one more point:

    k_ij = exp(−‖A(x_i − x_j)‖² / d),   S_i = Σ_{j≠i} k_ij + b,
    ŷ_i = (Σ_{j≠i} k_ij y_j + b ȳ_{−i}) / S_i,   L(A) = (1/n) Σ_i (ŷ_i − y_i)².

With P = XAᵀ, W_ij = (ŷ_i − y_i)(y_j − ŷ_i) k_ij / S_i and V = W + Wᵀ the gradient is

    ∂L/∂A = −(4/dn) [diag(V1) P − V P]ᵀ X,

so one step takes a few products of n × n with n × d and two of n × d with d × p, whatever p. All
of up to 2,000 training rows enter every step of L-BFGS, which runs until it converges.

Letters: A → ``matrix``, d → ``n_directions``, b → ``smoothing``, n rows, p features.

Cost: O(n²d + npd) a step; pairs exist one block of rows at a time.

References: Weinberger, Tesauro (2007), "Metric learning for kernel regression", AISTATS. Lin,
Trivedi, Sun (2021), "Locally valid and discriminative prediction intervals for deep learning
models", NeurIPS, arXiv:2106.00225.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError

#: A feature whose standard deviation does not exceed this says nothing.
LEAST_SPREAD = 1e-3

#: Most rows that the loss is computed from.
MOST_ROWS = 2000


@dataclass(frozen=True, eq=False)
class LearnedMetric:
    """What was learnt: k(x, x') = exp(−‖t(x) − t(x')‖²) with t = ``transform``.

    Attributes
    ----------
    matrix : (d, q) A, for the q features that were kept
    kept : (q,) their columns
    mean, spread : (q,) mean and standard deviation in training
    loss : L(A) in units of the variance of the labels
    n_iter : steps taken
    converged : whether L-BFGS stopped because nothing was left to gain
    """

    matrix: FloatArray
    kept: IntArray
    mean: FloatArray
    spread: FloatArray
    loss: float
    n_iter: int
    converged: bool

    def transform(self, Z: FloatArray) -> FloatArray:
        """Rows in the learnt directions, (m, min(d, q)), scaled so that k has no other factor."""
        directions = self.matrix
        if len(directions) > directions.shape[1]:  # same distances with fewer columns
            directions = np.asarray(np.linalg.qr(directions, mode="r"), dtype=np.float64)
        standard = (Z[:, self.kept] - self.mean) / self.spread
        return np.asarray(standard @ directions.T / np.sqrt(len(self.matrix)))


def learn_metric(
    Z: Any,
    y: Any,
    *,
    n_directions: int = 10,
    smoothing: float = 1.0,
    max_iter: int = 500,
    random_state: Any = None,
) -> LearnedMetric:
    """Learn A from training inputs and labels.

    Parameters
    ----------
    Z : (n, p) training inputs or embeddings; features of hardly any spread are left out
    y : (n,) their labels
    n_directions : int, default 10
        d, the rows of A.
    smoothing : float, default 1
        b, how many points the mean of all labels counts for; 0 for none.
    max_iter : int, default 500
        Most steps; :class:`sklearn.exceptions.ConvergenceWarning` tells if they did not suffice.
    random_state : int, RandomState or None
        Draws where A starts, uniform in ±1/√p, and 2,000 rows if there are more.

    Examples
    --------
    The first feature decides, the second is noise: the learnt distance hardly sees it.

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(300, 2))
    >>> metric = learn_metric(Z, np.sin(3 * Z[:, 0]), random_state=0)
    >>> moved = metric.transform(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> (abs(moved[1:] - moved[0]) ** 2).sum(axis=1).round(-1)
    array([50.,  0.])
    """
    _check(n_directions, smoothing, max_iter)
    Z = check_features(Z, "Z_train")
    y = check_vector(y, "y_train", n=len(Z))
    if len(Z) < 3:
        raise CalliperError(f"a metric is learnt from at least 3 training points; got {len(Z)}.")
    rng = check_random_state(random_state)
    spread = Z.std(axis=0)
    kept = np.flatnonzero(spread > LEAST_SPREAD)
    if not len(kept):
        raise CalliperError(
            f"no feature of Z_train has a standard deviation above {LEAST_SPREAD:g}: there is "
            f"nothing to learn a metric from. Rescale the features."
        )
    mean, spread = Z.mean(axis=0)[kept], spread[kept]
    rows = rng.permutation(len(Z))[:MOST_ROWS] if len(Z) > MOST_ROWS else slice(None)
    X, labels = (Z[rows][:, kept] - mean) / spread, y[rows] - y[rows].mean()
    labels /= labels.std() or 1.0
    shape = int(n_directions), len(kept)
    start = rng.uniform(-1, 1, shape) / np.sqrt(len(kept))

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        loss, gradient = loss_and_gradient(flat.reshape(shape), X, labels, float(smoothing))
        return loss, gradient.ravel()

    options = {"maxiter": int(max_iter), "maxfun": 20 * int(max_iter), "ftol": 1e-10, "gtol": 1e-6}
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    if not found.success:
        warnings.warn(
            f"the metric has not converged after {found.nit} steps ({found.message}): pass a "
            f"larger max_iter.",
            ConvergenceWarning,
            stacklevel=2,
        )
    A, loss = found.x.reshape(shape), float(found.fun)
    return LearnedMetric(A, kept, mean, spread, loss, int(found.nit), bool(found.success))


def loss_and_gradient(
    A: FloatArray, X: FloatArray, y: FloatArray, smoothing: float
) -> tuple[float, FloatArray]:
    """L(A) and ∂L/∂A, (d, p), over all pairs of the n rows of X."""
    n, d = len(X), len(A)
    P = X @ (A.T / np.sqrt(d))
    squares, one = np.square(P).sum(axis=1)[:, None], np.ones((n, 1))
    left, right = np.hstack([P, one, -squares]), np.hstack([2 * P, -squares, one]).T.copy()
    columns = np.hstack([one, P])
    columns = np.hstack([columns, y[:, None] * columns])
    mean_of_others = (y.sum() - y) / (n - 1)
    scratch = Scratch()

    def one_block(rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Errors of these rows; W[1 P] of these rows; what they add to kᵀ[c 1, cP, cŷ 1, cŷP].

        W is c (y_j − ŷ_i) k_ij with c = (ŷ_i − y_i)/S_i, so products with k give those with W.
        """
        here = np.arange(rows.start, rows.stop)
        weight = np.matmul(left[rows], right, out=scratch.array("weight", (len(here), n)))
        weight[here - rows.start, here] = -np.inf
        if smoothing == 0:  # only ratios count: the largest may be one, so that nothing vanishes
            weight -= weight.max(axis=1, keepdims=True)
        sums = np.exp(weight, out=weight) @ columns
        plain, labelled = sums[:, : d + 1], sums[:, d + 1 :]
        total = plain[:, 0] + smoothing
        predicted = (labelled[:, 0] + smoothing * mean_of_others[rows]) / total
        error = predicted - y[rows]
        c, c_predicted = (error / total)[:, None], (error * predicted / total)[:, None]
        factors = np.hstack([c * columns[rows, : d + 1], c_predicted * columns[rows, : d + 1]])
        return error, c * labelled - c_predicted * plain, weight.T @ factors

    errors, forth, back = zip(*map_row_blocks(one_block, n, n), strict=True)
    both = np.sum(back, axis=0)
    both = np.concatenate(forth) + y[:, None] * both[:, : d + 1] - both[:, d + 1 :]
    pull = both[:, :1] * P - both[:, 1:]
    loss = float(np.square(np.concatenate(errors)).mean())
    return loss, pull.T @ X * (-4 / (np.sqrt(d) * n))


def _check(n_directions: Any, smoothing: Any, max_iter: Any) -> None:
    for name, value in (("n_directions", n_directions), ("max_iter", max_iter)):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1; got {value!r}.")
    if not isinstance(smoothing, Real) or not 0 <= float(smoothing) < np.inf:
        raise ValueError(f"smoothing must be a finite number >= 0; got {smoothing!r}.")
