"""Targets: what a job has stored: state of shards, records of shuffles, buffers, checkpoints, logs, savepoints.

Checksums find damage by accident, so the bytes here stand behind them: what is read has a right checksum and any content.
"""

# ruff: noqa: E501  # inputs are not broken over lines
from __future__ import annotations

import json
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path

import headrace as hr
import numpy as np
import polars as pl
from headrace.flow.messages import INDEX, OFFSET, Queue, watermark_column, with_column
from headrace.foundation.checksums import checksum_of, sealed, unsealed
from headrace.plan.graph import Plan
from headrace.runtime.savepoints import MANIFEST, Savepoint
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import ShardMessage
from headrace.testing import MemorySink, MemorySource
from headrace_buffer.records import HEADER_BYTES, BlockHeader, Piece, decode_payload, encode_block, read_header
from headrace_light.checkpoint_directory import CheckpointDirectory
from headrace_light.shared.shuffle_records import decoded, encoded
from headrace_light.stages.order_log import Entry

from tests.fuzz.guided.target import Target

_IN = Queue("q", "in")


@cache
def _plan() -> Plan:
    schema = {"k": "string", "v": "int64", "ts": "timestamp"}
    rows = hr.stream("fuzz", "state").from_(MemorySource(), format="json", schema=schema, name="in").watermark("ts")
    window = rows.key_by("k").window(hr.tumbling("5 s", on="ts")).agg(n="count(*)", v="max(v)")
    job: hr.Job = window.select("k", "n", "v").to(MemorySink(), name="out")
    return job.plan()


def _shard() -> Shard:
    plan = _plan()
    [shuffle] = plan.shuffles
    return Shard(plan, shuffle, 0)


def _message(first: int) -> ShardMessage:
    frame = pl.DataFrame(
        {OFFSET: range(first, first + 3), INDEX: pl.Series([0] * 3, dtype=pl.Int32), "k": ["x", "y", None], "v": [1, None, 3],
         "ts": pl.Series([first, first + 1, first + 2]).cast(pl.Datetime("us", "UTC"))}
    )  # fmt: skip
    return ShardMessage("rows", _IN, frame=with_column(frame, watermark_column(np.zeros(3, dtype=np.int64))))


@cache
def _state() -> bytes:
    shard = _shard()
    shard.process(1, 0, [ShardMessage("added", _IN), _message(0)])
    return shard.snapshot()


def _shard_state(data: bytes) -> None:
    """A state that is taken is one that can be worked with, and stored again."""
    shard = _shard()
    shard.apply(sealed(data))
    shard.end_restore()
    shard.process(100, 0, [_message(1000)])
    shard.snapshot()


def _order_log(data: bytes) -> None:
    try:
        entry = Entry.from_line(data)
    except (ValueError, KeyError, TypeError):
        return  # the log says which line is damaged
    assert Entry.from_line(entry.to_line().rstrip(b"\n")) == entry


def _checkpoint(data: bytes) -> None:
    """A file of JSON gets the right checksum, so that what its fields hold is reached."""
    try:
        value = json.loads(data)
        value["checksum"] = checksum_of(value)
        data = json.dumps(value).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "light"
        directory.mkdir()
        (directory / "checkpoint.json").write_bytes(data)
        CheckpointDirectory(place, "fuzz.state").look()


def _savepoint(data: bytes) -> None:
    try:
        manifest = json.loads(data)
        manifest.pop("checksum", None)
        manifest["checksum"] = blake2b(
            json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode(), digest_size=16
        ).hexdigest()
        data = json.dumps(manifest).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / MANIFEST).write_bytes(data)
        Savepoint.read(place)


def _buffer_block(data: bytes) -> None:
    """A payload of any content with the right checksum: blocks are written by this process alone, damage never passes the checksum."""
    header = read_header(data, 0, 0)
    if header is None:
        return
    assert isinstance(header, BlockHeader)
    records = decode_payload(header, memoryview(data)[HEADER_BYTES : header.size])
    if records is not None:
        assert len(records) == header.count


def _block() -> bytes:
    piece = Piece(hr.Bodies.of([b"a", b"bc"]), np.array([1, 2], dtype=np.int64), [b"k", None], {"h": b"v"})
    return encode_block([piece], 0, 0)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_CHECKPOINT = {
    "format": 2, "job": "fuzz.state", "id": 3, "queues": [{"source": "in", "queue": "q", "offset": 5}], "sequence": 4, "shards": {"s": 2},
    "outputs": {"o": "d"}, "states": {"s.0": [[1, "aa"]]}, "definitions": {"format": 1, "operators": {}},
}  # fmt: skip
_MANIFEST = {
    "kind": "headrace savepoint", "format": 1, "id": "x", "job": "fuzz.state", "backend": "light", "headrace": "0.1.0", "taken_at": "2026-01-01T00:00:00+00:00",
    "sequence": 4, "time_us": 5, "stopped": True, "sources": {"in": {"kind": "MemorySource", "queues": [{"queue": "q", "offset": 5}]}}, "idle": [["in", "q"]],
    "shuffles": {"s": {"shards": 2, "keys": [["k"]]}}, "operators": {}, "definitions": {"format": 1, "operators": {}}, "outputs": {}, "files": {},
}  # fmt: skip
_ENTRIES = [Entry(1, 2, "added", _IN), Entry(2, 2, "tick")]

TARGETS = [
    Target("shard-state", _shard_state, [unsealed(_state(), "state")]),
    Target("shuffle-records", lambda data: decoded(sealed(data)), [unsealed(each, "x") for each in encoded([_message(0)], 5, 100_000)]),
    Target("order-log", _order_log, [each.to_line().rstrip(b"\n") for each in _ENTRIES] + [b'{"sequence":1,"time_us":2,"kind":"read","source":"in",'
        b'"queue":"q","start":{"offset":1},"end":{"offset":2}}']),
    Target("checkpoints", _checkpoint, [_json(_CHECKPOINT)]),
    Target("savepoints", _savepoint, [_json(_MANIFEST)]),
    Target("buffer-blocks", _buffer_block, [_block()]),
]  # fmt: skip
