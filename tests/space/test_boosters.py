"""What XGBoost, LightGBM and CatBoost say of their trees, against their own staged predictions."""

import pickle
import subprocess
import sys
import warnings
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError, ConformalRegressor, Split, metrics
from calliper.exceptions import EmbeddingWarning
from calliper.refitting import CVPlus

NAMES = ["xgboost", "lightgbm", "catboost"]
LIBRARIES = pytest.mark.parametrize("name", NAMES)
N_STAGES = 24


def rows(n, seed):
    """A frame with a gap here and there and a category; noise that depends on an input."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    kind = rng.integers(0, 5, n)
    y = 40 + X[:, 0] + np.sin(kind) + np.exp(0.8 * X[:, 1]) * rng.normal(size=n)
    X[rng.random((n, 3)) < 0.05] = np.nan
    frame = pd.DataFrame(X, columns=list("abc"))
    return frame.assign(kind=pd.Categorical.from_codes(kind, list("vwxyz"))), y


FRAME, Y = rows(700, 0)
NUMBERS = FRAME[["a", "b", "c"]].to_numpy()


def regressor(name, **settings):
    module = pytest.importorskip(name)
    if name == "xgboost":
        known = {"n_estimators": N_STAGES, "max_depth": 3, "enable_categorical": True, "n_jobs": 1}
        return module.XGBRegressor(**known | settings)
    if name == "lightgbm":
        known = {"n_estimators": N_STAGES, "num_leaves": 8, "verbose": -1, "n_jobs": 1}
        return module.LGBMRegressor(**known | settings)
    known = {"iterations": N_STAGES, "depth": 3, "verbose": 0, "thread_count": 1}
    return module.CatBoostRegressor(**known | {"allow_writing_files": False} | settings)


def on_frame(name):
    categories = {"cat_features": ["kind"]} if name == "catboost" else {}
    return regressor(name, **categories).fit(FRAME[:300], Y[:300])


def stopped_early(name):
    """Many stages are grown at a high rate; few of them are used."""
    if name == "lightgbm":
        callback = pytest.importorskip(name).early_stopping(5, verbose=False)
        model, how = regressor(name, n_estimators=200, learning_rate=0.3), {"callbacks": [callback]}
    elif name == "xgboost":
        model, how = regressor(name, n_estimators=200, early_stopping_rounds=5), {"verbose": False}
        model.set_params(learning_rate=0.1)
    else:
        model, how = regressor(name, iterations=200), {"early_stopping_rounds": 5}
        model.set_params(learning_rate=0.3)
    seen = [(NUMBERS[300:], Y[300:])]
    return model.fit(NUMBERS[:300], Y[:300], eval_set=seen, **how)


def native(name):
    module = pytest.importorskip(name)
    if name == "xgboost":
        data = module.DMatrix(NUMBERS[:300], Y[:300])
        return module.train({"max_depth": 3, "nthread": 1}, data, N_STAGES)
    if name == "lightgbm":
        data = module.Dataset(NUMBERS[:300], Y[:300])
        return module.train({"verbose": -1, "num_leaves": 8, "num_threads": 1}, data, N_STAGES)
    settings = {"iterations": N_STAGES, "verbose": 0, "allow_writing_files": False}
    return module.CatBoost(settings).fit(NUMBERS[:300], Y[:300])


def staged(model, X, n_stages):
    """Oracle: the library's predictions before the link by the first 1, 2, ... stages, (k, m)."""
    name = type(model).__module__.partition(".")[0]
    if name == "catboost":
        return np.array(list(model.staged_predict(X, prediction_type="RawFormulaVal")))
    if name == "lightgbm":
        ask = {"raw_score": True}
        return np.array([model.predict(X, num_iteration=k + 1, **ask) for k in range(n_stages)])
    if hasattr(model, "get_booster"):  # a list keeps what predict keeps for the same rows
        return np.array(
            [
                model.predict(X, output_margin=True, iteration_range=(0, k + 1))
                for k in range(n_stages)
            ]
        )
    data = sys.modules[name].DMatrix(X)
    return np.array(
        [
            model.predict(data, output_margin=True, iteration_range=(0, k + 1))
            for k in range(n_stages)
        ]
    )


def space_of(model, X_cal, y_cal, **known):
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmbeddingWarning)
        return (
            ConformalRegressor(model, learning_part=None)
            .calibrate(X_cal, y_cal, **known)
            .embedding_.space
        )


def check_steps(space, model, X):
    """Steps by look-up are the library's own, over the later half of the stages."""
    _, (steps, scarce) = space.reader.measure(X)
    n = space.reader.n_stages
    sums = np.asarray(staged(model, X, n), float)
    assert len(sums) == n
    expected = np.abs(np.diff(sums, axis=0))[n // 2 - 1 :].sum(axis=0)
    scale = np.abs(sums).max()  # XGBoost adds in single precision
    np.testing.assert_allclose(steps, expected, rtol=1e-5, atol=n * 3e-7 * scale)
    assert expected.max() > 1e-3
    assert ((scarce > 0) & (scarce <= 1)).all() and np.ptp(scarce) > 0
    np.testing.assert_allclose(space.locate(X, None)[0], model_predictions(model, X), rtol=1e-12)


def model_predictions(model, X):
    if type(model).__name__ == "Booster" and hasattr(model, "save_raw"):
        return model.predict(sys.modules["xgboost"].DMatrix(X))
    return model.predict(X)


@LIBRARIES
def test_steps_on_a_frame_with_categories_and_gaps(name):
    model = on_frame(name)
    check_steps(space_of(model, FRAME[300:], Y[300:]), model, FRAME[300:])


@LIBRARIES
def test_steps_of_native_boosters(name):
    model = native(name)
    check_steps(space_of(model, NUMBERS[300:], Y[300:]), model, NUMBERS[300:])


@LIBRARIES
def test_stages_after_the_best_are_not_asked(name):
    model = stopped_early(name)
    space = space_of(model, NUMBERS[300:], Y[300:])
    best = {"xgboost": "best_iteration", "lightgbm": "best_iteration_", "catboost": "tree_count_"}
    assert space.reader.n_stages == getattr(model, best[name]) + (name == "xgboost") >= 4
    check_steps(space, model, NUMBERS[300:])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("xgboost", {"num_parallel_tree": 3, "subsample": 0.5}),
        ("xgboost", {"booster": "dart", "rate_drop": 0.3}),
        ("lightgbm", {"boosting_type": "dart", "drop_rate": 0.3}),
        ("catboost", {"grow_policy": "Lossguide"}),
    ],
)
def test_other_ways_of_boosting(name, settings):
    """With DART an early stage is no prediction: all leaves together must give the last one."""
    model = regressor(name, **settings).fit(NUMBERS[:300], Y[:300])
    space = space_of(model, NUMBERS[300:], Y[300:])
    trees, booster = space.reader.trees(), space.reader
    leaves = booster.leaves(NUMBERS[300:]).astype(int)
    total = sum(values[leaf] for values, leaf in zip(trees.values, leaves.T, strict=True))
    np.testing.assert_allclose(np.ptp(model.predict(NUMBERS[300:]) - total), 0, atol=1e-4)
    assert space.reader.n_stages == N_STAGES


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_rows_in_leaves_are_the_training_rows(name):
    model = regressor(name).fit(NUMBERS[:300], Y[:300])
    read = space_of(model, NUMBERS[300:], Y[300:]).reader
    leaves = read.leaves(NUMBERS[:300])[:, 0].astype(int)
    counts = read.trees().counts[0]
    np.testing.assert_allclose(np.bincount(leaves, minlength=len(counts)), counts)


@LIBRARIES
def test_the_unit_is_about_the_deviation_of_the_targets(name):
    """y = 40 + a smooth function, with little noise: nearly all is explained."""
    X = np.random.default_rng(5).uniform(size=(1000, 2))
    y = 40 + 8 * X[:, 0] + np.sin(6 * X[:, 1])
    count = {"iterations" if name == "catboost" else "n_estimators": 100}
    model = regressor(name, **count).fit(X[:500], y[:500])
    assert 0.85 < space_of(model, X[500:], y[500:]).unit / y[:500].std() < 1.05
    wrapped = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), regressor(name, **count)), transformer=StandardScaler()
    )
    assert 0.85 < space_of(wrapped.fit(X[:500], y[:500]), X[500:], y[500:]).unit < 1.05


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("xgboost", {"objective": "count:poisson"}),
        ("xgboost", {"objective": "reg:tweedie"}),
        ("lightgbm", {"objective": "poisson"}),
        ("lightgbm", {"objective": "regression", "reg_sqrt": True}),
        ("catboost", {"loss_function": "Poisson"}),
    ],
)
def test_steps_before_a_link_are_brought_to_the_unit_of_y(name, settings):
    """Small steps: the slope times a step is what the prediction itself changes by."""
    y = np.round(np.exp(1 + np.nan_to_num(NUMBERS[:, 0]) / 2))
    known = {"X_train": NUMBERS[:300], "y_train": y[:300]}
    model = regressor(name, learning_rate=0.01, **settings).fit(NUMBERS[:300], y[:300])
    space = space_of(model, NUMBERS[300:], y[300:], **known)
    y_pred, (steps, _) = space.reader.measure(NUMBERS[300:])
    raw = np.abs(np.diff(staged(model, NUMBERS[300:], N_STAGES), axis=0))[11:].sum(axis=0)
    slope = 2 * np.sqrt(y_pred) if "reg_sqrt" in settings else y_pred
    np.testing.assert_allclose(steps, raw * slope, rtol=1e-3, atol=1e-5)
    assert space.unit == pytest.approx(y[:300].std())


@LIBRARIES
def test_one_row_is_placed_as_among_many(name):
    model = on_frame(name)
    fitted = ConformalRegressor(model).calibrate(FRAME[300:], Y[300:])
    alone = [fitted.embedding_.transform(FRAME[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(alone, fitted.embedding_.transform(FRAME[:5]), rtol=1e-6)


@LIBRARIES
@pytest.mark.parametrize("folds", [None, 2])
def test_a_category_unseen_in_training_goes_where_the_library_puts_it(name, folds):
    """Among new rows and among calibration rows; XGBoost 3.1 refuses it."""
    model = on_frame(name)
    known = {} if folds is None else {"X_train": FRAME[:300], "y_train": Y[:300]}
    fitted = ConformalRegressor(model, refits=folds, random_state=0)
    new = FRAME[:40].assign(kind=pd.Categorical(["never seen"] * 40, [*"vwxyz", "never seen"]))
    try:
        expected = model.predict(new)
    except ValueError as refusal:
        with pytest.raises(type(refusal)):
            fitted.calibrate(FRAME[300:], Y[300:], **known).predict_interval(new)
        return
    intervals = fitted.calibrate(FRAME[300:], Y[300:], **known).predict_interval(new)
    assert np.isfinite(intervals.width).all()
    np.testing.assert_allclose(fitted.predict(new), expected, rtol=1e-6)
    if fitted.error_model_ is None:
        np.testing.assert_allclose((intervals.lower + intervals.upper) / 2, expected, rtol=1e-6)
    one = fitted.predict_interval(new[:1])
    np.testing.assert_allclose([*one], [intervals.lower[:1], intervals.upper[:1]])
    cells = pd.Categorical(FRAME["kind"][300:].astype(str).where(FRAME.index[300:] % 9 > 0, "new"))
    fitted.calibrate(FRAME[300:].assign(kind=cells), Y[300:], **known)


@LIBRARIES
@pytest.mark.parametrize("make", [on_frame, native])
def test_copies_and_pickles_say_the_same(name, make):
    X = FRAME if make is on_frame else NUMBERS
    fitted = ConformalRegressor(make(name)).calibrate(X[300:], Y[300:])
    expected = fitted.predict_interval(X[:50]).lower
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict_interval(X[:50]).lower, expected, rtol=1e-6)
    assert again.embedding_.space.name == fitted.embedding_.space.name
    assert not hasattr(clone(fitted), "calibrators_")


@LIBRARIES
@pytest.mark.parametrize("make", [regressor, native])
@pytest.mark.parametrize("n_columns", [2, 4])
@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, np.ndarray.tolist])
def test_another_number_of_columns_is_refused(name, make, n_columns, kind):
    model = make(name) if make is native else make(name).fit(NUMBERS[:300], Y[:300])
    wide = kind(np.tile(NUMBERS[300:], 2)[:, :n_columns])
    said = rf"X has {n_columns} columns, but \w+ was trained on 3"
    with pytest.raises(CalliperError, match=said):
        ConformalRegressor(model).calibrate(wide, Y[300:])


@LIBRARIES
def test_categories_in_another_order_are_the_same_categories(name):
    """For few rows and for many; of XGBoost, a part of the model would take the codes."""
    model = on_frame(name)
    embedding = ConformalRegressor(model).calibrate(FRAME[300:], Y[300:]).embedding_
    other = FRAME.assign(kind=pd.Categorical(FRAME["kind"].astype(str), list("zyxwv")))
    for n in (3, 200):
        expected = embedding.predict_and_transform(FRAME[:n])
        for found, known in zip(embedding.predict_and_transform(other[:n]), expected, strict=True):
            np.testing.assert_array_equal(found, known)


@LIBRARIES
def test_a_model_that_is_not_fitted_says_so(name):
    with pytest.raises(NotFittedError):
        ConformalRegressor(regressor(name)).calibrate(NUMBERS[300:], Y[300:])


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("xgboost", {"booster": "gblinear"}, "linear model"),
        ("xgboost", {"n_estimators": 1}, "no stage after the first"),
        ("lightgbm", {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1}, "averaged"),
        ("lightgbm", {"linear_tree": True}, "linear models"),
        ("catboost", {"iterations": 1}, "no stage after the first"),
    ],
)
def test_what_is_no_sum_of_trees_is_pointed_out(name, settings, why):
    X = np.nan_to_num(NUMBERS)
    model = regressor(name, **settings).fit(X[:300], Y[:300])
    known = {"X_train": X[:300], "y_train": Y[:300]}
    with pytest.warns(EmbeddingWarning, match=f"cannot be used to adapt widths, because .*{why}"):
        fitted = ConformalRegressor(model).calibrate(X[300:], Y[300:], **known)
    assert "stages" not in fitted.embedding_.space.name


@LIBRARIES
@pytest.mark.long
def test_coverage_holds_and_widths_follow_the_noise(name):
    """Over 30 draws of 100 calibration rows; less than plain split where noise varies."""
    model = regressor(name).fit(NUMBERS[:300], Y[:300])
    fresh_rows, y = rows(9_000, 7)
    X = fresh_rows[["a", "b", "c"]].to_numpy()
    covered, scores = [], []
    for part in np.array_split(np.arange(9_000), 30):
        cal, new = part[:100], part[100:]
        found = [
            ConformalRegressor(model, method).calibrate(X[cal], y[cal]).predict_interval(X[new])
            for method in (None, Split())
        ]
        covered.append(metrics.empirical_coverage(y[new], found[0]))
        scores.append([metrics.interval_score(y[new], each) for each in found])
    assert np.mean(covered) > 0.9 - 3 * np.std(covered) / np.sqrt(30)
    assert np.mean(covered) < 0.93
    ours, split = np.mean(scores, axis=0)
    assert ours < 0.95 * split


@LIBRARIES
def test_refits_are_placed_in_the_same_space(name):
    known = {"X_train": FRAME[:300], "y_train": Y[:300]}
    fitted = ConformalRegressor(on_frame(name), refits=3, random_state=0)
    fitted.calibrate(FRAME[300:], Y[300:], **known)
    assert fitted.left_out_.Z.shape == (300, 4)
    assert np.ptp(fitted.left_out_.Z, axis=0).all()
    assert "stages and expected error" in fitted.embedding_.space.name


def test_no_library_is_imported_for_other_models():
    code = (
        "import sys, numpy as np\n"
        "from sklearn.ensemble import HistGradientBoostingRegressor\n"
        "from calliper import ConformalRegressor\n"
        "X = np.random.default_rng(0).normal(size=(200, 2))\n"
        "model = HistGradientBoostingRegressor(max_iter=5).fit(X[:100], X[:100, 0])\n"
        "ConformalRegressor(model).calibrate(X[100:], X[100:, 0]).predict_interval(X)\n"
        "print(sorted({'xgboost', 'lightgbm', 'catboost'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@LIBRARIES
def test_names_bring_no_warning_that_the_library_does_not_give(name):
    frame = FRAME[["a", "b", "c"]]
    model = regressor(name).fit(frame[:300], Y[:300])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*feature names")
        model.predict(frame)
        known = {"X_train": frame[:300], "y_train": Y[:300]}
        asked = ConformalRegressor(model).calibrate(frame[300:600], Y[300:600], **known)
        asked.predict_interval(frame[600:])
        asked.predict_interval(frame[600:601])
        ConformalRegressor(regressor(name), refits=2, random_state=0).fit(frame, Y)


@LIBRARIES
def test_polars_frames_are_read_as_pandas_frames_are(name):
    frame = FRAME[["a", "b", "c"]]
    model = regressor(name).fit(frame[:300], Y[:300])
    answers = [
        ConformalRegressor(model).calibrate(rows[300:600], Y[300:600]).predict_interval(rows[600:])
        for rows in (frame, pl.from_pandas(frame))
    ]
    np.testing.assert_array_equal(answers[0].lower, answers[1].lower)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lightgbm", "String"),
        ("lightgbm", "Categorical"),
        ("catboost", "Date"),
        ("xgboost", "String"),
    ],
)
def test_polars_columns_at_which_the_library_fails_are_refused(name, kind):
    """LightGBM and CatBoost end the process at some, without an exception."""
    rows = pl.from_pandas(FRAME[["a", "b"]]).with_columns(
        pl.lit(date(2020, 1, 1)) if kind == "Date" else pl.lit("x").cast(getattr(pl, kind))
    )
    model = regressor(name).fit(NUMBERS[:300], Y[:300])
    with pytest.raises(CalliperError, match=rf"column 'literal' .* type {kind}: pass X\.to_pandas"):
        ConformalRegressor(model).calibrate(rows[300:], Y[300:])
    for front in (ConformalRegressor, CVPlus):
        with pytest.raises(CalliperError, match=r"pass X\.to_pandas"):
            front(regressor(name)).fit(rows, Y)


def test_a_matrix_of_xgboost_is_refused():
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(NUMBERS[300:], Y[300:])
    model = regressor("xgboost").fit(NUMBERS[:300], Y[:300])
    asked = ConformalRegressor(model).calibrate(NUMBERS[300:], Y[300:])
    known = NUMBERS[300:], Y[300:]
    for call in (
        lambda: ConformalRegressor(model).calibrate(rows, Y[300:]),
        lambda: ConformalRegressor(model).fit(rows, Y[300:]),
        lambda: ConformalRegressor(model).calibrate(*known, X_train=rows, y_train=Y[300:]),
        lambda: asked.predict_interval(rows),
        lambda: asked.predict_distribution(rows),
        lambda: asked.extend(rows, Y[300:]),
    ):
        with pytest.raises(CalliperError, match=r"got a DMatrix .*array or the frame that it was"):
            call()


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost", "forest", "ridge"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix])
def test_sparse_rows_may_be_given(name, kind):
    models = {"forest": RandomForestRegressor(5, random_state=0), "ridge": Ridge()}
    model = models[name] if name in models else regressor(name)
    X = np.where(NUMBERS > 0, NUMBERS, 0.0)
    rows = sparse.csr_matrix(X)
    model.fit(rows[:300], Y[:300])
    known = {"X_train": kind(rows[:300]), "y_train": Y[:300]}
    asked = ConformalRegressor(model).calibrate(kind(rows[300:600]), Y[300:600], **known)
    answer = asked.predict_interval(kind(rows[600:]))
    one = asked.predict_interval(kind(rows[600:601]))
    np.testing.assert_allclose(one.lower, answer.lower[:1], rtol=1e-6)
    if name != "xgboost":  # to which what is not stored is missing
        known["X_train"] = X[:300]
        dense = ConformalRegressor(model).calibrate(X[300:600], Y[300:600], **known)
        np.testing.assert_allclose(answer.lower, dense.predict_interval(X[600:]).lower, rtol=1e-6)
