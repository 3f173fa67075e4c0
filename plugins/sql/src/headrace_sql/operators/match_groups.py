"""Patterns of MATCH_RECOGNIZE with groups and alternatives: ``(A | B C)+ D``, by the rules of SQL:2016.

Of all matches that begin at a row the preferred one counts: an alternative before those to its right, a greedy quantifier with more
rows before fewer, a reluctant one with fewer before more. That is the order in which backtracking would try them; here all ways are
followed at once, row by row, in the order of preference (Pike, "regmatch" of sam, 1987; Cox, "Regular expression matching: the virtual
machine approach", 2009). Ways with other rows behind them are different ones, since DEFINE may look at these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: So many ways to match one row are followed at once.
WAYS_MAX = 10_000


@dataclass(frozen=True)
class Program:
    """A pattern as instructions: ("row", variable), ("split", first, second) with the preferred one first, ("jump", to), ("match",)."""

    text: str
    code: tuple[tuple[Any, ...], ...]

    @property
    def variables(self) -> list[str]:
        """Return the variables in the order in which they first stand."""
        return list(dict.fromkeys(each[1] for each in self.code if each[0] == "row"))
