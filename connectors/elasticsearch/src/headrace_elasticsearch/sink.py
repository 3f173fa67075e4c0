"""The Elasticsearch sink: documents with ids, so that writing one again changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from headrace.flow.messages import Queue
from headrace.interfaces.sink import IdempotentSink, SinkBatch, SinkSettings
from headrace.interfaces.sink_progress import SinkProgress, SinkProgresses, rows_of
from numpy.typing import NDArray

from headrace_elasticsearch.bulk import Bulk
from headrace_elasticsearch.connection import Connection
from headrace_elasticsearch.documents import DocumentMaker
from headrace_elasticsearch.progress import chosen
from headrace_elasticsearch.settings import ElasticsearchSinkSettings
from headrace_elasticsearch.table_options import SINK_TABLES
from headrace_elasticsearch.target import Target, check_changes, check_columns

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class ElasticsearchSink(IdempotentSink):
    """Writes rows as documents by bulk requests. Guarantee: exactly once as readers see it, by the documents' ids.

    See ``docs/connectors/elasticsearch.md`` for the conditions. May be pickled at any time; a copy makes its own connections.
    Calls for several queues may come at once; they share the limit of parallel requests.
    """

    Settings: ClassVar[type[SinkSettings]] = ElasticsearchSinkSettings
    table_options = SINK_TABLES
    concurrent = True

    def __init__(self, settings: ElasticsearchSinkSettings) -> None:
        self.settings: ElasticsearchSinkSettings = settings
        self.accepts = "append" if settings.creates else "upsert"
        self._schema: Schema | None = None
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._maker: DocumentMaker | None = None
        #: The outcome of each queue's last batch, until all of its rows are stored.
        self._progress = SinkProgresses()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_lock", "_connection", "_executor", "_maker", "_progress"}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_connection()

    def check(self, schema: Schema | None) -> None:
        """Check options against the stream's columns. Raises JobError."""
        check_columns(self.settings, schema)
        self._schema = schema

    def prepare(self, schema: Schema | None) -> None:
        """Create what is missing; check index, mappings, pipeline and the user's rights. Raises JobError."""
        if self.changes is not None:
            check_changes(self.settings, self.changes)
        connection = Connection(self.settings)
        try:
            Target(self.settings, connection).prepare(schema)
        finally:
            connection.close()

    def open(self) -> None:
        """Prepare the connection; the first request opens it. Raises JobError for certificates that cannot be used."""
        self._opened()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Store the rows that are not stored yet. Raises RetriableError, JobError, and DataError when rows are refused.

        After an error the same call, or one for a part of the batch, sends only the rows whose outcome is not known.
        """
        connection, executor, maker = self._opened()
        bulk = Bulk(self.settings, connection)
        progress, place = self._progress.begin(batch)
        while len(rows := progress.to_do(place)):
            self._send(rows_of(batch, rows, place), rows, progress, bulk, executor, maker)
        self._progress.end(batch, place, "elasticsearch")

    def _send(
        self,
        batch: SinkBatch,
        rows: NDArray[np.int64],
        progress: SinkProgress,
        bulk: Bulk,
        executor: ThreadPoolExecutor,
        maker: DocumentMaker,
    ) -> None:
        """Send rows, one of each document, because requests overtake each other. At least one row gets an outcome, or it raises.

        Of rows that concern the same document, only the one is sent that counts in the end. When it is stored, the others count
        as stored. When it is refused, the next call sends the next one instead.
        """
        documents = maker.make(batch)
        for row, reason in documents.refused.items():
            progress.refuse(int(rows[row]), reason)
        sendable = documents.sendable
        places = np.flatnonzero(sendable)
        if not len(places):
            return
        identities = None if documents.identities is None else documents.identities.gather(places)
        sent = places[chosen(identities, len(places), first=self.settings.creates)]
        outcome = bulk.send(sent, documents.lines, executor)
        stored = sent[outcome.stored]
        if identities is not None and documents.identities is not None and len(sent) < len(places):
            done = documents.identities.gather(stored)
            stored = places[identities.is_in(done.implode()).to_numpy()]
        progress.store(rows[stored])
        for row, reason in outcome.refused.items():
            progress.refuse(int(rows[sent[row]]), reason)
        if outcome.error is not None:
            raise outcome.error

    def queue_removed(self, queue: Queue) -> None:
        """Drop the outcome of the queue's last batch."""
        self._progress.forget(queue)

    def close(self) -> None:
        """Close connections and end the threads."""
        with self._lock:
            connection, executor = self._connection, self._executor
            self._connection = self._executor = self._maker = None
        if executor is not None:
            executor.shutdown()
        if connection is not None:
            connection.close()
        self._progress.clear()

    def _opened(self) -> tuple[Connection, ThreadPoolExecutor, DocumentMaker]:
        with self._lock:
            if self._connection is None or self._executor is None or self._maker is None:
                count = self.settings.parallel_requests
                self._connection = Connection(self.settings, connections=count)
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="elasticsearch bulk")
                self._maker = DocumentMaker(self.settings, self._schema)
            return self._connection, self._executor, self._maker
