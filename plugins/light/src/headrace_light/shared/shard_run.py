"""One shard of a shuffle whose records come from a topic: its reader, its state, and its position."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import DataError, RetriableError
from headrace.interfaces.backend import QueueStatus
from headrace.interfaces.source import Reader
from headrace.runtime.lane import Delivery, Shipment
from headrace.runtime.shard import Shard

from headrace_light.shared.shuffle_records import decoded

#: Stored with every version of the state: the time of the newest record, and the base that is added to offsets.
_HEADER = struct.Struct(">qq")
HEADER_BYTES = _HEADER.size
_NO_WAIT = timedelta(0)
_RECORDS_MAX = 100


@dataclass
class ShardOutputs:
    """The outputs of some records, in order."""

    deliveries: list[Delivery] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)


class ShardRun:
    """Takes the records of one queue of a shuffle's topic through a shard; each record is an entry.

    The number of an entry is the record's offset plus a base that is taken from the first record: so entries come after those
    of any earlier topic that sinks remember, and every owner of the shard gives the same numbers.
    """

    def __init__(
        self,
        topic_queue: Queue,
        shard: Shard,
        reader: Reader,
        header: bytes | None,
        check_entries: Callable[[int], None] | None = None,
    ) -> None:
        self.topic_queue = topic_queue
        self.shard = shard
        self.position: ReadPosition = reader.position
        #: The offset of the stored state; None: no state is stored.
        self.saved: ReadPosition | None = None if header is None else reader.position
        #: The next version must hold everything, because the versions stored before cannot be used.
        self.whole = header is None
        self._reader = reader
        self._time_us, self._base = (0, None) if header is None else _HEADER.unpack(header)
        self._latest = reader.latest
        #: Gets the number of the topic's last entry, once, before the first entry is processed; raises when this number is not possible.
        self._check_entries = check_entries
        #: When a snapshot was stored last; set by the stages.
        self.snapshot_seconds = 0.0
        #: When this instance began with the shard; set by the stages.
        self.begun_seconds = 0.0
        #: Whether the shard began before its state was loaded, and the end of loading is not yet logged; set by the stages.
        self.restoring = False
        #: Whether an error came while a record was processed: the state of the shard is not certain any more.
        self.broken = False
        self._records = 0
        self._closed = False

    def poll(self) -> ShardOutputs | None:
        """Read and process some records; None when there were none. Raises RetriableError; see ``broken``."""
        latest = 0 if self._check_entries is None else self._reader.latest
        raw = self._reader.poll(_RECORDS_MAX, _NO_WAIT)
        if raw is None or self._closed:  # the group may have taken the shard away while the reader looked
            return None
        outputs = ShardOutputs()
        assert raw.bodies is not None
        for place, offset in enumerate(raw.offsets.tolist()):
            try:
                time_us, messages = decoded(bytes(raw.bodies[place]))
            except DataError as error:
                error.queue, error.offset = self.topic_queue.id, offset
                raise
            # Records come from senders with different clocks; the time of the shard never goes back.
            self._time_us = max(self._time_us, time_us)
            if self._base is None:
                self._base = self._time_us
            if self._check_entries is not None:
                self._check_entries(self._base + max(latest - 1, offset))
                self._check_entries = None
            try:
                made = self.shard.process(self._base + offset, self._time_us, messages)
            except RetriableError:
                self.broken = True
                raise
            outputs.deliveries += made.deliveries
            outputs.shipments += made.shipments
        self.position = raw.next_position
        self._records += len(raw)
        return outputs

    def restore_some(self) -> bool:
        """Load a part of the state that is missing; return True. Raises RetriableError."""
        self.shard.restore_some()
        return True

    @property
    def changed(self) -> bool:
        """Whether records were read that no stored state includes."""
        return self.position != self.saved and self._base is not None

    def header(self) -> bytes:
        """Return the header that is stored with the state."""
        assert self._base is not None
        return _HEADER.pack(self._time_us, self._base)

    def refresh_latest(self) -> None:
        """Ask for the end of the queue, for the lag. Raises RetriableError."""
        self._latest = self._reader.latest

    def status(self) -> QueueStatus:
        """Return the status of the shard in its topic."""
        return QueueStatus(self.shard.queue.id, self.position.offset, self._latest, self._records)

    def close(self) -> None:
        """Close shard and reader."""
        self._closed = True
        self.shard.close()
        self._reader.close()
