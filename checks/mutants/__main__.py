"""``python -m checks.mutants``: break the core in small ways and count what its tests notice."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

# Before NumPy is imported: threads of its parent are no more in a child that was forked.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"


def main() -> None:
    """Read the options, do as they say, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="break and try for so long")
    parser.add_argument("--jobs", type=int, default=2, help="on so many cores")
    parser.add_argument("--only", default="", help="how the names of files begin, as kernels/_knn")
    parser.add_argument("--again", action="store_true", help="those that survived first")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--coverage", action="store_true", help="lines and branches alone")
    parser.add_argument("tests", nargs="*", help="those that are new, to be added to the others")
    options = parser.parse_args()
    from checks.mutants import campaign, page, touching

    if options.part:
        part, parts = map(int, options.part.split("/"))
        sys.exit(touching.measure_part(part, parts, options.tests))
    if options.coverage:
        percent, missed = touching.measure(options.jobs, options.tests)
        print(f"lines and branches of the core that its tests touch: {percent:.2f} %")
        print("\n".join(missed))
        sys.exit(bool(missed))
    if options.minutes:
        if touching.is_old():
            print("running the core's tests once, to see what each of them touches")
            once = ["--coverage", "--jobs", str(options.jobs)]
            subprocess.run([sys.executable, "-m", "checks.mutants", *once], check=False)
        if touching.is_old():
            sys.exit("no mutants without tests that pass")
        how = {"only": options.only, "again": options.again, "explained": frozenset(page.reasons())}
        campaign.run(options.minutes, options.jobs, **how)
    print(page.summary())
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
