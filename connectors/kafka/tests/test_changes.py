"""Changelogs as records: the last change of a key is its record, a tombstone deletes it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, ChangeKind, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError
from headrace.interfaces.operator import Changes
from headrace.interfaces.sink import SinkBatch
from headrace_kafka.changes import check_changes
from headrace_kafka.settings import KafkaSinkSettings
from headrace_kafka.sink import KafkaSink

INSERT, BEFORE, AFTER, DELETE = 0, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE
SCHEMA = Schema.of({"k": "string", "n": "int64"})


def settings(**options: Any) -> KafkaSinkSettings:
    return KafkaSinkSettings.of({"topic": "t", "servers": "localhost:1", **options}, plugin="kafka")


def sink() -> KafkaSink:
    made = KafkaSink(settings(key="k"))
    made.check(SCHEMA)
    made.open()
    return made


def batch(rows: list[tuple[int, Any, int]]) -> SinkBatch:
    header = {OFFSET: [0] * len(rows), INDEX: list(range(len(rows))), CHANGE: [kind for kind, *_ in rows]}
    types = {OFFSET: pl.Int64(), INDEX: pl.Int32(), CHANGE: pl.Int8(), **SCHEMA}
    user = {"k": [k for _, k, _ in rows], "n": [n for *_, n in rows]}
    return SinkBatch(Queue("q"), pl.DataFrame({**header, **user}, schema=types))


def test_last_changes() -> None:
    found = sink().records(
        batch(
            [(INSERT, "a", 1), (INSERT, "b", 1), (BEFORE, "a", 1), (AFTER, "a", 2), (DELETE, "b", 1), (INSERT, "c", 3)]
        )
    )
    assert [(record.key, record.value) for record in found] == [
        (b"b", None),
        (b"a", b'{"k":"a","n":2}'),
        (b"c", b'{"k":"c","n":3}'),
    ]


def test_only_deletes() -> None:
    assert [(one.key, one.value) for one in sink().records(batch([(DELETE, "a", 1)]))] == [(b"a", None)]


def test_null_is_no_key() -> None:
    with pytest.raises(DataError, match="whose key is NULL"):
        sink().records(batch([(INSERT, None, 1)]))


def test_what_is_accepted() -> None:
    assert KafkaSink(settings()).accepts == "append"
    assert KafkaSink(settings(key="k")).accepts == "upsert"
    assert KafkaSink(settings(key="k", tombstone="gone")).accepts == "append"
    check_changes(settings(key="k"), Changes(("k",)))
    with pytest.raises(
        JobError, match="the stream is a changelog with the key k, window_end, but records have the key 'k'"
    ):
        check_changes(settings(key="k"), Changes(("k", "window_end")))
