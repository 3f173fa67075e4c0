"""A connection that publishes messages and waits until the broker has acknowledged each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from headrace.foundation.errors import HeadraceError, RetriableError
from paho.mqtt.client import Client, ConnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from headrace_mqtt.client import error_of, error_of_socket, make_client, place_of, port_of
from headrace_mqtt.settings import PLUGIN, MqttSinkSettings

#: Most messages that may wait for their acknowledgements: packet ids have 16 bits.
_AT_ONCE = 10_000
#: Receive Maximum of a broker that does not send one.
_RECEIVE_MAXIMUM = 65_535
#: Upper bound for the bytes of a PUBLISH packet beside topic and payload.
_PACKET_BYTES = 32


class Publisher:
    """Connects when it is created. After an error it cannot be used any more; create another one.

    Raises RetriableError, and JobError if a person must fix something.
    """

    def __init__(self, settings: MqttSinkSettings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._outcomes: dict[int, ReasonCode] = {}
        self._is_connected = False
        #: How many messages may wait for acknowledgements.
        self._window = 1
        self._ended: HeadraceError | None = None
        #: The largest packet that the broker accepts; None if it sets no limit.
        self._packet_bytes_max: int | None = None
        self._client = client = make_client(
            settings, settings.client_id or f"headrace-{uuid4().hex[:12]}", reconnects=False
        )
        client.max_inflight_messages_set(
            _RECEIVE_MAXIMUM
        )  # it cannot be changed later, so this class keeps to the window
        client.on_connect, client.on_disconnect, client.on_publish = (
            self._connected,
            self._disconnected,
            self._published,
        )
        try:
            client.connect(
                settings.host, port_of(settings), round(settings.keep_alive.total_seconds()), clean_start=True
            )
        except OSError as error:
            raise error_of_socket(settings, error) from error
        client.loop_start()
        try:
            self._wait(lambda: self._is_connected)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection. May be called twice."""
        self._client.disconnect()
        self._client.loop_stop()

    def fits(self, topic: str, payload: bytes) -> bool:
        """Return whether the broker accepts a message of this size."""
        size = len(topic.encode()) + len(payload) + _PACKET_BYTES
        return self._packet_bytes_max is None or size <= self._packet_bytes_max

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> Iterator[tuple[int, ReasonCode]]:
        """Publish messages in order; yield the index of each, and the broker's reason code for it."""
        settings = self._settings
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if settings.message_expiry is not None:
            properties.MessageExpiryInterval = max(1, round(settings.message_expiry.total_seconds()))
        for begin in range(0, len(messages), _AT_ONCE):
            part = messages[begin : begin + _AT_ONCE]
            with self._changed:
                self._outcomes.clear()
            places: dict[int, int] = {}
            try:
                for place, (topic, payload) in enumerate(part, begin):
                    if len(places) >= self._window:
                        self._wait(partial(self._has, len(places) - self._window + 1))
                    info = self._client.publish(topic, payload, settings.qos, settings.retain, properties)
                    if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                        raise self._ended or RetriableError(
                            f"{place_of(settings)} is not connected any more", plugin=PLUGIN
                        )
                    places[info.mid] = place
                self._wait(partial(self._has, len(part)))
            except HeadraceError:
                yield from self._outcomes_by(places)
                raise
            yield from self._outcomes_by(places)

    def _has(self, count: int) -> bool:
        return len(self._outcomes) >= count

    def _outcomes_by(self, places: Mapping[int, int]) -> list[tuple[int, ReasonCode]]:
        with self._changed:
            return [(places[mid], code) for mid, code in self._outcomes.items() if mid in places]

    def _wait(self, done: Callable[[], bool]) -> None:
        """Wait until ``done``, at most for ``publish_timeout``. Raises the error that has ended unexpectedly the connection, if
        there is one.
        """
        until = time.monotonic() + self._settings.publish_timeout.total_seconds()
        with self._changed:
            while not done():
                if self._ended is not None:
                    raise self._ended
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise RetriableError(
                        f"{place_of(self._settings)} has not answered for {self._settings.publish_timeout}",
                        plugin=PLUGIN,
                    )

    # ------------------------------------------------------------------------ called by the client's thread

    def _connected(
        self, client: Client, _: object, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if code.is_failure:
            self._end(error_of(self._settings, code, "does not accept the connection"))
            return
        with self._changed:
            self._window = getattr(properties, "ReceiveMaximum", _RECEIVE_MAXIMUM)
            self._packet_bytes_max = getattr(properties, "MaximumPacketSize", None)
            self._is_connected = True
            self._changed.notify_all()

    def _disconnected(
        self, client: Client, _: object, flags: object, code: ReasonCode, properties: Properties | None
    ) -> None:
        self._end(error_of(self._settings, code, "has ended unexpectedly the connection"))

    def _published(self, client: Client, _: object, mid: int, code: ReasonCode, properties: Properties) -> None:
        with self._changed:
            self._outcomes[mid] = code
            self._changed.notify_all()

    def _end(self, error: HeadraceError) -> None:
        with self._changed:
            self._ended = self._ended or error
            self._changed.notify_all()
