"""One object asked by many threads answers each as it would alone."""

import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.tree import DecisionTreeRegressor

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    Layer,
    Split,
    load,
    save,
)
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    Grouped,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.exceptions import SmallCalibrationWarning
from calliper.kernels import ForestProximity, GradedKNN, TunedRBF
from calliper.online import coverage_needed

pytestmark = pytest.mark.long

N_THREADS, N_ROUNDS = 8, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 3)).round(1)  # with ties
Y = X[:, 0] + (0.2 + np.abs(X[:, 1])) * RNG.normal(size=700)
TRAIN, CAL, NEW = slice(0, 250), slice(250, 450), slice(450, 700)
LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


class Restless(QuantileRegressor):
    """A model of quantiles that comes out otherwise each time it is trained."""

    def fit(self, X, y):
        super().fit(X, y)
        self.intercept_ += np.random.default_rng().uniform(0, 0.5)
        return self


@contextmanager
def many_switches():
    """Threads take turns every few instructions, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(work, tasks):
    """``work(task)`` of all tasks by threads that start together; results in order of the tasks."""
    start = threading.Barrier(N_THREADS)

    def share(first):
        start.wait()
        return [(place, work(tasks[place])) for place in range(first, len(tasks), N_THREADS)]

    with many_switches(), ThreadPoolExecutor(N_THREADS) as pool:
        found = dict(each for part in pool.map(share, range(N_THREADS)) for each in part)
    return [found[place] for place in range(len(tasks))]


def tasks(rounds):
    """Few rows and many, in another order and at another level for each."""
    rng = np.random.default_rng(1)
    sizes = [1, 3, 40, 250] * (N_THREADS * rounds // 4)
    return [
        (450 + rng.choice(250, size=size, replace=False), LEVELS[place % len(LEVELS)])
        for place, size in enumerate(sizes)
    ]


def assert_same_in_threads(fresh, ask, rounds=N_ROUNDS):
    """What threads get from one new object equals what another says to one at a time.

    Both are asked for the first time there: what is made when it is first asked for counts.
    """
    given = tasks(rounds)
    shared, alone = fresh(), fresh()
    for found, expected in zip(
        at_once(lambda task: ask(shared, *task), given),
        [ask(alone, *task) for task in given],
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


FOREST = RandomForestRegressor(20, random_state=0, min_samples_leaf=5).fit(
    pd.DataFrame(X[TRAIN], columns=["a", "b", "c"]), Y[TRAIN]
)
METHODS = [
    Split(),
    FullRescaled(),
    FullRescaled(KNN(10)),
    FullRescaled(KNN(10), statistic="quantile"),
    FullRescaled(KNN(10), shrinkage=0.3),
    FullRescaled(RBF(1.0)),
    FullRescaled(ForestProximity(FOREST)),
    FullRescaled(GradedKNN(10)),
    JackknifeRescaled(KNN(10)),
    JackknifeRescaled(RBF(1.0)),
    JackknifeRescaled(TunedRBF(), random_state=0),
    JackknifeMinmaxRescaled(KNN(10)),
    MADSplit(KNN(10)),
    NormalizedKNN(10),
    LCP(random_state=0),
    RLCP(random_state=0),
    SLCP(),
    LVD(random_state=0),
    RCP(kernel=KNN(30)),
    RCP(random_state=0),
    LoCart(random_state=0),
    ConditionalCalibration(),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_radii(method):
    errors = np.abs(Y - X[:, 0])
    known = {"training": (X[TRAIN], errors[TRAIN], Y[TRAIN])}
    known |= {"signs": np.sign(Y - X[:, 0])[CAL]}

    def fresh():
        named = {name: value for name, value in known.items() if name in method.uses}
        return clone(method).fit(X[CAL], errors[CAL], **named)

    assert_same_in_threads(fresh, lambda made, rows, level: made.predict_radius(X[rows], level))
    if getattr(fresh(), "has_distribution", False):
        assert_same_in_threads(
            fresh,
            lambda made, rows, level: made.predict_distribution(X[rows], Y[rows]).quantile(level),
        )


def booster(library, name):
    module = pytest.importorskip(library)
    quiet = {
        "xgboost": {"n_jobs": 1},
        "lightgbm": {"n_jobs": 1, "verbose": -1},
        "catboost": {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
    }
    return getattr(module, name)(n_estimators=40, max_depth=3, random_state=0, **quiet[library])


MODELS = {
    "linear": LinearRegression,
    "forest": lambda: RandomForestRegressor(20, random_state=0),
    "bagging": lambda: BaggingRegressor(DecisionTreeRegressor(), 10, random_state=0),
    "boosting": lambda: GradientBoostingRegressor(n_estimators=30, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=30, random_state=0),
    "xgboost": lambda: booster("xgboost", "XGBRegressor"),
    "lightgbm": lambda: booster("lightgbm", "LGBMRegressor"),
    "catboost": lambda: booster("catboost", "CatBoostRegressor"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("taught", [False, True])
def test_intervals(model, taught):
    trained = model().fit(X[TRAIN], Y[TRAIN])

    def fresh():
        known = {"X_train": X[TRAIN], "y_train": Y[TRAIN]} if taught else {}
        made = ConformalRegressor(trained, refits=3 if taught else 0, random_state=0)
        return made.calibrate(X[CAL], Y[CAL], **known)

    def ask(made, rows, level):
        ends = made.predict_interval(X[rows], level)
        return [ends.lower, ends.upper, made.predict_distribution(X[rows]).quantile(level)]

    assert_same_in_threads(fresh, ask)


@pytest.mark.parametrize("embed", ["auto", "layer"])
def test_networks(embed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
    ).train()  # its mode is changed for every prediction, and then changed back

    def fresh():
        space = Layer(net, "1") if embed == "layer" else embed
        return ConformalRegressor(net, embed=space).calibrate(X[CAL], Y[CAL])

    assert_same_in_threads(
        fresh, lambda made, rows, level: [*made.predict_interval(X[rows], level)]
    )
    assert net.training and net[2].training


def test_groups():
    groups = np.where(X[:, 2] > 0, "a", "b")

    def fresh():
        made = ConformalRegressor(
            LinearRegression().fit(X[TRAIN], Y[TRAIN]), Grouped(FullRescaled())
        )
        return made.calibrate(X[CAL], Y[CAL], groups=groups[CAL])

    def ask(made, rows, level):
        return [*made.predict_interval(X[rows], level, groups=groups[rows])]

    with warnings.catch_warnings(action="ignore", category=SmallCalibrationWarning):
        assert_same_in_threads(fresh, ask)


def test_a_model_that_is_trained_when_first_asked_for_is_one_for_all_threads():
    """Its threshold belongs to it: a radius by another model would be another method's."""
    errors = np.abs(Y - X[:, 0])
    for _ in range(5):
        made = RCP(Restless(alpha=0, solver="highs"))
        made.fit(X[CAL], errors[CAL], training=(X[TRAIN], errors[TRAIN]))
        found = at_once(lambda _: made.predict_radius(X[NEW], 0.9), range(N_THREADS))  # noqa: B023
        for radius in found:
            np.testing.assert_array_equal(radius, made.predict_radius(X[NEW], 0.9))


def test_filters_of_warnings_stay_as_they_were():
    made = Split().fit(X[CAL][:5], np.arange(5.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        at_once(lambda _: coverage_needed(made, X[NEW][:20], np.abs(Y[NEW][:20])), range(64))
        assert warnings.filters == before
        with pytest.raises(SmallCalibrationWarning):
            made.predict_radius(X[NEW], 0.99)


def test_who_extends_while_others_ask_gives_them_the_old_or_the_new_answer():
    model = LinearRegression().fit(X[TRAIN], Y[TRAIN])
    made = ConformalRegressor(model, FullRescaled(KNN(5))).calibrate(X[CAL], Y[CAL])
    rows, known = X[NEW][:4], []
    serial = ConformalRegressor(model, FullRescaled(KNN(5))).calibrate(X[CAL], Y[CAL])
    for row in range(500, 530):
        known.append(serial.predict_interval(rows).upper.tobytes())
        serial.extend(X[row : row + 1], Y[row : row + 1])
    known.append(serial.predict_interval(rows).upper.tobytes())

    def work(task):
        if task % N_THREADS:
            return [made.predict_interval(rows).upper.tobytes() for _ in range(10)]
        if task == 0:
            for row in range(500, 530):
                made.extend(X[row : row + 1], Y[row : row + 1])
        return []

    for answers in at_once(work, range(3 * N_THREADS)):
        assert set(answers) <= set(known)


def test_who_saves_while_others_ask_writes_a_whole_file(tmp_path):
    model = LinearRegression().fit(X[TRAIN], Y[TRAIN])
    made = ConformalRegressor(model, FullRescaled(KNN(5), statistic="quantile"))
    made.calibrate(X[CAL], Y[CAL])

    def work(task):
        if task % 4 == 0:
            save(made, tmp_path / str(task))
            return load(tmp_path / str(task), model).predict_interval(X[NEW], 0.9).upper
        for level in np.linspace(0.1, 0.9, 30):  # each is remembered
            made.predict_interval(X[NEW][:2], level + task * 1e-4)
        return None

    expected = made.predict_interval(X[NEW], 0.9).upper
    for found in at_once(work, range(2 * N_THREADS)):
        if found is not None:
            np.testing.assert_array_equal(found, expected)
