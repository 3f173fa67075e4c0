"""The source: an address that receives records."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.flow.schema import Schema
from headrace.interfaces.codec import Codec
from headrace.interfaces.settings import Settings
from headrace_buffer import BufferedSource, Listener, RecordLog

from headrace_http.protocols import HasRequestProtocol, JsonProtocol, RequestProtocol
from headrace_http.source_settings import HttpSourceSettings
from headrace_http.table_options import SOURCE_TABLES


class HttpSource(BufferedSource):
    """Receives records by POST and keeps them in a buffer on local disk until a checkpoint covers them.

    A sender gets 200 when its records are durable. If it gets 429, 503 or no answer, it must send the records again. If
    only the answer was lost, the records are there twice then. See ``docs/connectors/http.md``.

    Bodies and answers are those of ``JsonProtocol``, or of the format's own protocol (``HasRequestProtocol``).
    """

    Settings: ClassVar[type[Settings]] = HttpSourceSettings
    table_options = SOURCE_TABLES

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._codec: Codec | None = None

    def listen(self, log: RecordLog) -> Listener:
        from headrace_http.listener import HttpListener  # not at the top: uvicorn is not needed to plan a job

        return HttpListener(log, self.settings, self._protocol())

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        self._codec = codec

    def _protocol(self) -> RequestProtocol:
        return self._codec.request_protocol() if isinstance(self._codec, HasRequestProtocol) else JsonProtocol()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": None}
