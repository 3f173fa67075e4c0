"""Runs the contract suite on both formats."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import cbor2
import headrace as hr
import msgspec
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract
from headrace_msgpack.codec import CborCodec, MsgpackCodec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

TYPES = (
    "string", "boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(38, 18)", "decimal(12, 2)", "date",
    "time", "timestamp", "timestamp_ntz", "duration", "binary", "json", "array<int64>", "array<string>",
    "struct<a: int64, b: string>",
)  # fmt: skip


class BinaryContract(CodecContract):
    types = TYPES
    one_line = False

    def edge_values(self, type_name: str) -> Sequence[Any]:
        """Return the values; JSON comes back without blanks, as it was a value on the way."""
        values = super().edge_values(type_name)
        return (
            [msgspec.json.encode(msgspec.json.decode(value)).decode() for value in values]
            if type_name == "json"
            else values
        )


class TestMsgpack(BinaryContract):
    def make_codec(self) -> MsgpackCodec:
        return MsgpackCodec(MsgpackCodec.Settings.of({}))

    def bad_bodies(self) -> list[bytes]:
        good = self.make_body(self.make_row(0))
        return [b"", good[:-1], good + b"\xc0", b"\xc0", b"\x91\xc0", b"\x81\x01\xc0", b"\x81\xa2id\xa1x"]


class TestCbor(BinaryContract):
    def make_codec(self) -> CborCodec:
        return CborCodec(CborCodec.Settings.of({}))

    def bad_bodies(self) -> list[bytes]:
        good = self.make_body(self.make_row(0))
        return [b"", good[:-1], good + b"\xf6", b"\xf6", b"\x81\xf6", b"\xa1\x01\xf6", b"\xa1bid\xf7", b"\xa1bid\x61x"]


@pytest.mark.parametrize(
    ("name", "kind", "write"), [("msgpack", MsgpackCodec, msgspec.msgpack.encode), ("cbor", CborCodec, cbor2.dumps)]
)
def test_bodies_of_others(name: str, kind: Any, write: Any) -> None:
    assert default_registry().find("codec", name) is kind
    columns = hr.Schema.of({"id": "int64", "hash": "binary", "rest": "json", "score": "float64"})
    values = [
        {"id": 1, "hash": b"\x00\xff", "rest": {"a": [None, 1.5]}, "score": 2, "other": None},
        {"id": 1.0},
        {"id": 2, "score": math.nan},
        {"id": 3, "score": None, "rest": [math.inf]},
        {"id": 2**63},
        {},
    ]
    decoded = kind(kind.Settings.of({})).decoder(columns).decode(Bodies.of([write(value) for value in values]))
    assert decoded.frame.rows() == [(1, b"\x00\xff", '{"a":[null,1.5]}', 2.0), (None, None, None, None)]
    assert [(bad.row, bad.reason.partition(":")[0]) for bad in decoded.bad] == [
        (1, "column 'id'"), (2, "nan is not a number"), (3, "inf is not a number"), (4, "column 'id'"),
    ]  # fmt: skip


#: Values at the edge of columns, and what they become; None: the body is bad.
EDGES: list[tuple[str, Any, Any]] = [
    ("int64", 2**63 - 1, 2**63 - 1), ("int64", -(2**63), -(2**63)), ("int64", 2**63, None), ("int64", 1.0, None), ("int64", True, None),
    ("float64", 2**64 - 1, float(2**64 - 1)), ("float64", -0.0, -0.0), ("float64", math.inf, None), ("float64", True, None),
    ("string", "a\0b", "a\0b"), ("string", 1, None), ("binary", b"", b""), ("binary", "é", None), ("boolean", 1, None),
    ("decimal(20, 4)", 1.5, Decimal("1.5000")), ("decimal(20, 4)", 1.23456, None), ("array<int64>", [1, None], [1, None]),
    ("array<int64>", [2**63], None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "write"), [(MsgpackCodec, msgspec.msgpack.encode), (CborCodec, cbor2.dumps)])
@pytest.mark.parametrize(("column", "value", "expected"), EDGES)
def test_values_at_the_edge(kind: Any, write: Any, column: str, value: Any, expected: Any) -> None:
    body = write({"v": value})
    decoded = kind(kind.Settings.of({})).decoder(hr.Schema.of({"v": column})).decode(Bodies.of([body]))
    assert decoded.frame.rows() == ([] if expected is None else [(expected,)])
    assert len(decoded.bad) == (expected is None)


def test_forms_of_cbor() -> None:
    bodies = [
        b"\xd9\xd9\xf7\xa1\x61v\x05",  # it says of itself that it is CBOR
        b"\xbf\x61v\x05\xff",  # a map without a length
        b"\xa1\x7f\x61v\xff\x05",  # a key in pieces
        b"\xa2\x61v\x01\x61v\x05",  # a key that comes twice: the last one counts
        b"\xa1\x61v\xc2\x41\x05",  # a large number
        b"\xa1\x61v\xd8\x63\x05",  # a tag that nobody knows
        b"\xd9\xd9\xf7\xa1\x61v\x05\x05",  # something behind the map
    ]
    decoded = CborCodec(CborCodec.Settings.of({})).decoder(hr.Schema.of({"v": "int64"})).decode(Bodies.of(bodies))
    assert decoded.frame.rows() == [(5,)] * 5
    assert [bad.row for bad in decoded.bad] == [5, 6]


def test_values_that_nest_as_deep_as_can_be_read_are_records_or_bad_ones() -> None:
    decoder = MsgpackCodec(MsgpackCodec.Settings.of({})).decoder(hr.Schema.of({"a": "json"}))
    for depth in range(sys.getrecursionlimit() - 100, sys.getrecursionlimit() + 10):
        body = b"\x81\xa1a" + b"\x91" * depth + b"\xc0"
        decoded = decoder.decode(Bodies.of([body]))
        assert decoded.frame.height + len(decoded.bad) == 1


@pytest.mark.parametrize(("kind", "read"), [(MsgpackCodec, msgspec.msgpack.decode), (CborCodec, cbor2.loads)])
def test_values_have_types_of_the_format(kind: Any, read: Any) -> None:
    import datetime as dt

    columns = hr.Schema.of({"at": "timestamp", "hash": "binary", "rest": "json"})
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC)
    frame = pl.DataFrame({"at": [moment], "hash": [b"\xff"], "rest": ['{"a": [1]}']}, schema=dict(columns))
    encoder = kind(kind.Settings.of({})).encoder(columns)
    [body] = encoder.encode(frame)
    assert read(body) == {"at": moment, "hash": b"\xff", "rest": {"a": [1]}}
    with pytest.raises(hr.OptionError, match="cannot be written as lines of a file"):
        encoder.encode_lines(frame)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
COLUMNS = {
    "i": "int32", "l": "int64", "f": "float64", "s": "string", "b": "boolean", "j": "json", "a": "array<int64>", "r": "struct<x: int64>",
    "d": "decimal(20, 4)",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "write"), [(MsgpackCodec, msgspec.msgpack.encode), (CborCodec, cbor2.dumps)])
@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(COLUMNS, VALUES)), min_size=1, max_size=5))
def test_values_are_those_of_json(kind: Any, write: Any, rows: list[dict[str, Any]]) -> None:
    """What JSON can say becomes what the format json makes of it, and is bad where that is bad."""
    schema = hr.Schema.of(COLUMNS)
    found = kind(kind.Settings.of({})).decoder(schema).decode(Bodies.of([write(row) for row in rows]))
    json = default_registry().find("codec", "json")().decoder(schema)
    expected = json.decode(Bodies.of([msgspec.json.encode(row) for row in rows]))
    assert found.frame.equals(expected.frame)
    assert [(bad.row, bad.reason) for bad in found.bad] == [(bad.row, bad.reason) for bad in expected.bad]
