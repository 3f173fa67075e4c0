"""Messages to send, and their encoding.

A message is a body, a number (`flag`) of the application, and properties: a map of short texts, written
`name 0x01 value 0x02 …`. Tags, keys and delays are properties with reserved names.
Source: Apache RocketMQ, `common.message.MessageDecoder`, `MessageConst`, `MessageClientIDSetter`.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headrace_rocketmq.errors import InvalidMessageError

PROPERTIES_BYTES_MAX = 32767
"""Properties of one message, written: their length is a signed 16-bit number."""

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
DELAY_LEVEL = "DELAY"
DELAY_MS = "TIMER_DELAY_MS"
DELIVER_AT_MS = "TIMER_DELIVER_MS"
_KEY_SEPARATOR = " "
_NAME_END = "\x01"
_VALUE_END = "\x02"
_SET_BY_FIELDS = frozenset({TAGS, KEYS, UNIQUE_KEY, DELAY_LEVEL, DELAY_MS, DELIVER_AT_MS})
# With these, a broker would not simply store the message: it would handle it as half a transaction, or as a retry.
_SET_BY_BROKER_ONLY = frozenset(
    {"TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "TIMER_DELAY_SEC", "POP_CK"}
)
RESERVED_PROPERTIES = _SET_BY_FIELDS | _SET_BY_BROKER_ONLY
"""Names that `Message.properties` cannot have."""

_BATCH_ENTRY = struct.Struct(
    ">iIIii"
)  # size, magic, checksum, flag, length of the body; brokers ignore magic and checksum
_LENGTH = struct.Struct(">H")
BATCH_ENTRY_OVERHEAD_BYTES = _BATCH_ENTRY.size + _LENGTH.size


@dataclass(slots=True, kw_only=True)
class Message:
    """A message to send.

    At most one of the delays may be set. A broker delivers a delayed message no earlier than asked for, some hundred
    milliseconds to a second late.
    """

    body: bytes = field(kw_only=False)
    """The payload; at least one byte, at most what the broker allows (4 MiB unless configured otherwise)."""
    tag: str | None = None
    """A text by which consumers can filter at little cost."""
    keys: str | Sequence[str] = ()
    """Keys for look-ups of messages; without spaces."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further texts; what SQL92 filters see. Neither names nor values may be empty: brokers would drop them."""
    queue_key: str | None = None
    """Messages of equal key go to the same queue, as long as the number of queues stays the same. Not stored."""
    delay_level: int = 0
    """1 to 18: one of the broker's fixed delays (by default 1 s, 5 s, 10 s, 30 s, 1 min … 2 h)."""
    delay: timedelta | None = None
    """Any delay; brokers from 5.0 on."""
    deliver_at: datetime | None = None
    """Any moment; brokers from 5.0 on."""
    flag: int = 0
    """Any 32-bit number; passed on unchanged."""

    @property
    def is_delayed(self) -> bool:
        """Whether the broker delays it."""
        return bool(self.delay_level) or self.delay is not None or self.deliver_at is not None


def encode_properties(message: Message, unique_id: str) -> str:
    """The properties of a message as they are sent. Raises InvalidMessageError."""
    if not message.body:
        raise InvalidMessageError("the body is empty; brokers store no empty messages")
    properties = {UNIQUE_KEY: unique_id}
    if message.keys:
        properties[KEYS] = _joined_keys(message.keys)
    if message.tag is not None:
        properties[TAGS] = message.tag
    if message.is_delayed:
        properties.update(_delay_properties(message))
    if message.properties:
        for name in message.properties.keys() & RESERVED_PROPERTIES:
            hint = "set it by the message's field" if name in _SET_BY_FIELDS else "only brokers set it"
            raise InvalidMessageError(f"the property name {name!r} is reserved: {hint}")
        properties.update(message.properties)
    text = "".join(f"{name}{_NAME_END}{value}{_VALUE_END}" for name, value in properties.items())
    if text.count(_NAME_END) != len(properties) or text.count(_VALUE_END) != len(properties):
        raise InvalidMessageError("a property's name or value contains the separators 0x01 or 0x02")
    if not all(properties.values()) or "" in properties:
        empty = next(name for name, value in properties.items() if not name or not value)
        raise InvalidMessageError(f"the property {empty!r} has an empty name or value; brokers drop such properties")
    if len(text) * 4 > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(f"the properties take more than {PROPERTIES_BYTES_MAX} bytes")
    return text


def _joined_keys(keys: str | Sequence[str]) -> str:
    each = (keys,) if isinstance(keys, str) else keys
    if any(_KEY_SEPARATOR in key for key in each):
        raise InvalidMessageError(f"a key contains a space, which separates keys: {keys!r}")
    return _KEY_SEPARATOR.join(each)


def _delay_properties(message: Message) -> dict[str, str]:
    if bool(message.delay_level) + (message.delay is not None) + (message.deliver_at is not None) > 1:
        raise InvalidMessageError("a message has more than one of delay_level, delay and deliver_at")
    if message.delay is not None:
        return {DELAY_MS: str(round(message.delay.total_seconds() * 1000))}
    if message.deliver_at is not None:
        if message.deliver_at.tzinfo is None:
            raise InvalidMessageError("deliver_at needs a time zone")
        return {DELIVER_AT_MS: str(round(message.deliver_at.timestamp() * 1000))}
    if message.delay_level < 0:
        raise InvalidMessageError(f"the delay level {message.delay_level} is negative")
    return {DELAY_LEVEL: str(message.delay_level)}


def decode_properties(text: bytes) -> dict[str, str]:
    """The properties in a stored message. Parts that are not `name 0x01 value` are left out, as in other clients."""
    properties = {}
    for entry in text.decode("utf-8", "replace").split(_VALUE_END):
        name, separator, value = entry.partition(_NAME_END)
        if separator:
            properties[name] = value
    return properties


def encode_batch_entry(body: bytes, properties: str, flag: int = 0) -> bytes:
    """One message of a batch. A batch's body is its entries, one after the other."""
    text = properties.encode()
    size = BATCH_ENTRY_OVERHEAD_BYTES + len(body) + len(text)
    return b"".join((_BATCH_ENTRY.pack(size, 0, 0, flag, len(body)), body, _LENGTH.pack(len(text)), text))


def now_seconds() -> float:
    """Seconds since 1970 by the clock of the machine, which is looked up at each call, so that a simulation can replace it."""
    return time.time()


class UniqueIds:
    """Makes ids for messages: 32 hexadecimal digits, unique as far as random numbers are.

    They have the form that RocketMQ's tools expect, which read the time from them: 4 bytes address (here random), 2
    bytes process id, 4 bytes random, 4 bytes milliseconds since the month began, 2 bytes counter. Thread safe.
    """

    def __init__(self, now: Callable[[], float] = now_seconds) -> None:
        """`now` gives seconds since 1970."""
        self._now = now
        self._prefix = (
            (secrets.token_bytes(4) + (os.getpid() & 0xFFFF).to_bytes(2) + secrets.token_bytes(4)).hex().upper()
        )
        self._lock = threading.Lock()
        self._last = 0
        self._month_start_s = 0.0
        self._month_end_s = 0.0

    def take(self, count: int) -> list[str]:
        """The next `count` ids."""
        now_s = self._now()
        with self._lock:
            if not self._month_start_s <= now_s < self._month_end_s:
                self._find_month(now_s)
            # Time and counter are one number that only grows: when the counter is used up, it runs ahead of the clock.
            elapsed_ms = int((now_s - self._month_start_s) * 1000)
            first = max(self._last + 1, elapsed_ms << 16)
            self._last = first + count - 1
        return [f"{self._prefix}{number & 0xFFFFFFFFFFFF:012X}" for number in range(first, first + count)]

    def _find_month(self, now_s: float) -> None:
        start = datetime.fromtimestamp(now_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_start_s = start.timestamp()
        self._month_end_s = (start + timedelta(days=32)).replace(day=1).timestamp()
        self._last = 0
