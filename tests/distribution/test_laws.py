"""What a predictive system promises, as laws over draws of calibration set and target."""

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, Split
from calliper.calibrators import RCP, MADSplit, NormalizedKNN

pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.ZeroScaleWarning")
N, SETS, NEW = 30, 200, 52  # 10,400 targets


def draw(rng, n):
    """Skewed errors whose size depends on where they are, at 2 coordinates, some of them equal."""
    Z = np.column_stack([rng.uniform(size=n), rng.integers(0, 3, n)])
    return Z, (rng.gamma(1.5, size=n) - 1.0) * (0.1 + Z[:, 0])


def distributions(method, *, rounded=False, sets=SETS):
    """One batch for each of many independent calibration sets, with its targets."""
    rng = np.random.default_rng(11)
    for _ in range(sets):
        parts = [draw(rng, n) for n in (N, NEW, 40)]
        if rounded:
            parts = [(Z, np.round(errors)) for Z, errors in parts]
        (Z, errors), (new, y), (Z_train, y_train) = parts
        known = {}
        if method.uses.needs:
            known = {"training": (Z_train, abs(y_train))}
        method.fit(Z, abs(errors), signs=np.sign(errors), **known)
        yield method.predict_distribution(new, np.zeros(NEW)), y


def assert_law(shares, expected, *, at_least=False):
    """Shares of each set, (SETS, L), against what holds on average over sets."""
    shares = np.asarray(shares)
    error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
    deviation = (shares.mean(axis=0) - expected) / error
    assert np.all(deviation > -4), shares.mean(axis=0)
    assert at_least or np.all(deviation < 4), shares.mean(axis=0)


METHODS = [
    FullRescaled(KNN(4), shrinkage=0.0),
    FullRescaled(KNN(4), shrinkage=0.4),
    FullRescaled(RBF(0.3, smoothing=1.0), statistic="rms"),
    Split(),
    MADSplit(KNN(5)),
    RCP(kernel=KNN(8)),
    NormalizedKNN(5),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.long
def test_pit_is_uniform(method):
    edges = np.linspace(0, 1, 11)
    shares = [
        np.histogram(batch.pit(y, random_state=place), edges)[0] / NEW
        for place, (batch, y) in enumerate(distributions(method))
    ]
    assert_law(shares, 0.1)


def test_pit_is_uniform_where_targets_tie():
    """Whole errors: without counting ties, rounding would decide on which side a point lies."""
    edges = np.linspace(0, 1, 11)
    batches = distributions(Split(), rounded=True)
    shares = [
        np.histogram(b.pit(y, random_state=i), edges)[0] / NEW for i, (b, y) in enumerate(batches)
    ]
    assert_law(shares, 0.1)


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("method", [METHODS[1], Split()], ids=repr)
@pytest.mark.long
def test_quantiles_and_equal_tails_hold_what_they_promise(method, rounded):
    p = [0.1, 0.3, 0.5, 0.9]
    upper, lower, inside = [], [], []
    for batch, y in distributions(method, rounded=rounded, sets=100):
        upper.append((y[:, None] <= batch.quantile(p)).mean(axis=0))
        lower.append((y[:, None] >= batch.quantile(p, side="lower")).mean(axis=0))
        interval = batch.interval([0.5, 0.8])
        below, above = y[:, None] < interval.lower, y[:, None] > interval.upper
        inside.append(np.concatenate([(1 - below).mean(axis=0), (1 - above).mean(axis=0)]))
    assert_law(upper, p, at_least=True)
    assert_law(lower, 1 - np.array(p), at_least=True)
    assert_law(inside, [0.75, 0.9, 0.75, 0.9], at_least=True)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_bounds_hold_where_infinite_rescaled_errors_tie(side):
    """Each member of a bag in turn is new: pairs of an exact prediction and an error beside it."""
    sign, p = (1.0, 0.6) if side == "lower" else (-1.0, 0.4)
    Z = np.repeat(np.arange(20.0), 2)[:, None] + np.tile([0.0, 0.1], 20)[:, None]
    errors = sign * np.tile([0.0, 1.0], 20)
    kept = []
    for new in range(40):
        old = np.arange(40) != new
        full = FullRescaled(KNN(1)).fit(Z[old], abs(errors[old]), signs=np.sign(errors[old]))
        bound = full.predict_distribution(Z[[new]], [0.0]).quantile(p, side=side)[0]
        kept.append(errors[new] >= bound if side == "lower" else errors[new] <= bound)
    assert np.mean(kept) >= 0.4


def test_pit_is_uniform_where_neighbours_have_no_error():
    """Each member of a bag in turn is new; some have none but zero errors nearby."""
    pairs = [(0.0, 0.0)] * 10 + [(1.0, 2.0), (-1.0, 0.0), (-3.0, 1.0), (0.0, 2.0)] * 3
    errors = np.ravel(pairs)
    Z = np.arange(len(errors))[:, None] + np.tile([0.0, -0.9], len(pairs))[:, None]
    below = []
    for new in range(len(errors)):
        old = np.arange(len(errors)) != new
        method = FullRescaled(KNN(1)).fit(Z[old], abs(errors[old]), signs=np.sign(errors[old]))
        batch = method.predict_distribution(Z[[new]].repeat(300, axis=0), np.zeros(300))
        pit = batch.pit(np.full(300, errors[new]), random_state=new)
        below.append((pit[:, None] <= [0.1, 0.25, 0.5, 0.75, 0.9]).mean(axis=0))
    np.testing.assert_allclose(np.mean(below, axis=0), [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.01)
