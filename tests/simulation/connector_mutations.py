"""Planted bugs of connectors: mistakes that somebody could make in a sink."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from headrace.foundation.errors import RetriableError
from headrace.interfaces.sink import StaleWriterError
from headrace_changes.databases.offsets_table import OffsetsTable
from headrace_changes.databases.table_sink import TableSink
from headrace_elasticsearch import documents
from headrace_elasticsearch.bulk import Bulk, Outcome
from headrace_kafka.driver_confluent import ConfluentConsumer
from headrace_kafka.producer_confluent import ConfluentTransactionalProducer
from headrace_kafka.topics import KafkaTopics
from headrace_rocketmq import sink as rocketmq_sink
from headrace_rocketmq.job_topics import RocketMQTopics

from tests.simulation.planting import Mutation, in_place_of


def _compared_never(advance: Any) -> Any:
    def moved(self: Any, cursor: Any, batch: Any) -> None:
        with contextlib.suppress(StaleWriterError):
            advance(self, cursor, batch)

    return moved


def _taken_as_done(insert: Any) -> Any:
    def done(self: Any, batch: Any) -> None:
        with contextlib.suppress(RetriableError):
            insert(self, batch)

    return done


def _rows_first(insert: Any) -> Any:
    def apart(self: Any, batch: Any) -> None:
        with self._lock:
            _, table = self._connected()
            prepared = self.prepared(batch.to_polars(), None, table)
            with self._transaction() as connection, connection.cursor() as cursor:
                self.write(connection, cursor, prepared)
                connection.commit()
                self.offsets.advance(cursor, batch)
                connection.commit()

    return apart


def _all_stored(judged: Any) -> Any:
    return lambda self, items, begin: Outcome(list(range(begin, begin + len(items))), {})


def _lost_is_stored(send_part: Any) -> Any:
    def sent(self: Any, lines: Any, first: int) -> Outcome:
        outcome: Outcome = send_part(self, lines, first)
        return Outcome(list(range(first, first + len(lines))), {}) if outcome.error is not None else outcome

    return sent


def _without_begin(rows: Any) -> Any:
    return lambda batch: [secrets.token_hex(8) for _ in range(len(batch))]


def _without_version(header: Any) -> Any:
    return lambda *arguments: header(*arguments).drop("version", "version_type", strict=False)


def _one_of_a_part(send: Any) -> Any:
    def sent(self: Any, rows: Any, make: Any, executor: Any) -> Outcome:
        outcome: Outcome = send(self, rows, make, executor)
        return Outcome(list(range(len(rows))), {}) if outcome.stored else outcome

    return sent


def _forgotten(flush: Any) -> Any:
    def done(self: Any) -> None:
        try:
            flush(self)
        except RetriableError:
            self._waiting = {}

    return done


def _without_position(write: Any) -> Any:
    def written(self: Any, records: Any, last: Any) -> None:
        before = self._producer.send_offsets_to_transaction
        self._producer.send_offsets_to_transaction = lambda *_: None
        try:
            write(self, records, last)
        finally:
            self._producer.send_offsets_to_transaction = before

    return written


def _one_too_far(commit: Any) -> Any:
    return lambda self, offsets: commit(self, {place: offset + 1 for place, offset in offsets.items()})


def _named_anew(name: Any) -> Any:
    return lambda writer, queue: f"hr:{secrets.token_hex(4)}/{queue}"


#: Those that histories with sinks of connectors must find.
OF_CONNECTORS: Mapping[str, Mutation] = {
    "mysql: positions are not compared": in_place_of(OffsetsTable, "advance", _compared_never),
    "mysql: a lost commit counts as done": in_place_of(TableSink, "batch_insert", _taken_as_done),
    "mysql: rows are committed before their position": in_place_of(TableSink, "batch_insert", _rows_first),
    "elasticsearch: refused documents count as stored": in_place_of(Bulk, "_judged", _all_stored),
    "elasticsearch: a request without an answer counts as stored": in_place_of(Bulk, "_send_part", _lost_is_stored),
    "elasticsearch: a request of several counts as the others": in_place_of(Bulk, "send", _one_of_a_part),
    "kafka: records for shards that were not acknowledged are forgotten": in_place_of(KafkaTopics, "flush", _forgotten),
    "kafka: positions are not part of the transaction": in_place_of(
        ConfluentTransactionalProducer, "write", _without_position
    ),
    "kafka: groups commit one too far": in_place_of(ConfluentConsumer, "commit", _one_too_far),
    "rocketmq: records for shards that were not acknowledged are forgotten": in_place_of(
        RocketMQTopics, "flush", _forgotten
    ),
    "rocketmq: rows do not say which they are": in_place_of(rocketmq_sink, "upstream_name", _named_anew),
    "elasticsearch: versions are not sent": in_place_of(documents.DocumentMaker, "_header", _without_version),
    "elasticsearch: ids are made anew": in_place_of(documents, "row_ids", _without_begin),
}
