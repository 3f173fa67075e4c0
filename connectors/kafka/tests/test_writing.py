"""What jobs write: keys, partitions, tombstones, formats, rows of unknown columns, topics that are created."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, ROW, Batch, Position, Queue
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, OptionError
from headrace.interfaces.sink import SinkBatch, StaleWriterError
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySink, MemorySource
from headrace_kafka.settings import KafkaSinkSettings
from headrace_kafka.sink import KafkaSink, KafkaTransactionalSink
from kafka_world import KafkaWorld, Seen

SCHEMA = {"id": "int64", "name": "string"}
Write = Callable[..., list[Seen]]


def batch_of(
    rows: list[dict[str, Any]], schema: dict[str, str], *, first: int = 0, after: Position | None = None
) -> SinkBatch:
    header = pl.DataFrame(
        {OFFSET: range(first, first + len(rows)), INDEX: [0] * len(rows)}, schema={OFFSET: pl.Int64, INDEX: pl.Int32}
    )
    frame = pl.DataFrame(rows, schema=dict(Schema.of(schema)), orient="row")
    return SinkBatch(Queue("q"), pl.concat([header, frame], how="horizontal"), after)


def unknown_columns(rows: list[dict[str, Any]]) -> SinkBatch:
    columns = {OFFSET: range(len(rows)), INDEX: [0] * len(rows), ROW: pack_rows(rows)}
    return SinkBatch(Queue("q"), pl.DataFrame(columns, schema={OFFSET: pl.Int64, INDEX: pl.Int32, ROW: pl.Binary}))


@pytest.fixture(params=["at_least_once", "exactly_once"])
def make(request: pytest.FixtureRequest, world: KafkaWorld, topic: str, driver: str) -> Callable[..., KafkaSink]:
    def make(**options: Any) -> KafkaSink:
        given = {"topic": topic, "servers": world.servers, "driver": driver, "delivery": request.param}
        return KafkaSink(KafkaSinkSettings.of({**given, **options}, plugin="kafka"))

    return make


@pytest.fixture
def write(make: Callable[..., KafkaSink], world: KafkaWorld, topic: str) -> Write:
    """Write rows through a sink with these options and return what readers see."""

    def write(rows: list[dict[str, Any]], schema: dict[str, str] | None = None, **options: Any) -> list[Seen]:
        sink = make(**options)
        sink.check(None if schema is None else Schema.of(schema))
        sink.prepare(None)
        sink.open()
        try:
            sink.batch_insert(unknown_columns(rows) if schema is None else batch_of(rows, schema))
        finally:
            sink.close()
        return world.read(topic)

    return write


def test_delivery_chooses_the_class(make: Callable[..., KafkaSink]) -> None:
    sink = make()
    assert isinstance(sink, hr.TransactionalSink) == (sink.settings.delivery == "exactly_once")  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["id", "name"])
def test_the_same_key_goes_to_the_partition_where_kafkas_own_clients_put_it(
    write: Write, world: KafkaWorld, topic: str, key: str
) -> None:
    world.create_topic(topic, 5)
    rows = [{"id": number % 20, "name": f"näme {number % 20}"} for number in range(60)]
    found = write(rows, SCHEMA, key=key)
    assert sorted((one.key, one.value) for one in found) == sorted(
        (str(row[key]).encode(), json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()) for row in rows
    )
    for one in found:
        assert one.key is not None
        assert one.partition == murmur2(one.key) % 5


def murmur2(data: bytes) -> int:
    """What Kafka's default partitioner hashes keys with (org.apache.kafka.common.utils.Utils.murmur2), as it is documented."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_keys_of_every_type(write: Write, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    assert [one.key for one in write([{"k": b"\x00\xff"}, {"k": None}], {"k": "binary"}, key="k")] == [
        b"\x00\xff",
        None,
    ]
    assert [one.key for one in write([{"k": True}, {"k": False}], {"k": "boolean"}, key="k", transactional_id="b")][
        2:
    ] == [
        b"true",
        b"false",
    ]


def test_rows_of_unknown_columns_have_keys_and_partitions_too(write: Write, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 3)
    rows = [
        {"k": "text", "p": 2, "more": [1, 2]}, {"k": 17, "p": 1}, {"k": True, "p": 0}, {"k": b"raw", "p": 2}, {"p": 1},
    ]  # fmt: skip
    found = write(rows, None, key="k", partition="p")
    assert [(one.partition, one.key) for one in found] == [
        (0, b"true"),
        (1, b"17"),
        (1, None),
        (2, b"text"),
        (2, b"raw"),
    ]
    assert json.loads(found[3].value or b"") == {"k": "text", "p": 2, "more": [1, 2]}


@pytest.mark.parametrize("value", [1.5, [1], {"a": 1}])
def test_a_key_that_is_none(write: Write, world: KafkaWorld, topic: str, value: Any) -> None:
    world.create_topic(topic)
    with pytest.raises(DataError, match=f"a key of type {type(value).__name__}"):
        write([{"k": value}], None, key="k")


def test_a_column_names_the_partition(write: Write, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 3)
    rows = [{"id": number, "p": number % 3} for number in range(9)]
    found = write(rows, {"id": "int64", "p": "int32"}, partition="p")
    assert [(one.partition, json.loads(one.value or b"")["id"]) for one in found] == [
        (0, 0), (0, 3), (0, 6), (1, 1), (1, 4), (1, 7), (2, 2), (2, 5), (2, 8),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_a_partition_that_does_not_exist(write: Write, world: KafkaWorld, topic: str, number: int) -> None:
    world.create_topic(topic, 3)
    with pytest.raises(DataError, match=f"has 3 partitions, and no partition {number}"):
        write([{"p": 0}, {"p": number}], {"p": "int64"}, partition="p")
    assert world.read(topic) == []


def test_partitions_that_the_topic_got_while_it_is_written(
    make: Callable[..., KafkaSink], world: KafkaWorld, topic: str
) -> None:
    world.create_topic(topic, 1)
    sink = make(partition="p")
    schema = {"p": "int64"}
    sink.check(Schema.of(schema))
    refused: list[Any] = []
    writer = SinkWriter(sink, "to_kafka", on_dead_letters=refused.append, auto_flush=False)
    for queue in ("q0", "q1"):
        writer.write(Batch(Queue(queue), batch_of([{"p": 0}], schema).frame))
    writer.flush()
    world.add_partitions(topic, 2)
    for queue in ("q0", "q1"):
        writer.write(Batch(Queue(queue), batch_of([{"p": 1}], schema, first=1).frame))
    writer.close()
    assert [one.partition for one in world.read(topic)] == [0, 0, 1, 1]
    assert refused == []


def test_tombstones(write: Write, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    rows = [{"id": 1, "gone": False}, {"id": 1, "gone": True}, {"id": 2, "gone": None}]
    found = write(rows, {"id": "int64", "gone": "boolean"}, key="id", tombstone="gone")
    assert [(one.key, one.value) for one in found] == [
        (b"1", b'{"id":1,"gone":false}'),
        (b"1", None),
        (b"2", b'{"id":2,"gone":null}'),
    ]
    with pytest.raises(DataError, match="a tombstone without key"):
        write(
            [{"id": None, "gone": True}],
            {"id": "int64", "gone": "boolean"},
            key="id",
            tombstone="gone",
            transactional_id="2",
        )


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(write: Write, world: KafkaWorld, topic: str, compression: str) -> None:
    world.create_topic(topic)
    rows = [{"id": number, "name": "x" * 100} for number in range(200)]
    found = write(rows, SCHEMA, compression=compression)
    assert [json.loads(one.value or b"") for one in found] == rows


def test_formats(write: Write, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    found = write([{"id": 1, "name": "a;b"}], SCHEMA, format="csv", format_options={"delimiter": ";"})
    assert [one.value for one in found] == [b'1;"a;b"']
    found = write([{"body": b"\x00\xff"}], {"body": "binary"}, format="raw", transactional_id="raw")
    assert found[1].value == b"\x00\xff"


def test_topics_are_created_when_asked_for(make: Callable[..., KafkaSink], world: KafkaWorld, topic: str) -> None:
    with pytest.raises(JobError, match=f"there is no topic '{topic}'"):
        make().prepare(None)
    assert world.partitions(topic) == []  # looking for it did not create it
    for _ in range(2):
        make(create_topic=True, partitions=3, replication_factor=1).prepare(None)
    assert world.partitions(topic) == [0, 1, 2]


def test_too_many_replicas(make: Callable[..., KafkaSink], world: KafkaWorld, topic: str) -> None:
    with pytest.raises(JobError, match="eplication") as caught:
        make(create_topic=True, replication_factor=9).prepare(None)
    assert caught.value.option == "create_topic"


def test_a_record_that_the_topic_refuses_does_not_take_its_neighbours_with_it(
    make: Callable[..., KafkaSink], world: KafkaWorld, topic: str
) -> None:
    world.create_topic(topic, 1, **{"max.message.bytes": "2000"})
    records = [json.dumps({"id": n, "name": "x" * (3000 if n == 5 else 10)}).encode() for n in range(9)]
    bad = MemorySink(hr.SinkSettings())
    sink = make(compression="none")
    stream = hr.stream("writing", topic).from_(MemorySource({"q": records}), format="json", schema=SCHEMA)
    stream.dead_letters(lambda letters: letters.to(bad)).to(sink, name="out").run("light")
    assert sorted({json.loads(one.value or b"")["id"] for one in world.read(topic)}) == [0, 1, 2, 3, 4, 6, 7, 8]
    [letter] = bad.rows
    assert (letter["offset"], letter["error"]) == (5, "DataError")
    assert topic in letter["reason"]


# ------------------------------------------------------------------------------------------------- options and columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nme"}, "unknown column 'nme' [plugin 'kafka', option 'key']\n  hint: did you mean 'name'?"),
        ({"partition": "name"}, "column 'name' is string, not an integer [plugin 'kafka', option 'partition']"),
        (
            {"key": "at"},
            "column 'at' is timestamp, not text, binary, an integer or boolean [plugin 'kafka', option 'key']",
        ),
        (
            {"key": "id", "tombstone": "name"},
            "column 'name' is string, not boolean [plugin 'kafka', option 'tombstone']",
        ),
        ({"format": "jsn"}, "did you mean 'json'?"),
        ({"format_options": {"delimter": 1}}, "unknown option 'delimter'"),
    ],
)
def test_columns_are_checked_when_the_job_is_built(options: dict[str, Any], message: str) -> None:
    sink = KafkaSink(KafkaSinkSettings.of({"topic": "t", "servers": "127.0.0.1:1", **options}, plugin="kafka"))
    with pytest.raises(JobError) as caught:
        sink.check(Schema.of({**SCHEMA, "at": "timestamp"}))
    assert message in str(caught.value)


def test_a_tombstone_needs_a_key() -> None:
    with pytest.raises(OptionError, match="deletes a key, but no key is given"):
        KafkaSinkSettings.of({"topic": "t", "servers": "x:1", "tombstone": "gone"}, plugin="kafka")


# ---------------------------------------------------------------------------------------------------- transactions


def exactly_once(world: KafkaWorld, topic: str, driver: str, **options: Any) -> KafkaTransactionalSink:
    given = {"topic": topic, "servers": world.servers, "driver": driver, "delivery": "exactly_once", **options}
    sink = KafkaSink(KafkaSinkSettings.of(given, plugin="kafka"))
    assert isinstance(sink, KafkaTransactionalSink)
    sink.check(Schema.of(SCHEMA))
    sink.open()
    return sink


def test_rows_of_an_unfinished_transaction_are_not_seen(world: KafkaWorld, topic: str, driver: str) -> None:
    world.create_topic(topic)
    sink = exactly_once(world, topic, driver)
    bad = [{"id": 1, "name": "a"}, {"id": 2, "name": "x" * 2_000_000}]
    with pytest.raises(DataError):
        sink.batch_insert(batch_of(bad, SCHEMA))
    sink.batch_insert(batch_of([{"id": 3, "name": "c"}], SCHEMA))
    sink.close()
    assert [json.loads(one.value or b"")["id"] for one in world.read(topic)] == [3]


def test_positions_are_kept_with_the_rows(world: KafkaWorld, topic: str, driver: str) -> None:
    world.create_topic(topic)
    first = exactly_once(world, topic, driver)
    assert first.last_offset(Queue("q")) is None
    first.batch_insert(batch_of([{"id": n, "name": "a"} for n in range(3)], SCHEMA, first=40))
    second = exactly_once(world, topic, driver)
    assert second.last_offset(Queue("q")) == Position(42, 0)
    assert second.last_offset(Queue("other")) is None
    with pytest.raises(StaleWriterError):  # the second has taken over
        first.batch_insert(batch_of([{"id": 9, "name": "a"}], SCHEMA, first=43, after=Position(42, 0)))
    first.close()
    second.close()


def test_transactional_ids_name_job_sink_and_queue(world: KafkaWorld, topic: str, driver: str) -> None:
    named = exactly_once(world, topic, driver)
    assert named.transactional_id(Queue("q")).startswith(f"headrace-{topic}-")
    named.writer_name = "shop.orders.to_kafka"
    assert named.transactional_id(Queue("q")).startswith("headrace-shop.orders.to_kafka-")
    assert named.transactional_id(Queue("q")) != named.transactional_id(Queue("q2"))
    own = exactly_once(world, topic, driver, transactional_id="mine")
    assert own.transactional_id(Queue("q", "source")).startswith("mine-")


def test_a_bounded_job_from_kafka_to_kafka_run_again_adds_nothing(world: KafkaWorld, topic: str, driver: str) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    world.create_topic(source, 3)
    world.create_topic(target, 2)
    for partition in range(3):
        values = [json.dumps({"id": partition * 1000 + n, "name": f"n{n}"}).encode() for n in range(500)]
        world.write(source, values, partition=partition)

    def run(group: str) -> hr.JobReport:
        given = {"servers": world.servers, "driver": driver}
        stream = hr.stream("twice", topic).from_kafka(source, format="json", schema=SCHEMA, group=group, **given)
        chosen = stream.where("id % 2 = 0").to_kafka(
            target,
            key="id",
            delivery="exactly_once",
            flush_interval=timedelta(milliseconds=100),
            batch_size=100,
            **given,
        )
        report: hr.JobReport = chosen.run("light", max_batch_records=200)
        return report

    assert dict(run(f"{topic}-1").rows_written) == {"to_kafka": 750}
    again = run(f"{topic}-2")  # another group: everything is read again
    assert (again.records_read, again.rows_skipped, dict(again.rows_written)) == (1500, 750, {"to_kafka": 0})
    found = [json.loads(one.value or b"")["id"] for one in world.read(target)]
    assert sorted(found) == [n for n in range(3000) if n % 1000 < 500 and n % 2 == 0]
