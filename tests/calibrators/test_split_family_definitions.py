"""SLCP, NormalizedKNN, RCP and LoCart equal their definitions."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import QuantileRegressor

from calliper import KNN, RBF
from calliper.calibrators import RCP, SLCP, LoCart, NormalizedKNN
from calliper.calibrators._learnt_scales import DIFFICULTIES
from cases.problems import small_problem
from cases.split_family import quiet
from oracles import split as split_oracles


def training_part(seed, dimension, smallest=2):
    """Training points for a small problem: more ties, zeros and duplicates."""
    train, rng = small_problem(seed + 5000, smallest=smallest), np.random.default_rng(seed)
    n = len(train.scores)
    lattice = rng.integers(0, 4, (n, dimension)) * 1.0
    features = lattice if train.discrete else rng.normal(size=(n, dimension))
    labels = rng.integers(0, 3, n) * 1.0 if rng.random() < 0.5 else rng.normal(size=n)
    return features, train.scores, labels


@quiet
@pytest.mark.parametrize("batch", range(3))
def test_slcp_knn_equals_the_definition(batch):
    for seed in range(60 * batch, 60 * batch + 60):
        p = small_problem(seed)
        features, errors, _ = training_part(seed, p.Z.shape[1], smallest=1)
        shift = 0.0 if seed % 3 else 1.0  # also scores below 0
        method = SLCP(KNN(p.n_neighbors))
        method.fit(p.Z, p.scores - shift, training=(features, errors))
        kernel = ("knn", float(p.n_neighbors))
        expected = [
            split_oracles.slcp_radius(
                p.Z, p.scores - shift, z, features, errors, kernel, p.coverage
            )
            for z in p.new
        ]
        largest = 1e-12 * max(p.scores.max(), errors.max(), 1)
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-12, atol=largest, err_msg=f"{seed}")


@quiet
@pytest.mark.parametrize("log10", [-0.5, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("batch", range(2))
def test_slcp_rbf_equals_the_definition(batch, log10):
    for seed in range(20 * batch, 20 * batch + 20):
        p = small_problem(seed, largest=10)
        features, errors, _ = training_part(seed, p.Z.shape[1], smallest=1)
        method = SLCP(RBF(10.0**log10)).fit(p.Z, p.scores, training=(features, errors))
        expected = [
            split_oracles.slcp_radius(
                p.Z, p.scores, z, features, errors, ("rbf", 10.0**log10), p.coverage
            )
            for z in p.new
        ]
        largest = 1e-12 * max(p.scores.max(), errors.max(), 1)
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-12, atol=largest, err_msg=f"{seed}")


@quiet
@pytest.mark.parametrize("form", ["sum", "exp"])
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_normalized_knn_equals_the_definition(difficulty, form):
    for seed in range(24):  # every pair of gamma and rho twice
        p = small_problem(seed)
        features, errors, labels = training_part(seed, p.Z.shape[1])
        gamma, rho = 0.3 + 0.1 * (seed % 3), 0.2 * (seed % 4)
        method = NormalizedKNN(
            p.n_neighbors, difficulty=difficulty, form=form, gamma=gamma, rho=rho
        )
        method.fit(p.Z, p.scores, training=(features, errors, labels))
        scale = {
            "Z_train": features,
            "y_train": labels,
            "scores_train": errors,
            "K": p.n_neighbors,
            "difficulty": difficulty,
            "form": form,
            "gamma": gamma,
            "rho": rho,
        }
        with np.errstate(over="ignore"):
            radius = method.predict_radius(p.new, p.level)
        try:
            expected = [
                split_oracles.normalized_radius(p.Z, p.scores, z, p.coverage, **scale)
                for z in p.new
            ]
        except OverflowError:  # pareto residuals in an exponential: the scale is capped
            assert form == "exp" and not np.isnan(radius).any()
            continue
        np.testing.assert_allclose(radius, expected, rtol=1e-9, err_msg=f"seed {seed}")


@quiet
@pytest.mark.parametrize("batch", range(3))
def test_rcp_knn_equals_the_definition(batch):
    for seed in range(60 * batch, 60 * batch + 60):
        p = small_problem(seed)
        features, errors, _ = training_part(seed, p.Z.shape[1], smallest=1)
        method = RCP(kernel=KNN(p.n_neighbors), offset=p.offset)
        method.fit(p.Z, p.scores, training=(features, errors))
        expected = [
            split_oracles.rcp_knn_radius(
                p.Z, p.scores, z, features, errors, p.n_neighbors, p.coverage, p.offset
            )
            for z in p.new
        ]
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=2e-11, err_msg=f"seed {seed}")
        assert np.all(radius >= expected)  # rounded outward


@quiet
@pytest.mark.parametrize("seed", range(15))
def test_rcp_with_a_regressor_equals_the_definition(seed):
    p = small_problem(seed)
    features, errors, _ = training_part(seed, p.Z.shape[1])
    regressor = QuantileRegressor(alpha=0.01)
    method = RCP(regressor, offset=p.offset)
    method.fit(p.Z, p.scores, training=(features, errors))
    model = clone(regressor).set_params(quantile=p.level).fit(features, errors)

    def scales(rows):
        return [max(float(model.predict(z[None])[0]), 0.0) + p.offset for z in rows]

    expected = [
        split_oracles.mad_split_radius(p.scores, scales(p.Z), scale, p.coverage)
        for scale in scales(p.new)
    ]
    np.testing.assert_allclose(method.predict_radius(p.new, p.level), expected, rtol=1e-9)


@quiet
@pytest.mark.parametrize("batch", range(2))
def test_locart_equals_the_definition(batch):
    for seed in range(100 * batch, 100 * batch + 100):
        p = small_problem(seed, largest=40)
        features, errors, _ = training_part(seed, p.Z.shape[1])
        method = LoCart(min_leaf=1 + seed % 4, max_leaves=None if seed % 2 else 3, random_state=0)
        method.fit(p.Z, p.scores, training=(features, errors))
        tree = method.tree_.tree_
        expected = [split_oracles.locart_radius(p.Z, p.scores, z, tree, p.coverage) for z in p.new]
        np.testing.assert_array_equal(method.predict_radius(p.new, p.level), expected, f"{seed}")
        leaves = [node for node in range(tree.node_count) if tree.children_left[node] == -1]
        inside = [split_oracles.leaf_of(tree, z) for z in p.Z]
        assert method.leaf_sizes_.tolist() == [inside.count(leaf) for leaf in leaves]
        assert min(tree.n_node_samples[leaves]) >= min(1 + seed % 4, len(errors))
