"""The sink: rows as messages of RFC 5424, at least once, as far as syslog can guarantee it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions

from headrace_syslog.rendering import MessageMaker
from headrace_syslog.sending import Sender, sender_of
from headrace_syslog.sink_settings import SyslogSinkSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class SyslogSink(Sink):
    """Sends rows as messages. Columns with the names of fields (``facility``, ``severity``, ``timestamp``, ``host``, …)
    fill them.

    Receivers of syslog do not answer. Over TCP and TLS, rows count as stored when the receiver's kernel has them (on
    Linux); over UDP when they are sent. May be pickled at any time; a copy makes its own connection. See
    ``docs/connectors/syslog.md``.
    """

    Settings: ClassVar[type[SinkSettings]] = SyslogSinkSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "syslog": TableOptions({}, {"sink.parallelism": OF_FLINKS_RUNTIME})
    }

    def __init__(self, settings: SyslogSinkSettings) -> None:
        self.settings: SyslogSinkSettings = settings
        self._schema: Schema | None = None
        self._opened: tuple[Sender, MessageMaker] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def check(self, schema: Schema | None) -> None:
        """Check columns that have names of fields. Raises JobError."""
        MessageMaker(self.settings, schema)
        self._schema = schema

    def prepare(self, schema: Schema | None) -> None:
        """Connect once. Raises RetriableError if the receiver cannot be reached, JobError if certificates do not fit."""
        sender = sender_of(self.settings)
        try:
            sender.open()
        finally:
            sender.close()

    def open(self) -> None:
        """Read certificates; the first batch connects."""
        self._parts()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Send all rows, in their order. Raises RetriableError, and DataError for a row that cannot be a message.

        After a RetriableError some rows may have been sent: they are sent again with the same call.
        """
        sender, maker = self._parts()
        sender.send(maker.messages(batch))

    def close(self) -> None:
        """End the connection."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def _parts(self) -> tuple[Sender, MessageMaker]:
        if self._opened is None:
            self._opened = sender_of(self.settings), MessageMaker(self.settings, self._schema)
        return self._opened
