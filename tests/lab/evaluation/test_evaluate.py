"""Rows and splits of ``evaluate``."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.preprocessing import FunctionTransformer

from calliper import KNN, ConformalRegressor, FullRescaled, QuantileError, SignedError, Split
from calliper.calibrators import LVD, MADSplit
from calliper.lab.evaluation import FailedTrialsWarning, Method, evaluate
from calliper.lab.evaluation._evaluate import Trial
from cases.evaluation import Failing, Logging, Seeded, fan, without_time

METHODS = {"Split": Split(), "FullRescaled": FullRescaled(KNN(5))}
IDENTITY = ("problem", "method", "n_calibration", "split", "level")


def test_one_row_for_each_problem_method_size_split_and_level():
    records = evaluate(
        [fan("a"), fan("b", n=90)],
        METHODS,
        coverage=[0.5, 0.8],
        n_splits=3,
        n_calibration={"a": [20, 40], "b": 30},
        n_test=25,
    )
    cells = {tuple(row[k] for k in IDENTITY) for row in records}
    expected = {
        (p, m, n, s, level)
        for p, n in (("a", 20), ("a", 40), ("b", 30))
        for m in METHODS
        for s in range(3)
        for level in (0.5, 0.8)
    }
    assert cells == expected and len(records) == len(expected)
    assert all(row["status"] == "ok" and row["n_test"] == 25 for row in records)
    assert all(row["seconds_fit"] > 0 and row["seconds_predict"] > 0 for row in records)
    assert {row["guaranteed"] for row in records.where(method="Split", level=0.8)} == {
        17 / 21, 33 / 41, 25 / 31,
    }  # fmt: skip


def test_every_method_sees_the_same_rows_and_scores(tmp_path):
    log = tmp_path / "log"
    methods = {"a": Logging(log, "a"), "b": Logging(log, "b")}
    evaluate(fan(), methods, n_splits=4, n_calibration=30, measures={"n": lambda *_: 0.0})
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    seen = {tag: [rest for t, rest in lines if t == tag] for tag in "ab"}
    assert seen["a"] == seen["b"]
    assert len(set(seen["a"])) == 4


def trial(problem, n_calibration, n_test, split, random_state):
    given = n_calibration, n_test, split, random_state
    return Trial(problem, "m", Method(Split()), *given, levels=(0.9,), measures={})


CALIBRATED = {
    "FullRescaled": (FullRescaled(), None, None),
    "two tails": (FullRescaled(KNN(4)), SignedError(), None),
    "one side": (Split(), SignedError("upper"), None),
    "training errors": (MADSplit(KNN(5)), None, None),
    "training targets": (LVD(), None, None),
    "CQR": (Split(), QuantileError("asymmetric"), "quantiles"),
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_value_is_that_of_the_regressor_on_the_rows_of_the_split(name):
    calibrator, score, outputs = CALIBRATED[name]
    train = fan(n=80, seed=5)
    given = {"Z_train": train.Z, "y_train": train.y, "y_pred_train": train.y_pred}
    problem = fan(n=150, **given)
    calibration, test, seed = trial(problem, 60, 90, split=1, random_state=3).draw()

    def predict(Z):
        quantiles = np.stack([-1.6 * Z[:, 0], 1.6 * Z[:, 0]], axis=1)
        return quantiles if outputs else np.zeros(len(Z))

    model = ConformalRegressor(
        predict,
        calibrator,
        score_function=score,
        embed=FunctionTransformer(),
        random_state=seed,
    )
    model.calibrate(
        problem.Z[calibration], problem.y[calibration], X_train=train.Z, y_train=train.y
    )
    expected = model.predict_interval(problem.Z[test], [0.5, 0.8])
    records = evaluate(
        problem,
        {"m": Method(calibrator, score_function=score, outputs=outputs)},
        coverage=[0.5, 0.8],
        n_splits=2,
        n_calibration=60,
        random_state=3,
        measures={
            "lowest": lambda y, intervals, context: intervals.lower.sum(),
            "highest": lambda y, intervals, context: intervals.upper.sum(),
            "centre": lambda y, intervals, context: context.y_pred.sum(),
        },
    )
    assert records.failures == []
    for row in records.where(split=1):
        at_level = expected.at(row["level"])
        assert (row["lowest"], row["highest"]) == (at_level.lower.sum(), at_level.upper.sum())
        assert row["centre"] == model.predict(problem.Z[test]).sum()
        assert row["guaranteed"] == pytest.approx(
            model.guaranteed_coverage(row["level"]), abs=1e-12
        )


def test_adding_a_problem_a_method_a_size_or_splits_changes_no_other_value():
    small = evaluate(fan("a"), {"Split": Split()}, n_splits=2, n_calibration=40)
    large = evaluate(
        [fan("b", seed=1), fan("a")], METHODS, n_splits=3, n_calibration={"a": [20, 40], "b": 30}
    )
    same = [
        row
        for row in large.where(problem="a", method="Split", n_calibration=40)
        if row["split"] < 2
    ]
    assert without_time(same) == without_time(small)


@settings(max_examples=40)
@given(
    n=st.integers(2, 60),
    seed=st.integers(0, 2**40),
    name=st.text(min_size=1, max_size=5),
    split=st.integers(0, 50),
    data=st.data(),
)
def test_splits_are_apart_and_repeatable(n, seed, name, split, data):
    n_calibration = data.draw(st.integers(1, n - 1))
    n_test = data.draw(st.integers(1, n - n_calibration))
    where = {"n_test": n_test, "split": split, "random_state": seed}
    calibration, test, _ = trial(fan(name, n=n), n_calibration, **where).draw()
    assert len(calibration) == n_calibration and len(test) == n_test
    assert len(np.union1d(calibration, test)) == n_calibration + n_test
    assert np.union1d(calibration, test).max() < n
    again = trial(fan(name, n=n), n_calibration, **where).draw()
    assert np.array_equal(again[0], calibration) and np.array_equal(again[1], test)


@pytest.mark.parametrize("other", [{"random_state": 1}, {"problem": fan("b")}, {"split": 1}])
def test_what_a_split_depends_on(other):
    where = {"problem": fan("a"), "n_calibration": 50, "n_test": 50, "split": 0, "random_state": 0}
    one, two = trial(**where).draw(), trial(**{**where, **other}).draw()
    assert not np.array_equal(one[0], two[0])
    assert one[2] != two[2]


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_any_joblib_backend_gives_the_same_rows(backend):
    methods = {**METHODS, "failing": Failing()}
    with pytest.warns(FailedTrialsWarning):
        alone = evaluate(fan(), methods, n_splits=3, coverage=[0.5, 0.99], n_calibration=40)
    with parallel_config(backend, n_jobs=2), pytest.warns(FailedTrialsWarning):
        together = evaluate(fan(), methods, n_splits=3, coverage=[0.5, 0.99], n_calibration=40)
    assert without_time(together) == without_time(alone)


def test_quantiles_run_beside_the_others_and_are_skipped_where_there_are_none():
    cqr = Method(Split(), score_function=QuantileError(), outputs="quantiles")
    problems = [fan("with", n=300), fan("without", n=300, outputs={})]
    records = evaluate(problems, {"Split": Split(), "CQR": cqr}, n_splits=2, coverage=0.9)
    skipped = records.where(status="skipped")
    assert {(row["problem"], row["method"]) for row in skipped} == {("without", "CQR")}
    assert "no outputs named 'quantiles'" in skipped.rows[0]["error"]
    assert records.failures == []
    widths = {row["method"]: row["mean_width"] for row in records.where(problem="with", split=0)}
    assert widths["CQR"] < widths["Split"]


def test_training_rows_reach_methods_that_learn_from_them():
    train = fan(n=80, seed=5)
    given = {"Z_train": train.Z, "y_train": train.y, "y_pred_train": train.y_pred}
    records = evaluate(fan(**given), {"MAD": MADSplit(KNN(5))}, n_splits=1)
    assert records.failures == []
    with pytest.warns(FailedTrialsWarning, match="pass training="):
        evaluate(fan(), {"MAD": MADSplit(KNN(5))}, n_splits=1)


def test_scores_of_two_tails():
    problem = fan(n=300, score_function=SignedError())
    row = evaluate(problem, {"Split": Split()}, n_splits=1, coverage=0.8).rows[0]
    assert 0.6 < row["coverage"] < 1


def test_methods_without_a_seed_get_that_of_the_split_and_others_keep_theirs():
    methods = {
        "none": Seeded(inner=Seeded()),
        "again": Seeded(inner=Seeded()),
        "own": Seeded(7, inner=Seeded(8)),
    }
    measures = {"width": lambda y, intervals, context: intervals.width.max()}
    records = evaluate(fan(), methods, n_splits=2, n_calibration=40, measures=measures)
    assert records.failures == []
    of = {m: [row["width"] for row in records.where(method=m)] for m in methods}
    seeds = [trial(fan(), 40, 80, split, 0).draw()[2] for split in range(2)]
    assert seeds[0] != seeds[1]
    assert of["none"] == of["again"] == pytest.approx([4.0 * seed for seed in seeds])
    assert of["own"] == pytest.approx([2 * (7 + 8)] * 2)


def test_a_context_has_the_rows_of_the_test_set():
    labels = np.arange(120) % 3

    def check(y, intervals, context):
        assert len(y) == len(context.Z) == len(context.X) == len(context.groups) == 90
        assert np.array_equal(context.X[:, 0] % 3, context.groups)
        return context.max_score

    problem = fan(groups=labels, X=np.arange(120)[:, None])
    records = evaluate(problem, METHODS, n_splits=1, n_calibration=30, measures={"largest": check})
    assert records.failures == [] and records.rows[0]["largest"] > 0


def test_progress_is_told_and_may_stop():
    told = []
    evaluate(fan(), METHODS, n_splits=2, progress=told.append)
    assert told == [0.0, 0.25, 0.5, 0.75, 1.0]

    def stop(fraction):
        if fraction > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(fan(), METHODS, n_splits=2, progress=stop)


def test_progress_can_be_shown(capsys):
    evaluate(fan(), METHODS, n_splits=2, progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.rstrip().endswith("evaluating: 100%")
