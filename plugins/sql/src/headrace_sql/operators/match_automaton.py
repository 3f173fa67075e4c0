"""A pattern of MATCH_RECOGNIZE as tables: for each state, the variables that the next row is tried for, and the states that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_sql.operators.match_groups import Program

#: Instead of a state: the match is complete; the row fits, but the match cannot continue.
MATCHED, BLOCKED = -1, -2


@dataclass(frozen=True)
class PatternPart:
    """One variable of the pattern and how many rows it may match; ``most`` None: any number."""

    variable: str
    least: int
    most: int | None
    greedy: bool = True

    @property
    def is_exclusive(self) -> bool:
        """Whether the variables behind it get only rows that this one cannot take: with ``*``, ``+``, ``{n,m}``, not with ``?``."""
        return self.greedy and self.least != self.most and (self.least, self.most) != (0, 1)


@dataclass(frozen=True)
class Try:
    """A variable (by its place) that a row is tried for, and what follows if it fits. ``stops``: then no other one is tried."""

    variable: int
    targets: tuple[int, ...]
    stops: bool = False


@dataclass(frozen=True)
class Automaton:
    """``tries`` of each state; matches begin in state 0. ``preferred``: of the matches that begin at a row the preferred one counts.

    Without it the one that is complete first counts, and with it a match is known when no better one is under way.
    """

    variables: tuple[str, ...]
    tries: tuple[tuple[Try, ...], ...]
    preferred: bool
    #: So many rows a match has at least.
    least_rows: int


def of_parts(parts: Sequence[PatternPart]) -> Automaton:
    """Return the automaton of variables one after the other. A state is a variable and its number of rows, up to where it counts."""
    places = [(0, 0)] + [
        (place, count) for place, part in enumerate(parts) for count in range(1, _counted(part) + 1)
    ]  # fmt: skip
    numbers = {each: number for number, each in enumerate(places)}

    def target(place: int, count: int) -> int:
        return MATCHED if _is_complete(parts, place, count) else numbers[place, min(count, _counted(parts[place]))]

    tries = []
    for place, count in places:
        part, found = parts[place], list[Try]()
        if part.most is None or count < part.most:
            found.append(Try(place, (target(place, count + 1),), part.is_exclusive))
        elif part.is_exclusive:
            found.append(Try(place, (BLOCKED,), True))
        least = part.least - count
        while least <= 0 and place + 1 < len(parts):
            place += 1
            if parts[place].most != 0:
                found.append(Try(place, (target(place, 1),), parts[place].is_exclusive))
            least = parts[place].least
        tries.append(tuple(found))
    return Automaton(tuple(part.variable for part in parts), tuple(tries), False, _least_rows(tries))


def _counted(part: PatternPart) -> int:
    """Return the number of rows from which on more of them make no difference."""
    return max(1, part.least) if part.most is None else part.most


def _is_complete(parts: Sequence[PatternPart], place: int, count: int) -> bool:
    part, rest = parts[place], parts[place + 1 :]
    if count < part.least or any(each.least for each in rest):
        return False
    return bool(rest) or not part.greedy or count == part.most or part.most == part.least


def of_program(program: Program) -> Automaton:
    """Return the automaton of a pattern with groups: a state is what the ways at one instruction may do next."""
    variables = program.variables
    places = [at for at, step in enumerate(program.code) if step[0] == "row"]
    numbers = {at: number for number, at in enumerate(places, start=1)}

    def targets(at: int) -> tuple[int, ...]:
        found: list[int] = []
        for each in _closure(program, at):
            if program.code[each][0] == "match":
                return (*found, MATCHED)  # paths that are less preferred than a match are not followed
            found.append(numbers[each])
        return tuple(found)

    def tried(at: int) -> Try:
        return Try(variables.index(program.code[at][1]), targets(at + 1))

    tries = (tuple(tried(at) for at in _closure(program, 0)), *((tried(at),) for at in places))
    return Automaton(tuple(variables), tries, True, _least_rows(tries))


def _least_rows(tries: Sequence[tuple[Try, ...]]) -> int:
    """Return how many rows the shortest match has."""
    rows, reached, seen = 1, {0}, set[int]()
    while reached:
        targets = {target for state in reached for each in tries[state] for target in each.targets}
        if MATCHED in targets:
            return rows
        seen |= reached
        reached = {each for each in targets if each >= 0} - seen
        rows += 1
    return rows


def _closure(program: Program, at: int) -> list[int]:
    """Return the instructions that want a row, or are the end, from one on, in the order of preference."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = [at]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue  # once more around a group without a row
        seen.add(place)
        step = program.code[place]
        if step[0] == "jump":
            waiting.append(step[1])
        elif step[0] == "split":
            waiting += [step[2], step[1]]
        else:
            found.append(place)
    return found
