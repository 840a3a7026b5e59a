"""What is given and cannot be used, or is called otherwise elsewhere, is said; ties are kept."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import calliper
from calliper import (
    KNN,
    AbsoluteError,
    CalliperError,
    ConformalRegressor,
    ErrorModel,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    QuantileError,
    SignedError,
    Split,
    load,
    save,
)
from calliper._answering import NOT_ALONE
from calliper.calibrators import LVD, Calibrator, NormalizedKNN
from calliper.exceptions import (
    EmbeddingWarning,
    RowLabelsWarning,
    SharedRowsWarning,
    UnusedWarning,
)
from calliper.information import mutual_information
from calliper.kernels import TunedKNN, learn_metric
from calliper.online import Controller
from calliper.refitting import JackknifePlus

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=400)
CAL, TRAIN = (X[200:], Y[200:]), {"X_train": X[:200], "y_train": Y[:200]}
MODEL = LinearRegression().fit(X[:200], Y[:200])
LEARNT = learn_metric(X, Y, max_iter=5)
pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.EmbeddingWarning")


# Ties that a model loses by rounding


def ten_kinds(seed):
    """A linear model, noise-free rows of ten kinds, and which kind each calibration row is of."""
    draw = np.random.default_rng(seed)
    kinds, weights, rows = draw.normal(size=(10, 20)), draw.normal(size=20), np.eye(20)
    model = LinearRegression().fit(np.vstack([rows, -rows]), np.hstack([weights, -weights]))
    return model, kinds, kinds @ weights, draw.integers(10, size=999)


@pytest.mark.parametrize("score", [None, SignedError()], ids=repr)
def test_ties_are_kept_where_rows_are_predicted_otherwise_alone(score, tmp_path):
    lost = 0
    for seed in range(20):
        model, kinds, targets, drawn = ten_kinds(seed)
        made = ConformalRegressor(model, Split(), score_function=score)
        made.calibrate(kinds[drawn], targets[drawn])
        together = made.predict_interval(kinds[drawn], 0.85).contains(targets[drawn])
        held = [
            made.predict_interval(kinds[[kind]], 0.85).contains(targets[[kind]])[0]
            for kind in range(10)
        ]
        lost += sum(together & ~np.array(held)[drawn])
    assert not lost
    assert made.calibration_.slack > 0 and "differently alone" in made.guarantee(0.9).describe()
    save(made, tmp_path / "kept")
    assert load(tmp_path / "kept", model).calibration_.slack == made.calibration_.slack


def test_nothing_changes_for_models_that_answer_alike():
    forest = RandomForestRegressor(10, random_state=0).fit(X[:200], Y[:200])
    for model in (forest, lambda rows: rows[:, 0]):
        made = ConformalRegressor(model, Split()).calibrate(*CAL)
        assert made.calibration_.slack == 0 and "alone" not in made.guarantee(0.9).describe()


def test_a_model_of_batches_is_not_asked_alone():
    made = ConformalRegressor(lambda rows: np.squeeze(rows[:, :1]), Split()).calibrate(*CAL)
    assert made.calibration_.slack is None and NOT_ALONE in made.guarantee(0.9).describe()


# What cannot be used


def boosted():
    return HistGradientBoostingRegressor(max_iter=5).fit(X[:200], Y[:200])


def bagged():
    return RandomForestRegressor(20, random_state=0).fit(X[:200], Y[:200])


def forest():
    """One that was trained on the rows in another order than they are told."""
    return RandomForestRegressor(5, random_state=0).fit(X[:200][::-1], Y[:200][::-1])


@pytest.mark.parametrize(
    ("model", "method", "folds", "said"),
    [
        (
            boosted(),
            None,
            None,
            "used only to check .*refits=5 to compute them",
        ),
        (boosted().predict, None, None, "used only to check .*refits=5"),
        (forest(), None, None, "not its training rows, or not in"),
        (lambda rows: rows[:, 0], None, 5, "cannot train the model again, since it has no fit"),
        (MODEL, Split(), 5, "Split does not use out-of-fold errors"),
        (bagged(), None, 5, "refits=5 has no effect: out-of-bag errors are used instead"),
        (boosted(), None, 2, None),
        (bagged(), None, None, None),
        (MODEL, None, None, None),
        (MODEL, Split(), None, None),
    ],
)
def test_training_rows_and_refits_that_change_nothing_are_said(model, method, folds, said):
    made = ConformalRegressor(model, method, refits=folds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnusedWarning)
        made.calibrate(*CAL, **TRAIN)
    found = [str(each.message) for each in caught if each.category is UnusedWarning]
    assert len(found) == (said is not None)
    assert said is None or re.search(said, found[0])
    if said is not None and folds is None:
        bare = ConformalRegressor(model, method).calibrate(*CAL)
        same = [each.predict_interval(X[:20]).upper for each in (made, bare)]
        np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("n_more", [0, 30])
@pytest.mark.parametrize("method", [None, Split()], ids=repr)
def test_a_forest_knows_the_rows_that_it_was_trained_on(method, n_more):
    rows = X[: 200 + n_more], Y[: 200 + n_more]
    for bagged in (RandomForestRegressor(10), BaggingRegressor(n_estimators=10)):
        trained = make_pipeline(StandardScaler(), bagged).fit(X[:200], Y[:200])
        with pytest.raises(CalliperError, match="trained on these calibration rows"):
            ConformalRegressor(trained, method).calibrate(*rows)
        other = Y[:200] + np.random.default_rng(1).normal(size=200)  # measured again
        made = ConformalRegressor(trained, Split()).calibrate(X[:200], other)
        with pytest.raises(CalliperError, match="trained on these calibration rows"):
            made.extend(*rows)


def test_a_dict_of_quantile_models_can_be_trained_again():
    models = {p: QuantileRegressor(quantile=p).fit(X[:100], Y[:100]) for p in (0.1, 0.5, 0.9)}
    with pytest.warns(UnusedWarning, match="refits=5 to compute them, which trains"):
        ConformalRegressor(models).calibrate(*CAL, X_train=X[:100], y_train=Y[:100])


@pytest.mark.parametrize("method", [None, Split()], ids=repr)
@pytest.mark.parametrize("model", [LinearRegression(), HistGradientBoostingRegressor(max_iter=9)])
def test_errors_of_training_rows_add_up_to_zero(model, method):
    made = ConformalRegressor(model.fit(X, Y), method)
    with pytest.warns(SharedRowsWarning, match="errors of all 400 calibration rows add up to zero"):
        made.calibrate(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SharedRowsWarning)
        made.calibrate(X[:399], Y[:399])
        rounded = np.round(10 * np.abs(Y[:200]))
        signs = np.repeat([1, -1], 200)[:, None]
        ConformalRegressor(lambda rows: 0 * rows[:, 0], method).calibrate(  # by chance
            signs, signs[:, 0] * np.tile(rounded, 2)
        )
        grid = np.linspace(-3, 3, 400)[:, None]  # symmetric by construction
        sine = LinearRegression().fit(grid[::2], np.sin(grid[::2, 0]))
        ConformalRegressor(sine, method).calibrate(grid, np.sin(grid[:, 0]))


@pytest.mark.parametrize("method", [None, Split()], ids=repr)
def test_bounds_that_calibration_targets_leave_are_refused_after_more_rows_too(method, tmp_path):
    made = ConformalRegressor(LinearRegression().fit(X[:50], Y[:50]), method)
    made.calibrate(X[50:], np.append(-60.0, Y[51:]))
    for _ in range(2):
        with pytest.raises(CalliperError, match="calibration targets range from -60 to"):
            made.predict_interval(X[:5], bounds=(-50, None))
        made.extend(X[:10] + 1, Y[:10])
    made.extend(X[:5] + 2, Y[:5], window=100)  # what was seen once can be
    calliper.save(made, tmp_path / "kept")
    for each in (made, calliper.load(tmp_path / "kept", made.estimator)):
        with pytest.raises(CalliperError, match="calibration targets range from -60 to"):
            each.predict_distribution(X[:5], bounds=(-50, 50))
        assert each.predict_interval(X[:5], bounds=(-60, 50))


def test_a_frozen_model_is_calibrated_on_all_rows():
    frozen = ConformalRegressor(FrozenEstimator(MODEL), random_state=0)
    made, direct = frozen.fit(*CAL), ConformalRegressor(MODEL, random_state=0).calibrate(*CAL)
    ends = (each.predict_interval(X[:9]).lower for each in (made, direct))
    np.testing.assert_array_equal(*ends)
    for more in ({"split_groups": Y}, {"sample_weight": Y}):
        with pytest.raises(CalliperError, match="a frozen model is not trained"):
            frozen.fit(*CAL, **more)


def test_missing_labels_in_a_list_of_texts_are_no_group():
    labels = [*["b", "a"] * (len(CAL[1]) // 2 - 1), "a", np.nan]
    with pytest.raises(CalliperError, match=r"label in every row: 1 of .* at position"):
        ConformalRegressor(MODEL).calibrate(*CAL, groups=labels)


def test_one_group_cannot_be_split_and_progress_is_no_text():
    with pytest.raises(CalliperError, match="two groups or more"):
        ConformalRegressor(LinearRegression()).fit(X, Y, split_groups=np.ones(len(Y)))
    with pytest.raises(TypeError, match="progress must be True, None or a function; got 'yes'"):
        ConformalRegressor(LinearRegression(), progress="yes").fit(X, Y)


def test_training_rows_without_targets_are_said():
    made = ConformalRegressor(boosted())
    with pytest.warns(
        UnusedWarning, match="Without y_train, X_train is used only to check .* pass y_train"
    ):
        made.calibrate(*CAL, X_train=TRAIN["X_train"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedWarning)
        ConformalRegressor(MODEL).calibrate(*CAL, X_train=TRAIN["X_train"])  # in their units
        ConformalRegressor(MODEL, Split()).calibrate(*CAL, X_train=TRAIN["X_train"])
        for embed in (PCA(2), "inputs"):  # fitted to them
            made = ConformalRegressor(boosted(), embed=embed, learning_part=100)
            made.calibrate(*CAL, X_train=TRAIN["X_train"])
    with pytest.warns(UnusedWarning, match="learning_part=100 is not used"):
        ConformalRegressor(MODEL, error_model=None, learning_part=100).calibrate(*CAL)


@pytest.mark.parametrize(
    ("given", "n", "trained", "said"),
    [
        ({"calibrator": Split()}, 200, False, True),
        ({"learning_part": None}, 200, False, True),
        ({}, 60, False, True),
        ({"calibrator": Split()}, 200, True, True),
        ({"calibrator": Split(), "learning_part": 100}, 200, False, False),
        ({"calibrator": Split(), "refits": 3}, 200, True, False),
        ({"refits": 3}, 60, True, False),
    ],
)
def test_an_error_model_that_has_nothing_to_learn_from_is_said(given, n, trained, said):
    made = ConformalRegressor(MODEL, error_model=ErrorModel(), **given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnusedWarning)
        made.calibrate(CAL[0][:n], CAL[1][:n], **(TRAIN if trained else {}))
    found = [str(each.message) for each in caught if each.category is UnusedWarning]
    assert len(found) == said and (made.error_model_ is None) == said
    assert not said or re.search("error_model is not used: .* learning_part=0.5", found[0])


@pytest.mark.parametrize("method", [None, Split()], ids=repr)
@pytest.mark.parametrize("embed", ["nonsense", 5, "prediction ", ""])
def test_an_embed_that_names_no_space_is_refused_where_none_is_needed_too(method, embed):
    with pytest.raises(TypeError, match="embed must be a function of the inputs"):
        ConformalRegressor(MODEL, method, embed=embed).calibrate(*CAL)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("k", [1, 2])
def test_units_without_a_joint_box_are_said(joint, k):
    y = np.column_stack([CAL[1], 5 * CAL[1]][:k])
    model = LinearRegression().fit(CAL[0] + 1, y)
    made = MultiTargetRegressor(model, Split(), joint=joint, units=[1, 5][:k])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnusedWarning)
        made.calibrate(CAL[0], y)
    found = [str(each.message) for each in caught if each.category is UnusedWarning]
    assert len(found) == (k == 1 or not joint)
    assert not found or re.search("units have no effect without .*joint=True", found[0])


@pytest.mark.filterwarnings("error::calliper.exceptions.UnusedWarning")
def test_training_rows_that_teach_beside_a_part_are_not_called_unused():
    forest = RandomForestRegressor(20, random_state=0).fit(TRAIN["X_train"], TRAIN["y_train"])
    made = ConformalRegressor(forest, learning_part=100).calibrate(*CAL, **TRAIN)
    assert made.left_out_.source.startswith("out of bag, and")


def test_words_for_yes_and_no_are_refused():
    for word in ("no", "False", 1):
        with pytest.raises(
            CalliperError, match=f"shuffle must be True, False or None; got {word!r}"
        ):
            ConformalRegressor(MODEL, shuffle=word).calibrate(*CAL)
    with pytest.raises(CalliperError, match="joint must be True or False; got 'no'"):
        MultiTargetRegressor(LinearRegression(), joint="no").fit(X, np.column_stack([Y, -Y]))


def test_no_calibration_rows():
    forest = RandomForestRegressor(20, random_state=0).fit(*CAL)
    with pytest.raises(ValueError, match=r"0 sample|no rows"):
        ConformalRegressor(forest).calibrate(CAL[0][:0], CAL[1][:0])


def test_targets_in_another_order_than_in_training():
    names, y = ["u", "v"], np.column_stack([CAL[1], -CAL[1]])
    model = LinearRegression().fit(CAL[0], y)
    swapped = pd.DataFrame(y[:, ::-1], columns=names[::-1])
    train = {"X_train": TRAIN["X_train"][:50], "y_train": pd.DataFrame(y[:50], columns=names)}
    with pytest.raises(CalliperError, match="y has the targets v, u, and y_train u, v"):
        MultiTargetRegressor(model).calibrate(CAL[0], swapped, **train)


def test_errors_name_the_method_that_was_called():
    with pytest.raises(TypeError, match=r"^calibrate\(\) got an unexpected keyword argument 'foo'"):
        ConformalRegressor(MODEL).calibrate(*CAL, foo=1)


class Other(BaseEstimator):
    """A calibrator of another library that takes training rows."""

    def fit(self, Z, scores, training=None):
        self.radius_, self.training_ = np.max(scores), training
        return self

    def predict_radius(self, Z, coverage):
        return np.full((len(Z), len(coverage)), self.radius_)

    def guaranteed_coverage(self, coverage):
        return coverage


def test_a_foreign_calibrator_is_told_the_training_rows_that_it_takes():
    made = ConformalRegressor(MODEL, Other(), embed="inputs").calibrate(*CAL, **TRAIN)
    told = made.calibrator_.fitted_.training_
    assert len(told) == 200 and told.targets is not None
    assert ConformalRegressor(MODEL, Other()).calibrate(*CAL).calibrator_.fitted_.training_ is None


# What people type


def calibrated(kind):
    y = CAL[1] if kind is ConformalRegressor else CAL[1][:, None]
    return kind(MODEL, Split()).calibrate(CAL[0], y)


@pytest.mark.parametrize("words", [{"alpha": 0.05}, {"confidence_level": 0.95}])
@pytest.mark.parametrize("kind", [ConformalRegressor, MultiTargetRegressor, JackknifePlus])
def test_levels_by_other_names_are_pointed_out(kind, words):
    with pytest.raises(TypeError, match=rf"{kind.__name__} has no argument .*coverage=0\.95\)"):
        kind(MODEL, **words)
    fitted = kind(MODEL).fit(X[:40], Y[:40]) if kind is JackknifePlus else calibrated(kind)
    with pytest.raises(TypeError, match=r"predict_interval has no argument .*coverage=0\.95\)"):
        fitted.predict_interval(X[:2], **words)


def test_other_words_are_pointed_out():
    with pytest.raises(TypeError, match=r"no argument 'method'.*ConformalRegressor\(model, calibr"):
        ConformalRegressor(MODEL, method="split")
    wrong = {"group": "groups=", "refits": r"\(model, refits=", "shuffle": r"\(model, shuffle="}
    for word, right in wrong.items():
        with pytest.raises(
            TypeError, match=rf"^calibrate has no argument '{word}'\. Use .*{right}"
        ):
            ConformalRegressor(MODEL).calibrate(*CAL, **{word: 1})


def test_levels_where_none_is_taken_or_another_name_is_used_are_pointed_out():
    made = calibrated(ConformalRegressor)
    for words in ({"coverage": 0.95}, {"confidence": 0.95}, {"alpha": 0.05}):
        for tell in (made.calibrate, made.extend):
            with pytest.raises(
                TypeError, match=r"has no argument .*predict_interval\(X, coverage=0\.95\)"
            ):
                tell(*CAL, **words)
    with pytest.raises(
        TypeError, match=r"has no argument 'alpha'.*Controller\(coverage=0\.95\).*1 - alpha"
    ):
        Controller(alpha=0.05)
    for kind in (Split, FullRescaled):
        with pytest.raises(TypeError, match=r"has no argument 'alpha'.*coverage=0\.95.*1 - alpha"):
            kind(alpha=0.05)
    with pytest.raises(CalliperError, match=r"coverage=0\.01 and rate=0\.9 look swapped"):
        _ = Controller(0.01, rate=0.9).level
    with pytest.raises(TypeError, match=r"has no argument 'alpha'.* interval\(coverage=0\.95\)"):
        made.predict_distribution(X[:2]).interval(alpha=0.05)
    with pytest.raises(CalliperError, match=r"controller chooses the level: leave coverage=0\.8"):
        Controller(0.9).predict_interval(made, X[:2], coverage=0.8)
    with pytest.raises(CalliperError, match=r"got 400 values from -\d.* to \d[\d.]*\.$"):
        made.predict_interval(X, Y)  # targets in the place of the level


@pytest.mark.parametrize("kind", [ConformalRegressor, MultiTargetRegressor])
def test_a_confidence_wants_a_coverage_beside_it(kind):
    made = calibrated(kind)
    for ask in (lambda **how: made.predict_interval(X[:2], **how), made.guarantee):
        with pytest.raises(CalliperError, match=r"If 0\.95 is the coverage .* pass only"):
            ask(confidence=0.95)
        ask(coverage=0.9, confidence=0.95)


def test_one_row_of_a_frame_is_a_series():
    made = ConformalRegressor(MODEL, Split()).calibrate(*CAL)
    with pytest.raises(CalliperError, match=r"one row as df\.iloc\[\[0\]\]"):
        made.predict_interval(pd.DataFrame(X).iloc[0])
    with pytest.raises(CalliperError, match=r"list of shape \(3,\).*\(1, -1\)\) for a single row"):
        made.predict_interval(X[0].tolist())


def test_an_unfitted_model_is_named_before_anything_else():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotFittedError, match=r"LinearRegression.*calibrate needs a model"):
            ConformalRegressor(LinearRegression()).calibrate(*CAL)


@pytest.mark.parametrize("kind", [LinearRegression, RandomForestRegressor, Split])
@pytest.mark.parametrize("front", [ConformalRegressor, MultiTargetRegressor, JackknifePlus])
def test_a_class_is_no_model(front, kind):
    for tell in {"fit", "calibrate"} & {*dir(front)}:
        with pytest.raises(TypeError, match=f"the class {kind.__name__}: pass an instance"):
            getattr(front(kind), tell)(CAL[0], np.column_stack([CAL[1]] * 2))


def test_values_of_rows_are_no_model():
    with pytest.raises(
        TypeError, match=r"got numbers of shape \(200,\)\. .* errors: FullRescaled\(\)\.fit"
    ) as found:
        ConformalRegressor(CAL[1]).calibrate(*CAL)
    assert len(str(found.value)) < 250


@pytest.mark.parametrize("size", [0, 1.0, 90, 40, None, True])
def test_a_calibration_size_is_called_by_its_name(size):
    with pytest.raises(
        CalliperError, match=r"calibration_size must be .* number of rows from 1 to 39"
    ):
        ConformalRegressor(MODEL, Split(), calibration_size=size).fit(X[:40], Y[:40])


def test_several_columns_are_joined_by_a_function():
    rows = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(CalliperError, match=r"got shape \(2,\).* a function of X that"):
        ConformalRegressor(MODEL, Split()).calibrate(rows, Y, groups=["a", "b"])
    with pytest.raises(CalliperError, match=r"got shape \(2,\)\.$"):  # labels, no columns
        ConformalRegressor(MODEL, Split()).calibrate(rows, Y, groups=["red", "blue"])


def test_a_pair_of_numbers_is_no_choice_of_rows():
    found = calibrated(ConformalRegressor).predict_interval(X[:5])
    with pytest.raises(CalliperError, match=r"selects rows by .*got \(0, 1\)"):
        found[0, 1]
    assert "Intervals(1 row," in repr(found[[1]])


def test_what_is_not_there_yet_says_what_to_do():
    bare = ConformalRegressor(MODEL)
    for name in ("estimator_", "calibrator_", "embedding_", "no_guarantee_"):
        assert not hasattr(bare, name)
        with pytest.raises(NotFittedError, match=r"is not calibrated yet.*calibrate\(X, y\)"):
            getattr(bare, name)


@pytest.mark.parametrize("wrong", [5, AbsoluteError, "absolute"])
def test_a_score_must_be_one(wrong):
    with pytest.raises(TypeError, match="score_function must be a score such as AbsoluteError"):
        ConformalRegressor(MODEL, score_function=wrong).calibrate(*CAL)


def test_quantiles_that_cross_are_counted_once():
    made = ConformalRegressor(lambda rows: rows[:, :2], Split(), score_function=QuantileError())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.calibrate(*CAL)
    assert len(caught) == 1


# Rows and values that do not fit the model


class Stepped(LinearRegression):
    """Linear if it sees enough rows; with fewer it predicts their mean."""

    def fit(self, X, y):
        super().fit(X, y)
        if len(y) < 200:
            self.coef_, self.intercept_ = np.zeros_like(self.coef_), np.mean(y)
        return self


def test_refits_that_are_much_weaker_do_not_move_intervals():
    y = 5 * X[:, 0] + 0.3 * rng.normal(size=400)
    fitted = Stepped().fit(X[:200], y[:200])
    front = ConformalRegressor(fitted, refits=5)
    with pytest.warns(EmbeddingWarning, match="fits its training rows much better"):
        made = front.calibrate(X[200:], y[200:], X_train=X[:200], y_train=y[:200])
    assert made.left_out_.weaker and made.error_model_.shift_share_ == 0
    usual = ConformalRegressor(MODEL, refits=5).calibrate(*CAL, **TRAIN)
    assert not usual.left_out_.weaker


def test_targets_of_other_training_rows_are_noticed():
    y = 5 * X[:, 0] + 0.3 * rng.normal(size=400)
    model = LinearRegression().fit(X[:200], y[:200])
    front = ConformalRegressor(model, refits=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmbeddingWarning)
        front.calibrate(X[200:], y[200:], X_train=X[:200], y_train=y[:200])
    with pytest.warns(EmbeddingWarning, match=r"errs by \S+ on average, but copies that left"):
        front.calibrate(X[200:], y[200:], X_train=X[:200], y_train=y[199::-1])


def test_a_forest_whose_rows_come_in_another_order_is_pointed_out():
    forest = RandomForestRegressor(20, random_state=0).fit(X[:90], Y[:90])
    with pytest.warns(UnusedWarning, match="not its training rows"):
        ConformalRegressor(forest).calibrate(X[90:], Y[90:], X_train=X[89::-1], y_train=Y[89::-1])


def test_text_is_no_number_and_lengths_are_named():
    front = ConformalRegressor(MODEL)
    with pytest.raises(CalliperError, match=r"y must be numbers.*got text"):
        front.calibrate(CAL[0], pd.Series(CAL[1].astype(str)))
    with pytest.raises(CalliperError, match=r"y must .* row of X; got 200 rows and 150 values"):
        front.calibrate(CAL[0], CAL[1][:150])
    with pytest.raises(CalliperError, match="of X_train; got 200 rows and 90 values"):
        front.calibrate(*CAL, X_train=X[:200], y_train=Y[:90])


def test_a_calibration_size_is_of_no_use_to_a_fitted_model():
    with pytest.warns(UnusedWarning, match="calibration_size has no effect on calibrate"):
        ConformalRegressor(MODEL, calibration_size=0.3).calibrate(*CAL)
    fitted = ConformalRegressor(LinearRegression(), calibration_size=0.3).fit(*CAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedWarning)
        fitted.calibrate(X[:100], Y[:100])


@pytest.mark.parametrize(
    ("call", "use"),
    [
        (lambda: ConformalRegressor(MODEL, prefit=True), r"calibrate\(X_cal, y_cal\)"),
        (lambda: ConformalRegressor(MODEL).calibrate(*CAL, bins=Y), "groups="),
        (
            lambda: ConformalRegressor(MODEL).calibrate(*CAL, sample_weight=Y),
            "which trains",
        ),
        (lambda: ConformalRegressor(MODEL).calibrate(*CAL, split_groups=Y), r"fit\(X, y, split_gr"),
        (lambda: calibrated(ConformalRegressor).predict_interval(X, y_min=0), "bounds="),
    ],
)
def test_words_of_other_libraries_are_translated(call, use):
    with pytest.raises(TypeError, match=f"has no argument.*Use .*{use}"):
        call()


def test_a_transformer_is_at_hand_where_errors_were_learnt(tmp_path):
    made = ConformalRegressor(MODEL, embed=PCA(2), refits=5).calibrate(*CAL, **TRAIN)
    save(made, tmp_path / "x.calliper")
    again = load(tmp_path / "x.calliper", MODEL, embed=made.embedding_.transformer)
    assert made.error_model_ is not None
    found, kept = (each.predict_interval(X).lower for each in (again, made))
    np.testing.assert_array_equal(found, kept)


# Parameters that other parameters leave without effect


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (FullRescaled(KNN(9), offset=0.1, shrinkage=1), "kernel, offset have no effect on Full"),
        (NormalizedKNN(rho=2.0), "rho has no effect on NormalizedKNN"),
        (NormalizedKNN(form="exp", rho=2.0), "rho has no effect on NormalizedKNN"),
        (JackknifeRescaled(TunedKNN(mi_neighbors=4)), "mi_neighbors has no effect on TunedKNN"),
        (LVD(metric=LEARNT, max_iter=3), "max_iter has no effect on LVD, since metric= was learnt"),
        (ErrorModel(recentre=False, shift_trees=(5,)), "shift_trees has no effect on ErrorModel"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_parameters_without_effect_are_named(estimator, words):
    for made, said in ((estimator, True), (type(estimator)(), False)):
        known = {"training": (X, np.abs(Y), Y)} if "training" in uses_of(made) else {}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UnusedWarning)
            made.fit(X, np.abs(Y), **known)
        assert any(words in str(each.message) for each in told) is said


class OfKernel(FullRescaled):
    """A subclass whose parameters have no defaults."""

    def __init__(self, kernel, offset):
        super().__init__(kernel, offset=offset, shrinkage=1)


def test_defaults_are_defaults_in_any_type_and_subclasses_may_have_none():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedWarning)
        FullRescaled(shrinkage=1, offset=0).fit(X, np.abs(Y))
        NormalizedKNN(rho=np.float64(0.5)).fit(X, np.abs(Y), training=(X, np.abs(Y), Y))
        two = NormalizedKNN(difficulty="distance+labels", form="exp", rho=2.0)
        two.fit(X, np.abs(Y), training=(X, np.abs(Y), Y))
    with pytest.warns(UnusedWarning, match="kernel, offset have no effect on OfKernel"):
        OfKernel(KNN(9), 0.1).fit(X, np.abs(Y))


def uses_of(estimator):
    return estimator.uses if isinstance(estimator, Calibrator) else ()


def test_training_rows_without_components_are_refused():
    with pytest.raises(CalliperError, match="also pass n_components"):
        mutual_information(X, np.abs(Y), Z_train=X)


# What newcomers passed


def test_fit_says_that_a_fitted_model_is_trained_again():
    with pytest.warns(UnusedWarning, match="already fitted, but fit trains a new copy"):
        ConformalRegressor(MODEL, random_state=0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedWarning)
        ConformalRegressor(LinearRegression(), random_state=0).fit(X, Y).fit(X, Y)
        ConformalRegressor(FrozenEstimator(MODEL)).fit(X, Y)
        always = GaussianProcessRegressor(alpha=1.0)  # which predicts without fit, too
        ConformalRegressor(always, Split(), random_state=0).fit(X[:60], Y[:60])


def test_training_rows_are_not_for_fit():
    with pytest.raises(TypeError, match=r"fit has no argument 'X_train'.* calibrate"):
        ConformalRegressor(LinearRegression()).fit(X, Y, X_train=X)


@pytest.mark.parametrize("bounds", [(100, None), (None, -100)])
def test_bounds_that_exclude_all_targets_name_the_range_of_targets(bounds):
    model = ConformalRegressor(MODEL, Split()).calibrate(*CAL)
    lowest, highest = Y[200:].min(), Y[200:].max()
    with pytest.raises(CalliperError, match=f"range from {lowest:.6g} to {highest:.6g}"):
        model.predict_interval(X, bounds=bounds)


@pytest.mark.parametrize("bounds", [(0, None), {"u": (0, 1), "v": (0, 1)}, [(0, 1)]])
def test_bounds_of_several_targets_are_a_pair_for_each(bounds):
    model = MultiTargetRegressor(LinearRegression(), random_state=0).fit(X, np.c_[Y, -Y])
    with pytest.raises(CalliperError, match="list of 2 pairs"):
        model.predict_interval(X, bounds=bounds)


def test_controllers_notice_levels_that_contradict_what_happened():
    model = ConformalRegressor(MODEL, Split()).calibrate(*CAL)

    def said(inside, needed):
        control = Controller(0.9, rate=(0.01, 0.1))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", RowLabelsWarning)
            control.predict_interval(model, X[:1])
            control.update(inside, needed=needed)
        return [each for each in told if "a lower level has it inside" in str(each.message)]

    assert said(False, 0.1) and said(False, 0.8)
    assert not said(False, 0.99) and not said(False, 0.89)
    assert not said(True, 0.1) and not said(True, 0.99), "bounds may have it inside"
