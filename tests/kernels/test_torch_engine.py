"""The torch engine, on torch's CPU device: what the plain engine says, and what is refused."""

import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

torch = pytest.importorskip("torch")

from calliper import KNN, RBF, ConformalRegressor, FullRescaled, JackknifeRescaled  # noqa: E402
from calliper._validation import engine_of  # noqa: E402
from calliper.calibrators import LCP, MADSplit, Split  # noqa: E402
from calliper.exceptions import CalliperError, ZeroScaleWarning  # noqa: E402
from calliper.files import load, save  # noqa: E402
from calliper.kernels import GradedKNN, Mahalanobis, TunedKNN, all_distances  # noqa: E402
from calliper.kernels._search import NeighborSearch, search_of  # noqa: E402
from calliper.rows import Rows  # noqa: E402
from calliper.scale import _torch  # noqa: E402
from calliper.scale._device import DeviceRows, device_rows, import_torch  # noqa: E402
from calliper.scale._torch import TorchRadial, TorchSearch  # noqa: E402

pytestmark = pytest.mark.filterwarnings(f"ignore::{ZeroScaleWarning.__module__}.ZeroScaleWarning")

CPU = "torch:cpu"
LEVELS = [0.3, 0.8, 0.95]
KINDS = ["continuous", "lattice", "copies", "crowd", "offset", "clusters"]


@pytest.fixture(autouse=True)
def small_data_have_blocks_and_strips(monkeypatch):
    monkeypatch.setattr(_torch, "BLOCK", 8)
    monkeypatch.setattr(_torch, "TILE", {"cpu": 20_000})
    monkeypatch.setattr(_torch, "BATCH", 90)


def problem(kind, d=5, n=240, m=130):
    """Calibration points, their scores with zeros and ties, and new rows, some equal to points."""
    rng = np.random.default_rng(7)
    Z, new = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    if kind == "lattice":
        Z, new = rng.integers(0, 3, (n, d)) * 1.0, rng.integers(0, 3, (m, d)) * 1.0
    if kind == "copies":
        Z[: n // 2] = Z[n // 2 :]
    if kind == "crowd":  # more copies of a row than there are candidates
        Z[:100], Z[100:160] = Z[0], Z[1]
    if kind == "offset":
        Z, new = 1e7 + np.round(Z, 2), 1e7 + np.round(new, 2)
    if kind == "clusters":  # so far apart that ten bits see no difference within one
        Z[::2], new[::2] = Z[::2] + 1e5, new[::2] + 1e5
    new[:20] = Z[:20]
    return Z, np.round(rng.exponential(size=n), 2) * (rng.uniform(size=n) > 0.1), new


def radii(method, Z, scores, new, engine=None):
    if engine is None:
        return clone(method).fit(Z, scores).predict_radius(new, LEVELS)
    there = clone(method).set_params(kernel__engine=engine)
    there.fit(torch.tensor(Z), torch.tensor(scores))
    assert isinstance(there._rows.Z, DeviceRows)
    return there.predict_radius(torch.tensor(new), LEVELS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "method",
    [
        FullRescaled(KNN(6)),
        FullRescaled(KNN(5), statistic="rms", offset=0.2),
        FullRescaled(KNN(1), shrinkage=0.4),
        FullRescaled(KNN(7), statistic="quantile", offset=0.1),
        JackknifeRescaled(KNN(6), offset=0.1),
    ],
    ids=["mean", "rms", "shrunk", "quantile", "jackknife"],
)
@pytest.mark.parametrize("d", [2, 40])
def test_nearest_neighbours_say_the_same(method, kind, d):
    Z, scores, new = problem(kind, d)
    plain, there = radii(method, Z, scores, new), radii(method, Z, scores, new, CPU)
    if kind in ("continuous", "clusters"):
        np.testing.assert_array_equal(there, plain)
    # Shared places are summed in an order of their own, so the last digit may differ.
    np.testing.assert_allclose(there, plain, rtol=2e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"smoothing": 2.0}, {"step": 0.5, "smoothing": 1.0}])
@pytest.mark.parametrize("length", [0.01, 1.0])
def test_radial_weights_are_within_their_tolerance(kind, how, length):
    Z, scores, new = problem(kind, m=60)
    for method in (
        FullRescaled(RBF(length, **how)),
        FullRescaled(RBF(length, **how), statistic="rms", offset=0.1),
        FullRescaled(RBF(length, **how), shrinkage=0.4),
        JackknifeRescaled(RBF(length, **how), offset=0.1),
    ):
        plain, there = radii(method, Z, scores, new), radii(method, Z, scores, new, CPU)
        np.testing.assert_allclose(there, plain, rtol=2e-10)
        finite = np.isfinite(plain)
        assert (there[finite] >= plain[finite] * (1 - 1e-12)).all()


def test_graded_neighbours_say_the_same():
    Z, scores, new = problem("copies", 70)
    plain, there = (
        GradedKNN(4).bag(Rows(points, scores, scores), statistic="mean", offset=0.1)
        for points in (Z, device_rows(torch.tensor(Z), "Z"))
    )
    found = [bag.order_statistics(new, LEVELS) for bag in (plain, there)]
    np.testing.assert_allclose(found[1], found[0], rtol=2e-15)


def test_single_precision_rows_are_those_numbers():
    Z, scores, new = (each.astype(np.float32) for each in problem("continuous"))
    there = FullRescaled(KNN(5, engine=CPU)).fit(torch.tensor(Z), scores)
    plain = FullRescaled(KNN(5)).fit(Z, scores)
    np.testing.assert_array_equal(
        there.predict_radius(torch.tensor(new)), plain.predict_radius(new)
    )


def test_arrays_are_moved_where_the_engine_says():
    Z, scores, new = problem("continuous")
    there = FullRescaled(KNN(5, engine=CPU)).fit(Z, scores)
    expected = FullRescaled(KNN(5)).fit(Z, scores).predict_radius(new)
    np.testing.assert_array_equal(there.predict_radius(new), expected)
    np.testing.assert_array_equal(there.predict_radius(torch.tensor(new)), expected)
    model = LinearRegression().fit(Z, scores)
    ends = [
        ConformalRegressor(model, FullRescaled(KNN(5, engine=engine)), embed=None)
        .calibrate(Z, scores)
        .predict_interval(new)
        for engine in (None, CPU)
    ]
    np.testing.assert_array_equal(ends[0].upper, ends[1].upper)


def test_tensors_in_main_memory_are_arrays_without_an_engine():
    Z, scores, new = problem("continuous")
    method = FullRescaled(KNN(5)).fit(torch.tensor(Z), torch.tensor(scores))
    assert type(method._rows.Z) is np.ndarray and not hasattr(method.bag_.search, "device")
    method.predict_radius(torch.tensor(new))


def test_weights_distributions_and_other_means():
    Z, scores, new = problem("continuous")
    rng = np.random.default_rng(0)
    weights, asked = rng.uniform(1, 2, len(Z)), rng.uniform(1, 2, len(new))
    signs = np.where(scores > 0, rng.choice([-1, 1], len(Z)), 0)
    for kernel in (KNN(5), RBF(0.7)):
        found = []
        for engine in (None, CPU):
            method = FullRescaled(clone(kernel).set_params(engine=engine), shrinkage=0.2)
            method.fit(Z, scores, signs=signs)
            law = method.predict_distribution(new, np.zeros(len(new))).quantile([0.1, 0.7])
            method.fit(Z, scores, weights=weights)
            found.append((law, method.predict_radius(new, weights=asked)))
        for plain, there in zip(*found, strict=True):
            np.testing.assert_allclose(there, plain, rtol=3e-10)
    means = [
        MADSplit(KNN(4, engine=engine)).fit(Z, scores, training=(new, asked))
        for engine in (None, CPU)
    ]
    np.testing.assert_array_equal(*(method.predict_radius(new) for method in means))


@pytest.mark.parametrize("kernel", [KNN(5, engine=CPU), RBF(0.5, engine=CPU)])
@pytest.mark.parametrize("kind", [FullRescaled, JackknifeRescaled])
def test_what_is_kept_holds_no_tensor(kernel, kind, tmp_path):
    Z, scores, new = problem("copies")
    method = kind(kernel, offset=0.1).fit(torch.tensor(Z), torch.tensor(scores))
    expected = method.predict_radius(torch.tensor(new))
    kept = pickle.dumps(method)
    assert b"torch._utils" not in kept and b"_rebuild_tensor" not in kept
    again = pickle.loads(kept)
    np.testing.assert_array_equal(again.predict_radius(torch.tensor(new)), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict_radius(new), expected)
    model = LinearRegression().fit(Z, scores)
    regressor = ConformalRegressor(model, kind(kernel, offset=0.1), embed=None)
    regressor.calibrate(Z, scores)
    save(regressor, tmp_path / "kept.calliper")
    loaded = load(tmp_path / "kept.calliper", model)
    np.testing.assert_array_equal(*(r.predict_interval(new).upper for r in (loaded, regressor)))


@pytest.mark.parametrize("window", [None, 100])
def test_more_points_on_the_device(window):
    Z, scores, new = problem("continuous")
    there, whole = (FullRescaled(KNN(5, engine=CPU)) for _ in range(2))
    there.fit(torch.tensor(Z[:150]), scores[:150])
    there.extend(torch.tensor(Z[150:]), torch.tensor(scores[150:]), window=window)
    assert isinstance(there._rows.Z, DeviceRows)
    whole.fit(torch.tensor(Z[-(window or 240) :]), scores[-(window or 240) :])
    np.testing.assert_array_equal(*(m.predict_radius(torch.tensor(new)) for m in (there, whole)))


def test_less_memory_halves_the_strip(monkeypatch):
    Z, scores, new = problem("continuous")
    whole, limit = _torch.Tiles.strip, [7]

    def strip(self, x, *args):
        if x.shape[1] > limit[0]:
            raise torch.cuda.OutOfMemoryError("no memory")
        return whole(self, x, *args)

    monkeypatch.setattr(_torch.Tiles, "strip", strip)
    method = FullRescaled(KNN(5, engine=CPU)).fit(torch.tensor(Z), scores)
    expected = FullRescaled(KNN(5)).fit(Z, scores).predict_radius(new)
    for limit[0] in (7, 1):
        np.testing.assert_array_equal(method.predict_radius(torch.tensor(new)), expected)
    limit[0] = 0
    with pytest.raises(CalliperError, match="no memory left for one row of 240 distances"):
        method.predict_radius(torch.tensor(new))


def test_rounding_is_bounded():
    """Distances of rounded rows lie where they are said to, and no other is nearer."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(64, 300)) * np.exp(0.5 * rng.normal(size=300))  # columns are rows here
    x = Z[:, :40] + 0.01 * rng.normal(size=(64, 40))
    tiles = _torch.Tiles(torch.tensor(Z), torch.float32)
    exact = np.square(x[:, :, None] - Z[:, None]).sum(axis=0)
    for k in (1, 10, 250):
        near, outside, _ = tiles.strip(torch.tensor(x), k, None)
        last = np.take_along_axis(exact, near.numpy(), axis=1).max(axis=1)
        others = exact.copy()
        np.put_along_axis(others, near.numpy(), np.inf, axis=1)
        assert (others.min(axis=1) >= outside.numpy()).all()
        assert k == 1 or (outside.numpy() > 0.95 * last).all()
    rounded = _torch.to_ten_bits(torch.tensor(rng.normal(size=1000), dtype=torch.float32))
    mantissa = np.frexp(rounded.numpy().astype(np.float64))[0] * 2**11
    np.testing.assert_array_equal(mantissa, np.round(mantissa))


def test_precision_of_products_is_as_it_was():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        test_single_precision_rows_are_those_numbers()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("unit", [1.0, 2.0**-60])
def test_more_points_than_candidates_at_nearly_one_distance(unit):
    """Even products in double precision cannot tell them apart: they are compared directly."""
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(300, 6))
    sphere *= (1 + 1e-15 * np.arange(300)[:, None]) / np.linalg.norm(sphere, axis=1, keepdims=True)
    points, query = unit * (100 + np.vstack([sphere, sphere + 5])), np.full((1, 6), 100 * unit)
    exact = np.sort(all_distances(query, points, "euclidean")[0])
    search = search_of(points, "euclidean", CPU)
    for n in (1, 3, 40):
        near, _ = search.nearest(query, n)
        np.testing.assert_array_equal(
            np.sort(all_distances(query, points[near[0]], "euclidean")[0]), exact[:n]
        )


def test_engines_that_are_refused(monkeypatch):
    Z, scores, _ = problem("continuous")
    with pytest.raises(ValueError, match=r"engine must be None, 'torch' .* got 'cuda'"):
        FullRescaled(KNN(5, engine="cuda")).fit(Z, scores)
    with pytest.raises(ValueError, match="the device 'gpu'; engine must be"):
        FullRescaled(RBF(1.0, engine="torch:gpu")).fit(Z, scores)
    with pytest.raises(CalliperError, match=r"'cuda:99', but torch .* sees \d+ CUDA devices"):
        FullRescaled(KNN(5, engine="torch:cuda:99")).fit(Z, scores)
    with pytest.raises(CalliperError, match="float64 needs CUDA or cpu"):
        engine_of(None, "torch:mps")
    for kernel in (KNN(5, metric="cityblock", engine=CPU), RBF(1.0, metric="cosine", engine=CPU)):
        with pytest.raises(CalliperError, match=r"only Euclidean distances .*; got metric="):
            FullRescaled(kernel).fit(Z, scores)
    with pytest.raises(CalliperError, match="FullRescaled and JackknifeRescaled only"):
        MADSplit(RBF(1.0, engine=CPU)).fit(Z, scores, training=(Z, scores))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'calliper\[torch\]'"):
        import_torch()


def test_tensors_that_are_refused():
    Z, scores, new = (torch.tensor(each) for each in problem("continuous"))
    elsewhere = Z.to("meta")  # the one device besides the CPU that is everywhere
    method, fitted = FullRescaled(KNN(5, engine=CPU)), FullRescaled(KNN(5, engine=CPU))
    fitted.fit(Z, scores)
    for wrong, words in (
        (Z.clone().requires_grad_(), "carries gradients"),
        (Z.half(), "half precision"),
        (Z.bfloat16(), "half precision"),
        (Z.long(), "float32 or float64; got torch.int64"),
        (Z[0], r"rows of features, \(n, d\); got \(5,\)"),
        (Z[:0], r"rows of features, \(n, d\); got \(0, 5\)"),
        (torch.where(Z == Z[3, 0], torch.nan, Z), "NaN or infinity"),
        (1e160 * Z, "as large as"),
        (elsewhere, "Z is on meta, but is compared with rows on cpu"),
    ):
        for ask in (
            lambda Z: method.fit(Z, scores[: len(Z)]),
            fitted.predict_radius,
        ):
            with pytest.raises((CalliperError, ValueError), match=words):
                ask(wrong)
    with pytest.raises(TypeError, match="sparse"):
        method.fit(Z.to_sparse(), scores)
    with pytest.raises(CalliperError, match="scores is on meta"):
        method.fit(Z, scores.to("meta"))
    with pytest.raises(CalliperError, match="scores is on meta"):
        FullRescaled(KNN(5)).fit(Z.numpy(), scores.to("meta"))
    with pytest.raises(CalliperError, match="scores carries gradients"):
        method.fit(Z, scores.clone().requires_grad_())
    with pytest.raises(CalliperError, match="Z has 4 columns, but had 5"):
        method.fit(Z, scores).predict_radius(new[:, :4])
    for kernel in (KNN(5), GradedKNN(1)):
        fitted = FullRescaled(kernel).fit(Z.numpy(), scores)
        with pytest.raises(CalliperError, match="Z is on meta, but is compared with rows on"):
            fitted.predict_radius(new.to("meta"))
    nobody = FullRescaled(GradedKNN(3)).set_params(kernel=object())
    with pytest.raises(TypeError, match="kernel must be KNN"):
        nobody.fit(elsewhere, scores)
    for other in (LCP(), FullRescaled(TunedKNN()), FullRescaled(Mahalanobis())):
        with pytest.raises(CalliperError, match=r"Z is on meta, where .* cannot run"):
            other.fit(elsewhere, scores)
    Split().fit(elsewhere, scores)  # which only counts rows


def test_by_default_tensors_are_searched_where_they_are():
    Z, scores, new = problem("continuous", 70)
    there = FullRescaled().fit(device_rows(torch.tensor(Z), "Z"), scores)
    expected = FullRescaled().fit(Z, scores).predict_radius(new)
    assert isinstance(there.bag_.bag.search, _torch.TorchSearch)
    found = there.predict_radius(device_rows(torch.tensor(new), "new"))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_device_that_is_no_longer_there():
    rows = device_rows(torch.tensor(problem("continuous")[0]), "Z")
    rows.device = "cuda:99"
    kept = pickle.loads(pickle.dumps(rows))
    assert np.asarray(kept).shape == (240, 5)
    with pytest.raises(CalliperError, match="rows were on the device 'cuda:99', but torch"):
        kept.columns  # noqa: B018


def test_rows_do_not_leave_their_device_silently():
    Z, scores, new = problem("continuous")
    method = FullRescaled(KNN(5)).fit(device_rows(torch.tensor(Z), "Z"), scores)
    with pytest.raises(
        CalliperError, match="on cpu, and Z is in main memory: pass a tensor on cpu"
    ):
        method.predict_radius(new)


@pytest.mark.parametrize("unit", [1.0, 1e150])
def test_a_search_of_some_points_is_that_of_main_memory(unit):
    """Also in another unit, and of no neighbours at all."""
    Z = problem("lattice")[0] * unit
    here, there = NeighborSearch(Z, "euclidean"), TorchSearch(device_rows(torch.tensor(Z), "Z"))
    for found, expected in zip(there.nearest_others(0), here.nearest_others(0), strict=True):
        np.testing.assert_array_equal(found, expected)
    some = np.array([5, 0, 31])
    near, tied = there.others_of(some, 4)
    own, same = here.others_of(some, 4)
    np.testing.assert_array_equal(tied, same)
    for row, (a, b) in zip(some, zip(near, own, strict=True), strict=True):
        np.testing.assert_allclose(
            np.linalg.norm((Z[a] - Z[row]) / unit, axis=1),
            np.linalg.norm((Z[b] - Z[row]) / unit, axis=1),
        )


def test_all_scales_without_each_point_on_the_device():
    Z, scores, new = problem("continuous")[:3]
    how = {"offset": 0.1, "rng": np.random.RandomState(0)}
    here = RBF(0.8).leave_two_out(Rows(Z, magnitudes=scores), **how)
    there = RBF(0.8).leave_two_out(
        Rows(device_rows(torch.tensor(Z), "Z"), magnitudes=scores), **how
    )
    found = there.without_each(device_rows(torch.tensor(new), "new"))
    np.testing.assert_allclose(found, here.without_each(new), rtol=1e-9)


def test_cells_are_not_searched_on_the_device():
    Z, scores = problem("continuous")[:2]
    rows = device_rows(torch.tensor(Z), "Z")
    with pytest.raises(TypeError, match="cells are searched on the CPU"):
        KNN(5, cells=4).bag(Rows(rows, scores, scores), statistic="mean", offset=0.0)


def test_ten_bits_are_the_nearest():
    rng = np.random.default_rng(0)
    given = rng.normal(size=2000).astype(np.float32)
    found = _torch.to_ten_bits(torch.tensor(given)).numpy().astype(np.float64)
    part, exponent = np.frexp(given.astype(np.float64))
    np.testing.assert_array_equal(found, np.ldexp(np.round(part * 2**11), exponent - 11))


def test_exponents_are_exact_however_short_the_length_scale():
    rng = np.random.default_rng(0)
    half = 1e3 * rng.normal(size=(20, 12))
    half = np.vstack([half, half + 1e-3 * rng.normal(size=(20, 12))])
    Z = np.vstack([half, -half])  # around nought, so that only the rows themselves are large
    there = TorchRadial(device_rows(torch.tensor(Z), "Z"), 1e-3, 0.0, 0.0)
    found = there.exponents(there.points[0]).numpy()
    expected = -all_distances(Z, Z, "euclidean") / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_neighbours_are_the_same_in_any_unit():
    Z = problem("continuous")[0]
    expected = search_of(Z, "euclidean", CPU).nearest(Z[:9] + 0.1, 4)[0]
    found = search_of(2.0**600 * Z, "euclidean", CPU).nearest(2.0**600 * (Z[:9] + 0.1), 4)
    np.testing.assert_array_equal(found[0], expected)
    assert not found[1].any()
