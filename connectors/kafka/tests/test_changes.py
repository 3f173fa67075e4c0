"""Changelogs as records: the last change of a key is its record, a tombstone deletes it."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, ChangeKind, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, OptionError
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
    assert KafkaSink(settings(format="debezium-json")).accepts == "changelog"
    assert KafkaSink(settings(format="debezium-json", key="k", tombstone="gone")).accepts == "append"


def test_records_have_the_key_of_the_changes() -> None:
    check = partial(check_changes, encodes_changes=False, partitions=3)
    check(settings(key="k"), Changes(("k",)))
    check(settings(key=["n", "k"]), Changes(("k", "n")))
    said = "the stream is a changelog with the key k, window_end, but records have the key k"
    with pytest.raises(JobError, match=said):
        check(settings(key="k"), Changes(("k", "window_end")))


def test_changes_of_a_row_go_to_one_partition() -> None:
    check = partial(check_changes, encodes_changes=True)
    check(settings(format="debezium-json"), Changes(("k",)), partitions=1)
    check(settings(format="debezium-json", key="k"), Changes(("k", "n")), partitions=3)
    check(settings(format="debezium-json", key="k"), Changes(None), partitions=3)  # a row with another k is another row
    for options, changes in (({}, ("k",)), ({"key": "n"}, ("k",)), ({"key": ["k", "n"]}, ("k",)), ({"key": "k"}, ())):
        with pytest.raises(JobError, match="several partitions") as found:
            check(settings(format="debezium-json", **options), Changes(changes), partitions=3)
        assert found.value.option == "key"
    with pytest.raises(JobError, match="several partitions"):
        check(settings(format="debezium-json", key="k", partition="n"), Changes(("k",)), partitions=1)


def test_a_format_of_changes_says_what_each_record_changes() -> None:
    made = KafkaSink(settings(format="debezium-json", key="k"))
    made.check(SCHEMA)
    made.open()
    found = made.records(batch([(INSERT, "a", 1), (BEFORE, "a", 1), (AFTER, "a", 2), (DELETE, None, 2)]))
    assert [(record.key, record.value) for record in found] == [
        (b"a", b'{"before":null,"after":{"k":"a","n":1},"op":"c"}'),
        (b"a", b'{"before":{"k":"a","n":1},"after":null,"op":"d"}'),
        (b"a", b'{"before":null,"after":{"k":"a","n":2},"op":"c"}'),
        (None, b'{"before":{"k":null,"n":2},"after":null,"op":"d"}'),
    ]


def test_keys_of_several_columns_are_json() -> None:
    made = KafkaSink(settings(key=["n", "k"], value_fields_include="except_key"))
    schema = Schema.of({"k": "string", "n": "int64"})
    made.check(schema)
    made.open()
    found = made.records(batch([(INSERT, "a", 1), (DELETE, "b", 2)]))
    assert [(record.key, record.value) for record in found] == [(b'{"n":2,"k":"b"}', None), (b'{"n":1,"k":"a"}', b"{}")]


def test_a_key_of_one_column_as_json() -> None:
    made = KafkaSink(settings(key="n", key_format="json"))
    made.check(SCHEMA)
    made.open()
    assert [record.key for record in made.records(batch([(INSERT, "a", 1)]))] == [b'{"n":1}']


def test_keys_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="can hold only one column"):
        settings(key=["a", "b"], key_format="text")
    with pytest.raises(OptionError, match="needs a key, and the option key is not given"):
        settings(key_format="json")
    with pytest.raises(OptionError, match="needs a key, and the option key is not given"):
        settings(value_fields_include="except_key")
    with pytest.raises(OptionError, match="list of columns is empty"):
        settings(key=[])
    with pytest.raises(OptionError, match="not known when the job is built"):
        KafkaSink(settings(key=["a", "b"])).check(None)
    with pytest.raises(OptionError, match="unknown column 'kk'"):
        KafkaSink(settings(key=["k", "kk"])).check(SCHEMA)
    with pytest.raises(OptionError, match="key_format='json' takes other types"):
        KafkaSink(settings(key="f")).check(Schema.of({"f": "float64"}))
