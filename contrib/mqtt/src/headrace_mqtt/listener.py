"""The subscriber of the source: it stores messages in the buffer, and acknowledges them when they are durable."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace_buffer import BufferFullError, Listener, RecordLog
from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace_mqtt.client import connect_properties, error_of, error_of_socket, make_client, place_of, port_of
from headrace_mqtt.settings import PLUGIN, MqttSourceSettings

logger = logging.getLogger(__name__)
_RETAIN_HANDLING = {"always": 0, "new": 1, "never": 2}
#: How long one append waits for room before it checks whether the listener was closed.
_TRY = timedelta(milliseconds=200)
#: Messages that are made durable together.
_GROUP_MESSAGES = 5_000
#: Upper bound for the bytes that a record in the buffer needs beside payload, topic and headers.
_RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message, the number of the connection that delivered it, and its size in the buffer."""

    message: MQTTMessage
    connection: int
    headers: dict[str, bytes]
    size: int


class MqttListener(Listener):
    """Subscribes from its creation until ``close``. Raises JobError if a person must fix something.

    While the broker is not available, it tries again. At most ``receive_maximum`` messages wait for the disk in memory,
    so that a full buffer stops the broker.
    """

    def __init__(self, log: RecordLog, settings: MqttSourceSettings, client_id: str) -> None:
        self._log = log
        self._settings = settings
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._connection = 0
        self._failure: HeadraceError | None = None
        self._ending = False
        self._client = client = make_client(settings, client_id)
        client.on_connect, client.on_disconnect = self._connected, self._disconnected
        client.on_subscribe, client.on_message = self._subscribed, self._came
        client.on_connect_fail = self._unreachable
        self._writer = threading.Thread(target=self._write_all, name=f"mqtt {client_id}", daemon=True)
        self._connect()
        self._writer.start()
        client.loop_start()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._writer.is_alive():
            raise JobError(
                f"the thread that stores messages of {place_of(self._settings)} has ended unexpectedly", plugin=PLUGIN
            )

    def close(self) -> None:
        # First send the acknowledgements of stored messages, then disconnect: otherwise the broker would send them
        # again.
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._writer.join()
        self._client.disconnect()
        self._client.loop_stop()

    # ---------------------------------------------------------------------------------------------------- connection

    def _connect(self) -> None:
        """Connect, or leave it to the client's thread to try again. Raises JobError for a certificate that is not trusted."""
        settings = self._settings
        wanted: dict[str, Any] = {
            "host": settings.host, "port": port_of(settings), "keepalive": round(settings.keep_alive.total_seconds()),
            "clean_start": False, "properties": connect_properties(
                SessionExpiryInterval=round(settings.session_expiry.total_seconds()), ReceiveMaximum=settings.receive_maximum
            ),
        }  # fmt: skip
        try:
            self._client.connect(**wanted)
        except OSError as error:
            found = error_of_socket(settings, error)
            if isinstance(found, JobError):
                raise found from error
            logger.warning("%s; trying again", found.message)
            self._client.connect_async(**wanted)

    def _connected(
        self, client: Client, _: object, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        """Subscribe. Called by the client's thread, as all that follows here."""
        if code.is_failure:
            self._refused(error_of(self._settings, code, "does not accept the connection"))
            return
        with self._changed:
            self._connection += 1
            if flags.session_present:
                # The broker sends them again.
                self._waiting.clear()
        logger.info(
            "connected to %s, with %s session", place_of(self._settings), "the" if flags.session_present else "a new"
        )
        options = SubscribeOptions(
            qos=self._settings.qos, retainHandling=_RETAIN_HANDLING[self._settings.retained], retainAsPublished=True
        )
        client.subscribe([(topic, options) for topic in self._settings.topics])

    def _subscribed(
        self, client: Client, _: object, mid: int, codes: Sequence[ReasonCode], properties: Properties | None
    ) -> None:
        for topic, code in zip(self._settings.topics, codes, strict=False):
            if code.is_failure:
                self._refused(error_of(self._settings, code, f"does not accept the subscription to {topic!r}"))
            elif code.value < self._settings.qos:
                logger.warning(
                    "%s grants %r only the quality of service %d", place_of(self._settings), topic, code.value
                )

    def _disconnected(
        self, client: Client, _: object, flags: object, code: ReasonCode, properties: Properties | None
    ) -> None:
        with self._changed:
            # From now on no message of this connection is acknowledged. If the broker sends it again by the next
            # connection, it would be acknowledged twice, the second time with an id that another message may have by
            # then. Acknowledgements that are still to be sent are dropped by the client when it connects again.
            self._connection += 1
        if not code.is_failure:
            return
        found = error_of(self._settings, code, "has ended unexpectedly the connection")
        if isinstance(found, JobError):
            self._refused(found)
        else:
            logger.warning("%s; connecting again", found.message)

    def _unreachable(self, client: Client, _: object) -> None:
        logger.warning("%s cannot be reached; trying again", place_of(self._settings))

    def _refused(self, error: HeadraceError) -> None:
        """Note an error that ends the job, and stop trying. After any other error the client connects again."""
        if isinstance(error, RetriableError):
            logger.warning("%s; trying again", error.message)
            return
        self._failure = error
        self._client.disconnect()

    # ---------------------------------------------------------------------------------------------------- messages

    def _came(self, client: Client, _: object, message: MQTTMessage) -> None:
        try:
            headers = headers_of(message)
        except UnicodeDecodeError as error:
            self._refused(
                JobError(
                    f"a topic is not UTF-8: {error}",
                    plugin=PLUGIN,
                    option="topic",
                    hint="subscribe to topics whose names are UTF-8",
                )
            )
            return
        size = len(message.payload) + sum(len(name) + len(value) + 10 for name, value in headers.items())
        size += 2 * len(headers["topic"]) + _RECORD_BYTES
        if size > self._log.append_max_bytes:
            self._refused(JobError(
                f"a message of {len(message.payload)} bytes to {message.topic!r} does not fit in the buffer, which accepts "
                f"{self._log.append_max_bytes} at once",
                plugin=PLUGIN, option="buffer_max_bytes", hint="raise the limit: one message can have an eighth of it",
            ))  # fmt: skip
            return
        with self._changed:
            # A broker may send more messages than were asked for. While this thread waits, it reads nothing from the
            # connection.
            self._changed.wait_for(lambda: self._ending or len(self._waiting) < self._settings.receive_maximum)
            self._waiting.append(_Waiting(message, self._connection, headers, size))
            self._changed.notify_all()

    def _write_all(self) -> None:
        """Store waiting messages until the listener is closed. Messages that are not stored by then are sent again by
        the broker. Runs in its own thread.
        """
        try:
            while group := self._next_group():
                if self._store(group):
                    self._acknowledge(group)
        except HeadraceError as error:
            self._failure = error
        except Exception as error:  # told by ``check``, in the thread of the job
            self._failure = JobError(f"messages cannot be stored: {error!r}", plugin=PLUGIN)

    def _next_group(self) -> list[_Waiting]:
        """Wait for messages. Returns none when the listener was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            if self._ending:
                return []
            group, size = [self._waiting.popleft()], 0
            size = group[0].size
            while self._waiting and len(group) < _GROUP_MESSAGES:
                size += self._waiting[0].size
                if size > self._log.append_max_bytes:
                    break
                group.append(self._waiting.popleft())
            self._changed.notify_all()
            return group

    def _store(self, group: Sequence[_Waiting]) -> bool:
        """Make messages durable; return whether they are. Waits while the buffer is full or the disk refuses to
        write.
        """
        while True:
            try:
                self._log.append(
                    [bytes(each.message.payload) for each in group],
                    keys=[each.headers["topic"] for each in group],
                    headers=[each.headers for each in group],
                    timeout=_TRY,
                )
                return True
            except BufferFullError:
                pause = timedelta(0)
            except RetriableError as error:
                logger.warning("messages wait, because they cannot be stored: %s", error.message)
                pause = _TRY
            with self._changed:
                if self._changed.wait_for(lambda: self._ending, pause.total_seconds()):
                    return False

    def _acknowledge(self, group: Sequence[_Waiting]) -> None:
        with self._changed:  # so that no connection ends in between
            for each in group:
                if each.message.qos and each.connection == self._connection:
                    self._client.ack(each.message.mid, each.message.qos)


def headers_of(message: MQTTMessage) -> dict[str, bytes]:
    """Return topic, quality of service and the properties of a message; its user properties under their own names."""
    found: dict[str, bytes] = {}
    properties = message.properties
    if properties is not None:
        for name, value in getattr(properties, "UserProperty", ()):
            found[name] = value.encode()
        for header, attribute in (("content_type", "ContentType"), ("response_topic", "ResponseTopic")):
            if hasattr(properties, attribute):
                found[header] = getattr(properties, attribute).encode()
        if hasattr(properties, "CorrelationData"):
            found["correlation_data"] = bytes(properties.CorrelationData)
    found["topic"] = message.topic.encode()
    found["qos"] = b"%d" % message.qos
    if message.retain:
        found["retain"] = b"1"
    return found
