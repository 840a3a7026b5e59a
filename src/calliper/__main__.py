"""``python -m calliper``: the same as the ``calliper`` command."""

from calliper.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
