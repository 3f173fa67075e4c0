"""The scan before parsing: a body is not decoded if no trigger occurs in its bytes.

JSON can write the same character in several ways. The scan looks for each literal as JSON writes it with the usual
escapes. A body with an escape that could hide a literal (``\\u0041``, ``\\/``) is always decoded. That is an escape of an
ASCII character, or of another one that a literal has: names in other scripts are often written with escapes, and hide no literal.
A whole number is written in one way only: the decoder takes no fraction, exponent or leading zero for it (docs/formats.md).

The scan saves time only if most bodies have no trigger. It counts the bodies that have one. If there are too many, it is
switched off for some batches and then tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch
from headrace.flow.schema import Schema
from headrace.interfaces.codec import BodyFilter
from numpy.typing import NDArray

from headrace_rules.atoms import Atom, TextAtom, ValueAtom, all_atoms, cheapest
from headrace_rules.disk_cache import DatabaseCache
from headrace_rules.engine import RuleEngine
from headrace_rules.group import RuleGroup
from headrace_rules.literals import LENGTH_MAX
from headrace_rules.prepared import PreparedCondition
from headrace_rules.scanning import Scanner, make_scanner
from headrace_rules.trigger_plan import Groups, distinct, length_cost, rows_of, scanned_as

logger = logging.getLogger(__name__)
Integers = NDArray[np.int64]

#: Escapes for ASCII characters that can also be written without one, but for the slash.
_HIDING_ASCII = tuple(b"\\u00%d" % high for high in range(8))
#: Bodies in which triggers are counted: all of them in the first ones, in the others those that occur at most so often in a body.
_SAMPLE_BODIES, _FIRST_BODIES = 2_000, 100
_OFTEN = 0.1
#: The scan is switched off when more than this part of the bodies has a trigger, …
_KEPT_MAX = 0.5
#: … or when it finds so many literals per body that finding them costs as much as decoding.
_FOUND_MAX = 5.0
_PAUSE_BATCHES = 20
_PAUSE_BATCHES_MAX = 640
#: The bytes that can stand in front of a value in an object, and those that can stand behind a number (RFC 8259, section 2).
_BEFORE_VALUE = (b":", b" ", b"\t", b"\n", b"\r")
_BEHIND_NUMBER = (b",", b"}", b" ", b"\t", b"\n", b"\r")
#: A number of so many digits is seldom the beginning of a longer one, so the byte after it is not checked.
_RARE_DIGITS = 4
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass
class _Scan:
    """The scan for the rules of one engine, and its counters. ``scanner`` is None if these rules need every body.

    ``pause``: batches that come next and are not scanned; ``pause_next``: length of the pause after this one.
    """

    scanner: Scanner | None
    pause: int = 0
    pause_next: int = _PAUSE_BATCHES
    bodies: int = 0
    kept: int = 0
    found: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class RawScan(BodyFilter):
    """Selects the bodies that a rule of a group can match. The others are not decoded, and give no dead letters if damaged."""

    def __init__(self, group: RuleGroup, schema: Schema) -> None:
        self._group = group
        self._schema = schema
        self._scans: dict[int, tuple[RuleEngine, _Scan]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_group": self._group, "_schema": self._schema, "_scans": {}}

    def rows(self, queue: Queue, raw: RawBatch) -> Integers | None:
        """Return the bodies in which a trigger occurs; None when all are to be decoded."""
        assert raw.bodies is not None
        if not len(raw):
            return None
        run = self._group.run_for(self._schema)
        engine = run.only_engine(queue, raw.offsets)
        if engine is None:  # several versions of the rules are used for the batch
            return None
        scan = self._scan_of(engine, raw.bodies)
        if scan.scanner is None:
            return None
        with scan.lock:
            if scan.pause:
                scan.pause -= 1
                return None
        kept, found = find(scan.scanner, raw.bodies)
        with scan.lock:
            self._look(scan, len(raw), len(kept), found)
        return kept

    def figures(self) -> tuple[int, int]:
        """Return how many bodies were scanned in this process, and how many of them were decoded."""
        scans = [scan for _, scan in self._scans.values()]
        return sum(scan.bodies for scan in scans), sum(scan.kept for scan in scans)

    def _scan_of(self, engine: RuleEngine, bodies: Bodies) -> _Scan:
        known = self._scans.get(id(engine))
        if known is None or known[0] is not engine:
            known = engine, _Scan(raw_scanner(engine, bodies))
            self._scans = {id(engine): known, **dict(list(self._scans.items())[:2])}
        return known[1]

    @staticmethod
    def _look(scan: _Scan, bodies: int, kept: int, found: int) -> None:
        """Count, and switch the scan off for some batches if it saves no time."""
        scan.bodies += bodies
        scan.kept += kept
        scan.found += found
        if kept > _KEPT_MAX * bodies or found > _FOUND_MAX * bodies:
            scan.pause, scan.pause_next = scan.pause_next, min(2 * scan.pause_next, _PAUSE_BATCHES_MAX)
        else:
            scan.pause_next = _PAUSE_BATCHES


def find(scanner: Scanner, bodies: Bodies) -> tuple[Integers, int]:
    """Return the bodies in which any literal occurs, in order, and how many occurrences there were."""
    together = bodies.newline_separated
    ends = bodies.ends - bodies.starts[0] if together else np.cumsum(bodies.ends - bodies.starts + 1) - 1
    _, places = scanner.scan(bodies.joined())
    return distinct(rows_of(ends, places)), len(places)


def raw_scanner(engine: RuleEngine, bodies: Bodies) -> Scanner | None:
    """Return a scanner for the triggers that cost least in bodies like these; None when a rule has no usable trigger."""
    wanted = _wanted(engine, bodies)
    if wanted is None:
        return None
    literals = list(dict.fromkeys([*hiding(wanted), *chain.from_iterable(wanted)]))
    cache = DatabaseCache() if engine.options.cache else None
    return make_scanner(
        [text for text, _ in literals], [fold for _, fold in literals], cache, engine=engine.options.scanner
    )


@dataclass(frozen=True, slots=True)
class Saved:
    """What the scan does for some bodies: how many are decoded, how many of them for an escape, and for each condition in how many its
    literals occur.
    """

    kept: int
    for_escapes: int
    by_condition: Integers


def saved(engine: RuleEngine, bodies: Bodies) -> Saved | None:
    """Return the savings of the scan, for people who inspect rules; None if a rule has no usable trigger."""
    wanted = _wanted(engine, bodies)
    if wanted is None:
        return None
    owners: dict[tuple[bytes, bool], list[int]] = {escape: [len(wanted)] for escape in hiding(wanted)}
    for number, literals in enumerate(wanted):
        for literal in literals:
            owners.setdefault(literal, []).append(number)
    scanner = make_scanner(
        [text for text, _ in owners], [fold for _, fold in owners], None, engine=engine.options.scanner
    )
    found, places = scanner.scan(bodies.joined())
    ends = np.cumsum(bodies.ends - bodies.starts + 1) - 1
    rows, conditions = Groups.of(list(owners.values())).expand(rows_of(ends, places), found)
    pairs = np.unique(np.stack([conditions, rows]), axis=1) if len(rows) else np.empty((2, 0), dtype=np.int64)
    counts = np.bincount(pairs[0], minlength=len(wanted) + 1)
    return Saved(len(np.unique(pairs[1])), int(counts[-1]), counts[:-1])


def hiding(wanted: Iterable[Iterable[tuple[bytes, bool]]]) -> list[tuple[bytes, bool]]:
    """Return the beginnings of escapes that can stand for a character of a literal, as literals."""
    characters = frozenset(b"".join(text for text, _ in chain.from_iterable(wanted)).decode())
    escapes = [(escape, False) for escape in _HIDING_ASCII]
    if "/" in characters:
        escapes.append((b"\\/", False))
    for character in sorted(characters):
        if not character.isascii():
            first = character.encode("utf-16-be")[:2]  # of two units the first one
            escapes.append((b"\\u" + first.hex().encode(), True))
    return list(dict.fromkeys(escapes))


def _wanted(engine: RuleEngine, bodies: Bodies) -> list[list[tuple[bytes, bool]]] | None:
    """Return the literals of each condition that cost least in bodies like these; None when one has no usable trigger."""
    atoms: set[Atom] = set()
    for condition in engine.conditions:
        # A condition that can fail is also evaluated where a column is NULL, and the bytes do not show where it is.
        if condition.need is None or condition.is_whole:
            logger.info(
                "rules: bodies are not scanned before parsing: the condition %r needs every row", condition.text
            )
            return None
        atoms |= {atom for atom in all_atoms(condition.need) if raw_literals(atom)}
    listed = list(atoms)
    cost = _measured(listed, bodies.take(_spread(len(bodies))), engine.options.scanner)
    return _chosen(engine.conditions, cost)


def raw_literals(atom: Atom) -> list[tuple[bytes, bool]]:
    """Return the literals to scan JSON for, so that no body with the atom is missed; none if there are no such literals."""
    if isinstance(atom, ValueAtom):
        if isinstance(atom.value, int):
            return [(literal, False) for literal in number_literals(atom.value)]
        if not atom.value:
            return []
        # A zero byte is written as an escape, as other control characters are: such a body is always decoded.
        longest = max(atom.value.split("\0"), key=len)[:LENGTH_MAX]
        return [(json_text(longest), False)] if longest else []
    return scanned_as(TextAtom(atom.source, json_text(atom.text).decode(), atom.fold))


def json_text(text: str) -> bytes:
    """Return a text as JSON writes it in a string, with only the necessary escapes."""
    return "".join(_ESCAPES.get(character, character) for character in text).encode()


def number_literals(value: int) -> list[bytes]:
    """Return literals of which one occurs in each JSON object that has a whole number as a value.

    The bytes around the digits are part of them: without these, a short number would be found in every time and address.
    """
    written = [str(value).encode()] + ([b"-0"] if value == 0 else [])
    behind = (b"",) if len(str(abs(value))) >= _RARE_DIGITS else _BEHIND_NUMBER
    return [before + digits + after for digits in written for before in _BEFORE_VALUE for after in behind]


def _chosen(
    conditions: Sequence[PreparedCondition], cost: Callable[[Atom], float]
) -> list[list[tuple[bytes, bool]]] | None:
    wanted: list[list[tuple[bytes, bool]]] = []
    for condition in conditions:
        assert condition.need is not None
        rate, atoms = cheapest(condition.need, cost)
        if rate > 1e6:
            logger.info(
                "rules: bodies are not scanned before parsing: the condition %r contains no text or whole number to search for",
                condition.text,
            )
            return None
        wanted.append([literal for atom in atoms for literal in raw_literals(atom)])
    return wanted


def _measured(atoms: Sequence[Atom], sample: Bodies, engine: str) -> Callable[[Atom], float]:
    """Return a cost function: occurrences of an atom per body. Atoms that bytes do not show cost more than all others."""
    # What occurs often is known from few bodies; in all of them its occurrences would take longer than the choice saves.
    rates = _rates(atoms, sample.take(_spread(len(sample), _FIRST_BODIES)), engine)
    rates |= _rates([atom for atom, rate in rates.items() if rate <= _OFTEN], sample, engine)
    floor = 0.1 / max(1, len(sample))
    return lambda atom: rates[atom] + floor * length_cost(atom) if atom in rates else 1e9


def _rates(atoms: Sequence[Atom], sample: Bodies, engine: str) -> dict[Atom, float]:
    """Return how often the atoms that bytes show occur in a body."""
    lists: dict[tuple[bytes, bool], list[int]] = {}
    for place, atom in enumerate(atoms):
        for literal in raw_literals(atom):
            lists.setdefault(literal, []).append(place)
    if not lists:
        return {}
    scanner = make_scanner([text for text, _ in lists], [fold for _, fold in lists], None, engine=engine)
    literals, places = scanner.scan(sample.joined())
    _, found = Groups.of(list(lists.values())).expand(places, literals)
    counts = np.bincount(found, minlength=len(atoms)) / max(1, len(sample))
    return {atom: float(count) for atom, count in zip(atoms, counts, strict=True)}


def _spread(count: int, wanted: int = _SAMPLE_BODIES) -> Integers:
    step = max(1, count // wanted)
    return np.arange(0, count, step, dtype=np.int64)
