"""``python -m studies.benchmarks.folders --rows 1e8``: the command line on a folder of Parquet.

Writes so many rows of a prediction and eight features, N = 2,000 calibration rows, runs ``calliper
interval`` on the folder with two processes, and reports rows per second and the peak memory of each
process. Rows come in rounds, and each is removed before the next, so that a round's inputs and
outputs together take no more than ``--disk`` gigabytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from studies.benchmarks.timing import table

FEATURES, N, FILE_ROWS = 8, 2_000, 1_000_000

#: Bytes of a row in both files: nine numbers in, eleven out; random ones cannot be packed.
ROW_BYTES = 8 * (2 * FEATURES + 4)


def rows(n: int, seed: int, *, known: bool = False) -> pa.Table:
    """Features, a prediction and, if known, a target whose noise grows with the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(FEATURES, n))
    columns = {f"x{place}": column for place, column in enumerate(X)} | {"y_pred": X.sum(axis=0)}
    if known:
        columns["y"] = columns["y_pred"] + (0.2 + abs(X[0])) * rng.normal(size=n)
    return pa.table(columns)


def peak_of_children(pid: int, peaks: dict[int, float]) -> None:
    """Note the peak memory so far, in MB, of each process that works on files."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            command = status.with_name("cmdline").read_bytes()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines())
        if int(fields["PPid"]) == pid and b"spawn_main" in command:
            peaks[int(fields["Pid"])] = int(fields["VmHWM"].split()[0]) / 1024


def one_round(folder: Path, n: int, first: int, workers: int) -> tuple[float, dict[int, float]]:
    """Seconds that the command takes on n rows, and the peak of each process."""
    (folder / "new").mkdir()
    for place, start in enumerate(range(0, n, FILE_ROWS)):
        size = min(FILE_ROWS, n - start)
        pq.write_table(rows(size, first + place), folder / "new" / f"part-{place:05}.parquet")
    command = [sys.executable, "-m", "calliper", "interval", "--calibrated", "m.calliper"]
    command += ["--new", "new", "--output", "out", "--workers", str(workers), "--quiet"]
    peaks: dict[int, float] = {}
    start_time = perf_counter()
    with subprocess.Popen(command, cwd=folder) as process:
        while process.poll() is None:
            peak_of_children(process.pid, peaks)
            sleep(0.2)
    if process.returncode:
        raise SystemExit(process.returncode)
    return perf_counter() - start_time, peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--disk", type=float, default=20.0, help="gigabytes, at most")
    parser.add_argument("--folder", help="where to write; a temporary folder if not given")
    options = parser.parse_args()
    total, most = int(options.rows), int(options.disk * 1e9 / ROW_BYTES)
    seconds, done, peak = 0.0, 0, 0.0
    while done < total:
        n = min(most, total - done)
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            pq.write_table(rows(N, 0, known=True), folder / "cal.parquet")
            command = "calibrate --calibration cal.parquet --target y --prediction y_pred"
            command += " --features-prefix x --output m.calliper --quiet"
            arguments = [sys.executable, "-m", "calliper", *command.split()]
            subprocess.run(arguments, cwd=folder, check=True)
            taken, peaks = one_round(folder, n, 1 + done, options.workers)
        seconds, done, peak = seconds + taken, done + n, max([peak, *peaks.values()])
    cells = [f"{total:,}", str(options.workers), f"{seconds:.0f} s", f"{total / seconds:,.0f}"]
    names = ["rows, eight features, N = 2,000", "processes", "time", "rows a second", "peak each"]
    print(f"{os.cpu_count()} cores\n\n{table(names, [[*cells, f'{peak:.0f} MB']])}")


if __name__ == "__main__":
    main()
