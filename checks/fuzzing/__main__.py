"""``make fuzz``: give odd inputs to all that reads, for so many minutes or inputs, and say what was found."""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # a child waits forever for threads that it did not inherit
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"

from checks.fuzzing import campaign


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1e6, help="try for so long")
    parser.add_argument("--inputs", type=int, default=10**12, help="try so many of each kind")
    parser.add_argument("--only", choices=[*campaign.BATCH], action="append", help="these kinds")
    parser.add_argument("--jobs", type=int, default=2, help="on so many cores")
    parser.add_argument("--first", type=int, help="from this number on, and keep no results")
    given = parser.parse_args()
    before = (
        campaign.read()
        if given.first is None
        else {k: campaign.fresh_state() for k in campaign.BATCH}
    )
    known = sum(len(state["found"]) for state in before.values())
    results = campaign.run(
        before, given.only or [*campaign.BATCH], jobs=given.jobs, minutes=given.minutes,
        most=given.inputs, first=given.first,
    )  # fmt: skip
    print(campaign.table(results))
    return 1 if sum(len(state["found"]) for state in results.values()) > known else 0


if __name__ == "__main__":
    sys.exit(main())
