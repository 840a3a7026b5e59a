"""``python -m studies.benchmarks``: every ratio that calliper promises, in one run."""

from __future__ import annotations

import argparse

from studies.benchmarks import (
    cells,
    clusters,
    distributions,
    embedding,
    evaluation,
    extending,
    keeping,
    kernels_and_memory,
    loading,
    localized,
    metrics,
    neighbours,
    report,
    tuning,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is taken")
    parser.add_argument("--no-peers", action="store_true", help="leave crepes and MAPIE out")
    options = parser.parse_args()
    print("Radial kernel, against one float64 exp over the N × M matrix\n")
    print(kernels_and_memory.radial(options.rounds), "\n", flush=True)
    print("Ten nearest neighbours: fit and predict, against the bare neighbour searches\n")
    print(neighbours.main(options.rounds, with_peers=not options.no_peers), "\n", flush=True)
    print("One row, and neighbours in cells against all of them\n")
    print(cells.one_row(), "\n", flush=True)
    print(cells.against_exact(), "\n", flush=True)
    print("One row more, against calibrating anew\n")
    print(extending.one_row(), "\n", flush=True)
    print(extending.one_step(), "\n", flush=True)
    print("Saving and loading, against bare arrays and pickle\n")
    print(loading.arrays_and_all(options.rounds), "\n", flush=True)
    print(neighbours.weighted(options.rounds), "\n", flush=True)
    print("Tuning the length scale\n")
    print(tuning.criteria(), "\n", flush=True)
    print(tuning.prediction(options.rounds), "\n", flush=True)
    print("Localised methods\n")
    print(localized.prediction(options.rounds), "\n", flush=True)
    print(localized.metric_learning(options.rounds), "\n", flush=True)
    print("Distributions: quantiles against intervals\n")
    print(distributions.quantiles(options.rounds), "\n", flush=True)
    print("Measures\n")
    print(metrics.main(options.rounds), "\n", flush=True)
    print("Evaluation: what scheduling adds\n")
    print(evaluation.overhead(options.rounds), "\n", flush=True)
    print("The page of calliper compare\n")
    print(report.page(), "\n", flush=True)
    print("Where nearness is judged: cost of embed='auto'\n")
    print(embedding.auto(options.rounds), "\n", flush=True)
    print("Large calibration sets: default intervals over LightGBM's own predict\n")
    print(embedding.large_sets(options.rounds), "\n", flush=True)
    print("Single rows: an interval beyond its prediction, over 1 ms and half of predict\n")
    print(embedding.single_rows(), "\n", flush=True)
    print("Dask: two worker processes against one, the same rows\n")
    print(clusters.two_workers(options.rounds), "\n", flush=True)
    print("Kept and loaded: one row and memory, against the same before\n")
    print(keeping.loaded(), "\n", flush=True)
    print("Memory and import\n")
    print(kernels_and_memory.memory_and_import())


if __name__ == "__main__":
    main()
