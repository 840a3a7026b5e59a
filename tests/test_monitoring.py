"""Monitors: evidence by exact sums over all streams, false alarms, delays, and what is refused."""

from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import calliper
from calliper import (
    CalliperError,
    ConformalRegressor,
    QuantileError,
    SignedError,
    Split,
    monitoring,
)
from calliper.calibrators import Grouped, JackknifeRescaled
from calliper.lab.report import MonitorDisplay
from calliper.monitoring import (
    FIRST_START,
    JUMP,
    ODDS,
    SHARES,
    SLOW,
    CoverageMonitor,
    ExchangeabilityMonitor,
)
from calliper.online import Controller
from studies.experiments.drift import alarms as study

#: Each way to say what misses are compared with, and what it is: misses k of N + 1, or a rate.
WAYS = {
    "law": ({"coverage": 0.8, "n_calibration": 19}, (4, 20), None),
    "tails": ({"coverage": 0.8, "n_calibration": 19, "tails": 2}, (4, 20), None),
    "tolerated": ({"coverage": 0.75, "tolerated": 0.25}, None, Fraction(1, 4)),
    "online": ({"coverage": 0.9, "online": True}, None, Fraction(1, 10)),
}


def promised(missed, urn, rate, fewer=False):
    """p_t of a stream so far, and the chance of a miss if the claim holds."""
    if urn is None:
        return rate, rate
    drawn, floor = Fraction(urn[0] + sum(missed), urn[1] + len(missed)), Fraction(*urn)
    return (min if fewer else max)(drawn, floor), drawn


def wealth(streams, urn, rate, p, fewer=False):
    """Exact wealth of bets on one rate after each beginning of each stream, summed over starts."""
    late = 1 - Fraction(FIRST_START)
    found = {(): (Fraction(0), Fraction(1))}  # of starts so far, and with those to come
    for stream in streams:
        before, t = stream[:-1], len(stream) - 1
        claim, _ = promised(before, urn, rate, fewer)
        start = late * SLOW / ((t + SLOW) * (t + SLOW + 1)) + (t == 0) * Fraction(FIRST_START)
        move = p / claim if stream[-1] else (1 - p) / (1 - claim)
        begun = (found[before][0] + start) * move
        found[stream] = begun, begun + late * SLOW / (t + 1 + SLOW)
    return {stream: both for stream, (_, both) in found.items()}


def all_streams(n):
    return [stream for t in range(1, n + 1) for stream in product((0, 1), repeat=t)]


def simple_rates(claim, fewer=False):
    """Some of the rates that are bet on, as simple fractions of nearly the same value."""
    odds = [Fraction(each).limit_denominator(8) for each in ODDS[[0, 6, 15]]]
    odds = [claim / (1 - claim) * (1 / each if fewer else each) for each in odds]
    return [each / (1 + each) for each in odds]


@pytest.mark.parametrize("fewer", [False, True])
@pytest.mark.parametrize("way", ["law", "tolerated"])
def test_wealth_is_a_supermartingale_exactly(way, fewer):
    _, urn, rate = WAYS[way]
    streams = all_streams(12)
    for p in simple_rates(Fraction(*urn) if urn else rate, fewer)[:: 1 if way == "law" else 2]:
        found = wealth(streams, urn, rate, p, fewer)
        assert found[()] == 1
        for stream in [(), *all_streams(11)]:
            claim, chance = promised(stream, urn, rate, fewer)
            after = chance * found[*stream, 1] + (1 - chance) * found[*stream, 0]
            assert after <= found[stream]
            assert claim != chance or after == found[stream]


@pytest.mark.parametrize("side", ["more", "fewer", "both"])
@pytest.mark.parametrize("way", WAYS)
def test_evidence_is_the_exact_mean_over_rates_and_starts(way, side):
    given, urn, rate = WAYS[way]
    if way == "online" and side != "more":
        return
    streams, chosen = all_streams(6), ["more", "fewer"] if side == "both" else [side]
    parts = []
    for each in chosen:
        floor = float(Fraction(*urn) if urn else rate)
        odds = floor / (1 - floor) * (ODDS if each == "more" else 1 / ODDS)
        for p, share in zip(odds / (1 + odds), SHARES, strict=True):
            found = wealth(streams, urn, rate, Fraction(p), each == "fewer")
            parts.append([float(found[stream]) * share / len(chosen) for stream in streams])
    for stream, expected in zip(streams, np.sum(parts, axis=0), strict=True):
        monitor = CoverageMonitor(side=side, **given).update(~np.array(stream, dtype=bool))
        assert monitor.evidence == pytest.approx(expected, rel=1e-12)


def test_ties_are_compared_with_the_upper_quantile_of_the_law_and_begin_at_half():
    tied = CoverageMonitor(0.9, 500, ties=True)
    assert tied.evidence == 0.5
    plain = CoverageMonitor(tolerated=0.1274885426858903).update([True, False, False])
    assert tied.update([True, False, False]).evidence == pytest.approx(plain.evidence / 2)


def test_a_batch_is_its_labels_one_by_one_and_the_alarm_stays(monkeypatch):
    monkeypatch.setattr("calliper.monitoring.LABELS_TOGETHER", 64)
    inside = ~study.changed(np.random.default_rng(3), 1, 150, 0.4, steps=100)[:, 0]
    batch, single = CoverageMonitor(0.9, 500), CoverageMonitor(0.9, 500)
    batch.update(inside)
    for each in inside:
        single.update(each)
    assert np.array_equal(batch.log_evidence, single.log_evidence)
    assert (batch.alarm_at, batch.since) == (single.alarm_at, single.since)
    assert batch.alarm and 140 <= batch.since <= 165 < batch.alarm_at
    assert (
        batch.log_evidence[batch.alarm_at]
        >= np.log(20)
        > batch.log_evidence[: batch.alarm_at].max()
    )
    alarm = batch.alarm_at, batch.since
    batch.update(np.ones(2000, dtype=bool))
    assert batch.evidence < 20 and batch.alarm and (batch.alarm_at, batch.since) == alarm


def test_since_is_what_was_known_at_the_alarm_whatever_comes_later():
    inside = ~study.changed(np.random.default_rng(11), 1, 300, 0.25, steps=100)[:, 0]
    known = CoverageMonitor(0.9, 500).update(inside)
    later = CoverageMonitor(0.9, 500).update(np.r_[inside, np.ones(3000, dtype=bool)])
    assert known.alarm_at == later.alarm_at and known.since == later.since == 300


def test_the_study_moves_all_streams_as_the_monitor_does():
    missed = study.changed(np.random.default_rng(0), 5, 200, 0.3, steps=300)
    assert [CoverageMonitor(0.9, 500).update(~each).alarm_at for each in missed.T] == [
        *study.monitored(missed)
    ]


def test_false_alarms_and_delays():
    rng = np.random.default_rng(1)
    assert np.mean(study.monitored(study.honest(rng, 1000, 1000)) < 1000) <= 0.05
    for at, most in ((0, 29), (500, 90)):
        alarms = study.monitored(study.changed(rng, 500, at, 0.3, steps=500))
        assert np.median(alarms[alarms >= at]) + 1 - at <= most


@pytest.mark.long
def test_false_alarms_over_many_long_streams():
    assert (
        np.mean(study.monitored(study.honest(np.random.default_rng(2), 10_000, 5000)) < 5000)
        <= 0.05
    )


def test_numbers_hold_for_very_many_labels():
    rng = np.random.default_rng(0)
    honest = CoverageMonitor(tolerated=0.1).update(rng.random(300_000) > 0.1)
    assert not honest.alarm and np.isfinite(honest.log_evidence).all()
    bad = CoverageMonitor(tolerated=0.1).update(np.zeros(2000, dtype=bool))
    assert bad.evidence == np.inf and bad.since == 0


def test_wide_intervals_are_found_on_request_only():
    inside = np.ones(300, dtype=bool)
    assert not CoverageMonitor(0.9, 500).update(inside).alarm
    assert CoverageMonitor(0.9, 500, side="fewer").update(inside).alarm
    assert CoverageMonitor(0.9, 500, side="both").update(inside).alarm


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    return X, X[:, 0] + rng.normal(size=400)


def calibrated(rows, calibrator=None, **how):
    X, y = rows
    model = LinearRegression().fit(X[:100], y[:100])
    return ConformalRegressor(model, calibrator=calibrator, **how).calibrate(X[100:], y[100:])


def test_methods_without_a_law_are_refused_unless_something_else_is_said(rows):
    model = calibrated(rows)
    with pytest.raises(CalliperError, match="not known for FullRescaled calibrated this way"):
        CoverageMonitor.of(model)
    assert CoverageMonitor.of(model, online=True).update(True).evidence < 1
    assert CoverageMonitor.of(model, 0.8, tolerated=0.3).get_params()["tolerated"] == 0.3
    jackknife = JackknifeRescaled().fit(np.zeros((50, 1)), np.arange(50.0))
    with pytest.raises(CalliperError, match=r"proved at level 0\.9: 0\.8"):
        CoverageMonitor.of(jackknife, online=True)


@pytest.mark.parametrize("model", [LinearRegression(), Controller(0.9), "x"], ids=repr)
@pytest.mark.parametrize("how", [{}, {"tolerated": 0.2}], ids=repr)
def test_what_promises_nothing_at_a_constant_level_is_refused(model, how):
    with pytest.raises(TypeError, match=f"expected a calibrated .* got a {type(model).__name__}"):
        CoverageMonitor.of(model, **how)


def test_the_law_is_read_from_the_model(rows):
    made = CoverageMonitor.of(calibrated(rows, Split()), 0.8)
    assert (made.coverage, made.n_calibration, made.tails) == (0.8, 300, 1)
    two = calibrated(rows, Split(), score_function=SignedError())
    assert CoverageMonitor.of(two, 0.8).tails == 2
    assert CoverageMonitor.of(two, 0.8, online=True).tails == 1
    pair = ConformalRegressor(
        lambda X: np.stack([X[:, 0] - 1, X[:, 0] + 1 + X[:, 1] ** 2], axis=1),
        Split(),
        score_function=QuantileError("asymmetric"),
    )
    with pytest.raises(
        CalliperError, match="not known for"
    ):  # the tails differ in their order of rows
        CoverageMonitor.of(pair.calibrate(rows[0][100:], rows[1][100:]), 0.8)
    grouped = Grouped(Split()).fit(np.zeros((80, 1)), np.arange(80.0), groups=np.arange(80) % 2)
    with pytest.raises(CalliperError, match="not known for"):  # each group has its own
        CoverageMonitor.of(grouped, 0.8)
    weighted = Split().fit(np.zeros((50, 1)), np.arange(50.0), weights=np.linspace(1, 2, 50))
    with pytest.raises(CalliperError, match="not known for"):
        CoverageMonitor.of(weighted)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "miss rate to compare with"),
        ({"n_calibration": 500, "tolerated": 0.1}, "miss rate to compare with"),
        ({"tolerated": 0.0}, "tolerated"),
        ({"tolerated": 1.0}, "tolerated"),
        ({"tolerated": float("nan")}, "tolerated"),
        ({"tolerated": 12}, r"tolerated .* got 12\. If it is a percentage, divide by 100"),
        ({"tolerated": 0.9}, r"share of misses, at most 0\.55 .* got 0\.9\."),
        ({"tolerated": 0.05}, r"at least 0\.1, since intervals at level 0\.9 may miss that share"),
        ({"coverage": 1.2, "tolerated": 0.1}, "coverage"),
        ({"tolerated": 0.1, "false_alarms": 0}, "false_alarms"),
        ({"tolerated": 0.1, "side": "less"}, "side must be"),
        ({"online": True, "side": "both"}, "needs an exact miss rate"),
        ({"n_calibration": 500, "ties": True, "side": "fewer"}, "needs an exact miss rate"),
        ({"n_calibration": 5}, "5 calibration rows cannot support"),
        ({"n_calibration": 2.5}, "n_calibration"),
    ],
)
def test_parameters_that_say_nothing_are_refused(given, match):
    with pytest.raises(CalliperError, match=match):
        CoverageMonitor(**given).update(True)
    if "tolerated" in given:  # a class method may look at once
        with pytest.raises(CalliperError, match=match):
            CoverageMonitor.of(Split().fit(np.zeros((9, 1)), np.arange(9.0)), **given)


def test_rates_that_agree_with_the_level_are_taken():
    assert CoverageMonitor(0.9, tolerated=1 - 0.9).update(True).evidence < 1
    assert CoverageMonitor(0.5, tolerated=0.6).update(True).evidence < 1
    assert CoverageMonitor(0.9, tolerated=0.05, side="fewer").update(True).evidence > 0


@pytest.mark.parametrize(
    "inside", [[], 0.5, [0, 2], [np.nan], [[True, False]], "yes", None, [True, None]]
)
def test_labels_that_are_not_true_or_false_are_refused_and_leave_no_trace(inside):
    monitor = CoverageMonitor(tolerated=0.1).update(True)
    with pytest.raises(CalliperError, match=r"True or False .*\.contains\(y\); got 0 +0\.5\.$"):
        CoverageMonitor(n_calibration=100).update(pd.Series(np.full(500, 0.5)))
    with pytest.raises(CalliperError, match="inside must be True or False"):
        monitor.update(inside)
    assert len(monitor.log_evidence) == 1


def test_labels_name_their_steps_in_any_order_and_each_counts_once(tmp_path):
    steps = np.random.default_rng(2).permutation(60) * 10
    inside = np.arange(60) < 40
    named, plain = CoverageMonitor(n_calibration=500), CoverageMonitor(n_calibration=500)
    named.update(inside, step=steps)
    plain.update(inside)
    np.testing.assert_array_equal(named.log_evidence, plain.log_evidence)
    assert (named.alarm_at, named.since) == (steps[plain.alarm_at], steps[plain.since])
    assert f"probably since step {steps[plain.since]}:" in named.describe()
    for told, words in [
        ({"step": 50}, "step 50 already has a label"),
        ({"step": 7.0}, "step must be an integer"),
        ({"step": [1, 2]}, "got 2 steps for 1 labels"),
        ({}, "60 of 60 labels so far came with a step"),
    ]:
        with pytest.raises(CalliperError, match=words):
            named.update(True, **told)
    with pytest.raises(CalliperError, match="step 4 already has a label"):
        named.update([True, True], step=[4, 4])
    calliper.save(named, tmp_path / "m.calliper")
    again = calliper.load(tmp_path / "m.calliper")
    assert (again.since, len(again.log_evidence)) == (named.since, 60)
    with pytest.raises(CalliperError, match="step 50 already has a label"):
        again.update(False, step=50)


def test_parameters_stay():
    monitor = CoverageMonitor(tolerated=0.1).update(True)
    monitor.tolerated = 0.5
    with pytest.raises(CalliperError, match="holds only if parameters do not change"):
        monitor.update(True)


def jumper(first, scores, draws):
    """Evidence after each score, by its definition."""
    seen, capital, found = [*first], [1 / 3] * 3, []
    for score, draw in zip(scores, draws, strict=True):
        larger, equal = sum(s > score for s in seen), sum(s == score for s in seen)
        seen.append(score)
        p = (larger + draw * (1 + equal)) / len(seen)
        total = sum(capital)
        capital = [(1 - JUMP) * each + JUMP * total / 3 for each in capital]
        capital = [c * (1 + e * (p - 0.5)) for c, e in zip(capital, (-1, 0, 1), strict=True)]
        found.append(sum(capital))
    return found


def test_exchangeability_is_judged_by_ranks_with_ties():
    rng = np.random.default_rng(0)
    first, scores = rng.integers(0, 9, size=40), rng.integers(0, 9, size=60)
    monitor = ExchangeabilityMonitor(random_state=5).fit(first).update(scores)
    expected = jumper(first, scores, np.random.default_rng(5).random(60))
    assert np.exp(monitor.log_evidence) == pytest.approx(expected, rel=1e-12)


def test_scores_that_are_merged_later_count_as_before(monkeypatch):
    rng = np.random.default_rng(0)
    first, later = (rng.integers(0, 9, size=n).astype(float) for n in (20, 300))
    fitted = ExchangeabilityMonitor(random_state=0).fit
    expected = fitted(first).update(later).log_evidence
    monkeypatch.setattr(monitoring, "LABELS_TOGETHER", 7)
    one_by_one = fitted(first)
    for score in later:
        one_by_one.update(score)
        assert len(one_by_one._fresh) < 7  # so that none is moved often
    for made in (one_by_one, fitted(first).update(later)):
        np.testing.assert_array_equal(made.log_evidence, expected)


def test_exchangeable_scores_hardly_ever_alarm_and_others_do():
    rng = np.random.default_rng(0)
    alarms = 0
    for seed in range(100):
        scores = rng.integers(0, 50, size=500).astype(float)  # many are equal
        alarms += (
            ExchangeabilityMonitor(random_state=seed).fit(scores[:100]).update(scores[100:]).alarm
        )
    assert alarms <= 5
    for size, word in ((3.0, "larger"), (0.2, "smaller")):
        stream = np.r_[rng.exponential(size=200), size * rng.exponential(size=200)]
        monitor = (
            ExchangeabilityMonitor(random_state=0).fit(rng.exponential(size=300)).update(stream)
        )
        assert monitor.alarm and 150 <= monitor.since <= 230 and word in monitor.describe()


@pytest.mark.parametrize("scores", [[], [np.nan], [[1.0, 2.0]], ["a"], None])
def test_scores_that_are_none_are_refused(scores):
    monitor = ExchangeabilityMonitor(random_state=0)
    with pytest.raises(CalliperError):
        monitor.fit(scores)
    with pytest.raises(ValueError, match="call fit"):
        monitor.update(1.0)
    monitor.fit([1.0, 2.0])
    with pytest.raises(CalliperError):
        monitor.update(scores)


def made():
    inside = ~study.changed(np.random.default_rng(3), 1, 50, 0.5, steps=50)[:, 0]
    scores = np.random.default_rng(1).exponential(size=90)
    return [
        CoverageMonitor(0.9, 500, false_alarms=0.1).update(inside),
        CoverageMonitor(0.9, tolerated=0.2),
        ExchangeabilityMonitor(random_state=3).fit(scores[:50]).update(scores[50:]),
        ExchangeabilityMonitor().fit(scores[:50]),
    ]


@pytest.mark.parametrize("monitor", made(), ids=["seen", "new", "scores", "fitted"])
def test_files_go_on_where_they_left_off(monitor, tmp_path):
    calliper.save(monitor, tmp_path / "m.calliper")
    back = calliper.load(tmp_path / "m.calliper")
    assert back.get_params() == monitor.get_params() and back.describe() == monitor.describe()
    assert back.since == monitor.since
    for each in (monitor, back):
        each.update([0, 1, 1])
    assert np.array_equal(back.log_evidence, monitor.log_evidence)


def test_words_are_two_sentences_and_the_figure_shows_the_alarm():
    for monitor in made():
        assert monitor.describe().count(". ") == 1
    monitor = made()[0]
    display = MonitorDisplay.from_monitor(monitor).plot()
    drawn = {text.get_text() for text in display.ax_.get_legend().get_texts()}
    assert f"alarm at label {monitor.alarm_at}" in drawn
    assert f"probably since label {monitor.since}" in drawn
    with pytest.raises(CalliperError, match="no label yet"):
        MonitorDisplay.from_monitor(made()[1])


def test_labels_have_their_names():
    monitor = CoverageMonitor(0.9, tolerated=0.1).update(inside=True)
    monitor = ExchangeabilityMonitor(random_state=0).fit([1.0, 2.0, 3.0]).update(scores=2.5)
    assert len(monitor.log_evidence) == 1
