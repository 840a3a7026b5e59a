"""Conditional calibration against its definition, its authors' package, and its guarantee."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

from calliper import CalliperError, ConformalRegressor, SignedError, Split, guarantees
from calliper.calibrators import ConditionalCalibration, _conditional
from calliper.exceptions import SmallCalibrationWarning
from cases.problems import small_problem
from oracles import conditional as conditional_oracles

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(7, 2))


def constant(Z):
    return np.ones((len(Z), 1))


def groups(Z):
    """Three groups by the first feature; the third overlaps the others."""
    return np.column_stack([Z[:, 0] < 0, Z[:, 0] >= 0, np.abs(Z[:, 0]) < 0.5])


def quietly(method, new, coverage):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        return method.predict_radius(new, coverage)


def with_constant(columns):
    return np.column_stack([np.ones(len(columns)), columns])


@pytest.mark.parametrize("seed", range(12))
def test_equals_the_definition(seed):
    """Ties, zeros, duplicates and negative scores; solvers agree to about 1e-7 of the scores."""
    problem = small_problem(seed, smallest=3, largest=40)
    scores = problem.scores - (0.5 if seed % 3 == 0 else 0.0)
    method = ConditionalCalibration().fit(problem.Z, scores)
    design = with_constant(problem.Z)
    radius = quietly(method, problem.new, problem.level)
    for found, row in zip(radius, with_constant(problem.new), strict=True):
        expected = conditional_oracles.cutoff(design, scores, row, problem.level)
        expected = max(expected, 0.0) if scores.min() >= 0 else expected
        assert found == pytest.approx(expected, abs=2e-6 * max(1, np.abs(scores).max()))


@pytest.mark.parametrize("level", [0.2, 0.35, 0.45])
def test_low_levels_equal_the_definition(level):
    rng = np.random.default_rng(7)
    Z, scores, new = rng.normal(size=(30, 2)), rng.normal(size=30), rng.normal(size=(8, 2))
    radius = quietly(ConditionalCalibration().fit(Z, scores), new, level)
    for found, row in zip(radius, with_constant(new), strict=True):
        expected = conditional_oracles.cutoff(with_constant(Z), scores, row, level)
        assert found == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("coverage", "digits"), [(0.2, 1), (0.5, 12), (0.9, 1)])
def test_overlapping_groups_equal_the_definition(coverage, digits):
    scores = np.round(SCORES, digits)
    method = ConditionalCalibration(basis=groups).fit(Z, scores)
    assert method.n_dimensions_ == 3  # the first two indicators sum to the constant
    for found, row in zip(method.predict_radius(NEW, coverage), groups(NEW), strict=True):
        expected = conditional_oracles.cutoff(groups(Z) * 1.0, scores, row * 1.0, coverage)
        assert found == pytest.approx(expected, abs=1e-6)


def by_its_authors(design, scores, row, coverage):
    """The bisection of ``conditionalconformal``, whose exact search fails with this NumPy."""
    from conditionalconformal import CondConf

    peer = CondConf(lambda x, y: y, np.atleast_2d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        peer.setup_problem(design, scores)
        cutoff = peer.predict(coverage, row[None], lambda cutoff, x: cutoff, exact=False)
    return float(np.ravel(cutoff)[0])


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.9])
def test_equals_the_package_of_its_authors(coverage):
    """From a level of 0.5 on, where the radius is finite and within its range of bisection."""
    method = ConditionalCalibration().fit(Z, SCORES)
    radius = method.predict_radius(NEW[:4], coverage)
    assert (radius < 2 * SCORES.max()).all()
    expected = [by_its_authors(with_constant(Z), SCORES, row, coverage)
                for row in with_constant(NEW[:4])]  # fmt: skip
    np.testing.assert_allclose(radius, expected, atol=1e-6)


def test_where_the_package_of_its_authors_is_not_valid():
    """What keeps it from being used; if this fails, it has been repaired."""
    flat, few = np.ones((30, 1)), with_constant(Z[:5])
    assert by_its_authors(flat, SCORES[:30], flat[0], 0.4) < np.sort(SCORES[:30])[12]
    assert Split().fit(Z[:30], SCORES[:30]).predict_radius(NEW, 0.4)[0] == np.sort(SCORES[:30])[12]
    assert np.isfinite(by_its_authors(few, SCORES[:5], with_constant(NEW)[0], 0.9))
    unseen = np.array([1.0, 1.0])
    assert np.isfinite(by_its_authors(np.eye(2)[np.zeros(30, int)], SCORES[:30], unseen, 0.8))


@pytest.mark.parametrize("n", [9, 19, 30, 60])
@pytest.mark.parametrize("scores", [SCORES, np.round(SCORES), SCORES - 2], ids=["", "ties", "-2"])
def test_a_constant_alone_is_split(n, scores):
    """Also at levels that n points reach exactly, a little above such, and below one half."""
    levels = [0.05, 0.3, 0.5, 0.5001, 0.7, 0.9]
    method = ConditionalCalibration(basis=constant).fit(Z[:n], scores[:n])
    expected = Split().fit(Z[:n], scores[:n]).predict_radius(NEW, levels)
    found = method.predict_radius(NEW, levels)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    away = (found - expected)[np.isfinite(found)]  # enlarged once, so as to exclude no tie
    assert away.max() <= 1.5e-11 * np.abs(scores[:n]).max()


def test_separate_groups_are_split_in_each():
    group = rng.integers(0, 4, size=(200, 1)) * 1.0
    scores = np.round(rng.exponential(size=200), 1)
    one_hot = ConditionalCalibration(basis=lambda Z: Z == np.arange(4)).fit(group, scores)
    for g in range(4):
        members = scores[group[:, 0] == g]
        expected = Split().fit(members[:, None], members).predict_radius([[0.0]], [0.1, 0.4, 0.9])
        np.testing.assert_allclose(one_hot.predict_radius([[g]], [0.1, 0.4, 0.9]), expected)


@pytest.mark.parametrize("ratio", [1e-6, 1e-12, 1e-18])
@pytest.mark.parametrize("digits", [1, 12])
def test_groups_of_very_different_scores_are_split_in_each(ratio, digits):
    """Scores of one group are not scrambled by what is rounding beside those of another."""
    draws = np.random.default_rng(5)
    group = np.arange(120)[:, None] % 3 * 1.0
    scores = np.round(draws.exponential(size=120), digits)
    scores[group[:, 0] == 1] *= ratio
    method = ConditionalCalibration(basis=lambda Z: Z == np.arange(2)).fit(group, scores)
    for g in range(3):
        members = scores[group[:, 0] == g]
        expected = Split().fit(members[:, None], members).predict_radius([[0.0]], [0.5, 0.8, 0.9])
        radius = method.predict_radius([[g]], [0.5, 0.8, 0.9])
        np.testing.assert_allclose(radius, expected, rtol=1e-9)
        assert (radius >= expected).all()


def test_many_groups_and_sums_of_them_are_split_in_each():
    """Weights on the scores of other groups are nought, not what rounding leaves of it."""
    draws = np.random.default_rng(0)
    group = np.arange(140)[:, None] % 7 * 1.0
    scores = draws.exponential(size=140) * 10.0 ** (4 * group[:, 0] - 12)

    def basis(Z):
        return np.column_stack([Z == np.arange(7), Z % 2 == 0])

    method = ConditionalCalibration(basis=basis).fit(group, scores)
    for g in range(7):
        members = scores[group[:, 0] == g]
        expected = Split().fit(members[:, None], members).predict_radius([[0.0]], [0.5, 0.8])
        np.testing.assert_allclose(method.predict_radius([[g]], [0.5, 0.8]), expected, rtol=1e-9)


def test_a_search_that_is_given_up_is_not_laid_at_the_door_of_the_data(monkeypatch):
    method = ConditionalCalibration().fit(Z, SCORES)
    monkeypatch.setattr("calliper.calibrators._conditional.MOST_EDGES", -60)
    with pytest.warns(ConvergenceWarning, match="At 7 of 7 new rows the search failed"):
        assert (method.predict_radius(NEW, 0.8) == np.inf).all()


def test_a_search_that_is_given_up_at_one_level_of_two(monkeypatch):
    search = _conditional.lowest_vertex

    def given_up_at_most(design, scores, level, pull, start=None):
        if level == 0.8:
            raise ArithmeticError
        return search(design, scores, level, pull, start)

    monkeypatch.setattr(_conditional, "lowest_vertex", given_up_at_most)
    with pytest.warns(ConvergenceWarning, match="At 7 of 7 new rows the search failed"):
        radius = ConditionalCalibration().fit(Z, SCORES).predict_radius(NEW, [0.5, 0.8])
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1]).all()


@pytest.mark.parametrize("n", [60, 3000])
def test_no_vertex_is_taken_on_weights_that_were_carried_along(n, monkeypatch):
    """The last that is looked at is computed anew, however many edges led to it."""
    rng, seen = np.random.default_rng(n), []
    solve = _conditional.weights_on
    monkeypatch.setattr(
        _conditional, "weights_on", lambda vertex, rows: seen.append(vertex) or solve(vertex, rows)
    )
    design, scores = with_constant(rng.normal(size=(n, 8))), rng.exponential(size=n)
    start = np.arange(9)
    vertex = _conditional.lowest_vertex(design, scores, 0.7, np.zeros(9), start)
    assert set(vertex) != set(start)
    np.testing.assert_array_equal(seen[-1], design[vertex])


def test_coverage_under_every_reweighting():
    """Groups, marginal, and a tilt, over many draws; and not far above, since nothing ties."""
    weights = {
        "marginal": lambda z: np.ones_like(z),
        "left": lambda z: z < 0.3,
        "right": lambda z: z >= 0.3,
        "both": lambda z: np.abs(z - 0.3) < 0.2,
        "tilt": lambda z: 2 * (z < 0.3) + 1.0 * (np.abs(z - 0.3) < 0.2),
    }
    method = ConditionalCalibration(
        basis=lambda Z: np.column_stack([weights["left"](Z), weights["both"](Z)])
    )
    draws, level = np.random.default_rng(3), 0.8
    error = {name: [] for name in weights}
    for _ in range(400):
        z = draws.uniform(size=(60, 1))
        scores = np.abs(draws.normal(size=60)) * (0.1 + 3 * z[:, 0])
        new = draws.uniform(size=(40, 1))
        truth = np.abs(draws.normal(size=40)) * (0.1 + 3 * new[:, 0])
        covered = truth <= quietly(method.fit(z, scores), new, level)
        for name, weight in weights.items():
            error[name].append(np.mean(weight(new[:, 0]) * (covered - level)))
    for name, weight in weights.items():
        grid = weight(np.linspace(0, 1, 1001)[:-1]) * 1.0
        excess, noise = np.mean(error[name]), np.std(error[name]) / np.sqrt(1000)
        assert -4 * noise < excess < 3 / 61 * grid.max() + 4 * noise, name


def test_too_few_points_for_the_level_give_infinity_and_one_warning():
    fitted = ConditionalCalibration(basis=constant).fit(Z[:18], SCORES[:18])
    with pytest.warns(SmallCalibrationWarning, match="18 calibration rows cannot") as caught:
        radius = fitted.predict_radius(NEW, [0.5, 0.95, 0.99])
    assert len(caught) == 1
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1:]).all()
    enough = ConditionalCalibration(basis=constant).fit(Z[:19], SCORES[:19])
    np.testing.assert_allclose(enough.predict_radius(NEW, 0.95), SCORES[:19].max())


def test_a_group_without_calibration_points_is_infinite():
    basis = lambda Z: Z == np.arange(3)  # noqa: E731
    group = np.repeat([[0.0], [1.0]], 30, axis=0)
    method = ConditionalCalibration(basis=basis).fit(group, SCORES)
    with pytest.warns(SmallCalibrationWarning, match="At 2 of 3 new rows .* some from each group"):
        radius = method.predict_radius([[0.0], [2.0], [7.0]], 0.8)
    assert np.isfinite(radius[0]) and np.isinf(radius[1:]).all()


def test_levels_that_a_row_does_not_reach_are_told_of_once():
    method = ConditionalCalibration().fit(Z, SCORES)
    with pytest.warns(SmallCalibrationWarning, match=r"support coverage 0\.7") as caught:
        assert np.isinf(method.predict_radius([[1e3, 1e3]], [0.7, 0.8, 0.9])).all()
    assert len(caught) == 1


def test_descent_passes_many_scores_at_once():
    """Score by score it would be given up on long before the quantile is reached."""
    scores = np.random.default_rng(0).permutation(4000) * 1.0
    method = ConditionalCalibration(basis=constant).fit(np.zeros((4000, 1)), scores)
    np.testing.assert_allclose(method.predict_radius([[0.0]], [0.1, 0.9]), [[400.0, 3600.0]])


@pytest.mark.parametrize("unit", [1e-12, -1.0, 1.0, -1e12, 1e12])
def test_a_column_that_differs_by_rounding_alone_is_constant(unit):
    column = unit * (1 + np.finfo(np.float64).eps * (np.arange(60) % 2))[:, None]
    assert ConditionalCalibration().fit(column, SCORES).n_dimensions_ == 1
    for several in (column * Z[:, :1], column * (9 + Z[:, :1])):
        assert ConditionalCalibration().fit(several, SCORES).n_dimensions_ == 2


def test_an_input_far_outside_is_infinite():
    method = ConditionalCalibration().fit(Z, SCORES)
    with pytest.warns(SmallCalibrationWarning, match="At 1 of 2 new rows"):
        radius = method.predict_radius([[0.0, 0.0], [1e3, 1e3]], 0.9)
    assert np.isfinite(radius[0]) and np.isinf(radius[1])


def test_fewer_points_than_columns_is_infinite_off_their_span():
    method = ConditionalCalibration().fit(rng.normal(size=(5, 20)), SCORES[:5])
    assert method.n_dimensions_ == 5
    with pytest.warns(SmallCalibrationWarning, match="At 3 of 3 new rows the 5 calibration"):
        assert np.isinf(method.predict_radius(rng.normal(size=(3, 20)), 0.5)).all()


def test_repeated_and_rescaled_columns_change_nothing():
    expected = ConditionalCalibration().fit(Z, SCORES).predict_radius(NEW, 0.8)
    for basis in (
        lambda Z: np.hstack([Z, Z, Z[:, :1] - 2 * Z[:, 1:], constant(Z)]),
        lambda Z: Z * [1e8, 1e-8] + [1e9, 3.0],
    ):
        repeated = ConditionalCalibration(basis=basis).fit(Z, SCORES)
        assert repeated.n_dimensions_ == 3
        np.testing.assert_allclose(repeated.predict_radius(NEW, 0.8), expected, rtol=1e-6)


def test_negative_radii_only_where_scores_are_negative():
    z = np.linspace(0, 1, 80)[:, None]
    with_errors = ConditionalCalibration().fit(z, z[:, 0])
    assert quietly(with_errors, [[-0.01]], 0.5)[0] == 0.0
    signed = ConditionalCalibration().fit(z, z[:, 0] - 1)
    assert signed.predict_radius([[0.5]], 0.5)[0] == pytest.approx(-0.5)


def test_through_a_regressor():
    X = rng.uniform(size=(800, 1))
    y = X[:, 0] + X[:, 0] * rng.normal(size=800)
    model = ConformalRegressor(LinearRegression(), ConditionalCalibration(), random_state=0)
    low, high = model.fit(X, y).predict_interval([[0.1], [0.9]], [0.8, 0.9])
    assert ((high - low)[1] > 4 * (high - low)[0]).all()
    upper = ConformalRegressor(
        model.estimator_, ConditionalCalibration(), score_function=SignedError("upper")
    ).calibrate(X, y)
    assert np.isinf(upper.predict_interval(X[:3]).lower).all()


def test_what_it_promises():
    method = ConditionalCalibration(basis=groups).fit(Z, SCORES)
    assert method.guaranteed_coverage([0.8, 0.9]).tolist() == [0.8, 0.9]
    words = method.guarantee(0.8).describe()
    assert "at least 0.8, over all inputs and under every reweighting" in words
    assert "the basis (within a group" in words
    few = ConditionalCalibration().fit(Z[:5], SCORES[:5])
    assert few.guaranteed_coverage(0.9) == 1.0 == guarantees.conformal_coverage(0.9, 5)
    assert "the interval is infinite" in few.guarantee(0.9).describe()


@pytest.mark.parametrize(
    ("basis", "error", "message"),
    [
        ("linear", TypeError, "basis must be a function of the features or None; got 'linear'"),
        (lambda Z: Z[:, 0], CalliperError, r"shape \(60, k\); got shape \(60,\)"),
        (lambda Z: Z[:-1], CalliperError, r"each of 60 rows.*got shape \(59, 2\)"),
        (lambda Z: Z / 0, ValueError, r"basis\(Z\) contains infinity"),
        (lambda Z: Z[:, :0], ValueError, "0 feature"),
        (lambda Z: Z * 1e160, CalliperError, "basis.Z. holds values as large as"),
    ],
    ids=["text", "vector", "rows", "infinite", "empty", "huge"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_bases(basis, error, message):
    with pytest.raises(error, match=message):
        ConditionalCalibration(basis=basis).fit(Z, SCORES)


def test_a_basis_that_changes_its_columns():
    method = ConditionalCalibration(basis=lambda Z: np.ones((len(Z), len(Z)))).fit(Z, SCORES)
    with pytest.raises(CalliperError, match="returned 60 columns in fit and 7 now"):
        method.predict_radius(NEW)


def test_scores_that_cannot_be_added_up_are_refused():
    with pytest.raises(CalliperError, match="differ too much to add"):
        ConditionalCalibration().fit(np.zeros((4, 1)), [1e-310, 1.0, 1e300, 0.0])


def test_what_it_promises_where_the_largest_score_is_the_threshold():
    """Rank N of N: the level, and no certainty."""
    assert ConditionalCalibration().fit(Z[:9], SCORES[:9]).guaranteed_coverage(0.9) == 0.9
    assert ConditionalCalibration().fit(Z[:8], SCORES[:8]).guaranteed_coverage(0.9) == 1.0


@pytest.mark.parametrize(("spread", "dimensions"), [(3e-9, 3), (3e-10, 2)])
def test_directions_of_little_spread(spread, dimensions):
    """Columns that differ by a few billionths are two; by less, one. However many points."""
    rng = np.random.default_rng(0)
    for n in (60, 2000):
        first, other = rng.choice([-1.0, 1.0], size=(2, n))
        columns = np.column_stack([first, first + 2 * spread * other])
        scores = rng.exponential(size=n)
        assert ConditionalCalibration().fit(columns, scores).n_dimensions_ == dimensions


def test_rows_far_along_the_span_are_in_it():
    """What rounds there is in relation to how far they are, in whatever direction."""
    columns = Z @ np.array([[1.0, 0.5], [0.3, 2.0]])
    rows = np.vstack([columns[:5], 1e7 * columns[:5], 1e12 * columns[:5], -1e12 * np.abs(Z[:5])])
    assert _conditional.Span(columns).coordinates(rows)[1].all()


def test_copies_of_a_column_far_from_zero_say_nothing_of_rows_where_they_differ():
    """Spread counts by its own size, also where it is a millionth of the numbers."""
    far = 1e6 + Z[:, :1]
    method = ConditionalCalibration().fit(np.hstack([far, far]), SCORES)
    radius = quietly(method, np.array([[1e6, 1e6], [1e6, 1e6 + 0.9]]), 0.8)
    assert np.isfinite(radius).tolist() == [True, False]
