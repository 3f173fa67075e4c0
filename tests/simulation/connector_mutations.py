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


def _one_of_a_part(send: Any) -> Any:
    def sent(self: Any, rows: Any, make: Any, executor: Any) -> Outcome:
        outcome: Outcome = send(self, rows, make, executor)
        return Outcome(list(range(len(rows))), {}) if outcome.stored else outcome

    return sent


#: Those that histories with sinks of connectors must find.
OF_CONNECTORS: Mapping[str, Mutation] = {
    "mysql: positions are not compared": in_place_of(OffsetsTable, "advance", _compared_never),
    "mysql: a lost commit counts as done": in_place_of(TableSink, "batch_insert", _taken_as_done),
    "mysql: rows are committed before their position": in_place_of(TableSink, "batch_insert", _rows_first),
    "elasticsearch: refused documents count as stored": in_place_of(Bulk, "_judged", _all_stored),
    "elasticsearch: a request without an answer counts as stored": in_place_of(Bulk, "_send_part", _lost_is_stored),
    "elasticsearch: a request of several counts as the others": in_place_of(Bulk, "send", _one_of_a_part),
    "elasticsearch: ids are made anew": in_place_of(documents, "row_ids", _without_begin),
}
