"""Every promise of calliper, and those who try to break it.

``python -m checks.promises`` writes ``promises.md`` from the book of promises and from what was
found; ``--minutes 55`` tries to break them for so long first (``make laws``).
"""
