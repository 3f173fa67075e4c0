"""Patterns of MATCH_RECOGNIZE with groups and alternatives: ``(A | B C)+ D``, by the rules of SQL:2016.

Of all matches that begin at a row the preferred one counts: an alternative before those to its right, a greedy quantifier with more
rows before fewer, a reluctant one with fewer before more. That is the order in which backtracking would try them; here all ways are
followed at once, row by row, in the order of preference (Pike, "regmatch" of sam, 1987; Cox, "Regular expression matching: the virtual
machine approach", 2009). Ways with other rows behind them are different ones, since DEFINE may look at these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import DataError

from headrace_sql.operators.match_rows import NEVER, NUMBER, SEQUENCE, TIME
from headrace_sql.operators.match_values import Node, evaluated

#: So many ways to match one row are followed at once.
WAYS_MAX = 10_000
#: (variable, row), one behind the other.
Taken = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Program:
    """A pattern as instructions: ("row", variable), ("split", first, second) with the preferred one first, ("jump", to), ("match",)."""

    text: str
    code: tuple[tuple[Any, ...], ...]

    @property
    def variables(self) -> list[str]:
        """Return the variables in the order in which they first stand."""
        return list(dict.fromkeys(each[1] for each in self.code if each[0] == "row"))


@dataclass(frozen=True)
class _Way:
    """One way to match the rows so far: where it goes on, and what each row stands for."""

    at: int
    rows: Taken


@dataclass(frozen=True)
class _Held:
    """The row before which no result can have its time."""

    rows: Taken


class GroupPartition:
    """The rows of one key from the first at which a match may begin, and the ways to match them."""

    def __init__(
        self, program: Program, definitions: Mapping[str, Node], measures: Mapping[str, Node], skip: tuple[str, str],
        within_us: int | None,
    ) -> None:  # fmt: skip
        self._code = program.code
        self._variables = program.variables
        self._definitions = definitions
        self._measures = measures
        self._skip = skip
        self._within_us = within_us
        self._rows: list[dict[str, Any]] = []
        #: The ways that are better than the match found so far, in the order of preference.
        self.runs: list[_Way] = []
        self._best: Taken | None = None
        self._number = 0
        self.restored: frozenset[int] | None = None
        self.last_time_us = NEVER + 1
        self.awaited: int | None = None

    @property
    def is_idle(self) -> bool:
        return not self._rows

    @property
    def complete(self) -> list[_Held]:
        return [_Held((("", self._rows[0]),))] if self._rows else []

    @property
    def deadline_us(self) -> int | None:
        return None if self._within_us is None or not self._rows else int(self._rows[0][TIME]) + self._within_us

    def starts(self) -> list[int]:
        return [int(self._rows[0][SEQUENCE])] if self._rows else []

    def history(self) -> list[dict[str, Any]]:
        """Return the rows that are held, in the order in which they were taken."""
        return [{name: value for name, value in row.items() if name != NUMBER} for row in self._rows]

    def take(self, row: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Take the next row; return the measures of the matches that are decided by it."""
        made = self._expire(int(row[TIME]))
        self._number += 1
        self._rows.append({**row, NUMBER: self._number})
        return [*made, *self._followed(len(self._rows) - 1)]

    def expire(self, time_us: int) -> list[tuple[Any, ...]]:
        """Decide what no row from a time on can belong to; at the end of the input, everything."""
        return self._expire(time_us, ends=time_us >= 2**62)

    def _expire(self, time_us: int, *, ends: bool = False) -> list[tuple[Any, ...]]:
        made: list[tuple[Any, ...]] = []
        while self._rows and (
            ends or (self._within_us is not None and time_us - self._rows[0][TIME] >= self._within_us)
        ):
            made += self._settled()
        return made

    def _followed(self, place: int) -> list[tuple[Any, ...]]:
        """Take held rows from a place on; return the measures of the matches that are decided."""
        made: list[tuple[Any, ...]] = []
        while place < len(self._rows):
            row = self._rows[place]
            ways = self._closure(0, ()) if place == 0 else self.runs
            self.runs = self._advanced(ways, row)
            place += 1
            if not self.runs:
                made += self._one_settled()
                place = 0
        return made

    def _settled(self) -> list[tuple[Any, ...]]:
        """Decide the match that begins at the first row held, and follow the rows behind it again."""
        made = self._one_settled()
        return [*made, *self._followed(0)]

    def _one_settled(self) -> list[tuple[Any, ...]]:
        best, self._best, self.runs = self._best, None, []
        if best is None:
            del self._rows[0]
            return []
        view = self._view(best)
        self.last_time_us = int(best[-1][1][TIME])
        made = tuple(evaluated(node, view) for node in self._measures.values())
        begins = max(int(self._rows[0][NUMBER]) + 1, self._skipped_to(best, view))
        self._rows = [row for row in self._rows if row[NUMBER] >= begins]
        return [made]

    def _skipped_to(self, rows: Taken, view: Mapping[str | None, Sequence[dict[str, Any]]]) -> int:
        how, variable = self._skip
        if how == "PAST LAST ROW":
            return int(rows[-1][1][NUMBER]) + 1
        if how == "TO NEXT ROW" or not view.get(variable):
            return 0
        return int(view[variable][0 if how == "TO FIRST" else -1][NUMBER])

    def _advanced(self, ways: Sequence[_Way], row: dict[str, Any]) -> list[_Way]:
        """Return the ways that go on with a row; a match ends those that are less preferred."""
        going: list[_Way] = []
        for way in ways:
            variable = self._code[way.at][1]
            rows = (*way.rows, (variable, row))
            if not self._fits(variable, rows):
                continue
            for after in self._closure(way.at + 1, rows):
                if self._code[after.at][0] == "match":
                    self._best = rows
                    return going
                going.append(after)
            if len(going) > WAYS_MAX:
                raise DataError(
                    f"MATCH_RECOGNIZE: the pattern can match the rows of a partition in more than {WAYS_MAX} ways",
                    hint="add WITHIN, or conditions to DEFINE that tell the variables apart",
                )
        return going

    def _closure(self, at: int, rows: Taken) -> list[_Way]:
        """Return the places that want a row, or are the end, from a place on, in the order of preference."""
        found: list[_Way] = []
        seen: set[int] = set()
        waiting = [at]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue  # once more around a group without a row
            seen.add(place)
            step = self._code[place]
            if step[0] == "jump":
                waiting.append(step[1])
            elif step[0] == "split":
                waiting += [step[2], step[1]]
            else:
                found.append(_Way(place, rows))
        return found

    def _fits(self, variable: str, rows: Taken) -> bool:
        definition = self._definitions.get(variable)
        return definition is None or evaluated(definition, self._view(rows)) is True

    def _view(self, rows: Taken) -> dict[str | None, list[dict[str, Any]]]:
        view: dict[str | None, list[dict[str, Any]]] = {variable: [] for variable in self._variables}
        view[None] = [row for _, row in rows]
        for variable, row in rows:
            view[variable].append(row)
        return view
