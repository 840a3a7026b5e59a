"""Nearness in directions along which errors change, in a metric learnt from labels.

Metric learning for kernel regression, with the smoothing of LVD. Inputs are standardised by
training mean and standard deviation; A maps them to d directions; every label is predicted from all
others, and from their mean with the weight b of one more point:

    k_ij = exp(−‖A(x_i − x_j)‖² / d),   S_i = Σ_{j≠i} k_ij + b,
    ŷ_i = (Σ_{j≠i} k_ij y_j + b ȳ_{−i}) / S_i,   L(A) = (1/n) Σ_i (ŷ_i − y_i)².

With P = XAᵀ, W_ij = (ŷ_i − y_i)(y_j − ŷ_i) k_ij / S_i and V = W + Wᵀ the gradient is

    ∂L/∂A = −(4/dn) [diag(V1) P − V P]ᵀ X.

Up to 2,000 training rows enter every step of L-BFGS, which runs until it converges and costs
O(n²d + npd) a step; pairs exist one block of rows at a time.

Letters: A → ``matrix``, d → ``n_directions``, b → ``smoothing``, n rows, p features.

References: Weinberger, Tesauro (2007), "Metric learning for kernel regression", AISTATS. Lin,
Trivedi, Sun (2021), "Locally valid and discriminative prediction intervals for deep learning
models", NeurIPS, arXiv:2106.00225.
"""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from calliper._blocks import map_row_blocks
from calliper._kept import Array, Inline, Keeps, Number, Part
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_features, check_vector
from calliper.exceptions import CalliperError, warn
from calliper.kernels._kernel import Bag, Kernel, Known, Rng, check_parameter
from calliper.kernels._knn import KNN
from calliper.quantile import TINY
from calliper.rows import Rows

#: A feature whose standard deviation does not exceed this is left out.
LEAST_SPREAD = 1e-3
#: Most rows that a loss is computed from.
MOST_ROWS = 2000
#: Rows of errors that a kernel's metric is learnt on; more add cost and little precision.
MOST_ERRORS = 1000
#: Errors below this part of their mean count as equal: logarithms near zero would show rounding.
FLOOR = 0.1


@dataclass(eq=False, repr=False)
class Mahalanobis(Kernel, BaseEstimator):  # type: ignore[misc]
    """A kernel applied in a learnt linear space where points with similar errors are close.

    Distances are ‖A(x − x')‖ with a matrix A learnt so that the logarithm of an error is predicted
    well from the errors near by (see :func:`calliper.kernels.learn_metric`). Inputs that do not
    matter for the error are forgotten, which helps where there are many. A is learnt from left-out
    (better) or training errors, passed to ``fit``, so guarantees hold as for a fixed kernel.

    Parameters
    ----------
    kernel : KNN or RBF, default KNN(30)
        The kernel in the learnt space. Its unit is the distance at which weights fall to 1/e.
    n_directions : int, default 4
        Rows of A: the most dimensions that the learnt space can have.
    max_iter : int, default 100
        Steps of learning. Few, since A fits noise where errors do not depend on the input.

    Examples
    --------
    Only the first of ten inputs matters for the error, which grows e² ≈ 7-fold from −1 to 1.

    >>> from calliper import KNN, FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(1000, 10))
    >>> errors = abs(rng.normal(size=1000)) * np.exp(Z[:, 0])
    >>> train = Z[500:], errors[500:]
    >>> new = np.array([[-1.0] + 9 * [0.0], [1.0] + 9 * [0.0]])
    >>> for kernel, known in ((Mahalanobis(KNN(30)), {"training": train}), (KNN(30), {})):
    ...     method = FullRescaled(kernel, random_state=0).fit(Z[:500], errors[:500], **known)
    ...     low, high = method.predict_radius(new)
    ...     print((high / low).round())
    4.0
    3.0
    """

    cli = "mahalanobis"
    learns_on_errors = True

    kernel: Any = None
    _: KW_ONLY
    n_directions: int = 4
    max_iter: int = 100

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with the inner kernel filled in, which is resolved in the learnt space."""
        inner = KNN(30) if self.kernel is None else self.kernel
        if not isinstance(inner, Kernel) or not inner.by_distance:
            raise TypeError(f"Mahalanobis takes KNN(...) or RBF(...); got {inner!r}.")
        return replace(self, kernel=inner)

    def fixed(self, Z_train: Known, scores_train: Known, rng: Rng) -> "LearntKernel":
        """The inner kernel in a space learnt on training errors."""
        if Z_train is None or scores_train is None:
            raise CalliperError(
                "Mahalanobis learns its metric on training errors: pass training=(Z, scores) to "
                "fit, or better left_out=(Z, scores) (ConformalRegressor.fit does)."
            )
        Z, errors = Z_train, scores_train
        if len(Z) > MOST_ERRORS:
            rows = rng.choice(len(Z), MOST_ERRORS, replace=False)
            Z, errors = Z[rows], errors[rows]
        if not errors.any():
            raise CalliperError(
                f"all of {len(errors)} training errors are 0, so no metric can be learnt on them: "
                f"pass held-out errors, or use KNN(...)."
            )
        labels = np.log(errors + FLOOR * errors.mean())
        how = {"n_directions": self.n_directions, "max_iter": self.max_iter}
        with warnings.catch_warnings():
            # Learning is stopped early on purpose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            metric = learn_metric(Z, labels, random_state=rng, **how)
        return LearntKernel(self.kernel.resolved(metric.transform(Z_train)), metric)


@dataclass(frozen=True, eq=False)
class LearntMetric(Keeps):
    """A learnt kernel: k(x, x') = exp(−‖t(x) − t(x')‖²) with t = ``transform``.

    Attributes
    ----------
    matrix, kept : (d, q) A, for the q features that were kept, and (q,) their columns
    mean, spread : (q,) mean and standard deviation in training
    loss : L(A) in units of the variance of the labels
    n_iter, converged : steps taken; whether L-BFGS stopped because nothing was left to gain

    Examples
    --------
    >>> Z = np.random.default_rng(0).normal(size=(100, 2))
    >>> learnt = learn_metric(Z, Z[:, 0], n_directions=2, random_state=0)
    >>> learnt.matrix.shape, learnt.kept
    ((2, 2), array([0, 1]))
    """

    matrix: Annotated[FloatArray, Array("float64", ("k", "q"))]
    kept: Annotated[IntArray, Array("int64", ("q",), least=0)]
    mean: Annotated[FloatArray, Array("float64", ("q",))]
    spread: Annotated[FloatArray, Array("float64", ("q",), least=TINY)]
    loss: Annotated[float, Number(finite=False)]
    n_iter: Annotated[int, Number(int, 0)]
    converged: Annotated[bool, Number(bool)]

    def check_kept(self) -> None:
        """Check that each column is stored once."""
        if (np.diff(self.kept) <= 0).any():
            raise CalliperError("the columns that a metric keeps are not in order.")

    def transform(self, Z: FloatArray) -> FloatArray:
        """Rows in the learnt directions, (m, min(d, q)), in units in which k is exp(−‖·‖²)."""
        directions = self.matrix
        if len(directions) > directions.shape[1]:  # same distances with fewer columns
            directions = np.asarray(np.linalg.qr(directions, mode="r"), dtype=np.float64)
        standard = (Z[:, self.kept] - self.mean) / self.spread
        # A matrix product rounds by the number of rows: copies of a row would not stay equal.
        moved = np.zeros((len(standard), len(directions)))
        for column, direction in zip(standard.T, directions.T, strict=True):
            moved += np.multiply.outer(column, direction)
        return np.asarray(moved / np.sqrt(len(self.matrix)))


@dataclass(frozen=True)
class LearntKernel(Kernel, Keeps):
    """A kernel in a learnt space."""

    kernel: Annotated[Kernel, Part("kernels")]
    metric: Annotated[LearntMetric, Inline(LearntMetric)]

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """The inner kernel with its parameters checked."""
        if not state["kernel"].by_distance:
            raise CalliperError(f"a learnt space needs a distance kernel; got {state['kernel']!r}.")
        return cls(state["kernel"].resolved(), state["metric"])

    def __repr__(self) -> str:
        return f"{self.kernel!r} in {len(self.metric.matrix)} learnt directions"

    def moved(self, Z: FloatArray) -> FloatArray:
        """Rows in the learnt space, (m, k)."""
        return self.metric.transform(Z)

    def bag(self, rows: Rows, **how: Any) -> Bag:
        return self.kernel.bag(rows, **how)


def learn_metric(
    Z: Any,
    y: Any,
    *,
    n_directions: int = 10,
    smoothing: float = 1.0,
    max_iter: int = 500,
    random_state: Any = None,
) -> LearntMetric:
    """Learn a metric from training inputs and their errors.

    Parameters
    ----------
    Z : (n, p) training inputs or embeddings; features of hardly any spread are left out
    y : (n,) their labels
    n_directions : int, default 10; d, the rows of A
    smoothing : float, default 1; b, how many points the mean of all labels counts for, or 0
    max_iter : int, default 500; most steps; a ``ConvergenceWarning`` tells if they did not suffice
    random_state : int, RandomState or None; draws where A starts, in ±1/√p, and 2,000 of more rows

    Returns
    -------
    LearntMetric, whose ``transform`` moves rows to where distances are those learnt

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
    at_least(n_directions, 1, "n_directions")
    at_least(max_iter, 1, "max_iter")
    check_parameter(smoothing, "smoothing")
    Z = check_features(Z, "Z_train")
    y = check_vector(y, "y_train", n=len(Z))
    if len(Z) < 3:
        raise CalliperError(f"learning a metric needs at least 3 training rows; got {len(Z)}.")
    rng, spread = check_random_state(random_state), Z.std(axis=0)
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
        warn(
            f"the metric has not converged (steps: {found.nit}; {found.message}): pass a "
            f"larger max_iter.",
            ConvergenceWarning,
        )
    A, loss = found.x.reshape(shape), float(found.fun)
    return LearntMetric(A, kept, mean, spread, loss, int(found.nit), bool(found.success))


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

    def one_block(rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Errors of these rows; W[1 P] of these rows; what they add to kᵀ[c 1, cP, cŷ 1, cŷP]."""
        # W is c (y_j − ŷ_i) k_ij with c = (ŷ_i − y_i)/S_i, so products with k give those with W.
        here = np.arange(rows.start, rows.stop)
        weight = left[rows] @ right
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
