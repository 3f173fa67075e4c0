"""The source: listens on ports for messages of syslog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.interfaces.settings import Settings
from headrace.interfaces.table_options import TableOptions
from headrace_buffer import BufferedSource, Listener, RecordLog

from headrace_syslog.source_settings import SyslogSourceSettings


def _networks(text: str) -> Mapping[str, Any]:
    return {"allow": tuple(each.strip() for each in text.split(","))}


class SyslogSource(BufferedSource):
    """Receives messages over UDP, TCP and TLS, and keeps them in a buffer on local disk until a checkpoint covers them.

    Bodies are messages as they were sent, without their framing; headers say who sent them (``peer``) and how
    (``protocol``). Syslog has no acknowledgements: messages that the process has read and not yet stored are lost when
    it is killed. See ``docs/connectors/syslog.md``.
    """

    Settings: ClassVar[type[Settings]] = SyslogSourceSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "syslog": TableOptions({"allow": _networks}, format="syslog")
    }

    def listen(self, log: RecordLog) -> Listener:
        from headrace_syslog.listener import SyslogListener  # not at the top: not needed to plan a job

        return SyslogListener(log, self.settings)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}
