"""Targets: the bodies of every installed format.

A body gives the same row, or the same reason, alone and beside another one; the accelerated decoder of JSON gives what the plain one does.
"""

# ruff: noqa: E501  # inputs are not broken over lines
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Decoder
from headrace.jobs.source_parts import codec_of

from tests.fuzz.guided.target import Target
from tests.fuzz.hostile_bodies import hostile_bodies

_WIDE: Mapping[str, str] = {
    "a": "string", "b": "int64", "c": "float64", "d": "boolean", "e": "timestamp", "f": "decimal(10, 2)",
}  # fmt: skip
_NESTED: Mapping[str, str] = {
    "a": "array<int64>", "b": "struct<a: string, b: int64>", "c": "binary", "d": "date", "e": "string", "f": "duration",
}  # fmt: skip
_TEXTS: Mapping[str, str] = dict.fromkeys("abcdef", "string")
_AVRO = (
    '{"type":"record","name":"r","fields":[{"name":"a","type":["null","string"]},{"name":"b","type":"long"},{"name":"c","type":"double"},'
    '{"name":"d","type":{"type":"array","items":"int"}},{"name":"e","type":{"type":"map","values":"string"}},'
    '{"name":"f","type":{"type":"enum","name":"k","symbols":["x","y"]}}]}'
)


@dataclass(frozen=True)
class _Format:
    """A format, its options, and the columns that its decoders are tried with (None: its own)."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: tuple[Mapping[str, str] | None, ...] = (_WIDE, _NESTED, _TEXTS)
    seeds: tuple[bytes, ...] = ()


_CHANGES: tuple[bytes, ...] = (
    b'{"before":null,"after":{"a":"x","b":1},"op":"c","ts_ms":1,"source":{"table":"t"}}',
    b'{"data":[{"a":"x","b":"1"}],"old":[{"a":"y"}],"type":"UPDATE","es":1,"table":"t","isDdl":false}',
    b'{"type":"update","data":{"a":"x","b":1},"old":{"a":"y"},"table":"t"}',
    b'{"op_type":"U","before":{"a":"y"},"after":{"a":"x"},"op_ts":"2026-01-01 00:00:00"}',
    b'{"data":{"a":"x","b":1},"op":"+U"}',
)
_EVENT = b"<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><EventID>1</EventID></System><EventData><Data Name='a'>x</Data></EventData></Event>"
FORMATS = [
    _Format("json", seeds=tuple(hostile_bodies("json", 1, 30))),
    _Format("csv", seeds=tuple(hostile_bodies("csv", 1, 30))),
    _Format("raw", {"pattern": r"a=(?P<a>\S*)(?: b=(?P<b>.*))?"}, ({"a": "string", "b": "int64"}, {"a": "timestamp", "b": "string"}),
            tuple(hostile_bodies("raw", 1, 30))),
    _Format("syslog", schemas=(None,), seeds=(
        b"<34>1 2003-10-11T22:14:15.003Z host app 12 ID47 [ex@32473 a=\"1\" b=\"\\]\"] \xef\xbb\xbfmessage",
        b"<13>Oct 11 22:14:15 host su[12]: 'su root' failed",
    )),
    _Format("avro", {"avro_schema": _AVRO}, (None,), (b"\x02\x02a\x02" + b"\x00" * 8 + b"\x02\x02\x00\x02\x02k\x02v\x00\x00",)),
    _Format("msgpack", seeds=(b"\x82\xa1a\xa1x\xa1b\x01", b"\x81\xa1e\xd6\xff\x00\x00\x00\x00")),
    _Format("cbor", seeds=(b"\xa2aaaxab\x01", b"\xa1ae\xc0t2003-10-11T22:14:15Z")),
    _Format("cri", schemas=(None,), seeds=(b"2026-01-01T00:00:00.123456789Z stdout F line", b"2026-01-01T00:00:00Z stderr P part")),
    _Format("docker-json", schemas=(None,), seeds=(b'{"log":"line\\n","stream":"stdout","time":"2026-01-01T00:00:00.1Z"}',)),
    _Format("journal-json", schemas=(None,), seeds=(b'{"__REALTIME_TIMESTAMP":"1","MESSAGE":[1,2],"PRIORITY":"6"}',)),
    _Format("journal-export", schemas=(None,), seeds=(b"__REALTIME_TIMESTAMP=1\nMESSAGE\n\x02\x00\x00\x00\x00\x00\x00\x00ab\nPRIORITY=6\n",)),
    _Format("windows-event-xml", schemas=(None,), seeds=(_EVENT,)),
    _Format("otlp-logs", schemas=(None,), seeds=(b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1","body":{"stringValue":"x"}}]}]}]}',)),
    _Format("logfmt", schemas=(_TEXTS, {"a": "string", "b": "int64", "c": "float64", "d": "boolean"}), seeds=(b'a=x b=1 c=1.5 d=true e="2026-01-01 00:00:00" f=1.25', b'a="q\\"" b= c')),
    _Format("cef", schemas=(None,), seeds=(b"CEF:0|v|p|1|id|name|5|src=10.0.0.1 msg=a\\=b cs1Label=x cs1=y",)),
    _Format("leef", schemas=(None,), seeds=(b"LEEF:2.0|v|p|1|id|^|src=10.0.0.1^msg=x",)),
    *(_Format(name, schemas=({"a": "string", "b": "int64"},), seeds=_CHANGES)
      for name in ("debezium-json", "canal-json", "maxwell-json", "ogg-json", "changelog-json")),
]  # fmt: skip


@contextmanager
def _plain() -> Iterator[None]:
    before = os.environ.get("HEADRACE_DECODERS")
    os.environ["HEADRACE_DECODERS"] = "plain"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HEADRACE_DECODERS"]
        else:
            os.environ["HEADRACE_DECODERS"] = before


@cache
def _decoders(place: int) -> list[tuple[Decoder, Decoder | None]]:
    """Return a decoder for each schema of a format, and the plain one beside it where there are two."""
    format_ = FORMATS[place]
    made: list[tuple[Decoder, Decoder | None]] = []
    for columns in format_.schemas:
        codec = codec_of(format_.name, format_.options)
        assert codec is not None
        schema = codec.default_schema() if columns is None else Schema.of(columns)
        assert schema is not None, format_.name
        plain = None
        if format_.name == "json":
            with _plain():
                plain = codec.record_decoder(schema)
        made.append((codec.record_decoder(schema), plain))
    return made


def _bodies_of(data: bytes) -> tuple[int, list[bytes]]:
    """Return which schema to take, and two bodies: the first two bytes say which, and where the first body ends."""
    if len(data) < 2:
        return 0, [data]
    at = 2 + (len(data) - 2) * data[1] // 255
    return data[0], [data[2:at], data[at:]]


def _check(place: int, data: bytes) -> None:
    choice, bodies = _bodies_of(data)
    decoders = _decoders(place)
    decoder, plain = decoders[choice % len(decoders)]
    together = outcomes_of_several(decoder, bodies)
    alone = [outcomes_of_several(decoder, [body])[0] for body in bodies]
    assert together == alone
    if plain is not None:
        assert outcomes_of_several(plain, bodies) == together


def outcomes_of_several(decoder: Decoder, bodies: list[bytes]) -> list[list[str]]:
    """Return for each body its rows or the reason why it is bad, as texts: of some formats a body gives several rows, or none."""
    decoded = decoder.decode(Bodies.of(bodies))
    rows = range(len(bodies)) if decoded.rows is None else decoded.rows.tolist()
    values = decoded.frame.rows() if decoded.frame.width else [()] * len(rows)
    assert len(values) == len(rows)
    assert list(rows) == sorted(rows)
    found: list[list[str]] = [[] for _ in bodies]
    for row, each in zip(rows, values, strict=True):
        found[row].append(repr(each))
    for body in decoded.bad:
        assert not found[body.row], "a body is bad or good, not both"
        assert body.reason
        found[body.row].append(f"bad: {body.reason}")
    return found


def _target(place: int) -> Target:
    format_ = FORMATS[place]
    seeds = [bytes([choice, 255]) + seed for seed in format_.seeds for choice in range(len(format_.schemas))]
    return Target(f"body-{format_.name}", lambda data: _check(place, data), seeds)


TARGETS = [_target(place) for place in range(len(FORMATS))]
