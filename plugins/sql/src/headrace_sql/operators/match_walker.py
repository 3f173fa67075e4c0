"""The function that follows the matches which begin at one row, written for its pattern: no state is looked up by name, no row copied.

A row is a tuple: its bits (bit 0: a match can begin here; the others: parts of conditions that look at this row only), its time, its
number by arrival, and its columns. A way to match the rows so far is (state, what conditions remember, path). What conditions
remember is not the rows but what they look at: the last values of a variable, its sum, and so on. A path says where the variable
changed: (path before, variable, number of the row in the match).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace.foundation.errors import DataError

from headrace_sql.operators.match_automaton import Automaton
from headrace_sql.operators.match_columns import Columns
from headrace_sql.operators.match_groups import WAYS_MAX
from headrace_sql.operators.match_source import Source, leaves, made
from headrace_sql.operators.match_values import Node

#: Where columns begin in the tuple of a row, and what stands before them.
BITS, TIME, SEQUENCE, FIRST_COLUMN = 0, 1, 2, 3
#: A row has its bits in one number of 64: bit 0 and the sign are not for conditions.
_BITS_MAX = 62
Row = tuple[Any, ...]
#: (path before, variable, row of the match); the innermost has variable -1.
Path = tuple[Any, int, int]
Way = tuple[int, tuple[Any, ...], Path]
#: (path, number of rows) of a match.
Match = tuple[Path, int]
START: Path = (None, -1, 0)
#: (rows, first row, row to take, end, ways, match so far) -> (row to take, ways, match)
Walk = Callable[[list[Row], int, int, int, Sequence[Way], Match | None], tuple[int, Sequence[Way], Match | None]]
#: The same, with the states that lead to no match, by row, and the list that gets the states that rows are in: (row, state).
Trace = Callable[
    [list[Row], int, int, int, Sequence[Way], Match | None, Mapping[int, Container[int]], list[tuple[int, int]]],
    tuple[int, Sequence[Way], Match | None],
]
_Register = tuple[str, str | None, str | None, int]


@dataclass(frozen=True)
class Walker:
    """``walk`` follows matches; ``start`` is the way before the first row; ``bits``: conditions over columns, from bit 1 on.

    ``trace``: the walk that leaves out states which lead to no match; None where that also depends on the rows before, or on their times.
    """

    walk: Walk
    trace: Trace | None
    start: tuple[Way, ...]
    bits: tuple[pl.Expr, ...]


def walker(
    automaton: Automaton, definitions: Mapping[str, Node], columns: Sequence[str], kinds: Mapping[str, pl.DataType],
    within_us: int | None,
) -> Walker:  # fmt: skip
    """Return the walker of a pattern. ``columns``: those that rows have, in their order."""
    return _Writer(automaton, definitions, columns, kinds, within_us).written()


def is_of_row(node: Node, variable: str) -> bool:
    """Return whether a part of the condition of a variable looks at the row at hand, and at nothing else."""
    found = list(leaves(node))
    return bool(found) and all(each[0] == "LAST" and each[1] in (variable, None) and each[3] == 0 for each in found)


class _Writer:
    def __init__(
        self, automaton: Automaton, definitions: Mapping[str, Node], columns: Sequence[str],
        kinds: Mapping[str, pl.DataType], within_us: int | None,
    ) -> None:  # fmt: skip
        self._automaton = automaton
        self._definitions = {name: node for name, node in definitions.items() if name in automaton.variables}
        self._at = {name: f"row[{FIRST_COLUMN + place}]" for place, name in enumerate(columns)}
        self._kinds = kinds
        self._within_us = within_us
        self._variable = ""
        self._source = Source(self._leaf, kinds, {"ways_max": WAYS_MAX, "too_many": _too_many})
        self._registers = {each: f"r{number}" for number, each in enumerate(_registers(self._definitions))}
        self._bits: list[pl.Expr] = []

    def written(self) -> Walker:
        tries = [
            tuple((each.variable, each.targets if self._automaton.preferred else each.targets[0], each.stops) for each in state)
            for state in self._automaton.tries
        ]  # fmt: skip
        self._source.names["tries"] = tuple(tries)
        names = self._source.names
        walk: Walk = made("walk", self._walk(), names)
        depends = bool(self._registers) or self._within_us is not None
        trace: Trace | None = None if depends else made("trace", self._walk(traces=True), names)
        initial = tuple(0 if each[0] == "COUNT" else None for each in self._registers)
        return Walker(walk, trace, ((0, initial, START),), tuple(self._bits))

    def _walk(self, *, traces: bool = False) -> list[str]:
        lines = ["def walk(held, first, at, end, ways, best):"]
        if traces:
            lines = ["def trace(held, first, at, end, ways, best, dead, seen):"]
        if self._within_us is not None:
            lines.append(f"    ends_us = held[first][{TIME}] + {int(self._within_us)}")
        lines += ["    while at < end:", "        row = held[at]"]
        if self._within_us is not None:
            lines += [f"        if row[{TIME}] >= ends_us:", "            break"]
        lines += [
            "        going = []",
            "        for state, registers, path in ways:",
            "            for variable, target, stops in tries[state]:",
        ]
        for place, variable in enumerate(self._automaton.variables):
            lines.append(f"                {'el' if place else ''}if variable == {place}:")
            lines += ["                    " + line for line in self._taken(variable)]
        lines.append("                after = path if path[1] == variable else (path, variable, at - first)")
        followed: tuple[str, ...] = _PREFERRED if self._automaton.preferred else _FIRST_COMPLETE
        if self._automaton.preferred and not self._registers:
            lines[lines.index("        going = []")] = "        going, known = [], set()"
            followed = tuple(part for line in followed for part in _known_once(line))
        lines += [part for line in followed for part in (_traced(line) if traces else (line,))]
        lines += ["        at += 1", "        ways = going", "        if not going:", "            break"]
        return [*lines, "    return at, ways, best"]

    def _taken(self, variable: str) -> list[str]:
        """Return the lines that go on to the next try when a row does not stand for a variable, and set ``kept``."""
        self._variable = variable
        definition = self._definitions.get(variable)
        lines: list[str] = []
        rest = [] if definition is None else [each for each in _conjuncts(definition) if not self._is_bit(each, lines)]
        tests = [self._source.is_true(each) for each in rest]
        own = [each for each in self._registers if each[1] in (variable, None)]
        if own or any(name in test for test in tests for name in self._registers.values()):
            lines.append(f"{', '.join(self._registers.values())}, = registers")
        aggregated = [each for each in own if each[0] not in ("LAST", "FIRST")]
        lines += [f"n{self._registers[each]} = {self._after(each)}" for each in aggregated]
        lines += [line for test in tests for line in (f"if not {test}:", "    continue")]
        if own:
            new = [
                (f"n{name}" if each in aggregated else self._after(each)) if each in own else name
                for each, name in self._registers.items()
            ]
            return [*lines, f"kept = ({', '.join(new)},)"]
        return [*lines, "kept = registers"]

    def _is_bit(self, node: Node, lines: list[str]) -> bool:
        """Make a condition on the row alone a bit of the row, if columns can tell it."""
        if len(self._bits) == _BITS_MAX or not is_of_row(node, self._variable):
            return False
        test = Columns(lambda leaf: str(leaf[2]), self._kinds).is_true(node)
        if test is None:
            return False
        self._bits.append(test)
        lines += [f"if not row[{BITS}] & {1 << len(self._bits)}:", "    continue"]
        return True

    def _after(self, register: _Register) -> str:
        """Return the text that computes the new memory when the current row is taken for the variable."""
        kind, variable, column, distance = register
        name = self._registers[register]
        value = "" if column is None else self._at[column]
        if kind == "LAST":
            return value if distance == 0 else self._registers[kind, variable, column, distance - 1]
        if kind == "FIRST":
            return f"({value} if {self._registers['COUNT', variable, None, 0]} == {distance} else {name})"
        if kind == "COUNT":
            return f"{name} + 1" if column is None else f"({name} + 1 if {value} is not None else {name})"
        if kind == "SUM":
            return f"({value} if {name} is None else {name} if {value} is None else {name} + {value})"
        sign = "<" if kind == "MIN" else ">"
        return f"({value} if {name} is None or ({value} is not None and {value} {sign} {name}) else {name})"

    def _leaf(self, node: Node) -> str:
        """Return the text of what a condition reads; the row at hand counts for the variable that the condition is about."""
        kind, variable, column, distance = node
        is_own = variable in (self._variable, None)
        if kind == "LAST":
            if is_own and distance == 0:
                return self._at[column]
            return self._registers[kind, variable, column, distance - is_own]
        if kind == "FIRST":
            register: _Register = (kind, variable, column, distance)
            return self._after(register) if is_own else self._registers[register]
        new = "n" if is_own else ""
        if kind == "AVG":
            of = (f"{new}{self._registers[part, variable, column, 0]}" for part in ("SUM", "COUNT"))
            return f"mean({', '.join(of)})"
        return new + self._registers[kind, variable, column, 0]


_FIRST_COMPLETE = (
    "                if target >= 0:",
    "                    going.append((target, kept, after))",
    "                elif target == -1:",
    "                    return at + 1, (), (after, at + 1 - first)",
    "                if stops:",
    "                    break",
)
_PREFERRED = (
    "                for each in target:",
    "                    if each < 0:",
    "                        best = (after, at + 1 - first)",
    "                        break",
    "                    going.append((each, kept, after))",
    "                else:",
    "                    if len(going) > ways_max:",
    "                        raise too_many()",
    "                    continue",
    "                break",
    "            else:",
    "                continue",
    "            break",
)


def _known_once(line: str) -> tuple[str, ...]:
    """Return a line with the ways that are followed. Of several ways in one state only the preferred one is kept,
    because conditions cannot distinguish them.
    """
    text = line.lstrip()
    if not text.startswith("going.append("):
        return (line,)
    margin = " " * (len(line) - len(text))
    return f"{margin}if each not in known:", f"{margin}    known.add(each)", f"{margin}    {text}"


def _traced(line: str) -> tuple[str, ...]:
    """Return a line with the ways that are followed, without states that lead to no match; the other states are noted."""
    text = line.lstrip()
    if not text.startswith("going.append(("):
        return (line,)
    margin, state = " " * (len(line) - len(text)), text.removeprefix("going.append((").partition(",")[0]
    return (
        f"{margin}if {state} not in dead.get(at, ()):",
        f"{margin}    {text}",
        f"{margin}    seen.append((at, {state}))",
    )


def _too_many() -> DataError:
    return DataError(
        f"MATCH_RECOGNIZE: the pattern can match the rows of a partition in more than {WAYS_MAX} ways",
        hint="add WITHIN, or make the conditions in DEFINE exclude each other",
    )


def _conjuncts(node: Node) -> list[Node]:
    """Return the parts of AND, those in front first; that each is true says that the whole is."""
    return [part for each in node[1:] for part in _conjuncts(each)] if node[0] == "and" else [node]


def _registers(definitions: Mapping[str, Node]) -> list[_Register]:
    """Return what conditions remember of the rows before the one at hand: (aggregate, variable, column, distance)."""
    found: dict[_Register, None] = {}
    for mine, definition in definitions.items():
        for kind, variable, column, distance in leaves(definition):
            if kind == "LAST":
                depth = distance if variable in (mine, None) else distance + 1
                found.update({(kind, variable, column, each): None for each in range(depth)})
            elif kind == "FIRST":
                found.update({("COUNT", variable, None, 0): None, (kind, variable, column, distance): None})
            elif kind == "AVG":
                found.update({("SUM", variable, column, 0): None, ("COUNT", variable, column, 0): None})
            else:
                found[kind, variable, column, 0] = None
    return list(found)


__all__ = ["Walker", "walker"]
