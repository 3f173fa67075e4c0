"""The definition of a stateful operator's state. It is stored with the state and compared when a job starts again.

A state is used only if the operator would have reached the same state with its present definition. Definitions are in a
normal form: the order of arguments, white space, and names that headrace made up do not matter.
``headrace.plan.state_inputs`` makes them from a plan.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.foundation.errors import CheckpointError

#: Grows when definitions are stored such that older versions cannot read them.
FORMAT_VERSION = 1
_INTEGERS = ("int8", "int16", "int32", "int64")
_UNSIGNED = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True, slots=True)
class Kept:
    """A column of a stored state: its name in the state, and the name of its type."""

    column: str
    type: str

    def to_json(self) -> dict[str, str]:
        return {"column": self.column, "type": self.type}


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """The definition of a stateful operator's state: see ``StatefulSpec.definition``. Column names in texts are in
    double quotes.

    ``settings`` must stay the same, or the state cannot be used. ``columns`` are columns of rows that the state keeps;
    their types may become wider. ``held`` are values that do not depend on each other (partial aggregates), by their
    meaning: some may be added or removed. ``adjustable`` are settings that may change, because the stored state stays
    valid. ``version`` must grow when an operator would misread an older state.
    """

    verb: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[str] = ()
    columns: Mapping[str, Kept] = field(default_factory=dict)
    held: Mapping[str, Kept] = field(default_factory=dict)
    adjustable: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON values, with the same keys in the same order for the same definition."""
        return {
            "verb": self.verb,
            "version": self.version,
            "keys": list(self.keys),
            "settings": _sorted(self.settings),
            "columns": {name: kept.to_json() for name, kept in sorted(self.columns.items())},
            "held": {name: kept.to_json() for name, kept in sorted(self.held.items())},
            "adjustable": _sorted(self.adjustable),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a result of ``to_json``. Raises KeyError or TypeError for anything else."""
        return cls(
            verb=str(value["verb"]),
            settings=dict(value["settings"]),
            keys=tuple(value["keys"]),
            columns={name: Kept(**kept) for name, kept in value["columns"].items()},
            held={name: Kept(**kept) for name, kept in value["held"].items()},
            adjustable=dict(value["adjustable"]),
            version=int(value["version"]),
        )


@dataclass(frozen=True, slots=True)
class DefinedState:
    """The definition of one operator of a plan, and of its inputs, for each side as JSON values."""

    state: StateDefinition
    inputs: Sequence[Mapping[str, Any]]
    #: Whether a state of other columns or held values can be brought to this definition; see ``StatefulSpec.adapted``.
    adapts: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**self.state.to_json(), "inputs": [dict(each) for each in self.inputs]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(StateDefinition.from_json(value), tuple(value["inputs"]))

    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the definition of the state, without its inputs."""
        return hashlib.sha256(json.dumps(self.state.to_json(), sort_keys=True).encode()).hexdigest()[:16]


class Verdict(enum.IntEnum):
    """What can be done with a state that was stored under another definition; the greatest of all differences counts."""

    SAME = 0
    #: The state is used as it is.
    COMPATIBLE = 1
    #: The state is used after it was converted to the new columns (``StatefulSpec.adapted``).
    ADAPTED = 2
    #: As ADAPTED, but only if the state is empty: the new values are not known for stored rows.
    IF_EMPTY = 3
    #: The input of the operator has changed: whoever starts the job must allow it (``allow_changed_input``).
    INPUT = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which two definitions differ: ``stored`` and ``now`` as texts; None: not there."""

    what: str
    stored: str | None
    now: str | None
    verdict: Verdict


def differences(stored: DefinedState, now: DefinedState) -> list[Difference]:
    """Return the differences between the definition of a stored state and the present one, each with its consequence."""
    one, other = stored.state, now.state
    found = list(_changed("verb", one.verb, other.verb))
    found += _changed("version of its state", one.version, other.version)
    found += _changed("keys", list(one.keys), list(other.keys))
    for name in sorted({*one.settings, *other.settings}):
        found += _changed(name, one.settings.get(name), other.settings.get(name))
    found += _of_columns("column", one.columns, other.columns, adapts=now.adapts, free=False)
    found += _of_columns("aggregate", one.held, other.held, adapts=now.adapts, free=True)
    for name in sorted({*one.adjustable, *other.adjustable}):
        found += _changed(name, one.adjustable.get(name), other.adjustable.get(name), Verdict.COMPATIBLE)
    for side, (before, after) in enumerate(zip(stored.inputs, now.inputs, strict=False)):
        where = f"input {side + 1}" if len(now.inputs) > 1 else "input"
        for name in sorted({*before, *after}):
            found += _changed(f"{where}: {name}", before.get(name), after.get(name), Verdict.INPUT)
    if len(stored.inputs) != len(now.inputs):
        found += _changed("number of inputs", len(stored.inputs), len(now.inputs))
    return found


def verdict_of(found: Sequence[Difference]) -> Verdict:
    """Return the overall consequence of a list of differences."""
    return max((each.verdict for each in found), default=Verdict.SAME)


def difference_table(found: Sequence[Difference], *, width: int = 150) -> str:
    """Return differences as lines of a table: what, stored, now. Long texts are cut around where they differ."""
    room = max(20, width // 2 - 20)
    rows = [("", "stored", "now")]
    for each in found:
        rows.append((each.what, *_cut_apart(each.stored or "—", each.now or "—", room)))
    left, middle = (max(len(row[place]) for row in rows) for place in (0, 1))
    return "\n".join(f"    {what.ljust(left)}  {one.ljust(middle)}  {other}".rstrip() for what, one, other in rows)


def is_wider(stored: str, now: str) -> bool:
    """Return whether each value of a type (by name) is also a value of another type, with the same order and the same
    hash.
    """
    if stored in _INTEGERS and now in _INTEGERS:
        return _INTEGERS.index(stored) < _INTEGERS.index(now)
    if stored in _UNSIGNED and now in _INTEGERS:
        return _INTEGERS.index(_UNSIGNED[stored]) <= _INTEGERS.index(now)
    one, other = _DECIMAL.fullmatch(stored), _DECIMAL.fullmatch(now)
    return bool(one and other and one[2] == other[2] and int(one[1]) < int(other[1]))


def definitions_to_json(definitions: Mapping[str, DefinedState]) -> dict[str, Any]:
    """Return the definitions of a job, by operator, as JSON values, for storage with a checkpoint."""
    return {"format": FORMAT_VERSION, "operators": {name: each.to_json() for name, each in definitions.items()}}


def definitions_from_json(value: Mapping[str, Any]) -> dict[str, DefinedState]:
    """Read a result of ``definitions_to_json``. Raises CheckpointError if it is damaged or has a newer version."""
    try:
        if int(value["format"]) > FORMAT_VERSION:
            raise CheckpointError(
                f"the definitions of a stored state were written by a newer version of headrace (format {value['format']})",
                hint="run the job with that version, or with another checkpoint directory",
            )
        return {str(name): DefinedState.from_json(each) for name, each in value["operators"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the definitions of a stored state are damaged: {error!r}") from error


def _changed(what: str, stored: Any, now: Any, verdict: Verdict = Verdict.REFUSED) -> Iterator[Difference]:
    if _normal(stored) != _normal(now):
        yield Difference(what, _shown(stored), _shown(now), verdict)


def _of_columns(
    what: str, stored: Mapping[str, Kept], now: Mapping[str, Kept], *, adapts: bool, free: bool
) -> Iterator[Difference]:
    for name in sorted({*stored, *now}):
        one, other = stored.get(name), now.get(name)
        if one is None or other is None:
            verdict = Verdict.REFUSED
            if free and adapts:
                verdict = Verdict.IF_EMPTY if one is None else Verdict.ADAPTED
            yield Difference(f"{what} {name}", one.type if one else None, other.type if other else None, verdict)
        elif one.type != other.type:
            verdict = Verdict.ADAPTED if adapts and is_wider(one.type, other.type) else Verdict.REFUSED
            yield Difference(f"{what} {name}", one.type, other.type, verdict)
        elif one.column != other.column:
            verdict = Verdict.ADAPTED if adapts else Verdict.REFUSED
            yield Difference(f"{what} {name}", f"in {one.column}", f"in {other.column}", verdict)


def _sorted(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(values.items()))


def _normal(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_shown(each)}" for name, each in value.items()) or "none"
    if isinstance(value, Sequence):
        return ", ".join(_shown(each) or "—" for each in value) or "none"
    return json.dumps(value, default=str)


def _cut_apart(one: str, other: str, room: int) -> tuple[str, str]:
    """Return two different texts, cut so that they fit beside each other and still show where they differ."""
    if max(len(one), len(other)) <= room:
        return one, other
    same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    begin = max(0, min(same, min(len(one), len(other))) - room // 3)
    return _cut(one, begin, room), _cut(other, begin, room)


def _cut(text: str, begin: int, room: int) -> str:
    head = "…" if begin else ""
    return head + (text[begin:] if len(text) - begin <= room else text[begin : begin + room - 1] + "…")


def quoted(name: str) -> str:
    """Return a column's name as the texts of a definition contain it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def kept(name: str, kind: Any) -> Kept:
    """Return a column of a state under its own name."""
    return Kept(name, state_type(kind))


def state_type(kind: Any) -> str:
    """Return a name for a polars type. Types whose values are stored in different ways have different names."""
    import polars as pl

    from headrace.flow.schema import type_name

    if isinstance(kind, pl.Datetime | pl.List | pl.Array | pl.Struct | pl.Duration | pl.Enum):
        return str(kind)
    return type_name(kind)
