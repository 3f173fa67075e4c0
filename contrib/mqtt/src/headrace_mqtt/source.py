"""The source: subscriptions to topics of a broker."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.interfaces.settings import Settings
from headrace_buffer import BufferedSource, Listener, RecordLog

from headrace_mqtt.settings import MqttSourceSettings
from headrace_mqtt.table_options import SOURCE_TABLES


class MqttSource(BufferedSource):
    """Subscribes to topics and keeps their messages in a buffer on local disk until a checkpoint covers them.

    The broker gets its acknowledgement when a message is durable. See ``docs/connectors/mqtt.md``.
    """

    Settings: ClassVar[type[Settings]] = MqttSourceSettings
    table_options = SOURCE_TABLES

    def listen(self, log: RecordLog) -> Listener:
        from headrace_mqtt.listener import MqttListener  # not at the top: paho-mqtt is not needed to plan a job

        return MqttListener(log, self.settings, self.settings.client_id or f"headrace-{self.reader_name or log.id}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}
