"""Received messages, by column, and the decoder that makes them from the body of a pull's answer.

A stored message is, big-endian: size, magic, checksum, queue, flag (int32 each), queue offset, physical offset (int64),
system flag (int32), born time (int64), born host, store time (int64), store host, reconsume times (int32), prepared
transaction offset (int64), body (int32 length), topic (length of one byte, or two by another magic), properties (int16
length). Hosts take 8 bytes, or 20 with IPv6 addresses, which the system flag says.
Source: Apache RocketMQ, `common.message.MessageDecoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_rocketmq.codes import MessageFlag
from headrace_rocketmq.compression import BODY_BYTES_MAX, decompress
from headrace_rocketmq.errors import InvalidMessageError, ProtocolError
from headrace_rocketmq.message import KEYS, TAGS, decode_properties
from headrace_rocketmq.routes import MessageQueue

Int64Array = NDArray[np.int64]

_MAGIC = -626843481
_MAGIC_LONG_TOPIC = -626843477
_IPV4_BYTES = 8
_IPV6_BYTES = 20


def _layout(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    # size, magic, flag, queue offset, system flag, born time, store time, reconsume times, length of the body
    return struct.Struct(f">ii4x4xiq8xiq{born_host_bytes}xq{store_host_bytes}xi8xi")


_PLAIN = _layout(_IPV4_BYTES, _IPV4_BYTES)
_BY_HOST_FLAGS = {
    int(born | store): _layout(_IPV6_BYTES if born else _IPV4_BYTES, _IPV6_BYTES if store else _IPV4_BYTES)
    for born in (MessageFlag(0), MessageFlag.BORN_HOST_IPV6)
    for store in (MessageFlag(0), MessageFlag.STORE_HOST_IPV6)
}
_HOST_FLAGS = int(MessageFlag.BORN_HOST_IPV6 | MessageFlag.STORE_HOST_IPV6)
_WRAPPED = int(MessageFlag.INNER_BATCH | MessageFlag.NEEDS_UNWRAP)
_UNUSUAL = _HOST_FLAGS | _WRAPPED | int(MessageFlag.COMPRESSED)
_INNER_ENTRY = struct.Struct(">i4x4xii")  # size, magic, checksum, flag, length of the body


@dataclass(slots=True, repr=False, eq=False)
class MessageBatch:
    """Messages of one queue, in order, by column: row i is (bodies[i], offsets[i], …).

    Offsets grow, but need not be dense: filters, transactions and compaction leave gaps. So reading continues at `next_offset`,
    which may also move when no message comes.
    """

    queue: MessageQueue
    bodies: list[bytes]
    """Unpacked. A body that could not be is here as it was sent, and its row is in `errors`."""
    offsets: Int64Array
    born_timestamps_ms: Int64Array
    """When producers made the messages, by their clocks; since 1970."""
    store_timestamps_ms: Int64Array
    """When the broker stored them, by its clock; since 1970."""
    reconsume_times: Int64Array
    """How often consumers that retry sent the message back."""
    flags: Int64Array
    """The application's number of each message."""
    raw_properties: list[bytes]
    next_offset: int
    """What to commit, and where to go on, once this batch is dealt with."""
    earliest_offset: int = 0
    """The queue's smallest offset when the broker answered."""
    latest_offset: int = 0
    """One more than the queue's largest offset when the broker answered."""
    errors: dict[int, InvalidMessageError] = field(default_factory=dict)
    """Why a row's body could not be unpacked."""

    def __len__(self) -> int:
        return len(self.bodies)

    def __repr__(self) -> str:
        # Without the bodies: they are large, and must not be in logs.
        return f"MessageBatch({self.queue}, {len(self)} messages, next_offset={self.next_offset})"

    def properties(self, row: int) -> dict[str, str]:
        """All properties of one message."""
        return decode_properties(self.raw_properties[row])

    def property_column(self, name: str) -> list[str | None]:
        """One property of all messages; None for messages without it. Much faster than `properties` of each."""
        marker = f"\x02{name}\x01".encode()
        values: list[str | None] = []
        for raw in self.raw_properties:
            text = b"\x02" + raw
            at = text.find(marker)
            if at < 0:
                values.append(None)
                continue
            start = at + len(marker)
            end = text.find(b"\x02", start)
            values.append(str(text[start:] if end < 0 else text[start:end], "utf-8", "replace"))
        return values

    def tags(self) -> list[str | None]:
        """The tag of each message."""
        return self.property_column(TAGS)

    def keys(self) -> list[str | None]:
        """The keys of each message, separated by spaces."""
        return self.property_column(KEYS)

    def growing(self, start: int, end: int) -> MessageBatch:
        """The batch without rows below `start`, from `end` on, or not above all rows before them."""
        if not len(self):
            return self
        greatest_before = np.empty_like(self.offsets)
        greatest_before[0] = start - 1
        np.maximum.accumulate(self.offsets[:-1], out=greatest_before[1:])
        np.maximum(greatest_before, start - 1, out=greatest_before)
        inside = (self.offsets > greatest_before) & (self.offsets < end)
        return self if inside.all() else self.take(np.flatnonzero(inside).tolist())

    def take(self, rows: Sequence[int] | slice) -> MessageBatch:
        """A batch of some of the rows, with the same `next_offset`."""
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        return MessageBatch(
            queue=self.queue,
            bodies=[self.bodies[row] for row in numbers],
            offsets=self.offsets[rows],
            born_timestamps_ms=self.born_timestamps_ms[rows],
            store_timestamps_ms=self.store_timestamps_ms[rows],
            reconsume_times=self.reconsume_times[rows],
            flags=self.flags[rows],
            raw_properties=[self.raw_properties[row] for row in numbers],
            next_offset=self.next_offset,
            earliest_offset=self.earliest_offset,
            latest_offset=self.latest_offset,
            errors={new: self.errors[row] for new, row in enumerate(numbers) if row in self.errors},
        )


class BatchDecoder:
    """Collects the answers of several pulls of one queue into one batch."""

    def __init__(self, queue: MessageQueue, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._queue = queue
        self._body_bytes_max = body_bytes_max
        self._bodies: list[bytes] = []
        self._raw_properties: list[bytes] = []
        self._offsets: list[int] = []
        self._born_ms: list[int] = []
        self._store_ms: list[int] = []
        self._reconsume_times: list[int] = []
        self._flags: list[int] = []
        self._errors: dict[int, InvalidMessageError] = {}

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, data: bytes) -> None:
        """Decode the body of one pull's answer.

        Raises ProtocolError if it is not made of messages, ConfigurationError if a package for decompression is not installed. The
        decoder must not be used after that.
        """
        try:
            self._add(data)
        except (struct.error, IndexError) as error:
            raise ProtocolError(f"the broker sent messages of {self._queue} that are truncated") from error

    def _add(self, data: bytes) -> None:
        # The hot loop of every consumer: one unpack, two slices and a few appends for each message.
        unpack: Callable[[bytes, int], tuple[Any, ...]] = _PLAIN.unpack_from
        add_body, add_properties = self._bodies.append, self._raw_properties.append
        add_offset, add_born, add_store = self._offsets.append, self._born_ms.append, self._store_ms.append
        add_reconsumed, add_flag = self._reconsume_times.append, self._flags.append
        at, total = 0, len(data)
        body_at = _PLAIN.size
        while at < total:
            size, magic, flag, offset, system_flag, born, store, reconsumed, body_length = unpack(data, at)
            start = at + body_at
            if system_flag & _HOST_FLAGS:
                layout = _BY_HOST_FLAGS[system_flag & _HOST_FLAGS]
                size, magic, flag, offset, system_flag, born, store, reconsumed, body_length = layout.unpack_from(
                    data, at
                )
                start = at + layout.size
            end = start + body_length
            if magic == _MAGIC:
                properties_at = end + 3 + data[end]
            elif magic == _MAGIC_LONG_TOPIC:
                properties_at = end + 4 + (data[end] << 8 | data[end + 1])
            else:
                raise ProtocolError(f"the broker sent something in {self._queue} that is not a message (magic {magic})")
            properties_end = properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1])
            if body_length < 0 or not properties_end <= at + size <= total:
                raise ProtocolError(
                    f"the broker sent a message of {self._queue} whose fields are longer than the message"
                )
            at += size
            body = data[start:end]
            if system_flag & _UNUSUAL:
                body = self._unpack(body, system_flag)
                if system_flag & _WRAPPED == _WRAPPED and len(self._bodies) not in self._errors:
                    self._add_inner(body, offset, born, store, reconsumed)
                    continue
            add_body(body)
            add_properties(data[properties_at:properties_end])
            add_offset(offset)
            add_born(born)
            add_store(store)
            add_reconsumed(reconsumed)
            add_flag(flag)

    def _unpack(self, body: bytes, system_flag: int) -> bytes:
        try:
            return decompress(body, system_flag, self._body_bytes_max)
        except InvalidMessageError as error:
            self._errors[len(self._bodies)] = error
            return body

    def _add_inner(self, data: bytes, offset: int, born: int, store: int, reconsumed: int) -> None:
        # Topics of batch queues store a batch as one message; its entries are written as in a request.
        at = 0
        while at < len(data):
            size, flag, body_length = _INNER_ENTRY.unpack_from(data, at)
            start = at + _INNER_ENTRY.size
            end = start + body_length
            properties_end = end + 2 + (data[end] << 8 | data[end + 1])
            if body_length < 0 or not properties_end <= at + size <= len(data):
                raise ProtocolError(
                    f"the broker sent a batch of {self._queue} whose fields are longer than the message"
                )
            self._bodies.append(data[start:end])
            self._raw_properties.append(data[end + 2 : properties_end])
            self._offsets.append(offset)
            self._born_ms.append(born)
            self._store_ms.append(store)
            self._reconsume_times.append(reconsumed)
            self._flags.append(flag)
            offset += 1
            at += size

    def finish(self, *, next_offset: int, earliest_offset: int = 0, latest_offset: int = 0) -> MessageBatch:
        """The batch of all that was added. The decoder must not be used afterwards."""
        return MessageBatch(
            queue=self._queue,
            bodies=self._bodies,
            offsets=np.array(self._offsets, dtype=np.int64),
            born_timestamps_ms=np.array(self._born_ms, dtype=np.int64),
            store_timestamps_ms=np.array(self._store_ms, dtype=np.int64),
            reconsume_times=np.array(self._reconsume_times, dtype=np.int64),
            flags=np.array(self._flags, dtype=np.int64),
            raw_properties=self._raw_properties,
            next_offset=next_offset,
            earliest_offset=earliest_offset,
            latest_offset=latest_offset,
            errors=self._errors,
        )
