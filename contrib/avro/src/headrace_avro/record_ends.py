"""Finds where each record ends in the block of a file, which no block says: a function that is written for the schema goes through them.

The records are decoded by columns afterwards, so that only lengths are looked at here. A loop of Python that has the schema in its text
needs less than half of the time that fastavro takes to skip a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace_avro.schemas import AvroType

#: Takes a block and the number of its records; returns where each record begins, and where the last one ends. Raises IndexError or
#: ValueError for a block that has not so many records.
RecordEnds = Callable[[bytes, int], list[int]]
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
#: Branches of a union whose number has one byte.
_BRANCHES_MAX = 64
_LINES_MAX = 2_000
_DEPTH_MAX = 15  # blocks of statements within each other: Python allows 20


def record_ends(record: AvroType) -> RecordEnds | None:
    """Return the function of a schema; None for one that refers to itself, or is too large to be written out."""
    writer = _Writer()
    try:
        writer.record(record, depth=2)
    except _NotWrittenError:
        return None
    writer.advance(depth=2)
    text = "\n".join([_HEAD, *writer.lines, _TAIL])
    names: dict[str, Any] = {"number": _number}
    exec(compile(text, f"<ends of the records {record.name}>", "exec"), names)
    found: RecordEnds = names["ends"]
    return found


_HEAD = """def ends(block, rows):
    at = 0
    found = [0]
    for _ in range(rows):"""
_TAIL = """        found.append(at)
    if at != len(block):
        raise ValueError("there is something behind the last record of a block")
    return found"""


class _NotWrittenError(Exception):
    """A schema for which no function is written."""


def _number(block: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it. Raises IndexError or ValueError."""
    bits, shift = 0, 0
    while True:
        byte = block[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


class _Writer:
    """Writes the statements that go over a value. ``at`` is the place in the block; bytes of a fixed number are added up first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._fixed = 0
        self._names = 0

    def record(self, kind: AvroType, depth: int) -> None:
        for each in kind.fields:
            self._value(each.type, depth)

    def advance(self, depth: int) -> None:
        """Write what goes over the bytes of a fixed number that have come."""
        if self._fixed:
            self._line(depth, f"at += {self._fixed}")
            self._fixed = 0

    def _line(self, depth: int, text: str) -> None:
        if depth > _DEPTH_MAX or len(self.lines) > _LINES_MAX:
            raise _NotWrittenError
        self.lines.append("    " * depth + text)

    def _value(self, kind: AvroType, depth: int) -> None:
        what = kind.kind
        size = _fixed_size(kind)
        if size is not None:
            self._fixed += size
        elif what == "record":
            self.record(kind, depth)
        elif what in ("int", "long", "enum"):
            self.advance(depth)
            self._line(depth, "while block[at] > 127: at += 1")
            self._fixed = 1
        elif what in ("bytes", "string"):
            self._sized(depth)
        elif what == "union":
            self._union(kind, depth)
        elif what in ("array", "map"):
            self._items(kind, depth)
        else:
            raise _NotWrittenError

    def _sized(self, depth: int) -> None:
        self.advance(depth)
        self._line(depth, "size = block[at]")
        # A length of one byte, which is not negative.
        self._line(depth, "if size < 128 and not size & 1: at += 1 + (size >> 1)")
        self._line(depth, "else:")
        self._line(depth + 1, "size, at = number(block, at)")
        self._line(depth + 1, 'if size < 0: raise ValueError("a length is negative")')
        self._line(depth + 1, "at += size")

    def _union(self, kind: AvroType, depth: int) -> None:
        if len(kind.branches) > _BRANCHES_MAX:
            raise _NotWrittenError
        self.advance(depth)
        self._line(depth, "branch = block[at]")
        self._line(depth, "at += 1")
        for number, branch in enumerate(kind.branches):
            self._line(depth, f"{'el' if number else ''}if branch == {2 * number}:")
            before = len(self.lines)
            self._value(branch, depth + 1)
            self.advance(depth + 1)
            if len(self.lines) == before:
                self._line(depth + 1, "pass")
        self._line(depth, 'else: raise ValueError("there is no such branch of a union")')

    def _items(self, kind: AvroType, depth: int) -> None:
        self.advance(depth)
        self._names += 1
        count = f"count{self._names}"
        self._line(depth, "while True:")
        self._line(depth + 1, f"{count}, at = number(block, at)")
        self._line(depth + 1, f"if not {count}: break")
        self._line(depth + 1, f"if {count} < 0:")  # the bytes of the items are told
        self._line(depth + 2, "size, at = number(block, at)")
        self._line(depth + 2, 'if size < 0: raise ValueError("a length is negative")')
        self._line(depth + 2, "at += size")
        size = _fixed_size(kind.inner)
        if size is not None and kind.kind == "array":
            self._line(depth + 1, f"else: at += {size} * {count}")
            return
        self._line(depth + 1, "else:")
        self._line(depth + 2, f"for _ in range({count}):")
        if kind.kind == "map":
            self._sized(depth + 3)
        self._value(kind.inner, depth + 3)
        self.advance(depth + 3)


def _fixed_size(kind: AvroType) -> int | None:
    """Return the number of bytes that each value of a type has; None if they differ."""
    if kind.kind in _FIXED:
        return _FIXED[kind.kind]
    if kind.kind == "fixed":
        return kind.size
    if kind.kind == "record":
        sizes = [_fixed_size(each.type) for each in kind.fields]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return None
