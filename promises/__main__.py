"""``python -m promises``: write the book of promises, after trying to break them if asked to."""

from __future__ import annotations

import argparse

from promises import book, campaign


def main() -> None:
    """Read the options, do as they say, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="try to break them for so long")
    parser.add_argument("--jobs", type=int, default=2, help="on so many cores")
    parser.add_argument("--only", choices=["laws", "bags"], help="draws alone, or searches alone")
    options = parser.parse_args()
    if options.minutes:
        kinds = (options.only,) if options.only else ("laws", "bags")
        campaign.run(options.minutes, options.jobs, kinds)
    print(f"wrote {book.write()}")


if __name__ == "__main__":
    main()
