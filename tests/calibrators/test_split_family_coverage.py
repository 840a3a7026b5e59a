"""SLCP, NormalizedKNN, RCP and LoCart cover as proved: over many draws, and in every leaf."""

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

from calliper import KNN, RBF, guarantees
from calliper.calibrators import RCP, SLCP, LoCart, NormalizedKNN
from cases.split_family import fit, quiet

pytestmark = pytest.mark.long


def draw(rng, n):
    Z = rng.uniform(size=(n, 1))
    y = rng.normal(size=n) * (0.05 + np.abs(np.sin(6 * Z[:, 0])))
    return Z, y


LAWS = [
    SLCP(KNN(15)),
    SLCP(RBF(0.1)),
    NormalizedKNN(5),
    NormalizedKNN(5, difficulty="distance+labels", form="exp"),
    NormalizedKNN(5, difficulty="residuals"),
    RCP(kernel=KNN(15)),
    RCP(QuantileRegressor(alpha=0.0)),
]


@quiet
@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize("method", LAWS, ids=repr)
def test_marginal_coverage_is_what_is_proved(method, n):
    """Without ties, neither below nor above."""
    draws, levels, repetitions = np.random.default_rng(n), [0.5, 0.9], 200
    if isinstance(method.get_params().get("quantile_regressor"), QuantileRegressor):
        levels = [0.9]
    covered = np.empty((repetitions, len(levels)))
    for repetition in range(repetitions):
        (features, labels), (z, y) = draw(draws, 40), draw(draws, n + 50)
        s = np.abs(y)
        train = {"training": (features, np.abs(labels))}
        fit(method, z[:n], s[:n], train, labels)
        covered[repetition] = (s[n:, None] <= method.predict_radius(z[n:], levels)).mean(axis=0)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(repetitions)
    proved = method.guaranteed_coverage(levels)
    np.testing.assert_allclose(proved, [guarantees.conformal_coverage(c, n) for c in levels])
    np.testing.assert_array_less(np.abs(mean - proved), 4 * error)


@quiet
@pytest.mark.parametrize("n", [20, 60])
def test_locart_covers_in_every_leaf(n):
    """One tree, many calibration sets: given its leaf, a new point is covered often enough."""
    draws, levels, repetitions = np.random.default_rng(n), [0.5, 0.8, 0.9], 250
    features, labels = draw(draws, 200)
    train = {"training": (features, np.abs(labels))}
    hits, proved, counts = [], [], []
    for _ in range(repetitions):
        z, y = draw(draws, n + 60)
        s = np.abs(y)
        method = LoCart(max_leaves=4, min_leaf=20, random_state=0).fit(z[:n], s[:n], **train)
        covered = s[n:, None] <= method.predict_radius(z[n:], levels)
        leaf = np.searchsorted(np.unique(method.tree_.apply(features)), method.tree_.apply(z[n:]))
        in_leaf = (leaf == np.arange(len(method.leaf_sizes_))[:, None]) * 1.0
        hits.append(in_leaf @ covered)
        counts.append(in_leaf.sum(axis=1))
        proved.append(
            [[guarantees.conformal_coverage(c, int(m)) for c in levels] for m in method.leaf_sizes_]
        )
        smallest = np.min(proved[-1], axis=0)
        np.testing.assert_allclose(method.guaranteed_coverage(levels), smallest)
        assert (smallest >= np.array(levels) - 1e-12).all()
    hits, counts, proved = np.array(hits), np.array(counts)[..., None], np.array(proved)
    assert hits.shape[1] == 4
    # Given the sizes of the leaves, the mean is Q/(N_A+1) exactly: test the excess, leaf by leaf.
    excess = hits - counts * proved
    error = excess.std(axis=0) / np.sqrt(repetitions)
    np.testing.assert_array_less(np.abs(excess.mean(axis=0)), 4 * error + 1e-12)
