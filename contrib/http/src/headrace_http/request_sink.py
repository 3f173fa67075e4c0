"""The base of sinks that send rows in HTTP requests: connections, outcomes of rows, the meaning of answers."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headrace.flow.messages import Queue
from headrace.interfaces.sink import Sink, SinkBatch
from headrace.interfaces.sink_progress import SinkProgresses

from headrace_http.bodies import RequestBodies
from headrace_http.client import Answer, Client
from headrace_http.delivery import Delivery
from headrace_http.settings import RequestSinkSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class RequestSink(Sink):
    """Base of sinks that send rows in the bodies of requests. Guarantee: at least once; a receiver can make it exactly
    once.

    A derived class defines how bodies are made (``bodies``). The object may be pickled at any time; a copy makes its
    own connections. Several queues may send requests at the same time.
    """

    concurrent = True

    def __init__(self, settings: RequestSinkSettings) -> None:
        self.settings: RequestSinkSettings = settings
        self._schema: Schema | None = None
        self._forget_connections()

    @abstractmethod
    def bodies(self, schema: Schema | None) -> RequestBodies:
        """Return an object that makes bodies from rows with these columns. It is also called when the job is built.
        Raises JobError for wrong columns.
        """

    def client(self) -> Client:
        """Return the connections. Raises OptionError if a secret is missing."""
        return Client(self.settings)

    def judge(self, answer: Answer) -> None:
        """Examine an answer with a status that means that rows are stored. Called from several threads."""

    def _forget_connections(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[Client, RequestBodies, ThreadPoolExecutor | None] | None = None
        #: The outcome of each queue's last batch, until all of its rows are stored.
        self._progress = SinkProgresses()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_lock", "_opened", "_progress"}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_connections()

    def check(self, schema: Schema | None) -> None:
        """Check options against the stream's columns. Raises JobError."""
        self._schema = schema
        self.bodies(schema)

    def prepare(self, schema: Schema | None) -> None:
        """Read secrets and certificates. It sends nothing, because a server might treat a test request as data. Raises
        JobError.
        """
        self.client().close()

    def open(self) -> None:
        """Prepare the connections; the first request opens one."""
        self._parts()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Send the rows that are not stored yet. Raises RetriableError, JobError, and DataError when rows are refused.

        After an error the same call, or one for a part of the batch, sends only the rows whose outcome is not known.
        """
        client, maker, executor = self._parts()
        progress, place = self._progress.begin(batch)
        if len(rows := progress.to_do(place)):
            Delivery(self.settings, client, maker, self.judge, batch, progress, place).send(rows, executor)
        self._progress.end(batch, place, self.settings.plugin_name)

    def queue_removed(self, queue: Queue) -> None:
        """Drop the outcome of the queue's last batch."""
        self._progress.forget(queue)

    def close(self) -> None:
        """Close connections and end the threads."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            client, _, executor = opened
            if executor is not None:
                executor.shutdown()
            client.close()
        self._progress.clear()

    def _parts(self) -> tuple[Client, RequestBodies, ThreadPoolExecutor | None]:
        with self._lock:
            if self._opened is None:
                count = self.settings.parallel_requests
                name = f"{self.settings.plugin_name} sink"
                executor = ThreadPoolExecutor(count, thread_name_prefix=name) if count > 1 else None
                self._opened = self.client(), self.bodies(self._schema), executor
            return self._opened
