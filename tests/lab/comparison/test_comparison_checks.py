"""Each warning appears where it must, and not where it must not."""

from __future__ import annotations

import numpy as np
import pytest

from calliper import KNN, FullRescaled, SignedError, Split
from calliper.calibrators import ConditionalCalibration
from calliper.lab.comparison import Points, compare
from calliper.lab.comparison._checks import told_apart
from cases.comparisons import methods, points


def kinds(calibration, test, **options):
    found = compare(calibration, test, **{"methods": {"split": Split()}, **options})
    return {check.kind: check for check in found.checks}


def changed(rows, **values):
    kept = {name: getattr(rows, name) for name in ("Z", "y", "y_pred", "ids", "feature_names")}
    return Points(**{**kept, **values})


def test_honest_data_raise_no_warning():
    assert kinds(points(400, seed=1, ids=True), points(400, seed=2, ids=True)) == {}


def test_rows_in_both_sets_are_said_loudly():
    calibration, test = points(200, seed=1), points(200, seed=2)
    mixed = Points(
        *(np.concatenate([getattr(test, k)[:180], getattr(calibration, k)[:20]])
          for k in ("Z", "y", "y_pred")), None, ("a", "b"),
    )  # fmt: skip
    check = kinds(calibration, mixed)["test-in-calibration"]
    assert check.severity == "void" and "20 of 200 test rows" in check.title


@pytest.mark.parametrize("how", ["copied", "predicted anew", "rounded", "another unit", "offset"])
def test_the_same_rows_are_found_whatever_was_done_to_them(how):
    rows, rng = points(300, seed=1), np.random.default_rng(0)
    if how == "offset":  # seven digits would be the offset's alone
        rows = Points(rows.Z, rows.y + 1.7e9, rows.y_pred + 1.7e9)
    seen = {
        "copied": rows,
        "predicted anew": Points(rows.Z, rows.y, rows.y_pred + rng.normal(size=300)),
        "rounded": Points(rows.Z.round(6), rows.y.round(6), rows.y_pred.round(6)),
        "another unit": Points(rows.Z * (1 + 1e-15), rows.y, rows.y_pred + 1e-9),
        "offset": rows,
    }[how]
    twice = [np.concatenate([a, a]) for a in (rows.Z, rows.y, rows.y_pred)]
    for known in (Points(*twice), Points(rows.Z, rows.y, rows.y_pred)):
        check = kinds(known, Points(seen.Z, seen.y, seen.y_pred))["test-in-calibration"]
        assert check.severity == "void", check


def test_repeated_inputs_with_other_targets_are_other_rows():
    """Features on a grid, targets not: the same features are not the same row."""
    rng = np.random.default_rng(0)
    sets = [Points(rng.integers(3, size=300), y, y) for y in rng.normal(size=(2, 300))]
    assert "test-in-calibration" not in kinds(*sets)
    assert kinds(sets[0], sets[0])["test-in-calibration"].severity == "void"


def test_twins_by_chance_are_not_called_the_same_rows():
    """Targets and predictions on a coarse grid coincide without being the same row."""
    rng = np.random.default_rng(0)
    calibration, test = (
        Points(rng.integers(3, size=n), rng.integers(3, size=n), rng.integers(3, size=n))
        for n in (300, 300)
    )
    check = kinds(calibration, test)["test-in-calibration"]
    assert check.severity == "warning" and "So few" not in check.meaning


def test_rows_that_the_model_has_seen():
    calibration, test = points(200, seed=1), points(200, seed=2)
    found = kinds(calibration, test, training=calibration)
    assert found["calibration-in-training"].severity == "void" and "test-in-training" not in found


def test_censored_targets():
    calibration, test = points(500, seed=1), points(500, seed=2)
    limit = np.quantile(calibration.y, 0.95)
    cut = changed(calibration, y=np.minimum(calibration.y, limit))
    check = kinds(cut, changed(test, y=np.minimum(test.y, limit)))["censored"]
    assert "largest" in check.title
    whole = changed(calibration, y=np.round(calibration.y)), changed(test, y=np.round(test.y))
    assert "censored" not in kinds(*whole), "a scale of few values is no limit"


def test_errors_that_grow_from_row_to_row():
    """A series with growing noise, in the order of time; the same rows shuffled are honest."""
    rng = np.random.default_rng(0)
    growing = np.linspace(0.2, 2, 400) * rng.normal(size=400)
    x, test = rng.uniform(size=400), points(400, seed=2)
    check = kinds(Points(x, x + growing, x), Points(test.Z[:, :1], test.y, test.y_pred))[
        "row-order"
    ]
    assert check.severity == "warning" and check.title.endswith(").")
    assert "row number among the calibration rows" in check.title and "time" in check.meaning
    order = rng.permutation(400)
    shuffled = Points(x[order], (x + growing)[order], x[order])
    assert "row-order" not in kinds(shuffled, shuffled)


def test_drift_is_found_and_named():
    calibration, test = points(500, seed=1), points(500, seed=2)
    Z = test.Z.copy()
    Z[:, 1] += 0.5
    check = kinds(calibration, changed(test, Z=Z))["drift"]
    assert check.severity == "warning" and "differ: b." in check.title
    assert "exchangeable" in check.meaning


def test_drift_that_no_single_feature_shows():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1000, 2))
    joint = np.column_stack([Z[:, 0], Z[:, 0] * np.sign(rng.normal(size=1000)) + 0.1 * Z[:, 1]])
    auc, p_value = told_apart(Z, joint, 0)
    assert auc > 0.7 and p_value < 1e-6


def test_alike_sets_are_seldom_told_apart():
    rng = np.random.default_rng(1)
    draws = [told_apart(*rng.normal(size=(2, 200, 3)), seed) for seed in range(10)]
    assert sum(p < 0.05 for _, p in draws) <= 3 and min(p for _, p in draws) > 0.001


def test_ids():
    calibration, test = points(100, seed=1, ids=True), points(100, seed=2, ids=True)
    twice = changed(test, ids=[*test.ids[:99], test.ids[0]])
    found = kinds(calibration, twice)
    assert "'p2-0'" in found["duplicated-ids"].title and "shared-ids" not in found
    assert "p1-0" in kinds(calibration, changed(test, ids=calibration.ids))["shared-ids"].title


def test_groups_of_few():
    groups = ["one"] + ["few"] * 5 + ["many"] * 94
    found = kinds(points(100, seed=1), points(100, seed=2), groups=groups)
    said = "2 of 3 groups have fewer than 20 test points: 'few', 'one'."
    assert found["small-group"].title == said and found["small-group"].severity == "note"


def test_too_few_points():
    found = kinds(points(15, seed=1), points(10, seed=2))
    assert "99 %" in found["few-calibration-points"].title.replace("\u00a0", " ")
    assert "10 test points" in found["few-test-points"].title


def test_infinite_intervals():
    found = kinds(points(15, seed=1), points(50, seed=2), coverage=0.95)
    assert found["infinite"].title.startswith("All of the intervals of split")


@pytest.mark.parametrize(
    ("n", "method", "score", "said"),
    [
        (300, FullRescaled(), None, True),
        (250, FullRescaled(), None, False),
        (300, FullRescaled(KNN(9)), None, False),
        (300, FullRescaled(), SignedError(), False),
    ],
)
def test_methods_that_learn_from_a_part_elsewhere_calibrate_on_all_rows(n, method, score, said):
    rows, how = (points(n, seed=1), points(50, seed=2)), {"score_function": score}
    found = kinds(*rows, methods={"full": method}, **how).get("all-rows")
    assert (found.title if found else "") == ("full calibrated on all 300 rows." if said else "")


def test_the_gravest_come_first():
    same = points(15, seed=1)
    found = compare(same, same, methods=methods())
    order = [check.severity for check in found.checks]
    assert order == sorted(order, key=["void", "warning", "note"].index) and order[0] == "void"


def test_what_is_said_of_single_rows_is_not_taken_for_what_is_said_of_all():
    """Infinite at some rows only: not the same as too few calibration rows for the level."""
    calibration, test = points(60, seed=1), points(50, seed=2)
    far = changed(test, Z=test.Z * 50)
    found = kinds(calibration, far, methods={"linear": ConditionalCalibration()}, levels=())
    assert "few-calibration-points" not in found
    assert "new rows the 60 calibration rows cannot support" in found["method-warning"].meaning


@pytest.mark.filterwarnings("error")
def test_what_a_method_warns_about_becomes_a_note():
    found = compare(points(12, seed=1), points(30, seed=2), methods=methods(), levels=())
    assert "few-calibration-points" not in {c.kind for c in found.checks}
    warned = [check for check in found.checks if check.kind == "method-warning"]
    assert warned and all(check.severity == "note" for check in warned)
