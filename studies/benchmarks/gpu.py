"""``python -m studies.benchmarks.gpu``: full conformal on a GPU, against bare products and a CPU.

Prints as it goes and takes some minutes; ``--quick`` leaves the million out, ``--device cpu`` and
``--rows`` try the script itself where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import torch

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled

K, D, LEVEL = 10, 256, 0.9


def say(*words: Any) -> None:
    print(*words, flush=True)


def seconds(work: Callable[[], Any], device: str) -> tuple[float, Any]:
    """How long it takes until the device has nothing left to do, and what comes back."""
    wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    wait()
    start = perf_counter()
    result = work()
    wait()
    return perf_counter() - start, result


def rows(n: int, d: int, seed: int, device: str) -> Any:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, d, generator=generator, device=device)


def sizes_of_errors(n: int, seed: int, device: str) -> Any:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.rand(n, generator=generator, device=device).log().neg().double()


def cases() -> dict[str, tuple[Any, Any]]:
    """Calibration and new rows: random, tied, with copies, far from zero."""
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(6000, 64))
    lattice = rng.integers(0, 3, (4000, 5)) * 1.0
    copies = np.repeat(rng.normal(size=(2000, 48)), 3, axis=0)
    far = 1e6 + np.round(rng.normal(size=(3000, 40)), 2)
    narrow = rng.normal(size=(20_000, 3))
    outlier = rng.normal(size=(4000, 32))
    outlier[0] *= 1e7
    found = {"random": plain, "lattice": lattice, "copies": copies, "far": far}
    found |= {"three features": narrow, "outlier": outlier}
    return {name: (Z[::2], np.vstack([Z[1:1000:2], Z[:50:2]])) for name, Z in found.items()}


def correctness(device: str) -> None:
    """Bits, on the device and by the plain engine."""
    engine = f"torch:{device}"
    for name, (Z, new) in cases().items():
        scores = np.random.default_rng(1).exponential(size=len(Z))
        for method in (FullRescaled, JackknifeRescaled):
            for of in (KNN, RBF):
                first: Any = K if of is KNN else float(np.sqrt(Z.shape[1]) / 3)
                plain = method(of(first)).fit(Z, scores).predict_radius(new, [0.5, 0.9])
                there = method(of(first, engine=engine)).fit(Z, scores)
                ours = there.predict_radius(new, [0.5, 0.9])
                equal = np.array_equal(ours, plain)
                worst = np.abs(ours / plain - 1).max()
                say(f"  {name:15} {method.__name__:18} {of.__name__}: "
                    f"{'equal bits' if equal else f'within {worst:.1e}'}")  # fmt: skip


def bare(n: int, m: int, device: str, strip: int) -> float:
    """One single-precision product for each strip of m rows, with the norms of n points."""
    left, right = rows(m, D, 1, device), rows(n, D, 2, device).T
    bias = right.square().sum(dim=0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if device == "cpu" else "high")  # as the engine
    torch.addmm(bias, left[:strip], right)

    def products() -> None:
        for start in range(0, m, strip):
            torch.addmm(bias, left[start : start + strip], right)

    taken = seconds(products, device)[0]
    torch.set_float32_matmul_precision(before)
    return taken


def profile(work: Callable[[], Any], whole: Callable[[], Any], device: str) -> None:
    """Which steps on the device, and which in Python, take long."""
    from cProfile import Profile
    from pstats import Stats

    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device != "cpu")
    with profile(activities=kinds) as seen:
        seconds(work, device)
    key = "self_device_time_total" if device != "cpu" else "self_cpu_time_total"
    say(seen.key_averages().table(sort_by=key, row_limit=14, max_name_column_width=60))
    with Profile() as python:
        seconds(whole, device)
    Stats(python).sort_stats("tottime").print_stats(25)


def full(
    n: int, m: int, device: str, rounds: int = 1, *, profiled: bool = False
) -> tuple[float, float, Any]:
    """Best times of fit and predict, end to end from tensors there, and the radii."""
    Z, new, scores = rows(n, D, 1, device), rows(m, D, 2, device), sizes_of_errors(n, 3, device)
    engine = "torch:cpu" if device == "cpu" else None
    best = [np.inf, np.inf]
    for _ in range(rounds):
        method = FullRescaled(KNN(K, engine=engine))
        fitting, _ = seconds(lambda: method.fit(Z, scores), device)  # noqa: B023
        asking, radius = seconds(lambda: method.predict_radius(new, LEVEL), device)  # noqa: B023
        best = [min(best[0], fitting), min(best[1], asking)]
        say(f"  {n:,} × {m:,} × {D}: fit {fitting:.2f} s, predict {asking:.2f} s")
    bag: Any = method.bag_
    inner, chunks = bag.search, [method._check_new(part) for part in new.split(65536)]
    strip = max(1, (1 << (23 if device == "cpu" else 30)) // n)  # rows of a tile in the search
    searching, _ = seconds(lambda: inner.nearest_others(K), device)
    reverse, _ = seconds(lambda: [inner.around(part, K, bag.reach) for part in chunks], device)
    say(f"    of which searches {searching:.2f} s and {reverse:.2f} s")
    if profiled:
        with suppress(Exception):  # another version of torch may name its columns otherwise
            ask = lambda: method.predict_radius(new[:131072], LEVEL)  # noqa: E731
            profile(lambda: inner.around(chunks[0], K, bag.reach), ask, device)
    product = bare(n, n, device, strip) + bare(n, m, device, strip)
    total = best[0] + best[1]
    say(f"    bare addmm, strips of {strip}: {product:.2f} s; ratio {total / product:.2f}")
    return best[0], best[1], radius


def others(n: int, device: str) -> None:
    """What else computes there."""
    Z, new, scores = rows(n, D, 1, device), rows(n, D, 2, device), sizes_of_errors(n, 3, device)
    engine = "torch:cpu" if device == "cpu" else None
    for method in (
        JackknifeRescaled(KNN(K, engine=engine)),
        FullRescaled(RBF(10.0, engine=engine)),
        JackknifeRescaled(RBF(10.0, engine=engine)),
    ):
        fitting, _ = seconds(lambda: method.fit(Z, scores), device)  # noqa: B023
        asking, _ = seconds(lambda: method.predict_radius(new, LEVEL), device)  # noqa: B023
        say(f"  {method!r}, {n:,} × {n:,} × {D}: fit {fitting:.2f} s, predict {asking:.2f} s")


def sample_is_exact(n: int, device: str) -> None:
    """Neighbours of some of the points, against all distances in double precision."""
    Z = rows(n, D, 1, device)
    method = FullRescaled(KNN(K, engine="torch:cpu" if device == "cpu" else None))
    method.fit(Z, sizes_of_errors(n, 3, device))
    new = rows(512, D, 2, device)
    bag: Any = method.bag_
    near = bag.search.nearest(method._check_new(new), K)[0]
    exact = torch.cdist(new[:64].double(), Z.double()).topk(K, largest=False).indices.cpu().numpy()
    same = np.mean([len({*a} & {*b}) for a, b in zip(near, exact, strict=False)])
    say(f"  of the {K} nearest among {n:,}, in float64: {same:.2f}")


def processor(n: int, m: int, share: float) -> float:
    """Fit and predict by the plain engine on all cores; a share of the new rows, scaled."""
    Z, new = rows(n, D, 1, "cpu").double().numpy(), rows(m, D, 2, "cpu").double().numpy()
    scores = sizes_of_errors(n, 3, "cpu").numpy()
    method = FullRescaled(KNN(K))
    fitting, _ = seconds(lambda: method.fit(Z, scores), "cpu")
    say(f"  plain engine, {os.cpu_count()} cores: fit {fitting:.1f} s")
    some = new[: int(share * m)]
    asking, _ = seconds(lambda: method.predict_radius(some, LEVEL), "cpu")
    say(f"  plain engine: predict {len(some):,} of {m:,} rows {asking:.1f} s, "
        f"all {asking / share:.1f} s")  # fmt: skip
    return fitting + asking / share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--profile", action="store_true", help="say which steps take long")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rows", type=int, default=1_000_000, help="the larger number of points")
    options = parser.parse_args()
    device, many = options.device, options.rows
    few = many // 10
    start = perf_counter()
    name = torch.cuda.get_device_name(device) if device != "cpu" else "processor"
    say(f"{name}; torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores")
    say("Results against the plain engine")
    correctness(device)
    say("Times, end to end from float32 tensors on the device")
    warm = min(few, 20_000)
    full(warm, warm, device)
    fitting, asking, _ = full(few, few, device, rounds=3)
    others(few // 2, device)
    if not options.quick:
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        full(many, many, device, profiled=options.profile)
        if device != "cpu":
            say(f"    peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
        sample_is_exact(many, device)
    say(f"  so far {perf_counter() - start:.0f} s")
    share = 0.1 if options.quick else 0.25
    alone = processor(few, few, share)
    say(f"  processor / device at {few:,}: {alone / (fitting + asking):.1f}")
    say(f"done in {perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
