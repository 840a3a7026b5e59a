"""``python -m checks.promises``: write the book of promises, after trying to break them."""

from __future__ import annotations

import argparse

from checks.promises import book, campaign


def main() -> None:
    """Read the options, do as they say, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="try to break them for so long")
    parser.add_argument("--jobs", type=int, default=2, help="on so many cores")
    parser.add_argument("--only", choices=["laws", "bags"], help="draws alone, or searches alone")
    options = parser.parse_args()
    if options.minutes:
        kinds = (options.only,) if options.only else ("laws", "bags")
        before = counts()
        campaign.run(options.minutes, options.jobs, kinds)
        for what, after in counts().items():
            print(f"{what}: {after - before[what]:,} more, {after:,} in all")
    found, attacks = campaign.read("laws"), campaign.read("bags")
    print("refuted:", ", ".join(book.broken(found, attacks)) or "no promise")
    print(f"wrote {book.write()}")


def counts() -> dict[str, int]:
    """How much was tried so far."""
    found, attacks = campaign.read("laws").values(), campaign.read("bags").values()
    return {
        "pairs of a calibration set and a new row": sum(state["pairs"] for state in found),
        "whole bags among them": sum(state.get("whole", 0) for state in found),
        "bags searched": sum(state["bags"] for state in attacks),
    }


if __name__ == "__main__":
    main()
