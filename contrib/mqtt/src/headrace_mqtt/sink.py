"""The sink: rows as messages of a broker, at least once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from headrace.flow.messages import Queue
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.sink_progress import SinkProgress, SinkProgresses
from numpy.typing import NDArray

from headrace_mqtt.messages import MessageMaker
from headrace_mqtt.settings import PLUGIN, MqttSinkSettings, unfit_topic
from headrace_mqtt.table_options import SINK_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_mqtt.publisher import Publisher

#: Reason codes that concern the whole connection and not one message: not authorized, quota exceeded.
_NOT_AUTHORIZED, _QUOTA_EXCEEDED = 0x87, 0x97


class MqttSink(Sink):
    """Publishes rows to topics of a broker, which acknowledges each. Guarantee: at least once.

    See ``docs/connectors/mqtt.md``. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = MqttSinkSettings
    table_options = SINK_TABLES

    def __init__(self, settings: MqttSinkSettings) -> None:
        self.settings: MqttSinkSettings = settings
        self._schema: Schema | None = None
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._maker: MessageMaker | None = None
        self._publisher: Publisher | None = None
        #: The outcome of each queue's last batch, until all of its rows are stored.
        self._progress = SinkProgresses()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_maker", "_publisher", "_progress"}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_connection()

    def check(self, schema: Schema | None) -> None:
        """Check options against the stream's columns. Raises JobError."""
        self._schema = schema
        MessageMaker(self.settings, schema)

    def prepare(self, schema: Schema | None) -> None:
        """Connect once, to check address, login and certificates. Raises JobError, RetriableError."""
        self._connected()
        self.close()

    def open(self) -> None:
        """Prepare the messages; the first batch connects."""
        self._maker = MessageMaker(self.settings, self._schema)

    def batch_insert(self, batch: SinkBatch) -> None:
        """Publish the rows that are not acknowledged yet. Raises RetriableError, JobError, and DataError when rows are refused.

        After an error the same call, or one for a part of the batch, publishes only the rows whose outcome is not known.
        """
        progress, place = self._progress.begin(batch)
        if len(rows := progress.to_do(place)):
            try:
                self._publish(batch, rows, place, progress)
            except HeadraceError:
                self._disconnect()  # the next call begins with a new connection, which waits for no acknowledgements
                raise
        self._progress.end(batch, place, PLUGIN)

    def _publish(self, batch: SinkBatch, rows: NDArray[np.int64], place: slice, progress: SinkProgress) -> None:
        if self._maker is None:
            self.open()
        assert self._maker is not None
        payloads, topics = self._maker.payloads(batch), self._maker.topics(batch)
        publisher = self._connected()
        sent: list[int] = []
        messages: list[tuple[str, bytes]] = []
        for row in rows.tolist():
            topic, payload = topics[row - place.start], payloads[row - place.start]
            reason = unfit_topic(topic) if isinstance(topic, str) else f"the topic is {topic!r}, which is not a text"
            if not reason and isinstance(topic, str):
                if publisher.fits(topic, payload):
                    sent.append(row)
                    messages.append((topic, payload))
                    continue
                reason = f"the broker takes no message of {len(payload)} bytes"
            progress.refuse(row, str(reason))
        stored: list[int] = []
        try:
            for at, code in publisher.publish(messages):
                if not code.is_failure:
                    stored.append(sent[at])
                elif code.value == _QUOTA_EXCEEDED or (
                    code.value == _NOT_AUTHORIZED and self.settings.topic_column is None
                ):
                    from headrace_mqtt.client import error_of

                    raise error_of(self.settings, code, f"does not accept a message to {messages[at][0]!r}")
                else:
                    progress.refuse(sent[at], f"the broker does not accept a message to {messages[at][0]!r}: {code}")
        finally:
            progress.store(np.array(stored, dtype=np.int64))

    def queue_removed(self, queue: Queue) -> None:
        """Drop the outcome of the queue's last batch."""
        self._progress.forget(queue)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        self._progress.clear()

    def _disconnect(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def _connected(self) -> Publisher:
        if self._publisher is None:
            from headrace_mqtt.publisher import Publisher  # not at the top: paho-mqtt is not needed to plan a job

            self._publisher = Publisher(self.settings)
        return self._publisher
