"""The HTTP sink: rows in requests, at least once, with keys by which a receiver recognises repeated rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.interfaces.sink import SinkSettings

from headrace_http.bodies import BodyMaker
from headrace_http.client import Client
from headrace_http.request_sink import RequestSink
from headrace_http.settings import HttpSinkSettings, refused
from headrace_http.table_options import SINK_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class HttpSink(RequestSink):
    """Sends rows to an address in the bodies of requests. Guarantee: at least once; a receiver can make it exactly
    once.

    ``docs/connectors/http.md`` says how.
    """

    Settings: ClassVar[type[SinkSettings]] = HttpSinkSettings
    table_options = SINK_TABLES
    settings: HttpSinkSettings

    def __init__(self, settings: HttpSinkSettings) -> None:
        super().__init__(settings)

    def bodies(self, schema: Schema | None) -> BodyMaker:
        """Return an object that makes JSON from rows. Raises OptionError if the stream has a column with the name in
        ``row_id``.
        """
        if schema is not None and self.settings.row_id in schema:
            raise refused("row_id", f"the stream has a column {self.settings.row_id!r}", "choose another name")
        return BodyMaker(self.settings, schema)

    def client(self) -> Client:
        """Return the connections, with the method and compression of the options."""
        return Client(self.settings, method=self.settings.method, compress=self.settings.compress)
