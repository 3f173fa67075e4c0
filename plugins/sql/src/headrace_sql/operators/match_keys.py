"""The rows of each key, from the first row of a match that is not complete yet, and the state of that match.

Only the matches that begin at that row are followed. Those that begin behind it wait for it in any case; when it has come to its end,
the rows behind it are gone through again from the next one at which a match can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace_sql.operators.match_automaton import Automaton
from headrace_sql.operators.match_values import FAILURES
from headrace_sql.operators.match_walker import BITS, TIME, Match, Path, Row, Trace, Walk, Walker, Way

#: From this time on no row comes any more.
END = 2**62


class Held:
    """The rows of a key. ``taken``: how many of them the ways have gone; ``noted_us``: when the operator looks at it for WITHIN."""

    __slots__ = ("best", "complete_us", "followed", "later", "noted_us", "rows", "taken", "ways")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.taken = 0
        self.ways: Sequence[Way] = ()
        self.best: Match | None = None
        self.noted_us: int | None = None
        #: The matches under way that began behind the first row, up to which row they are followed, and the time of the first complete one.
        self.later: list[tuple[int, Sequence[Way]]] = []
        self.followed = 1
        self.complete_us: int | None = None


#: (place of the row that decided it, its first row, match, rows); places count from the first row that was held.
Decided = list[tuple[int, int, Match, list[Row]]]
#: Takes a row that a condition fails for, and the reason.
Reject = Callable[[Row, Exception], None]


#: A walk of so many rows that ends without a match is gone through again, to know for other beginnings which states lead to none.
ROWS_WALKED_IN_VAIN = 64


class _Dead:
    """Walks, and knows which states of which rows lead to no match: a long walk in vain is made once, not once for each row of it.

    Only for patterns whose conditions look at one row alone, without WITHIN. Places of rows are those of one call of ``decided``.
    """

    def __init__(self, walk: Walk, trace: Trace | None, start: Sequence[Way]) -> None:
        self._walk = walk
        self._trace = trace
        self._start = start
        self._states: dict[int, set[int]] = {}

    def walk(
        self, rows: list[Row], first: int, at: int, end: int, ways: Sequence[Way], best: Match | None
    ) -> tuple[int, Sequence[Way], Match | None]:
        if not self._states:
            made = self._walk(rows, first, at, end, ways, best)
            if made[1] or made[2] is not None or made[0] - first < ROWS_WALKED_IN_VAIN:
                return made
            self._note(rows, first, made[0])
            return made
        seen: list[tuple[int, int]] = []
        assert self._trace is not None
        made = self._trace(rows, first, at, end, ways, best, self._states, seen)
        if not made[1] and made[2] is None:
            self._add(seen)
        return made

    def _note(self, rows: list[Row], first: int, end: int) -> None:
        seen: list[tuple[int, int]] = []
        assert self._trace is not None
        self._trace(rows, first, first, end, self._start, None, {}, seen)
        self._add(seen)

    def _add(self, seen: Sequence[tuple[int, int]]) -> None:
        for place, state in seen:
            self._states.setdefault(place, set()).add(state)

    def forget(self) -> None:
        """Forget all states: a row was removed, and others have its place."""
        self._states = {}


class Matcher:
    """Finds the matches among the rows of one key."""

    def __init__(self, automaton: Automaton, walker: Walker, skip: tuple[str, str], within_us: int | None) -> None:
        self._walk = walker.walk
        self._trace = walker.trace
        self._start = walker.start
        self._preferred = automaton.preferred
        self._least_rows = automaton.least_rows
        self._how, variable = skip
        self._variable = automaton.variables.index(variable) if variable in automaton.variables else -2
        self._within_us = within_us

    def decided(self, held: Held, reject: Reject, time_us: int | None = None) -> Decided:
        """Go through rows that are new; return the matches that are decided. The caller drops rows before ``dropped`` of them.

        ``time_us``: no row before it comes any more. Places are those of ``held.rows`` before the call. A row for which a condition
        fails is rejected, and it goes on as if that row had never come.
        """
        rows, end = held.rows, len(held.rows)
        first, at, ways, best = 0, held.taken, held.ways, held.best
        found: Decided = []
        front, dead = at, _Dead(self._walk, self._trace, self._start)
        walk = self._walk if self._trace is None else dead.walk
        removed = 0  # how many rows were rejected
        while first < end:
            if at == first:
                if not rows[first][BITS] & 1:
                    first = at = first + 1
                    continue
                ways, best = self._start, None
            try:
                at, ways, best = walk(rows, first, at, end, ways, best)
            except FAILURES:
                at, ways, best = self._to_failing(rows, (first, at), ways, best, reject)
                # Another list: a match that is found has this row, perhaps, and so has a checkpoint that is on its way.
                rows = rows[:at] + rows[at + 1 :]
                held.rows, end, removed = rows, end - 1, removed + 1
                dead.forget()
                continue
            if ways:
                if at == end and (time_us is None or not self._is_over(rows[first], time_us)):
                    break
                front = max(front, at)
            else:
                front = max(front, at - 1)
            if best is None:
                first += 1
            else:
                found.append((front + removed, first, best, rows))
                first = max(first + 1, self._skipped_to(first, best))
            at = first
        self._keep(held, first)
        held.taken, held.ways, held.best = at - first, ways, best
        return found

    def _to_failing(
        self, rows: list[Row], places: tuple[int, int], ways: Sequence[Way], best: Match | None, reject: Reject
    ) -> tuple[int, Sequence[Way], Match | None]:
        """Walk row by row up to the one that fails, and reject it; return its place, and how far the walk is before it."""
        first, at = places
        while True:
            try:
                at, ways, best = self._walk(rows, first, at, at + 1, ways, best)
            except FAILURES as error:
                reject(rows[at], error)
                return at, ways, best

    def _keep(self, held: Held, first: int) -> None:
        if first:
            held.rows = held.rows[first:]
            held.later, held.followed, held.complete_us = [], 1, None

    def _is_over(self, row: Row, time_us: int) -> bool:
        """Return whether nothing from a time on can belong to the match that begins at a row."""
        if self._preferred and time_us >= END:
            return True
        return self._within_us is not None and time_us - int(row[TIME]) >= self._within_us

    def _skipped_to(self, first: int, match: Match) -> int:
        """Return the first row at which another match may begin; rows at or before the match's first do not count."""
        path, count = match
        if self._how == "PAST LAST ROW":
            return first + count
        if self._how == "TO NEXT ROW":
            return first
        last = self._how == "TO LAST"
        found, end = 0, count
        while path[1] >= 0:
            if path[1] == self._variable:
                found = end - 1 if last else path[2]
                if last:
                    break
            path, end = path[0], path[2]
        return first + found

    def deadline_us(self, held: Held) -> int:
        assert self._within_us is not None
        return int(held.rows[0][TIME]) + self._within_us

    def waits_us(self, held: Held) -> int | None:
        """Return the time of the first match that is complete and waits for the one that began before it; None if there is none.

        Of a pattern of which the preferred match counts it is the time of the first row: what it may become is not known before its end.
        """
        rows, end = held.rows, len(held.rows)
        if self._preferred:
            return int(rows[0][TIME]) if rows else None
        if held.complete_us is not None or end <= self._least_rows:
            return held.complete_us
        for at in range(held.followed, end):
            begins = [(at, self._start)] if rows[at][BITS] & 1 else []
            later, held.later = [*held.later, *begins], []
            for first, ways in later:
                try:
                    _, going, best = self._walk(rows, first, at, at + 1, ways, None)
                except FAILURES:  # found again, and rejected, when the match that began before is at its end
                    if first < at:  # as if the row had never come
                        held.later.append((first, ways))
                    continue
                if best is not None:
                    held.complete_us, held.later = int(rows[at][TIME]), []
                    return held.complete_us
                if going and not self._is_over(rows[first], int(rows[at][TIME])):
                    held.later.append((first, going))
            if self._trace is not None:  # those in the same states become the same
                held.later = list({tuple(way[0] for way in each[1]): each for each in reversed(held.later)}.values())[
                    ::-1
                ]
        held.followed = end
        return None


__all__ = ["END", "Held", "Matcher", "Path"]
