"""How local coverage might be: the bound of ``_local`` with estimated mutual information.

The bound asks for the true mutual information of input X and score σ, which nobody has. Put an
estimate M̂ in its place and the result is a plug-in estimate, not a guarantee:

    bound(max{0, M̂}, c, ρ),    and next to it    bound(max{0, M̂} + 2·se, c, ρ)

with the corrected estimate M̂ and its standard error from ``mutual_information``. The second
number shows how much the noise of M̂ matters; it is no confidence bound either, since no
distribution-free upper confidence bound on the mutual information of continuous variables exists.

Letters: M̂ → ``mutual_information.estimate``, c → ``coverage``, ρ → ``rho``.

Assumptions: besides M̂ being right, those of the bound: a score fixed before calibration, and
coverage averaged over calibration draws. For several columns, M̂ is a sum of marginal
informations, which may be below the joint information. For a statement that data can prove, use
``cell_coverage``.

References: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research, Theorem S.2 (the bound).
Kraskov, Stögbauer, Grassberger (2004), doi:10.1103/PhysRevE.69.066138 (the estimator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.guarantees._inputs import check_level, check_rho, like_input
from calliper.guarantees._local import Form, check_form, local_coverage_bound
from calliper.information import MutualInformation, mutual_information


@dataclass(frozen=True, eq=False)
class LocalCoverageEstimate:
    """A plug-in estimate of local coverage, not a guarantee.

    Parameters
    ----------
    rho : probability of the region, one or many
    bound : the bound at the estimated information, clipped from below at 0 nats; like ``rho``
    mutual_information : the estimate, with its standard error and p-value
    coverage : coverage over all inputs
    form : which bound, "binary" or "paper"
    """

    rho: float | FloatArray
    bound: float | FloatArray
    mutual_information: MutualInformation
    coverage: float
    form: Form

    @property
    def cautious_bound(self) -> float | FloatArray:
        """The bound at the estimate plus two standard errors; if there is none, at infinity."""
        found = self.mutual_information
        more = max(0.0, found.estimate) + 2 * found.standard_error
        return local_coverage_bound(
            more if np.isfinite(more) else np.inf, self.coverage, self.rho, form=self.form
        )

    def describe(self) -> str:
        """The estimate in plain words: what was measured, what would follow, what does not."""
        trivial = local_coverage_bound(np.inf, self.coverage, self.rho)
        columns = map(np.ravel, (self.rho, self.bound, self.cautious_bound, trivial))
        return " ".join(
            [
                "Local coverage, a plug-in estimate, not a guarantee.",
                *_measured(self.mutual_information),
                f"If it were exact, coverage (over all inputs: {self.coverage:g}) would be",
                "; ".join(_row(*row) for row in zip(*columns, strict=True)) + ".",
                "Even then this would be an average over calibration draws, and proved only for a "
                "score that is fixed before calibration. For a bound that data can prove, count "
                "held-out points in cells: cell_coverage.",
            ]
        )


def plug_in_local_coverage(
    Z: Any,
    scores: Any,
    coverage: float,
    rho: Any,
    *,
    form: Form = "binary",
    n_neighbors: int = 10,
    n_components: int | None = None,
    Z_train: Any = None,
    random_state: Any = None,
) -> LocalCoverageEstimate:
    """Estimate how low coverage may be in a region of probability ``rho``: an estimate, no bound.

    Parameters
    ----------
    Z : (n, d) inputs or embeddings; for d > 1 marginal informations are summed, which is no bound
    scores : (n,)
        The scores on which the threshold is put (rescaled, if the method rescales).
    coverage, rho, form :
        As in ``local_coverage_bound``; ``rho`` may be an array.
    n_neighbors, n_components, Z_train, random_state :
        As in ``mutual_information``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=(1000, 1))
    >>> scores = rng.exponential(size=1000) * (1 + x[:, 0])  # errors that double across the range
    >>> result = plug_in_local_coverage(x, scores, 0.9, [0.1, 0.5], random_state=0)
    >>> np.round(result.bound, 2), np.round(result.cautious_bound, 2)
    (array([0.74, 0.86]), array([0.56, 0.82]))
    """
    check_form(form)
    level, share = check_level(coverage), like_input(check_rho(rho))
    found = mutual_information(
        Z,
        scores,
        n_neighbors=n_neighbors,
        n_components=n_components,
        Z_train=Z_train,
        random_state=random_state,
    )
    bound = local_coverage_bound(max(0.0, found.estimate), level, share, form=form)
    return LocalCoverageEstimate(share, bound, found, level, form)


def _measured(found: MutualInformation) -> list[str]:
    """What was measured, and how far it can be trusted."""
    words = [
        f"Mutual information of inputs and scores: {found.estimate:.4f} nats, standard error "
        f"{found.standard_error:.4f}, p-value {found.p_value:.3g} against independence "
        f"({found.n} points, {found.n_neighbors} neighbours)."
    ]
    if not np.isfinite(found.standard_error):
        words.append("These are too few points for a standard error: it may be any number.")
    if found.estimate < 0:
        words.append("The true value is not negative, so 0 is used.")
    if found.p_value > 0.05:
        words.append("No dependence was detected, which does not show that there is none.")
    if len(found.per_component) > 1:
        words.append(
            f"It is a sum over {len(found.per_component)} features or components, which may be "
            f"below their joint information."
        )
    return words


def _row(rho: float, bound: float, cautious: float, trivial: float) -> str:
    return (
        f"at least {bound:.3f} in a region of {100 * rho:g} % of inputs (two standard errors "
        f"higher: {cautious:.3f}; from coverage over all inputs alone: {trivial:.3f})"
    )
