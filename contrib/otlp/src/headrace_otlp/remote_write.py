"""The format ``prometheus-remote-write``: each body is a request with samples of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.format_parts import ReadOnlyCodec

if TYPE_CHECKING:
    from headrace_http import RequestProtocol

#: The columns of a sample, and their types.
COLUMNS: Mapping[str, str] = {
    "name": "string",
    "labels": "json",
    "time": "timestamp",
    "value": "float64",
    "stale": "boolean",
}
_NAME = "prometheus-remote-write"
_TYPES = hr.Schema.of(COLUMNS)


class RemoteWriteSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the format ``prometheus-remote-write``."""

    compression: Annotated[
        Literal["none", "snappy"],
        hr.option(
            "How bodies are compressed. Do not set it with from_http, which decompresses bodies when they arrive."
        ),
    ] = "none"
    max_body_bytes: Annotated[
        int,
        hr.option("The largest size of a body after decompression, in bytes. A larger body is a bad record.", ge=1),
    ] = 64 * 1024 * 1024


class RemoteWriteCodec(ReadOnlyCodec):
    """Requests of remote write 1.0 (``WriteRequest``), one row for each sample."""

    name = _NAME
    Settings: ClassVar[type[RemoteWriteSettings]] = RemoteWriteSettings

    def default_schema(self) -> hr.Schema:
        """Return all columns of a sample."""
        return _TYPES

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for columns that a sample does not have, or of another type."""
        from headrace_otlp.remote_write_decoder import RemoteWriteDecoder

        for name, kind in schema.items():
            _check(name, kind)
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        settings = self.settings
        return RemoteWriteDecoder(wanted, settings.max_body_bytes, compressed=settings.compression == "snappy")

    def request_protocol(self) -> RequestProtocol:
        """Return the protocol by which ``from_http`` accepts requests of remote write and answers them. Raises
        OptionError if ``compression`` is set.
        """
        from headrace_otlp.remote_write_protocol import RemoteWriteProtocol

        if self.settings.compression != "none":
            raise hr.OptionError(
                "the source decompresses bodies itself", plugin=_NAME, option="compression", hint="leave it out"
            )
        return RemoteWriteProtocol()


def _check(name: str, kind: pl.DataType) -> None:
    if name not in COLUMNS:
        raise hr.OptionError(
            f"a sample has no column {name!r}",
            plugin=_NAME,
            option="schema",
            hint=did_you_mean(name, COLUMNS, known="columns"),
        )
    if kind != _TYPES[name]:
        raise hr.OptionError(
            f"column {name!r} cannot be {kind}",
            plugin=_NAME,
            option="schema",
            hint=f"declare it {COLUMNS[name]}, and convert it by an expression",
        )
