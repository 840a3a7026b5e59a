"""Levels that follow a stream: the bounds as laws, the rules against their definitions."""

import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    ConformalRegressor,
    FullRescaled,
    Intervals,
    MultiTargetRegressor,
    SignedError,
    Split,
)
from calliper.calibrators import LVD, RLCP, SLCP, ConditionalCalibration, Grouped, LoCart
from calliper.exceptions import CalliperError, UnusedWarning, unheard
from calliper.lab.report import RunningCoverageDisplay
from calliper.online import RATES, Controller, coverage_needed
from calliper.rows import Rows


def tell(control, needed):
    """One step with a target that needs this level; it may look at the level, as an opponent."""
    level = control.level
    needed = needed(level) if callable(needed) else needed
    return control.update(needed < level, needed=needed)


def run(control, needed):
    """The history after targets that need these levels."""
    for each in needed:
        tell(control, each)
    return control.history


def spiteful(level):
    """Just missed, wherever that is possible."""
    return level if level < 1 else 0.5


def kind(level):
    """Inside, wherever that is possible."""
    return 0.0


def contrary(level):
    """What moves the level further the way it has gone."""
    return spiteful(level) if level > 0.9 else kind(level)


steps = st.one_of(
    st.floats(0, 1, exclude_max=True), st.sampled_from([spiteful, kind, contrary, 0.0])
)
rates = st.one_of(
    st.floats(0.001, 3.0), st.lists(st.floats(0.001, 2.0), min_size=2, max_size=4).map(tuple)
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(steps, st.integers(1, 60)), min_size=1, max_size=6),
    st.floats(0.05, 0.95),
    rates,
    st.floats(0.05, 0.95),
    st.sampled_from([0.0, 0.6, 0.9]),
)
def test_bound_holds_for_every_sequence(runs, coverage, rate, start, decay):
    control = Controller(coverage, rate=rate, start=start, decay=decay)
    bounds = []
    for step, times in runs:
        for _ in range(times):
            bounds.append(tell(control, step).bound)
    T = len(bounds)
    off = np.abs(np.cumsum(control.history.outside) / np.arange(1, T + 1) - (1 - coverage))
    assert (off <= np.array(bounds) + 1e-9).all()
    if np.ndim(rate) == 0:
        alpha, total = 1 - start, off[-1]
        if decay == 0:
            assert total <= (max(alpha, 1 - alpha) + rate) / (rate * T) + 1e-9
        assert total <= (1 + rate) / (rate * T**-decay * T) + 1e-9


@pytest.mark.parametrize("rate", [0.05, (0.05, 0.2)])
@pytest.mark.parametrize("step", [spiteful, kind, contrary, lambda level: 1 - level / 2])
def test_opponents_cannot_keep_coverage_away(rate, step):
    seen = run(Controller(0.8, rate=rate), [step] * 2000)
    assert abs(seen.outside.mean() - 0.2) <= (0.8 + 0.05) / (0.05 * 2000) + 1e-9


@pytest.mark.parametrize("decay", [0.0, 0.6])
def test_bound_is_nearly_reached_by_a_patient_opponent(decay):
    control = Controller(0.5, rate=0.1, decay=decay)
    run(control, [kind] * 1000)
    while control.level < 1:
        tell(control, spiteful)
    off = abs(control.history.outside.mean() - 0.5)
    assert 0.65 * control.bound < off <= control.bound


class Patient:
    """Hits until the level can fall no lower, then misses until it can rise no higher; again."""

    missing = False

    def __call__(self, level):
        self.missing = level < 1 if self.missing else level <= 0
        return spiteful(level) if self.missing else 0.0


def late(control, ask, opponent, T, longest, seed):
    """T steps, labels up to ``longest`` steps late and out of order, a tenth never; bound holds.

    ``ask(steps)`` gives the level and what is needed to miss, for some steps at once.
    """
    rng = np.random.default_rng(seed)
    due, excess, waited, asked, missed = {}, 0.0, 0, 0, {}
    while asked < T:
        steps = np.arange(asked, min(asked + rng.integers(1, 25), T))
        level = ask(steps)
        for step in steps:
            missed[step] = not opponent(level) < level
            when = np.inf if rng.random() < 0.1 else asked + rng.integers(len(steps), longest + 1)
            due.setdefault(when, []).append(step)
        asked += len(steps)
        labels = [step for when in sorted(due) if when <= asked for step in due.pop(when)]
        if not labels:
            continue
        labels = rng.permutation(labels)
        told = np.array([not missed[step] for step in labels])
        needed = np.where(told, 0.0, 0.999)
        control.update(told, step=labels, needed=needed)
        excess = excess + np.cumsum(~told - (1 - control.coverage))
        # What waited at once only grows, so that a bound of before is the stricter one.
        if np.abs(excess).max() > control._most(waited):
            waited = control._waited()
        assert np.abs(excess).max() <= control._most(waited) + 1e-6
        excess = excess[-1]
    seen = control.history
    assert abs(1 - seen.coverage - (1 - control.coverage)) <= control.bound + 1e-9
    assert set(seen.unlabelled) == set(chain(*due.values()))
    return control


OPPONENTS = [lambda: spiteful, lambda: kind, lambda: contrary, Patient]


@pytest.mark.parametrize("opponent", OPPONENTS)
@pytest.mark.parametrize(
    ("rate", "decay"), [(0.05, 0.0), (1.0, 0.0), (0.3, 0.6), ((0.02, 0.2), 0.0)]
)
def test_bound_holds_for_labels_that_come_late_or_never(opponent, rate, decay):
    control = Controller(0.8, rate=rate, decay=decay)
    late(control, control.ask, opponent(), 1200, 60, 0)


@pytest.mark.long
@pytest.mark.parametrize("opponent", OPPONENTS)
@pytest.mark.parametrize("how", ["groups", "weights"])
def test_bound_is_never_broken_over_a_hundred_thousand_late_labels(opponent, how):
    method, _ = grouped(Split()) if how == "groups" else weighted(Split())
    rng = np.random.default_rng(0)
    control = Controller(0.9, rate=0.05)

    def ask(steps):
        words = rng.choice(["few", "many"], len(steps))
        known = {"groups": words} if how == "groups" else {"weights": rng.uniform(size=len(steps))}
        radius = control.predict_radius(method, np.zeros((len(steps), 2)), step=steps, **known)
        level = control._steps[int(steps[-1])][0]
        assert np.isinf(radius).all() or level < 1
        return level

    late(control, ask, opponent(), 100_000, 100, 1)


def test_bound_of_late_labels_is_reached():
    """Misses take the level to just below 1; all predictions that then wait miss, too."""
    control, waiting = Controller(0.5, rate=0.1, start=0.5 - 1e-9), range(10, 18)
    for step in range(10):
        control.ask(step), control.update(False, step=step)
    assert control.ask(waiting) < 1
    control.update([False] * 8, step=waiting[::-1])
    assert control.level == 1 and control._most(8) == pytest.approx(18 * 0.5)
    assert 0.5 - control.history.coverage == pytest.approx(control.bound)


def test_late_labels_in_order_are_those_at_once():
    needed = np.random.default_rng(4).random(200)
    for rate in (0.05, RATES):
        at_once, named = Controller(rate=rate), Controller(rate=rate)
        for step, each in enumerate(needed):
            tell(at_once, each)
            level = named.ask(10 * step)
            named.update(each < level, step=10 * step, needed=each)
        np.testing.assert_array_equal(at_once.history.level, named.history.level)
        assert at_once.bound == named.bound


def test_labels_of_steps_that_are_not_waiting_are_refused_and_change_nothing():
    model, X, y = model_and_rows()
    control = Controller(0.9, rate=0.1)
    intervals = control.predict_interval(model, X[:3], step=[3, 5, 6])
    control.update(intervals.contains(y[:3])[1], step=5)
    before = control.ask(8)
    for told, words in [
        ({"step": 4}, "step 4, which was never predicted \\(4 steps were"),
        ({"step": 5}, "step 5 already has a label, and each step counts once"),
        ({"step": [3, 3], "inside": [True, True]}, "step 3 already has a label"),
        ({"step": [3, 6]}, "step has 2 values, but inside has 1"),
        ({"step": 3.0}, "step must be an integer"),
        ({"step": "noon"}, "step must be an integer"),
        ({}, "before a level was requested.* the 3 steps without labels"),
    ]:
        with pytest.raises(CalliperError, match=words):
            control.update(**{"inside": True, **told})
    for step in (8, 7, [9, 9], [10, 9]):
        with pytest.raises(CalliperError, match="steps must increase with time"):
            control.ask(step)
    with pytest.raises(CalliperError, match="step has 2 values, but there are 3 rows"):
        control.predict_interval(model, X[:3], step=[11, 12])
    with pytest.raises(CalliperError, match="y must be finite"):
        intervals.contains([0.0, np.nan, 1.0])
    assert control.level == before and control.history.unlabelled.tolist() == [3, 6, 8]
    assert "Steps without a label, which do not count: 3." in control.describe()


def test_each_horizon_has_a_level_of_its_own_or_one_box_holds_all():
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(400, 1))
    Y = X + rng.normal(size=(400, 3)) * [0.1, 0.2, 0.4]
    linear = LinearRegression().fit(X[:100], Y[:100])
    known = {"X_train": X[:100], "y_train": Y[:100]}
    boxes = MultiTargetRegressor(linear, Split()).calibrate(X[100:200], Y[100:200], **known)
    each = MultiTargetRegressor(linear, Split(), joint=False).calibrate(X[100:200], Y[100:200])
    box, levels, asked = Controller(0.8, rate=0.5), [Controller(0.9) for _ in range(3)], {}
    for t in range(200, 260):  # at this rate the level of the box comes to its end
        now = slice(t, t + 1)
        asked[t] = box.predict_interval(boxes, X[now], step=t)
        if t >= 202:
            box.update(asked[t - 2].contains(Y[t - 2 : t - 1]), step=t - 2)
        for h, control in enumerate(levels):
            one = control.predict_interval(each.regressors_[h], X[now], step=t)
            asked[t, h] = one.contains(Y[now, h])
            if t - h - 1 >= 200:  # the target h steps ahead is known h + 1 steps later
                control.update(asked[t - h - 1, h], step=t - h - 1)
    assert 1 in box.history.level and asked[259].names == boxes.target_names_
    assert all(control.history.coverage > 0.8 for control in levels)


def test_one_rate_is_its_definition():
    rng = np.random.default_rng(0)
    inside, alpha = rng.random(300) < 0.8, 0.1
    control, levels = Controller(0.9, rate=0.02), []
    for hit in inside:
        levels.append(1 - alpha)
        hit = control.level >= 1 or hit
        control.update(bool(hit))
        alpha += 0.02 * (0.1 - (not hit))
    np.testing.assert_allclose(control.history.level, np.clip(levels, 0, 1), atol=1e-12)


def test_several_rates_are_the_papers_algorithm():
    rng = np.random.default_rng(1)
    needed = np.concatenate([rng.random(200), rng.random(200) ** 0.2])
    alpha, gamma, k, interval = 0.1, np.array(RATES), len(RATES), 500
    eta = np.sqrt(3 / interval) * np.sqrt(
        (np.log(k * interval) + 2) / ((1 - alpha) ** 2 * alpha**3 + alpha**2 * (1 - alpha) ** 3)
    )
    assert eta == pytest.approx(2.76, abs=0.01)
    weights, alphas, wanted = np.ones(k), np.full(k, alpha), []
    for beta in 1 - needed:
        wanted.append(1 - (weights / weights.sum()) @ alphas)
        loss = alpha * (beta - alphas) - np.minimum(0, beta - alphas)
        bar = weights * np.exp(-eta * loss)
        weights = (1 - 1 / (2 * interval)) * bar + bar.sum() / (2 * interval * k)
        alphas = alphas + gamma * (alpha - (beta <= alphas))
    found = run(Controller(0.9, rate=RATES), needed)
    np.testing.assert_allclose(found.level, np.clip(wanted, 0, 1), atol=1e-9)


def test_decaying_rate_settles_where_nothing_drifts():
    needed = np.random.default_rng(2).random(6000)
    seen = run(Controller(0.9, rate=0.5, decay=0.6), needed)
    fixed = run(Controller(0.9, rate=0.5), needed)
    assert seen.level[-1000:].std() < 0.02 < fixed.level[-1000:].std()
    assert abs(seen.level[-1000:].mean() - 0.9) < 0.02


def test_coverage_follows_a_jump():
    rng = np.random.default_rng(3)
    scores = np.abs(rng.normal(size=1600)) * np.repeat([1.0, 3.0], 800)
    split, control = Split().fit(np.zeros((200, 1)), scores[:200]), Controller(0.9, rate=0.05)
    for score in scores[200:]:
        radius = control.predict_radius(split, [[0.0]])
        control.update(score <= radius)
    assert (scores[1000:] <= split.predict_radius([[0.0]], 0.9)).mean() < 0.6
    assert control.history.outside[-600:].mean() == pytest.approx(0.1, abs=0.03)


def model_and_rows(score=None):
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(300, 2))
    y = X[:, 0] + X[:, 1] * rng.normal(size=300)
    model = LinearRegression().fit(X[:100], y[:100])
    around = ConformalRegressor(model, FullRescaled(KNN(5)), score_function=score, embed="inputs")
    return around.calibrate(X[100:200], y[100:200], X_train=X[:100]), X[200:], y[200:]


@pytest.mark.parametrize("score", [None, SignedError()])
def test_coverage_needed_tells_all_levels_apart(score):
    model, X, y = model_and_rows(score)
    needed = coverage_needed(model, X[:20], y[:20])
    tails = 1 if score is None else 2
    levels = (np.arange(1, tails * 98) - 0.5) / (tails * 101)
    inside = model.predict_interval(X[:20], coverage=levels).contains(y[:20])
    np.testing.assert_array_equal(inside, levels > needed[:, None])


def test_coverage_needed_of_scores_and_beyond_all():
    split = Split().fit(np.zeros((99, 1)), np.arange(99.0))
    assert coverage_needed(split, np.zeros((2, 1)), [98.5, -1.0]) == pytest.approx([0.99, 0.0])


def rows_of_two_sites(n, seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(n, 2)), np.abs(rng.normal(size=n))


def grouped(method):
    """Fitted to 9 rows of one group and to 99 of another, and how to ask about the latter."""
    Z, scores = rows_of_two_sites(108, 7)
    sites = np.repeat(["few", "many"], [9, 99])
    return Grouped(method).fit(Z, scores, groups=sites), {"groups": ["many"] * 12}


def weighted(method):
    """Fitted with weights, and those of rows to ask about."""
    Z, scores = rows_of_two_sites(60, 8)
    weights = np.random.default_rng(9).uniform(0.1, 3.0, size=72)
    return method.fit(Z, scores, weights=weights[:60]), {"weights": weights[60:]}


@pytest.mark.parametrize(
    "fitted",
    [
        lambda: grouped(Split()),
        lambda: grouped(FullRescaled(KNN(5))),
        lambda: weighted(Split()),
        lambda: weighted(FullRescaled(KNN(5))),
        lambda: (
            LoCart(random_state=0).fit(
                *rows_of_two_sites(200, 7), training=rows_of_two_sites(200, 6)
            ),
            {},
        ),
    ],
)
def test_coverage_needed_is_by_the_rows_own_group_weight_and_leaf(fitted):
    method, how = fitted()
    Z, scores = rows_of_two_sites(12, 10)
    needed = coverage_needed(method, Z, scores, **how)
    levels = np.unique([*np.linspace(0.005, 0.985, 197), *needed[(needed > 0) & (needed < 1)]])
    with unheard(Warning):
        held = scores[:, None] <= method.predict_radius(Z, levels, **how)
    gap = levels - needed[:, None]
    told = np.abs(gap) > (1e-10 if "weights" in how else -1)  # shares are no simple fractions
    np.testing.assert_array_equal(held[told], (gap > 1e-12)[told])


@pytest.mark.parametrize(("method", "known"), [(Split(), True), (RLCP(), False), (LVD(), False)])
def test_ranks_are_known_where_all_rows_have_the_same_thresholds(method, known):
    Z, errors = np.random.default_rng(0).uniform(size=(2, 60, 1))
    made = method.fit_to(
        Rows(Z, errors[:, 0]), training=Rows(Z, errors[:, 0], targets=errors[:, 0])
    )
    assert (made.share_below(Z[:3], errors[:3, 0]) is not None) == known


def test_coverage_needed_asks_the_model_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y, asked = X[:, 0] + rng.normal(size=300), []

    def model(rows):
        asked.append(len(rows))
        return rows[:, 0]

    fitted = ConformalRegressor(model, embed="prediction").calibrate(
        X[:200], y[:200], groups=X[:200, 1] > 0
    )
    how = {"groups": X[290:297, 1] > 0}
    asked.clear()
    needed = coverage_needed(fitted, X[290:297], y[290:297], **how)
    assert asked == [7]
    levels = np.unique(np.concatenate([needed - 1e-6, needed + 1e-6]))
    levels = levels[(levels > 0) & (levels < 1)]
    with unheard(Warning):
        held = fitted.predict_interval(X[290:297], levels, **how).contains(y[290:297])
    assert (held == (levels > needed[:, None])).all()


def test_steps_of_a_file_rise():
    control = Controller(0.9)
    control.ask([3, 5])
    state = control.for_file()
    Controller(0.9).restore(state)
    state["names"][:, 0] = 3
    with pytest.raises(CalliperError, match="do not increase"):
        Controller(0.9).restore(state)


def test_controller_counts_what_happened_to_rows_of_a_large_group():
    method, how = grouped(Split())
    control, inside = Controller(0.85, rate=(0.05, 0.1)), []
    for t in range(25):
        Z, scores = rows_of_two_sites(12, 100 + t)
        inside.append(scores <= control.predict_radius(method, Z, **how))
        control.update(inside[-1], needed=coverage_needed(method, Z, scores, **how))
    assert control.history.coverage == pytest.approx(np.mean(inside))
    assert np.mean(inside) == pytest.approx(0.85, abs=0.05)


@pytest.mark.parametrize(
    "changed",
    [{"decay": 0.9}, {"rate": 0.5}, {"coverage": 0.5}, {"start": 0.5}, {"horizon": 9}],
)
def test_parameters_that_change_midway_are_refused(changed):
    control = tell(Controller(0.9, rate=0.1), 0.5)
    bound, before = control.bound, control.get_params()
    control.set_params(**changed)
    for use in (lambda: control.level, lambda: control.bound, lambda: control.update(True)):
        with pytest.raises(CalliperError, match=r"\w+ was .* and is .* now, but the bound"):
            use()
    assert control.set_params(**before).bound == bound


@pytest.mark.parametrize("make", [lambda: SLCP(KNN(5)), ConditionalCalibration])
def test_memory_of_levels_is_bounded(make, monkeypatch):
    for module in ("_calibrator", "_conditional", "_learnt_scales"):
        monkeypatch.setattr(f"calliper.calibrators.{module}.MOST_LEVELS", 8)
    Z, scores = rows_of_two_sites(40, 11)
    apart = {"training": (Z[20:], scores[20:])} if make is not ConditionalCalibration else {}
    method = make().fit(Z[:20], scores[:20], **apart)
    levels = np.linspace(0.3, 0.7, 40)
    alone = [method.predict_radius(Z[:3], level)[0] for level in levels]
    assert method.predict_radius(Z[:3], levels)[0].tolist() == alone
    known = vars(method)
    kept = [method.levels_asked_, known.get("_thresholds", ()), known.get("_vertices", ())]
    assert len(method.levels_asked_) == 8 and max(map(len, kept)) <= len(levels)


def test_one_loop_serves_all_rules_and_extends():
    model, X, y = model_and_rows()
    for control in (Controller(), Controller(rate=0.2, decay=0.6), Controller(rate=RATES)):
        growing = pickle.loads(pickle.dumps(model))
        for t in range(30):
            now = slice(t, t + 1)
            intervals = control.predict_interval(growing, X[now])
            assert isinstance(intervals, Intervals)
            needed = coverage_needed(growing, X[now], y[now])
            assert intervals.contains(y[now])[0] == (intervals.coverage > needed[0])
            control.update(intervals.contains(y[now]), needed=needed)
            growing.extend(X[now], y[now])
        assert growing.calibrator_.n_calibration_ == 130
        again = pickle.loads(pickle.dumps(control))
        assert again.level == control.level
        assert len(clone(control).history.level) == 0


def test_levels_beyond_both_ends_ask_for_infinite_intervals_and_points():
    model, X, _ = model_and_rows()
    control = Controller(0.9, rate=5.0)
    control.predict_interval(model, X[:1])
    control.update(False)
    intervals = control.predict_interval(model, X[:2])
    assert np.isinf(intervals.width).all() and intervals.coverage == 1
    assert np.isinf(control.predict_radius(model.calibrator_, X[:3])).tolist() == [True] * 3
    with pytest.raises(CalliperError, match="level 1, which is infinite"):
        control.update([True, True, False])
    control.update([True, True, True])
    control.level, control.update(True)
    for _ in range(9):
        control.level, control.update(True)
    intervals = control.predict_interval(model, X[:2])
    assert intervals.coverage == 0 and (intervals.lower == model.predict(X[:2])).all()
    assert control.update(intervals.contains(intervals.lower)).history.outside[-1] == 1
    assert (Controller(0.5, rate=9.0).predict_radius(model.calibrator_, X[:2]) > 0).all()


def test_rows_asked_for_together_are_one_step():
    control = Controller(0.9, rate=0.1)
    assert control.level == pytest.approx(0.9)
    control.update(np.array([True, False, True, True]))
    assert control.history.outside.tolist() == [0.25]
    assert control.level == pytest.approx(0.9 + 0.1 * 0.15)


def test_history_bound_and_words():
    control = Controller(0.9, rate=0.1)
    assert (
        control.bound == pytest.approx(0.9)
        and "Steps with a label: none so far. So few labels at this" in control.describe()
    )
    assert np.isnan(control.history.coverage)
    for hit in [True] * 19 + [False]:
        control.level, control.update(hit)
    assert control.history.coverage == pytest.approx(0.95)
    assert control.bound == pytest.approx((0.9 + 0.1 * 0.1) / (0.1 * 20))
    assert "Steps with a label: 20, of which 95.00% were inside" in control.describe()
    assert "within 45.50% of the coverage asked for" in control.describe()


def test_a_prediction_without_its_update_is_said():
    control, split = Controller(), Split().fit(np.zeros((99, 1)), np.arange(99.0))
    control.predict_radius(split, [[0.0]]), control.level
    with pytest.warns(UnusedWarning, match="not followed by update, so it does not count"):
        control.predict_radius(split, [[0.0]])
    control.update(True).predict_radius(split, [[0.0]])
    control.predict_radius(split, [[0.0]], step=7)


def test_update_before_a_level_was_asked_for_is_refused():
    control = Controller()
    with pytest.raises(CalliperError, match="before a level was requested: call predict_interval"):
        control.update(True)
    control.level, control.update(True)
    with pytest.raises(CalliperError, match="before a level was requested"):
        control.update(True)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"coverage": 90},
            "coverage must lie strictly between 0 and 1; got 90. If it is a percentage",
        ),
        ({"rate": -1}, "^rate must be a positive number such as 0.01, or several; got -1"),
        ({"rate": (0.1, -1.0)}, "^rate must be a positive number"),
        ({"rate": ()}, r"^rate must be a positive number .* got \(\)"),
        ({"rate": "fast"}, "^rate must be"),
        ({"decay": 1}, "decay must be at least 0 and below 1; got 1"),
        ({"start": 1.0}, "start must lie strictly between"),
        ({"horizon": 0}, "horizon must be an integer of at least 1; got 0"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(CalliperError, match=words):
        _ = Controller(**parameters).level


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"inside": None, "needed": 0.5}, "inside must be True or False for each row"),
        ({"inside": True, "needed": [0.5, 0.5]}, "needed"),
        ({"inside": 0.7}, "True or False for each row"),
        ({"inside": []}, "True or False for each row"),
        ({"inside": True, "needed": 1.1}, "needed must be from 0 to 1"),
        ({"inside": True, "needed": -0.1}, "needed must be from 0 to 1"),
        ({"inside": True, "needed": np.nan}, "needed must be finite"),
    ],
)
def test_bad_news_is_refused_and_changes_nothing(told, words):
    control = Controller()
    before = control.level
    with pytest.raises(CalliperError, match=words):
        control.update(**told)
    assert control.level == before and len(control.history.level) == 0


def test_rows_in_place_of_a_model_are_refused():
    split = Split().fit(np.zeros((20, 1)), np.arange(20.0))
    control, rows = Controller(), np.zeros((2, 1))
    words = "pass a calibrated regressor.*got a ndarray and a Split"
    for ask in (control.predict_interval, control.predict_radius):
        with pytest.raises(TypeError, match=words):
            ask(rows, split)
    with pytest.raises(TypeError, match="got a LinearRegression"):
        control.predict_interval(LinearRegression(), rows, step=1)
    with pytest.raises(TypeError, match=words):
        coverage_needed(rows, split, np.zeros(2))
    assert len(control.history.level) == 0


def test_several_rates_ask_for_more_than_inside():
    control = Controller(rate=RATES)
    _ = control.level
    with pytest.raises(CalliperError, match=r"with 8 rates.*needed=coverage_needed"):
        control.update(True)


def test_running_coverage_is_the_share_of_each_window():
    outside = np.random.default_rng(5).random(500) < 0.1
    display = RunningCoverageDisplay.from_outside(outside, coverage=0.9, window=50)
    wanted = [1 - outside[end - 50 : end].mean() for end in range(50, 501)]
    np.testing.assert_allclose(display.running, wanted, atol=1e-12)
    assert display.lower <= 0.9 <= display.upper and display.mean == 1 - outside.mean()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ([0, 1], {"window": 3}),
            "at least 3 shares between 0 and 1, one window; got 2, from 0 to 1",
        ),
        (([0, 2], {"window": 2}), "shares between 0 and 1"),
        (([], {"window": 2}), "got 0, from 0 to 0"),
    ],
)
def test_running_coverage_refuses(arguments, words):
    outside, how = arguments
    with pytest.raises(CalliperError, match=words):
        RunningCoverageDisplay.from_outside(outside, coverage=0.9, **how)


def test_running_coverage_is_drawn_with_others():
    pytest.importorskip("matplotlib").use("Agg")
    outside = np.random.default_rng(6).random(300) < 0.2
    first = RunningCoverageDisplay.from_outside(outside, coverage=0.9, window=100).plot(name="a")
    RunningCoverageDisplay.from_outside(~outside, coverage=0.9, window=100).plot(
        first.ax_, name="b"
    )
    words = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert words[1] == "requested: 90 %" and [word[0] for word in words[2:]] == ["a", "b"]
    assert first.ax_.get_ylim()[0] < 0.2


@pytest.mark.parametrize("inside", [True, [True] * 5, [True] * 25])
def test_rows_that_were_predicted_together_are_all_labelled(inside):
    model, X, _ = model_and_rows()
    control = Controller(0.9)
    control.predict_interval(model, X[:24])
    with pytest.raises(CalliperError, match="24 rows were predicted together, but inside has"):
        control.update(inside)
    control.update([True] * 24)
    control.level  # noqa: B018 (asks for a level, for rows that are not known)
    assert control.update(inside).history.coverage == 1
