"""Says what is wrong with a single body: the strict reading of Avro's encoding. fastavro itself takes some damaged bodies."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_avro.schemas import AvroType

#: Items without bytes could fill the memory from a body of a few bytes.
_EMPTY_ITEMS_MAX = 1_000_000
_DEPTH_MAX = 100


class _Fault(Exception):
    pass


class BodyWalker:
    """Goes through bodies of one schema. Used by one thread."""

    def __init__(self, written: AvroType) -> None:
        self._written = written
        self._records: dict[str, AvroType] = {}
        _collect(written, self._records)
        self._body = b""
        self._at = 0

    def fault(self, body: bytes) -> str | None:
        """Return why a body is none of the schema, or None when it is one."""
        self._body, self._at = body, 0
        for each in self._written.fields:
            try:
                self._walk(each.type, 1)
            except _Fault as fault:
                return f"field {each.name!r}: {fault}"
        left = len(body) - self._at
        return f"{left} bytes follow the record" if left else None

    def _walk(self, kind: AvroType, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise _Fault(f"nested deeper than {_DEPTH_MAX} levels")
        what = kind.kind
        if what in ("int", "long"):
            self._integer()
        elif what in _SIZES:
            self._skip(_SIZES[what], what)
        elif what == "boolean":
            self._skip(1, what)
            if self._body[self._at - 1] > 1:
                raise _Fault(f"byte {self._body[self._at - 1]} is no boolean, at byte {self._at - 1}")
        elif what in ("string", "bytes"):
            self._bytes(what)
        elif what == "fixed":
            self._skip(kind.size, what)
        elif what == "enum":
            self._place(len(kind.symbols), "symbols of the enum")
        elif what == "union":
            self._walk(kind.branches[self._place(len(kind.branches), "types of the union")], depth + 1)
        elif what == "array":
            self._items(kind.inner, depth, keys=False)
        elif what == "map":
            self._items(kind.inner, depth, keys=True)
        else:
            record = self._records[kind.name]
            for each in record.fields:
                self._walk(each.type, depth + 1)

    def _integer(self) -> int:
        begin, bits, shift = self._at, 0, 0
        while True:
            if self._at >= len(self._body):
                raise _Fault(f"the body ends within a number, at byte {begin}")
            byte = self._body[self._at]
            self._at += 1
            bits |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 70:
                raise _Fault(f"a number of more than 10 bytes, at byte {begin}")
        if bits >= 1 << 64:
            raise _Fault(f"a number of more than 64 bits, at byte {begin}")
        return (bits >> 1) ^ -(bits & 1)

    def _skip(self, size: int, what: str) -> None:
        if size > len(self._body) - self._at:
            raise _Fault(f"the body ends within a value of type {what}, at byte {self._at}")
        self._at += size

    def _bytes(self, what: str) -> None:
        begin = self._at
        size = self._integer()
        if size < 0:
            raise _Fault(f"length {size} of a {what}, at byte {begin}")
        self._skip(size, what)

    def _place(self, count: int, of: str) -> int:
        begin = self._at
        place = self._integer()
        if not 0 <= place < count:
            raise _Fault(f"{place} is none of the {count} {of}, at byte {begin}")
        return place

    def _items(self, kind: AvroType, depth: int, *, keys: bool) -> None:
        empty = 0
        while count := self._integer():
            if count < 0:
                count = -count
                self._integer()
            for _ in range(count):
                begin = self._at
                if keys:
                    self._bytes("string")
                self._walk(kind, depth + 1)
                if self._at == begin:
                    empty += 1
                    if empty > _EMPTY_ITEMS_MAX:
                        raise _Fault(f"more than {_EMPTY_ITEMS_MAX} items without a byte")


_SIZES: Mapping[str, int] = {"null": 0, "float": 4, "double": 8}


def _collect(kind: AvroType, records: dict[str, AvroType]) -> None:
    if kind.kind == "record":
        records[kind.name] = kind
        for each in kind.fields:
            _collect(each.type, records)
    elif kind.items is not None:
        _collect(kind.items, records)
    for branch in kind.branches:
        _collect(branch, records)
