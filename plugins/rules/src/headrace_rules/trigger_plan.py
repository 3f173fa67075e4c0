"""Chooses a trigger for each rule, and searches batches for all triggers: with one scan per text column."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_rules.atoms import Atom, Source, TextAtom, ValueAtom, add_atoms, cheapest
from headrace_rules.background import pause
from headrace_rules.coded_columns import CodedColumns
from headrace_rules.disk_cache import DatabaseCache
from headrace_rules.literals import Fold, guards_of
from headrace_rules.prepared import PreparedCondition
from headrace_rules.scanning import Scanner, make_scanner

Integers = NDArray[np.int64]
#: A trigger that is met in more than this part of the rows is not used: evaluating the rule on whole columns costs less.
RATE_MAX = 0.25
#: For at most so many rows a Python loop is faster than calls of polars.
_FEW_ROWS = 500
#: If more is found in a column than this for each row, or finding it takes more seconds, its values are looked at instead of its rows.
#: To know the values of a column costs about 80 ns a row.
_OFTEN, _SLOW_SECONDS = 0.05, 80e-9
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Groups:
    """Lists of rule numbers in two arrays: list ``i`` is ``members[starts[i]:starts[i + 1]]``."""

    starts: Integers
    members: Integers

    @classmethod
    def of(cls, lists: Sequence[Iterable[int]]) -> Groups:
        sizes = [0]
        members: list[int] = []
        for one in lists:
            members += one
            sizes.append(len(members))
        return cls(np.array(sizes, dtype=np.int64), np.array(members, dtype=np.int64))

    def expand(self, rows: Integers, keys: Integers) -> tuple[Integers, Integers]:
        """Return (row, member) for every member of the list ``keys[i]``, with the row ``rows[i]``."""
        counts = self.starts[keys + 1] - self.starts[keys]
        total = int(counts.sum())
        begins = np.repeat(self.starts[keys] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return np.repeat(rows, counts), self.members[begins + np.arange(total)]


class TextScan:
    """Searches one text column for literals."""

    def __init__(
        self, source: Source, rules_of_atoms: Mapping[TextAtom, Sequence[int]], cache: DatabaseCache | None, engine: str
    ) -> None:
        self.source = source
        #: By literal, whether case counts, and at which ends of a text it must be.
        wanted: dict[tuple[bytes, bool, bool, bool], list[int]] = {}
        for atom, rules in rules_of_atoms.items():
            pause()
            if atom.fold is Fold.EXACT:
                wanted.setdefault((atom.text.encode(), False, atom.first, atom.last), []).extend(rules)
                continue
            first, *guards = scanned_as(atom)
            wanted.setdefault((*first, atom.first, atom.last), []).extend(rules)
            for guard in guards:
                wanted.setdefault((*guard, False, False), []).extend(rules)
        listed = list(wanted)
        self.scanner: Scanner = make_scanner(
            [one[0] for one in listed], [one[1] for one in listed], cache, engine=engine
        )
        self._lengths = np.array([len(one[0]) for one in listed], dtype=np.int64)
        self._first = np.array([one[2] for one in listed], dtype=np.bool_)
        self._last = np.array([one[3] for one in listed], dtype=np.bool_)
        self.groups = Groups.of([sorted(set(rules)) if len(rules) > 1 else rules for rules in wanted.values()])
        self._by_values = False

    def pairs(self, frame: pl.DataFrame, coded: CodedColumns, rules: int) -> Integers:
        """Return ``row * rules + rule`` for every rule whose trigger is met, in any order, some more than once."""
        few = coded.of(self.source.column) if self._by_values and len(self.source.path) == 1 else None
        if few is None:
            begun = time.thread_time()
            rows, literals = self.find(frame)
            taken = time.thread_time() - begun
            self._by_values = len(rows) > _OFTEN * frame.height or taken > _SLOW_SECONDS * frame.height
            return _pairs(self.groups, rows, literals, rules)
        found = distinct(_pairs(self.groups, *self._found(few.values.to_series()), rules))
        rows, indexes = few.rows_of(found // rules)
        return rows * rules + found[indexes] % rules

    def find(self, frame: pl.DataFrame) -> tuple[Integers, Integers]:
        """Return (row, literal) for every occurrence of a literal at a place where it counts."""
        return self._found(self.source.values(frame))

    def _found(self, texts: pl.Series) -> tuple[Integers, Integers]:
        if texts.null_count() == len(texts):
            return _NONE, _NONE
        buffer, starts, ends = side_by_side(texts)
        literals, places = self.scanner.scan(buffer)
        rows = rows_of(ends, places)
        counts = ~self._last[literals] | (places == ends[rows])
        counts &= ~self._first[literals] | (places - self._lengths[literals] == starts[rows])
        return (rows, literals) if counts.all() else (rows[counts], literals[counts])


def _pairs(groups: Groups, rows: Integers, keys: Integers, rules: int) -> Integers:
    if not len(rows):
        return _NONE
    pair_rows, pair_rules = groups.expand(rows, keys)
    return pair_rows * rules + pair_rules


def scanned_as(atom: TextAtom) -> list[tuple[bytes, bool]]:
    """Return (literal, without regard to case) for each literal to scan for, so that no text with the atom is missed."""
    content = atom.text.encode()
    if atom.fold is Fold.EXACT:
        return [(content, False)]
    return [(content, True), *((guard.encode(), False) for guard in guards_of(atom.text, atom.fold))]


def joined(texts: pl.Series) -> tuple[bytes, Integers]:
    """Return the texts joined by newlines, as UTF-8, and the byte offset at which each ends. NULL becomes the empty text."""
    if len(texts) <= _FEW_ROWS:
        parts = [b"" if text is None else text.encode() for text in texts.to_list()]
        return b"\n".join(parts), np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)) + 1) - 1
    filled = texts.fill_null("") if texts.null_count() else texts
    buffer = filled.str.join("\n").item().encode()
    lengths = filled.str.len_bytes().to_numpy()
    return buffer, np.cumsum(lengths + 1, dtype=np.int64) - 1


def side_by_side(texts: pl.Series) -> tuple[bytes | memoryview, Integers, Integers]:
    """Return texts as UTF-8 in one buffer, and where each begins and ends. NULL becomes the empty text.

    They are joined by newlines or follow each other without a gap: a match across a border is only an unnecessary candidate.
    """
    if len(texts) > _FEW_ROWS and pyarrow_is_installed():
        array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        _, offsets, data = array.buffers()
        places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        return memoryview(data) if data is not None else b"", places[:-1], places[1:]
    buffer, ends = joined(texts)
    return buffer, np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1] + 1)), ends


@cache
def pyarrow_is_installed() -> bool:
    """Return whether texts can be taken from columns without a copy of each."""
    return find_spec("pyarrow") is not None


def rows_of(ends: Integers, places: Integers) -> Integers:
    """Return the number of the text that holds each occurrence. ``ends``: of the texts; ``places``: of the occurrences."""
    return np.searchsorted(ends, places, side="left").astype(np.int64, copy=False)


def distinct(keys: Integers) -> Integers:
    """Return each key once, ordered."""
    if len(keys) < 2:
        return keys
    ordered = np.sort(keys)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


class ValueCodes:
    """Gives a number (code) to each of some constants, to compare a column with all of them in one step."""

    def __init__(self, source: Source, values: Iterable[str | int]) -> None:
        self.source = source
        self.values = list(dict.fromkeys(values))
        self.code_of = {value: code for code, value in enumerate(self.values)}
        self._constants = pl.Series(self.values, dtype=pl.String if isinstance(self.values[0], str) else pl.Int64)
        self._wanted = self._constants.implode()

    def codes(self, frame: pl.DataFrame) -> Integers:
        """Return the code of each row's value; -1 for values without one, and for NULL."""
        rows, found = self.find(frame)
        codes = np.full(frame.height, -1, dtype=np.int64)
        codes[rows] = found
        return codes

    def find(self, frame: pl.DataFrame) -> tuple[Integers, Integers]:
        """Return the rows whose value is one of the constants, in order, and its code."""
        return self.find_in(self.source.values(frame))

    def find_in(self, column: pl.Series) -> tuple[Integers, Integers]:
        """Return as ``find`` the places of a column's values."""
        if column.null_count() == len(column):
            return _NONE, _NONE
        if len(column) <= _FEW_ROWS:
            return self._found(column)
        if column.dtype.is_integer() and column.dtype != pl.Int64:
            column = column.cast(pl.Int64, strict=False)  # values that do not fit become NULL: they equal no constant
        # To know that most values are none of the constants costs a quarter of what it costs to give each its code.
        rows = column.is_in(self._wanted).arg_true().to_numpy().astype(np.int64, copy=False)
        if not len(rows):
            return rows, rows
        there, codes = self._found(column[rows])
        return rows[there], codes

    def _found(self, column: pl.Series) -> tuple[Integers, Integers]:
        if len(column) <= _FEW_ROWS:
            code_of = self.code_of
            codes = np.fromiter((code_of.get(value, -1) for value in column.to_list()), np.int64, len(column))
        else:
            numbers = pl.Series(range(len(self.values)), dtype=pl.Int64)
            found = column.replace_strict(self._constants, numbers, default=-1, return_dtype=pl.Int64)
            codes = found.fill_null(-1).to_numpy()
        rows = np.flatnonzero(codes >= 0).astype(np.int64, copy=False)
        return rows, codes[rows]


class ValueScan:
    """Searches one column for the values that are triggers."""

    def __init__(self, source: Source, rules_of_values: Mapping[str | int, Sequence[int]]) -> None:
        self.source = source
        self._codes = ValueCodes(source, rules_of_values)
        self._often = False
        self.groups = Groups.of([rules_of_values[value] for value in self._codes.values])

    def pairs(self, frame: pl.DataFrame, coded: CodedColumns, rules: int) -> Integers:
        """Return ``row * rules + rule`` for every rule whose trigger is met, each once, in any order."""
        few = coded.of(self.source.column) if self._often and len(self.source.path) == 1 else None
        if few is None:
            rows, codes = self.find(frame)
            self._often = len(rows) > _OFTEN * frame.height
            return _pairs(self.groups, rows, codes, rules)
        places, codes = self._codes.find_in(few.values.to_series())
        rows, indexes = few.rows_of(places)
        return _pairs(self.groups, rows, codes[indexes], rules)

    def find(self, frame: pl.DataFrame) -> tuple[Integers, Integers]:
        """Return (row, code of its value) for every row that has one of the values."""
        return self._codes.find(frame)


@dataclass(slots=True)
class TriggerPlan:
    """The triggers of all rules. Immutable once made; used by any number of threads."""

    atoms: list[frozenset[Atom] | None]
    texts: list[TextScan]
    values: list[ValueScan]
    #: Rules without a trigger, which are evaluated on whole columns.
    everywhere: Integers
    #: Rules that can fail, by the columns of their triggers: they are also evaluated where such a column is NULL.
    on_null: list[tuple[Source, Integers]]
    #: Candidates expected per row; None if the triggers were chosen without a sample.
    expected_pairs: float | None

    def candidates(self, frame: pl.DataFrame, rules: int, coded: CodedColumns | None = None) -> Integers:
        """Return the rows and rules to verify, as ``row * rules + rule``, each once, ordered."""
        columns = coded or CodedColumns(frame)
        parts: list[TextScan | ValueScan] = [*self.texts, *self.values]
        found = [pairs for part in parts if len(pairs := part.pairs(frame, columns, rules))]
        for source, members in self.on_null:
            missing = source.values(frame).is_null()
            rows = np.flatnonzero(missing.to_numpy()).astype(np.int64)
            found.append((rows[:, None] * rules + members[None, :]).ravel())
        if not found:
            return _NONE
        return distinct(np.concatenate(found))


def length_cost(atom: Atom) -> float:
    """Return an estimate of the part of rows in which an atom is met, without a sample: long texts are rare."""
    if isinstance(atom, ValueAtom):
        return 0.02 if isinstance(atom.value, int) else 0.5 ** min(len(atom.value) + 2, 16)
    return 0.5 ** min(len(atom.text), 16)


def plan_triggers(
    conditions: Sequence[PreparedCondition],
    cost: Callable[[Atom], float] = length_cost,
    *,
    sampled: bool = False,
    cache: DatabaseCache | None = None,
    engine: str = "auto",
) -> TriggerPlan:
    """Choose each rule's trigger and make the scans for them. ``sampled``: ``cost`` was measured in real rows."""
    chosen: list[frozenset[Atom] | None] = []
    everywhere: list[int] = []
    expected = 0.0
    texts: dict[Source, dict[TextAtom, list[int]]] = {}
    values: dict[Source, dict[str | int, list[int]]] = {}
    on_null: dict[Source, list[int]] = {}
    for index, condition in enumerate(conditions):
        pause()
        rate, atoms = (1.0, None) if condition.need is None else cheapest(condition.need, cost)
        if atoms is None or (rate > RATE_MAX and sampled):
            chosen.append(None)
            everywhere.append(index)
            continue
        chosen.append(atoms)
        expected += rate
        for atom in atoms:
            if isinstance(atom, TextAtom):
                texts.setdefault(atom.source, {}).setdefault(atom, []).append(index)
            else:
                values.setdefault(atom.source, {}).setdefault(atom.value, []).append(index)
        if condition.is_whole:
            for source in {atom.source for atom in atoms}:
                on_null.setdefault(source, []).append(index)
    return TriggerPlan(
        chosen,
        [TextScan(source, atoms, cache, engine) for source, atoms in texts.items()],
        [ValueScan(source, wanted) for source, wanted in values.items()],
        np.array(everywhere, dtype=np.int64),
        [(source, np.array(members, dtype=np.int64)) for source, members in on_null.items()],
        expected if sampled else None,
    )


def measured_cost(
    conditions: Sequence[PreparedCondition],
    sample: pl.DataFrame,
    *,
    cache: DatabaseCache | None = None,
    engine: str = "auto",
) -> Callable[[Atom], float]:
    """Return a cost function: the part of the sample's rows in which an atom is met, for all atoms of the conditions."""
    atoms: set[Atom] = set()
    for condition in conditions:
        pause()
        if condition.need is not None:
            add_atoms(condition.need, atoms)
    texts: dict[Source, list[TextAtom]] = {}
    values: dict[Source, list[ValueAtom]] = {}
    for atom in atoms:
        if isinstance(atom, TextAtom):
            texts.setdefault(atom.source, []).append(atom)
        else:
            values.setdefault(atom.source, []).append(atom)
    height = max(1, sample.height)
    floor = 0.1 / height
    # Of the texts that the sample does not have, long ones are probably rarer.
    rates = {atom: floor * length_cost(atom) for atom in atoms}

    def count(listed: Sequence[Atom], scan: TextScan | ValueScan) -> None:
        rows, places = scan.groups.expand(*scan.find(sample))
        found = distinct(rows * len(listed) + places) % len(listed)
        for place, often in zip(*map(np.ndarray.tolist, np.unique(found, return_counts=True)), strict=True):
            rates[listed[place]] += often / height

    for source, of_source in texts.items():
        # Sorted, so that the compiled database on disk is found again.
        of_source.sort(key=lambda atom: (atom.text, atom.fold.value, atom.first, atom.last))
        count(of_source, TextScan(source, {atom: [place] for place, atom in enumerate(of_source)}, cache, engine))
    for source, of_values in values.items():
        count(of_values, ValueScan(source, {atom.value: [place] for place, atom in enumerate(of_values)}))
    return rates.__getitem__
