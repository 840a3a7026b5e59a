from itertools import permutations

import numpy as np
import pytest
from sklearn.feature_selection import mutual_info_regression

from calliper import CalliperError, information
from calliper.information import mutual_information, random_ranks, rank_ksg
from oracles import tuning as tuning_oracles


@pytest.fixture
def no_standard_error(monkeypatch):
    """Estimates of forty quarters cost more than what these tests look at, and come last."""
    monkeypatch.setattr(information, "PARTITIONS", 1)


@pytest.mark.parametrize("k", [1, 2, 3, 10])
@pytest.mark.parametrize("n", [12, 13, 40])
@pytest.mark.parametrize("seed", range(5))
def test_equals_brute_force_on_the_same_ranks(n, k, seed):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(n), np.arange(n), np.arange(n)[::-1]])
    expected = [tuning_oracles.rank_ksg(np.arange(n), row, k) for row in rows]
    np.testing.assert_allclose(rank_ksg(rows, k), expected, rtol=0, atol=1e-13)


def test_many_ranks():
    n = 40_000
    shifted = np.roll(np.arange(n), n // 2)
    value = rank_ksg(shifted[None], 3)[0]
    assert value == pytest.approx(rank_ksg(np.arange(n)[None], 3)[0], rel=1e-3)
    assert value > 7


@pytest.mark.parametrize(("n", "k"), [(6, 1), (7, 3)])
def test_null_mean_by_enumeration(n, k):
    everything = np.array(list(permutations(range(n))))
    assert rank_ksg(everything, k).mean() == pytest.approx(tuning_oracles.mean_null(n, k))


@pytest.mark.usefixtures("no_standard_error")
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.9])
def test_gaussian_pairs(correlation):
    """The truth is −½ log(1 − r²); the mean over draws lies within its standard error of it.

    The mean under independence, from 10 permutations, has a tenth of an estimate's variance.
    """
    truth, estimates = -0.5 * np.log(1 - correlation**2), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(2, 800))
        y = correlation * x + np.sqrt(1 - correlation**2) * noise
        found = mutual_information(
            x[:, None], y, n_neighbors=3, n_permutations=10, random_state=seed
        )
        estimates.append(found.estimate)
    error = np.std(estimates, ddof=1) / np.sqrt(20)
    # Dependence strong enough leaves a small bias that 1/n effects explain.
    assert abs(np.mean(estimates) - truth) < 4 * error + 0.03 * truth


@pytest.mark.long
def test_standard_error_matches_the_scatter_over_draws(monkeypatch):
    monkeypatch.setattr(information, "PARTITIONS", 3)  # the mean is over 40 draws besides
    estimates, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(2, 500))
        found = mutual_information(x[:, None], 0.5 * x + noise, n_permutations=8, random_state=seed)
        estimates.append(found.estimate)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.5)


@pytest.mark.usefixtures("no_standard_error")
def test_agrees_with_scikit_learn_where_both_are_valid():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=2000)
        y = np.sin(2 * x) + 0.5 * rng.normal(size=2000)
        theirs = mutual_info_regression(x[:, None], y, random_state=0)[0]
        ours = mutual_information(x[:, None], y, n_neighbors=3, n_permutations=5, random_state=0)
        assert ours.estimate == pytest.approx(theirs, abs=0.06)


@pytest.mark.usefixtures("no_standard_error")
def test_p_values_are_uniform_under_independence():
    rng = np.random.default_rng(0)
    p = [
        mutual_information(
            rng.uniform(size=(60, 1)), rng.exponential(size=60), n_permutations=39, random_state=s
        ).p_value
        for s in range(120)
    ]
    assert np.mean(np.array(p) <= 0.1) == pytest.approx(0.1, abs=0.08)
    assert min(p) >= 1 / 40


def test_null_law_does_not_depend_on_the_distribution():
    rng = np.random.default_rng(0)
    Z = rng.uniform(size=(100, 1))
    found = [
        mutual_information(Z, scores, random_state=0, n_permutations=100)
        for scores in (rng.uniform(size=100), rng.standard_cauchy(size=100))
    ]
    assert found[0].null_mean == found[1].null_mean


def test_monotone_maps_change_nothing():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 1))
    y = x[:, 0] * rng.exponential(size=300)
    first = mutual_information(x, y, random_state=0)
    second = mutual_information(np.exp(5 * x), np.log(y), random_state=0)
    assert first == second


def test_ties_and_infinities():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, size=(300, 1))
    y = np.where(rng.random(300) < 0.3, 0.0, rng.exponential(size=300))
    y[:5] = np.inf
    found = mutual_information(x, y, random_state=0)
    assert np.isfinite(found.estimate) and 0 < found.p_value <= 1
    ranks = random_ranks(np.array([np.inf, 1.0, 1.0, 0.0]), np.random.RandomState(0))
    assert ranks[0] == 3 and ranks[3] == 0 and {ranks[1], ranks[2]} == {1, 2}


@pytest.mark.usefixtures("no_standard_error")
@pytest.mark.parametrize("seed", [0, 3])
def test_p_values_of_tied_data_are_uniform_given_a_seed(seed):
    """The order of ties is drawn anew for every data set, else some seeds find what is not there.

    One feature of one value and scores of two: all there is to find is the order of ties.
    """
    draws = [np.random.default_rng(number).integers(2, size=30) for number in range(150)]
    p = [
        mutual_information(
            np.ones((30, 1)), y, n_neighbors=3, n_permutations=19, random_state=seed
        ).p_value
        for y in draws
    ]
    assert abs(np.mean(p) - 0.525) < 4 * np.sqrt(1 / 12 / 150)
    assert np.mean(np.array(p) <= 0.1) < 0.1 + 3.5 * np.sqrt(0.09 / 150)


@pytest.mark.usefixtures("no_standard_error")
def test_random_order_of_ties_makes_no_dependence():
    """Ties in the order of the rows would be information about the rows."""
    x = np.linspace(0, 1, 200)[:, None]
    p = [
        mutual_information(x, np.zeros(200), n_permutations=39, random_state=s).p_value
        for s in range(20)
    ]
    assert np.mean(p) > 0.2


@pytest.mark.usefixtures("no_standard_error")
def test_sum_over_components_is_not_a_bound():
    """Parity: each feature alone says nothing, both together say all."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], size=(2000, 2))
    Z = signs * rng.uniform(0.1, 1, size=(2000, 2))
    scores = signs.prod(axis=1) + 0.1 * rng.normal(size=2000)
    found = mutual_information(Z, scores, n_permutations=20, random_state=0)
    assert len(found.per_component) == 2 and abs(found.estimate) < 0.05
    assert found.estimate == pytest.approx(sum(found.per_component))
    assert "not a bound" in found.describe()


def test_principal_components():
    rng = np.random.default_rng(0)
    direction = np.array([[0.6, 0.8, 0.0]])
    x = rng.normal(size=(500, 1)) * 3
    Z = x @ direction + 0.1 * rng.normal(size=(500, 3))
    scores = x[:, 0] + 0.5 * rng.normal(size=500)
    how = {"n_components": 1, "n_permutations": 20, "random_state": 0}
    one = mutual_information(Z, scores, **how)
    assert len(one.per_component) == 1 and one.estimate > 1
    trained = mutual_information(Z, scores, Z_train=Z[::2], **how)
    assert trained.estimate == pytest.approx(one.estimate, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must lie between 1 and n - 2 = 18; got 0"),
        ({"n_neighbors": 19}, "got 19"),
        ({"n_components": 3}, "n_components must lie between 1 and 2"),
        ({"n_components": 0}, "n_components must lie between 1 and 2"),
    ],
)
def test_bad_arguments(arguments, message):
    rng = np.random.default_rng(0)
    with pytest.raises(CalliperError, match=message):
        mutual_information(rng.normal(size=(20, 2)), rng.normal(size=20), **arguments)


def test_bad_scores():
    Z = np.zeros((20, 1))
    with pytest.raises(CalliperError, match="NaN"):
        mutual_information(Z, np.full(20, np.nan))
    with pytest.raises(CalliperError, match=r"scores must .* got 19 values for 20 rows"):
        mutual_information(Z, np.zeros(19))
