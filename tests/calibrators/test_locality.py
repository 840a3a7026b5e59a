"""How local to be, judged by left-out errors."""

from fractions import Fraction

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, Split
from calliper.calibrators import _full_rescaled as _locality
from calliper.calibrators._full_rescaled import locality_rule, search_locality
from calliper.kernels import GradedKNN, TunedKNN
from calliper.rows import Rows
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def search(
    Z, errors, n, *, length_scale=None, shrinkage=None, statistic="mean", offset=0.0, seed=0
):
    dimensions = Z.shape[1]
    rule = locality_rule(n, length_scale, shrinkage, statistic=statistic, dimensions=dimensions)
    rng, free = np.random.RandomState(seed), shrinkage is None
    return search_locality(rule, Rows(Z, errors), n, free=free, offset=offset, rng=rng)


def slow_interval_score(Z, errors, level, local, m, offset, power):
    """Each point in turn is new, the others calibrate: loops, as the definition reads."""
    n = len(errors)
    middle = sorted(errors**power)[-(-n // 2) - 1]
    scale = []
    for i in range(n):
        others = np.array([k for k in range(n) if k != i])
        distance = np.sqrt(((Z[others] - Z[i]) ** 2).sum(axis=1))
        value = local(errors[others], distance, level)
        scale.append(((1 - m) * value**power + m * middle + offset**power) ** (1 / power))
    total = 0.0
    for i in range(n):
        others = [k for k in range(n) if k != i]
        ratios = [errors[k] / scale[k] if scale[k] > 0 else np.inf for k in others]
        quantile = oracles.order_statistic(ratios, oracles.conformal_rank(str(level), n - 1))
        radius = np.inf if np.isinf(quantile) else scale[i] * quantile
        total += radius + max(errors[i] - radius, 0) / (1 - level)
    return total / n


def locals_of(kernel, statistic):
    if statistic == "quantile":

        def quantile(errors, distance, level):
            near = np.sort(errors[np.argsort(distance)[: kernel.n_neighbors]])
            return near[-(-(Fraction(str(level)) * len(near)) // 1) - 1]

        return quantile
    power = 2 if statistic == "rms" else 1

    def mean(errors, distance, level):
        if isinstance(kernel, GradedKNN):
            near, wide = (
                distance <= np.sort(distance)[part.n_neighbors - 1] for part in kernel.parts
            )
            weight = near / near.sum() + wide / wide.sum()
        elif isinstance(kernel, KNN):
            weight = distance <= np.sort(distance)[kernel.n_neighbors - 1]
        else:
            weight = np.exp(-((distance / kernel.length_scale) ** 2) / 2)
            weight = weight + kernel.smoothing / len(errors)
        return (np.average(errors**power, weights=weight)) ** (1 / power)

    return mean


CASES = [("mean", None), ("mean", 0.5), ("rms", None), ("rms", 0.5), ("quantile", None)]


@pytest.mark.parametrize("n", [60, 61])  # the global scale is the lower middle
@pytest.mark.parametrize(("statistic", "length_scale"), CASES)
def test_every_candidate_scores_what_it_scores_slowly(statistic, length_scale, n, monkeypatch):
    """And the chosen one is the best of those better than the rule by a standard error."""
    monkeypatch.setattr(_locality, "MULTIPLES", (0.5, 1.0))
    monkeypatch.setattr(_locality, "SHRINKAGES", (0.0,))
    kept = []

    def remember(score, free, original=_locality._clearly_best):
        kept.append(score)
        return original(score, free)

    monkeypatch.setattr(_locality, "_clearly_best", remember)
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, 2))
    errors = rng.exponential(size=n) * np.exp(Z[:, 0])
    errors[:3] = 0.0
    found = search(Z, errors, 100, length_scale=length_scale, statistic=statistic, offset=0.01)
    rule = locality_rule(100, length_scale, None, statistic=statistic)
    if length_scale is None:
        kernels, shares = [rule.kernel, rule.kernel.widened(0.5, 100)], (rule.shrinkage, 0.0)
    else:
        kernels, shares = [rule.kernel, RBF(0.25, smoothing=1.0, step=0.5)], (0.0,)
    power = 2 if statistic == "rms" else 1

    def slow(kernel, m, offset):
        local, side = locals_of(kernel, statistic), 0.5 * getattr(kernel, "length_scale", 0.0)
        places = np.round(Z / side) * side if side else Z
        return np.array(
            [
                slow_interval_score(places, errors, c, local, m, offset, power)
                for c in (0.8, 0.9, 0.95)
            ]
        )

    split = slow(kernels[0], 1.0, 0.0)
    table = [(slow(kernel, m, 0.01) / split).mean() for m in shares for kernel in kernels]
    np.testing.assert_allclose(kept[0].mean(axis=1), [*table, 1.0], rtol=1e-9)
    gain = kept[0][0] - kept[0]
    clear = gain.mean(axis=1) > gain.std(axis=1) / np.sqrt(60)
    best = min(np.flatnonzero(clear), key=kept[0].mean(axis=1).__getitem__, default=0)
    np.testing.assert_allclose(found.against_split, [*table, 1.0][best], rtol=1e-9)
    assert found.chosen_by == ("left-out errors" if best else "rule")


def sample(n, heteroscedastic, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-1, 1, size=(n, 1))
    spread = np.exp(3 * np.sin(5 * Z[:, 0])) if heteroscedastic else 1.0
    return Z, np.abs(rng.normal(size=n)) * spread


@pytest.mark.parametrize("length_scale", [None, 0.1])
def test_errors_that_are_alike_everywhere_lead_to_nearly_plain_split(length_scale):
    for seed in range(3):
        found = search(*sample(1000, False, seed), 300, length_scale=length_scale)
        assert 0.98 < found.against_split < 1.02
        Z, scores = sample(300, False, seed + 10)
        radius = FullRescaled(found.kernel, shrinkage=found.shrinkage).fit(Z, scores)
        split = Split().fit(Z, scores).predict_radius(Z)
        assert np.abs(radius.predict_radius(Z) / split - 1).mean() < 0.1


def test_errors_that_differ_lead_to_few_neighbours_and_little_shrinkage():
    found = search(*sample(1000, True), 300)
    assert found.against_split < 0.6 and found.shrinkage == 0
    rule = locality_rule(300, None, None, statistic="mean", dimensions=1)
    assert rule.shrinkage > 0.1 and found.kernel.n_neighbors <= rule.kernel.n_neighbors
    radial = search(*sample(1000, True), 300, length_scale=0.5)
    assert radial.against_split < 0.7 and radial.kernel.length_scale < 0.4


def test_a_rule_that_is_right_is_kept_and_a_wrong_one_is_not():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(800, 1))
    errors = rng.exponential(size=800) * np.exp(Z[:, 0])
    for length_scale, kept in ((0.4, True), (0.02, False), (20.0, False)):
        found = search(Z, errors, 400, length_scale=length_scale)
        assert (found.chosen_by == "rule") == kept, found
        assert found.n_errors == 800
        assert ("clearly better on 800 held-out errors" in found.describe()) == kept


def test_fewer_calibration_points_mean_smoother_scales():
    Z, errors = sample(2000, True)
    few, many = (search(Z, errors, n, length_scale=0.1, shrinkage=0.0) for n in (40, 1500))
    assert few.kernel.length_scale > many.kernel.length_scale


def test_units_and_seeds():
    Z, errors = sample(400, True)
    found = search(Z, errors, 100, length_scale=0.5)
    assert repr(search(Z, errors, 100, length_scale=0.5)) == repr(found)
    scaled = search(1000 * Z, 1e-9 * errors, 100, length_scale=500.0)
    assert scaled.kernel.length_scale == pytest.approx(1000 * found.kernel.length_scale)
    assert scaled.against_split == pytest.approx(found.against_split)
    order = np.random.default_rng(0).permutation(400)
    everyone = search(Z, errors, 399), search(Z[order], errors[order], 399, seed=1)
    assert repr(everyone[0].kernel) == repr(everyone[1].kernel)
    assert everyone[0].against_split == pytest.approx(everyone[1].against_split)


def test_the_calibrator_uses_what_was_found_and_says_so():
    Z, errors = sample(500, True)
    new = np.linspace(-1, 1, 9)[:, None]
    cal, scores = sample(200, True, 5)
    method = FullRescaled(random_state=0).fit(cal, scores, left_out=(Z, errors))
    found = search(Z, errors, 200)
    assert repr(method.locality_) == repr(found)
    assert repr(method.kernel_) == repr(found.kernel) and method.shrinkage_ == found.shrinkage
    by_hand = FullRescaled(found.kernel, shrinkage=found.shrinkage, statistic=found.statistic)
    by_hand.fit(cal, scores)
    np.testing.assert_array_equal(method.predict_radius(new), by_hand.predict_radius(new))
    assert "chosen on 500 held-out errors" in method.locality_.describe()
    assert by_hand.locality_.chosen_by == "user" and "as given" in by_hand.locality_.describe()
    given = FullRescaled(shrinkage=0.6, random_state=0)
    given.fit(cal, scores, left_out=(Z, errors))
    assert given.shrinkage_ == 0.6 and given.locality_.n_errors == 500
    radial = FullRescaled().fit(cal, scores, length_scale=0.3)
    assert radial.kernel_.length_scale == 0.3 and radial.shrinkage_ == 0.0
    own = FullRescaled(KNN(7)).fit(cal, scores)
    with pytest.raises(TypeError, match=r"does not support left_out: .* does not use it"):
        own.fit(cal, scores, left_out=(Z, errors))
    assert own.kernel_.n_neighbors == 7 and own.shrinkage_ == 0.0


def test_tuned_kernels_prefer_left_out_errors():
    Z, errors = sample(300, True)
    cal, scores = sample(100, True, 5)
    left_out = {"left_out": (Z, errors)}
    noise = {"training": (Z, sample(300, False)[1])}
    tuned = FullRescaled(TunedKNN(), random_state=0)
    expected = tuned.fit(cal, scores, training=(Z, errors)).kernel_.n_neighbors
    assert tuned.fit(cal, scores, **noise, **left_out).kernel_.n_neighbors == expected
    assert tuned.fit(cal, scores, **noise).kernel_.n_neighbors != expected


def test_plain_split_is_among_the_candidates():
    """Errors without structure and a rule that is far too local, also after all multiples."""
    rng = np.random.default_rng(1)
    Z, errors = rng.normal(size=(500, 2)), 1 + rng.uniform(size=500)
    found = search(Z, errors, 200, length_scale=0.001)
    assert found.shrinkage == 1.0 and found.against_split == pytest.approx(1.0)
    assert "plain split" in found.describe()
    cal, scores = rng.normal(size=(200, 2)), rng.exponential(size=200)
    given = {"left_out": (Z, errors), "length_scale": 0.001}
    method = FullRescaled(random_state=0).fit(cal, scores, **given)
    expected = Split().fit(cal, scores).predict_radius(Z, [0.5, 0.9])
    np.testing.assert_array_equal(method.predict_radius(Z, [0.5, 0.9]), expected)
    kept = FullRescaled(shrinkage=0.2, random_state=0).fit(cal, scores, **given)
    assert kept.shrinkage_ == 0.2


def test_infinite_intervals_lose():
    """Zero errors by the dozen make local scales of zero; only a global part is finite."""
    rng = np.random.default_rng(0)
    Z = np.sort(rng.uniform(size=(200, 1)), axis=0)
    errors = np.where(Z[:, 0] < 0.3, 0.0, rng.exponential(size=200))
    found = search(Z, errors, 199, statistic="quantile")
    assert np.isfinite(found.against_split)


def test_too_few_errors_leave_it_to_the_rule():
    Z, errors = sample(20, True)
    many = sample(500, True)
    assert search(Z, errors, 100).n_errors == 0
    assert search(*many, 3).n_errors == 0  # no level is within reach of 3 points
    assert search(many[0], np.zeros(500), 100).n_errors == 0
    assert search(*many, 100).n_errors == 500
    cal, scores = sample(100, True, 5)
    method = FullRescaled().fit(cal, scores, left_out=(Z, errors))
    assert method.locality_.chosen_by == "rule"


def test_the_rule_yields_to_clear_differences_only():
    noise = np.tile([1.0, -1.0], 50)
    rule, split = np.ones(100), np.full(100, 1.05)

    def best(*others, free=True):
        return _locality._clearly_best(np.stack([rule, *others, split]), free)[0]

    assert best(0.95 + noise, 0.98 + 0.1 * noise) == 2  # the better mean is within its error
    assert best(0.95 + 0.01 * noise, 0.98 + 0.1 * noise) == 1
    assert best(1.01 + noise) == 0
    split = np.full(100, 0.9)
    assert best(0.95 + noise) == 2
    assert best(0.95 + noise, free=False) == 0
    rule = np.where(noise > 0, np.inf, 1.0)
    assert best(1.2 + noise, np.full(100, np.inf), free=False) == 1


@pytest.mark.parametrize(("n", "most", "bags"), [(60, 8000, 5), (60, 100, 2), (69, 8000, 1)])
def test_how_many_bags_are_drawn(n, most, bags, monkeypatch):
    """Each error four times, as far as time allows; all of them are one bag."""
    monkeypatch.setattr(_locality, "MOST_IN_ALL", most)
    drawn = []

    class Counting(np.random.RandomState):
        def choice(self, a, size, replace):
            drawn.append((a, size))
            return super().choice(a, size, replace=replace)

    Z, errors = sample(70, True)
    rule = locality_rule(n, None, None, statistic=None)
    how = {"free": True, "offset": 0.0, "rng": Counting(0)}
    search_locality(rule, Rows(Z, errors), n, **how)
    assert drawn == [(70, n + 1)] * bags


def test_each_error_counts_once_however_many_bags_it_is_in(monkeypatch):
    """Its interval scores are averaged over its bags, here those of plain split."""
    rng, kept = np.random.default_rng(0), []
    Z, errors = rng.normal(size=(60, 2)), rng.exponential(size=60)
    monkeypatch.setattr(
        _locality, "_clearly_best", lambda score, free: kept.append(score[-1]) or (0, 1.0)
    )
    rule = locality_rule(30, None, None, statistic="mean")
    how = {"free": False, "offset": 0.0}
    search_locality(rule, Rows(Z, errors), 30, **how, rng=np.random.RandomState(7))
    of_point, draws = [[] for _ in errors], np.random.RandomState(7)
    for _ in range(8):  # four errors of a bag for each error at hand
        members = draws.choice(60, 31, replace=False)
        score = np.zeros(31)
        for level, rank in [(0.8, 25), (0.9, 28), (0.95, 30)]:
            radius = [np.sort(np.delete(errors[members], i))[rank - 1] for i in range(31)]
            each = radius + np.maximum(errors[members] - radius, 0.0) / (1 - level)
            score += each / each.mean() / 3
        for i, found in zip(members, score, strict=True):
            of_point[i].append(found)
    assert len({len(found) for found in of_point}) > 2 and all(of_point)
    np.testing.assert_allclose(kept[0], [np.mean(found) for found in of_point], rtol=1e-9)


def test_where_one_neighbour_is_the_only_candidate_there_is_plain_split_besides():
    """The rule for eight points of many features, which cannot be wider."""
    rng = np.random.default_rng(0)
    Z, errors = rng.normal(size=(80, 64)), rng.exponential(size=80)
    found = search(Z, errors, 8, statistic=None)
    assert repr(found.kernel) == repr(found.kernel.widened(8.0, 4)) and found.n_errors == 80
