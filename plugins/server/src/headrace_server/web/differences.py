"""What differs between two versions of a job, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

_LINES_MAX = 5_000


@dataclass(frozen=True)
class DiffLine:
    """A line of a comparison. ``kind``: ``file``, ``place``, ``same``, ``added`` or ``removed``."""

    kind: str
    text: str


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[DiffLine]:
    """Return the lines that differ, with three lines around them; of very large changes the first ones."""
    made: list[DiffLine] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "").splitlines(), after.get(name, "").splitlines()
        if old == new:
            continue
        what = " (new)" if name not in before else " (removed)" if name not in after else ""
        made.append(DiffLine("file", name + what))
        for line in list(difflib.unified_diff(old, new, lineterm=""))[2:]:
            kind = {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")
            made.append(DiffLine(kind, line))
        if len(made) > _LINES_MAX:
            return [*made[:_LINES_MAX], DiffLine("file", "… and more")]
    return made
