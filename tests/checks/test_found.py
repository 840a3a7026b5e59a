"""What campaigns have found: each once a fault, and now a case."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import bsr_matrix, coo_matrix, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from calliper import KNN, RBF, ConformalRegressor, FullRescaled, Split
from calliper.calibrators import ConditionalCalibration, Grouped, LoCart
from calliper.cli._tables import Form, open_table
from calliper.exceptions import CalliperError
from calliper.online import Controller
from calliper.refitting import CVPlus, JackknifePlus
from checks.promises.methods import Nearest, halves, zero

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
Z, SCORES = RNG.normal(size=(12, 1)), np.abs(RNG.normal(size=12))


@pytest.mark.parametrize("level", [[10**400], [0.5, [0.9]], [0.5, 0.9], [0.9]])
def test_levels_of_guarantees(level):
    for made in (
        Split().fit(Z, SCORES),
        ConformalRegressor(zero, Split()).calibrate(Z, SCORES),
        JackknifePlus(Nearest()).fit(Z, SCORES),
    ):
        with pytest.raises(CalliperError, match="coverage must be"):
            made.guarantee(level)


def test_scores_and_targets_that_are_no_numbers():
    with pytest.raises(CalliperError, match="scores must be numbers"):
        Split().fit(Z, [10**400] * 12)
    with pytest.raises(CalliperError, match="y must be numbers"):
        JackknifePlus(Nearest()).fit(Z[:2], [[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("made", [Split(), Grouped(Split()), ConditionalCalibration(basis=halves)])
def test_a_fit_refused_at_once_leaves_nothing(made):
    groups = {"groups": ["a"] * 12} if isinstance(made, Grouped) else {}
    made.fit(Z, SCORES, **groups)
    with pytest.raises((IndexError, TypeError, ValueError)):
        made.fit(
            Z if isinstance(made, Grouped) else iter([[1.0]]),
            SCORES,
            **{name: ["a"] for name in groups},
        )
    with pytest.raises(NotFittedError):
        made.predict_radius(Z, 0.5, **groups)


def test_a_group_that_cannot_be_a_label():
    with pytest.raises(CalliperError, match="labels such as strings or numbers: unhashable"):
        Grouped(Split()).fit(Z, SCORES, groups=[{}] * 12)
    with pytest.raises(CalliperError, match="one value for each row"):
        Grouped(Split()).fit(Z, SCORES, groups=[[1], [1, 2]])


NO_ROWS = [
    {"a": 1.0},
    {1.0},
    "w",
    b"w",
    *(kind(Z[:1]) for kind in (csr_matrix, coo_matrix, bsr_matrix)),
]


@pytest.mark.parametrize("rows", NO_ROWS, ids=lambda rows: type(rows).__name__)
@pytest.mark.parametrize(
    "made", [Grouped(Split()), Grouped(FullRescaled()), ConditionalCalibration(basis=halves)]
)
def test_rows_that_none_can_be_picked_from(made, rows):
    how = {"groups": ["a"]} if isinstance(made, Grouped) else {}
    with pytest.raises((CalliperError, TypeError), match=r"Z must be an array|Z is sparse"):
        clone(made).fit(rows, [1.0], **how)
    made = clone(made).fit(Z, SCORES, **{name: ["a"] * 12 for name in how})
    for call in (
        lambda: made.predict_radius(rows, **how),
        lambda: made.extend(rows, [1.0], **how),
    ):
        with pytest.raises((CalliperError, TypeError), match=r"Z must be an array|Z is sparse"):
            call()
    assert made.n_calibration_ == 12


@pytest.mark.parametrize("rows", [{"a": 1.0}, {1.0}, "w", b"w"], ids=repr)
def test_nothing_is_counted_in_what_has_no_rows(rows):
    with pytest.raises(CalliperError, match="one entry for each row; got a"):
        Split().fit(rows, [1.0] * len(rows))


def test_rows_of_several_lengths_and_of_times():
    with pytest.raises(CalliperError, match="rows of Z must all be of one length"):
        ConditionalCalibration(basis=halves).fit([[1.0], [1.0, 2.0]], SCORES[:2])
    made = Grouped(Split()).fit(Z, SCORES, groups=["a"] * 12)
    with pytest.raises(CalliperError, match="cannot be added"):
        made.extend(np.full((1, 1), np.datetime64("2024-01-01")), SCORES[:1], groups=["a"])


@pytest.mark.parametrize("wrong", [None, *NO_ROWS[:-3], SCORES[1:], [[1.0], [1.0, 2.0]], 1.0])
def test_values_of_rows_of_groups(wrong):
    known = {"Z": Z[:2], "scores": SCORES[:2], "groups": [0, 1]}
    for name in ("scores", "weights", "signs")[: 1 if wrong is None else 3]:
        with pytest.raises((TypeError, ValueError), match=f"{name}|samples|array-like"):
            Grouped(Split()).fit(**known | {name: wrong})
    made = Grouped(Split()).fit(**known, weights=SCORES[:2])
    if wrong is not None:
        with pytest.raises(CalliperError, match="weights"):
            made.predict_radius(Z[:2], groups=[0, 1], weights=wrong)


def test_weights_in_a_column_extend_a_group():
    made = Grouped(Split()).fit(Z, SCORES, groups=[0] * 12, weights=SCORES)
    made.extend(Z, SCORES, groups=[0] * 12, weights=SCORES[:, None])
    assert made.n_calibration_ == 24


@pytest.mark.parametrize("wrong", [[0.9], {}, "word", iter([0.9])])
def test_confidence_and_bounds_that_are_no_numbers(wrong):
    made = ConformalRegressor(zero, Split()).calibrate(Z, SCORES)
    for call in (made.predict_interval, lambda _, *given, **how: made.guarantee(*given, **how)):
        with pytest.raises(CalliperError, match="confidence must be"):
            call(Z, 0.5, confidence=wrong)
    for bounds in ("ab", (wrong, 1.0), (0, 10**400)):
        with pytest.raises(CalliperError, match="bounds must be a pair"):
            made.predict_interval(Z, bounds=bounds)


@pytest.mark.parametrize("centre", [1.7e308, -1.7e308])
def test_distributions_next_to_the_largest_number(centre):
    """The slack of an end was NaN there, and with it the end; shares were 0 at every target."""
    errors = np.array([-1e302, -1.0, 1.0, 1e302])
    made = Split().fit(Z[:4], np.abs(errors), signs=np.sign(errors))
    found = made.predict_distribution(Z[:1], [centre])
    ends = found.quantile([0.1, 0.2, 0.8, 0.9])[0]
    assert ends[-1] == np.inf and (np.abs(ends[:-1] - centre) <= 1.0001e302).all()
    assert ends[1] < centre < ends[2]
    assert found.cdf(ends[1]) == 1 / 4 and found.cdf(-np.sign(centre) * 1.7e308) == (centre < 0)
    wide = FullRescaled(KNN(1)).fit([[0.0], [0.1], [5.0], [5.1]], [1e301, 1e301, 1e-6, 1e-6],
                                    signs=[1, -1, 1, -1])  # fmt: skip
    found = wide.predict_distribution([[0.0]], [centre])
    assert not np.isnan(found.quantile([0.2, 0.4, 0.6, 0.8])).any()
    assert found.interval(0.6).contains([centre]).all()


@pytest.mark.parametrize("wrong", [[[1.0], [1.0, 2.0]], "word", [10**400] * 2, [[[1.0]]]])
def test_targets_that_a_distribution_cannot_place(wrong):
    made = ConformalRegressor(zero, Split()).calibrate(Z, SCORES, groups=[0] * 6 + [1] * 6)
    for groups in ([0, 0], [0, 1]):
        with pytest.raises(CalliperError, match="y must be"):
            made.predict_distribution(Z[:2], groups=groups).cdf(wrong)


def test_shares_are_at_most_one():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        weights = rng.uniform(size=12)
        made = Split().fit(Z, SCORES, signs=np.ones(12), weights=weights)
        found = made.predict_distribution(Z, np.zeros(12), weights=weights)
        assert (found.cdf(1e9) <= 1).all() and (found.cdf_band(1e9)[1] <= 1).all()


def test_a_weight_beyond_all_numbers_outweighs_all():
    made = Split().fit(Z, SCORES, signs=np.ones(12), weights=np.full(12, 1e-300))
    found = made.predict_distribution(Z[:1], [0.0], weights=[1e300])
    assert np.isfinite(found.pit([0.5], random_state=0)).all()
    assert found.cdf_band([0.5])[1] == 1 and found.quantile(0.5) == np.inf


@pytest.mark.parametrize("made", [
    ConformalRegressor(LinearRegression().fit(Z, SCORES), Split(), embed="inputs"),
    ConformalRegressor(LinearRegression(), Split()), JackknifePlus(Nearest()),
])  # fmt: skip
def test_a_refusal_leaves_a_regressor_as_it_was(made):
    teach = made.calibrate if hasattr(getattr(made, "estimator", None), "coef_") else made.fit
    teach(Z + 1, SCORES + 1)
    before = made.predict_interval(Z, 0.5)
    with pytest.raises(ValueError, match=r"."):
        teach(np.hstack([Z, Z]), np.full(12, np.nan))
    after = made.predict_interval(Z, 0.5)
    assert np.array_equal(before.lower, after.lower) and np.array_equal(before.upper, after.upper)


def test_one_row_leaves_a_refitted_regressor_unfitted():
    made = JackknifePlus(Nearest())
    with pytest.raises(CalliperError, match="at least 2 rows"):
        made.fit(Z[:1], SCORES[:1])
    with pytest.raises(NotFittedError):
        made.predict_interval(Z)


def test_no_rows_and_masked_rows():
    refitted = JackknifePlus(Nearest()).fit(Z, SCORES)
    with pytest.raises(CalliperError, match="no rows"):
        refitted.predict_interval(Z[:0])
    made = ConformalRegressor(zero, Split(), embed="prediction").calibrate(Z, SCORES)
    with pytest.raises(CalliperError, match="X has no rows: pass at least one"):
        made.predict_interval(Z[:0])
    for wrong in (None, np.ma.masked_greater(Z, 0)):
        with pytest.raises(CalliperError, match="X must be an array, a frame or a list"):
            made.calibrate(wrong, SCORES)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_before_an_empty_line_is_kept(tmp_path, encoding):
    path = tmp_path / "new.csv"
    path.write_text("\np\n1\n", encoding)
    with open_table(str(path), Form()) as table:
        assert table.columns == ["p"] and table.newline == "\n"
        assert table.header(",") == table.header(";") == "p"
        assert table.mark and path.read_bytes().startswith(table.mark)


def test_a_group_is_extended_by_points_that_fit_together():
    made = Grouped(Split()).fit(Z, SCORES, groups=["a"] * 12)
    with pytest.raises(ValueError, match=r"scores must .* got 2 values for 3 rows"):
        made.extend(Z[:3], SCORES[:2], groups=["a"] * 3, window=1)
    with pytest.raises(CalliperError, match="scores must be numbers"):
        made.extend(Z[:2], [[1.0], [1.0, 2.0]], groups=["a"] * 2)
    assert made.n_calibration_ == 12


def test_rows_that_are_none():
    with pytest.raises(CalliperError, match=r"X_train must be an array, a frame or .* got a set"):
        ConformalRegressor(zero, Split()).calibrate(Z, SCORES, X_train={1.0, 2.0})


def test_names_of_columns_that_are_no_text(tmp_path):
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"abcdefgh": [1.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xf8bcdefgh"))
    with (
        pytest.raises(CalliperError, match=r"cannot read .* as .parquet|not UTF-8"),
        open_table(str(path), Form()) as table,
    ):
        assert table.columns
    path = tmp_path / "odd.csv"
    path.write_bytes("\udcff,y\n1,2\n".encode("utf-7", "surrogatepass"))
    with (
        pytest.raises(CalliperError, match="not UTF-7; save the file as UTF-8"),
        open_table(str(path), Form(encoding="utf-7")) as table,
    ):
        assert table.columns
    path.write_bytes("p,y\n\udcff,2\n".encode("utf-7", "surrogatepass"))
    with (
        open_table(str(path), Form(encoding="utf-7")) as table,
        pytest.raises(CalliperError, match="not UTF-7; save the file as UTF-8"),
    ):
        list(table.chunks())


def test_a_day_that_no_calendar_has_has_no_text(tmp_path):
    days = pa.array([0, -1944517611], type=pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"day": days, "y": [1.0, 2.0]}), tmp_path / "odd.parquet")
    with open_table(str(tmp_path / "odd.parquet"), Form()) as table:
        (rows,) = table.chunks()
        assert rows.labels("y") == ["1.0", "2.0"]
        with pytest.raises(
            CalliperError, match=r"'day': a date32\[day\] value out of range: -1944"
        ):
            rows.labels("day")


def test_intervals_of_refitted_models_are_nested_at_low_levels_too():
    levels = np.linspace(0.02, 0.98, 49)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(13, 1)), rng.normal(size=13)
        for made in (CVPlus(Nearest(), cv=3), JackknifePlus(Nearest())):
            lower, upper = made.fit(X, y).predict_interval(Z, levels)
            assert (lower <= upper).all() and np.isfinite(lower[:, 0]).all()
            assert (lower[:, 1:] <= lower[:, :-1]).all() and (upper[:, 1:] >= upper[:, :-1]).all()
            alone = [made.predict_interval(Z, float(level)) for level in levels]
            np.testing.assert_array_equal(lower, np.stack([each.lower for each in alone], axis=1))
            np.testing.assert_array_equal(upper, np.stack([each.upper for each in alone], axis=1))


def test_a_tree_takes_features_of_single_precision():
    with pytest.raises(CalliperError, match=r"up to 3.4e\+38 in size; got 1e\+39 in Z of training"):
        LoCart().fit(Z, SCORES, training=(np.full((12, 1), 1e39), SCORES))
    made = LoCart().fit(Z, SCORES, training=(Z, SCORES))
    with pytest.raises(CalliperError, match=r"got 1e\+39 in Z\."):
        made.predict_radius([[1e39]])


@pytest.mark.parametrize("centre", [1.0, -1.0, 1.7093770154973665e15, 3e-300])
def test_quantiles_do_not_fall_where_errors_are_the_last_digits(centre):
    errors = np.arange(-30, 31) * np.spacing(abs(centre)) / 4
    rows, levels = np.zeros((len(errors), 1)), np.arange(1, 62) / 62
    made = Split().fit(rows, np.abs(errors), signs=np.sign(errors))
    for side in ("upper", "lower"):
        ends = made.predict_distribution(rows[:1], [centre]).quantile(levels, side=side)[0]
        assert (np.diff(ends) >= 0).all()
        assert ((ends >= centre + errors) if side == "upper" else (ends <= centre + errors)).all()


@pytest.mark.parametrize(("name", "place", "number"), [("names", (1, 1), 2**31), ("steps", 1, -1)])
def test_steps_of_a_controller_fit_their_labels(name, place, number):
    """A forged file had labels long after the last step, or none where one had come."""
    made = Controller(0.9)
    for inside in (True, False, True):
        assert made.level is not None
        made.update(inside)
    state = made.for_file()
    Controller(0.9).restore(state)
    state[name][place] = number
    with pytest.raises(CalliperError, match="a label precedes its step"):
        Controller(0.9).restore(state)


def test_smoothing_whose_products_are_infinite():
    made = FullRescaled(RBF(1.0, smoothing=1e30)).fit(Z, SCORES)
    assert np.isfinite(made.predict_radius(Z, 0.5)).all()
    with pytest.raises(ValueError, match=r"number from 0 to 1e\+30; got 1e\+50"):
        FullRescaled(RBF(1.0, smoothing=1e50)).fit(Z, SCORES)
