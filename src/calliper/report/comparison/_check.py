"""One thing to know before trusting the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["void", "warning", "note"]


@dataclass(frozen=True)
class Check:
    """Something to know before trusting the numbers.

    ``severity`` is ``"void"`` (they mean nothing), ``"warning"`` or ``"note"``; ``kind`` is a
    word for machines; ``title`` says what was found and ``meaning`` what follows from it.
    """

    kind: str
    severity: Severity
    title: str
    meaning: str
