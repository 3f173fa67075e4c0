"""Reads one message queue for a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, RetriableError
from headrace.interfaces.source import Reader

from headrace_rocketmq.batch import MessageBatch
from headrace_rocketmq.client import Client
from headrace_rocketmq.deduplication import SeenRows, without_row_ids
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.job_errors import as_job_error, explained
from headrace_rocketmq.message import KEYS
from headrace_rocketmq.reader import Reader as ClientReader
from headrace_rocketmq.reader import ReaderOptions
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.settings import PLUGIN, RocketMQSourceSettings

#: The property with the sharding key of producers (MessageConst.PROPERTY_SHARDING_KEY).
SHARDING_KEY = "__SHARDINGKEY"
#: The runtime measures how long a server is not available, and gives up; the client does not.
_NEVER = timedelta(days=365)
_LOOK_BACK_MESSAGES = 10_000


class RocketMQReader(Reader):
    """Reads one message queue, with pulls ahead of the position.

    ``poll`` gives an empty batch, not None, when there were messages but none is left: they did not match the filter, or were repetitions.
    """

    def __init__(
        self,
        client: Client,
        reader: ClientReader,
        *,
        queue: Queue,
        message_queue: MessageQueue,
        offset: int,
        settings: RocketMQSourceSettings,
        group: str,
        message_filter: Filter,
        header_fields: Collection[str],
        on_failure: Callable[[], None],
    ) -> None:
        """``reader`` reads ``message_queue`` alone, from ``offset`` on. ``on_failure`` is called when the broker is not available."""
        self._client = client
        self._reader = reader
        self._queue = queue
        self._at = message_queue
        self._next = offset
        self._settings = settings
        self._group = group
        self._filter = message_filter
        self._with_keys = "key" in header_fields
        self._with_headers = "headers" in header_fields
        self._on_failure = on_failure
        self._seen: SeenRows | None = None
        self._looking_back: ClientReader | None = None
        self._begin_deduplication()

    @staticmethod
    def options(settings: RocketMQSourceSettings) -> ReaderOptions:
        """Return the options of the client's reader."""
        return ReaderOptions(window=settings.window, outage=_NEVER)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._seen is not None and not self._look_back(self._seen, timeout):
            return self._batch(None)
        batch = self._poll(self._reader, max_records, timeout)
        if batch is None:
            return None
        if batch.errors:
            self._refuse_packed(batch)
        self._next = batch.next_offset
        if self._seen is not None and len(batch):
            fresh = self._seen.fresh(batch.keys())
            if not fresh.all():
                batch = batch.take(np.flatnonzero(fresh).tolist())
        return self._batch(batch if len(batch) else None)

    def seek(self, position: ReadPosition) -> None:
        self._reader.seek(self._at, position.offset)
        self._next = position.offset
        self._begin_deduplication()

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next)

    @property
    def earliest(self) -> int:
        return self._bound(self._client.earliest_offsets)

    @property
    def latest(self) -> int:
        return self._bound(self._client.latest_offsets)

    def _bound(self, ask: Callable[[list[MessageQueue]], dict[MessageQueue, int]]) -> int:
        """Return a bound of the queue. Raises RetriableError, at once where the broker was away a moment ago.

        Not until a poll has succeeded: a caller that waits for a bound before the next poll would wait forever.
        """
        if self._reader.is_pausing(self._at):
            self._raise_failure(self._reader)
        try:
            with explained(self._settings, self._client, queue=self._queue.id):
                return ask([self._at])[self._at]
        except RetriableError:
            self._reader.postpone(self._at)
            self._on_failure()
            raise

    def close(self) -> None:
        self._reader.close()
        if self._looking_back is not None:
            self._looking_back.close()

    def _poll(self, reader: ClientReader, max_records: int, timeout: timedelta) -> MessageBatch | None:
        with explained(self._settings, self._client, queue=self._queue.id):
            batches = reader.poll(max_records, timeout)
        if batches:
            return batches[0]  # the reader has one queue
        self._raise_failure(reader)
        return None

    def _raise_failure(self, reader: ClientReader) -> None:
        """Raise RetriableError while the queue could not be read. Each poll tries again."""
        failure = reader.failure(self._at)
        if failure is not None:
            self._on_failure()
            raise as_job_error(failure, self._settings, queue=self._queue.id) from failure

    def _batch(self, batch: MessageBatch | None) -> RawBatch:
        if batch is None:
            nothing = np.empty(0, dtype=np.int64)
            return RawBatch(nothing, ReadPosition(self._next), bodies=Bodies.of([]), times=nothing)
        born = self._settings.time == "born"
        return RawBatch(
            batch.offsets,
            ReadPosition(self._next),
            bodies=Bodies.of(batch.bodies),
            times=(batch.born_timestamps_ms if born else batch.store_timestamps_ms) * 1000,
            keys=_keys(batch) if self._with_keys else None,
            headers=_headers(batch) if self._with_headers else None,
        )

    def _refuse_packed(self, batch: MessageBatch) -> None:
        """Raise DataError for the first body that cannot be decompressed. The reader stays before this batch."""
        row = min(batch.errors)
        self._reader.seek(self._at, self._next)
        raise DataError(
            str(batch.errors[row]),
            plugin=PLUGIN,
            queue=self._queue.id,
            offset=int(batch.offsets[row]),
            hint="pip install headrace-rocketmq[lz4,zstandard] for bodies compressed with LZ4 or Zstandard",
        )

    # ------------------------------------------------------------------------------------------ deduplication

    def _begin_deduplication(self) -> None:
        if self._settings.deduplicate:
            self._seen = SeenRows()
            self._looking_back = None
            self._looked_back = False

    def _look_back(self, seen: SeenRows, timeout: timedelta) -> bool:
        """Read the messages before the start; return whether that is done. Called by each poll until it is."""
        if self._looked_back:
            return True
        if self._looking_back is None:
            first = max(self.earliest, self._next - self._settings.deduplicate_window)
            self._looking_back = self._client.reader(
                group=self._group,
                message_filter=self._filter,
                options=replace(self.options(self._settings), out_of_range="follow"),  # it requests the rest
            )
            with explained(self._settings, self._client, queue=self._queue.id):
                self._looking_back.add(self._at, min(first, self._next), end_offset=self._next)
        if not self._looking_back.is_finished(self._at):
            batch = self._poll(self._looking_back, _LOOK_BACK_MESSAGES, timeout)
            if batch is not None and len(batch):
                seen.fresh(batch.keys())
        if self._looking_back.is_finished(self._at):
            self._looking_back.close()
            self._looking_back, self._looked_back = None, True
        return self._looked_back


def _keys(batch: MessageBatch) -> Sequence[bytes | None]:
    """Return the sharding key of the producer, else the message keys without our row ids."""
    import polars as pl

    sharding = pl.Series(batch.property_column(SHARDING_KEY), dtype=pl.String)
    keys = without_row_ids(pl.Series(batch.property_column(KEYS), dtype=pl.String))
    return sharding.fill_null(keys).cast(pl.Binary).to_list()


def _headers(batch: MessageBatch) -> list[dict[str, bytes]]:
    """Return all properties of each message: the producer's, and RocketMQ's own (``TAGS``, ``KEYS``, ``UNIQ_KEY``, …)."""
    return [{name: value.encode() for name, value in batch.properties(row).items()} for row in range(len(batch))]
