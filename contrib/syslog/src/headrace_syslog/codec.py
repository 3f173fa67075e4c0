"""The format ``syslog``: each body is a message of RFC 3164 or RFC 5424."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec

from headrace_syslog.decoder import SyslogDecoder
from headrace_syslog.lines import Standard

#: The columns of a message, and their types where no schema says otherwise.
COLUMNS: Mapping[str, str] = {
    "facility": "int64",
    "facility_name": "string",
    "severity": "int64",
    "severity_name": "string",
    "version": "int64",
    "timestamp": "timestamp",
    "host": "string",
    "app": "string",
    "process_id": "string",
    "message_id": "string",
    "structured_data": "json",
    "message": "string",
}
_NUMBERS = frozenset({"facility", "severity", "version"})
#: Headers that a source may give with a record.
METADATA = ("peer", "protocol")


class SyslogSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the format ``syslog``."""

    standard: Annotated[
        Standard,
        hr.option("Which messages are accepted; auto: both, and a message that begins like <13>1 is of RFC 5424."),
    ] = "auto"
    timezone: Annotated[
        str, hr.option("Time zone of times without one, such as Europe/Vienna. Times of RFC 3164 have none.")
    ] = "UTC"
    year: Annotated[
        int | None,
        hr.option(
            "Year of times without one, if the source does not give the times of records. Default: such messages are bad records."
        ),
    ] = None
    not_utf8: Annotated[
        Literal["bad", "latin-1"],
        hr.option("What happens to a body that is not UTF-8: it is a bad record, or it is read as Latin-1."),
    ] = "bad"
    line_column: Annotated[str | None, hr.option("A column for the whole message. Default: none.")] = None
    max_body_bytes: MaxBodyBytes = 1024 * 1024

    def validate(self) -> None:
        """Check that there is such a time zone, and that no other column has the name of the line's."""
        try:
            pl.Series([0]).cast(pl.Datetime("us")).dt.replace_time_zone(self.timezone)
        except pl.exceptions.PolarsError:
            raise hr.OptionError(
                f"there is no time zone {self.timezone!r}",
                plugin="syslog",
                option="timezone",
                hint="such as Asia/Tokyo",
            ) from None
        if self.year is not None and not 1 <= self.year <= 9999:
            raise hr.OptionError(f"{self.year} is not a year", plugin="syslog", option="year")
        if self.line_column in COLUMNS:
            raise hr.OptionError(
                f"{self.line_column!r} is the name of another column of the message",
                plugin="syslog",
                option="line_column",
            )


class SyslogCodec(ReadOnlyCodec):
    """Messages of syslog. A time without a year gets the year from the record's time that the source gives."""

    name = "syslog"
    Settings: ClassVar[type[SyslogSettings]] = SyslogSettings
    header_fields = frozenset({"time", "headers"})

    def default_schema(self) -> hr.Schema:
        """Return all columns of a message, and that of the line if it is asked for."""
        line = self.settings.line_column
        return hr.Schema.of({**COLUMNS, **({} if line is None else {line: "string"})})

    def metadata_types(self) -> Mapping[str, pl.DataType]:
        """Return the metadata that ``from_syslog`` gives with a message: the sender's address and the protocol."""
        return dict.fromkeys(METADATA, pl.String())

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for a column that a message does not have, or a type to which it cannot
        be converted.
        """
        return self.record_decoder(schema, columns)

    def record_decoder(
        self, schema: hr.Schema, columns: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None
    ) -> hr.Decoder:
        """Return a decoder that also gives the metadata that is asked for. Raises OptionError as ``decoder`` does."""
        for name, kind in schema.items():
            self._check(name, kind)
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        return SyslogDecoder(self.settings, wanted, dict(metadata or {}))

    def _check(self, name: str, kind: pl.DataType) -> None:
        if name == self.settings.line_column:
            fits = kind == pl.String()
        elif name not in COLUMNS:
            raise hr.OptionError(
                f"a message has no column {name!r}",
                plugin="syslog",
                option="schema",
                hint=did_you_mean(name, COLUMNS, known="columns"),
            )
        elif name == "timestamp":
            fits = isinstance(kind, pl.Datetime)
        elif name in ("process_id", "message_id"):
            fits = kind.is_integer() or kind == pl.String()
        else:
            fits = kind.is_integer() if name in _NUMBERS else kind == pl.String()
        if not fits:
            expected = COLUMNS.get(name, "string")
            raise hr.OptionError(
                f"column {name!r} cannot be {kind}",
                plugin="syslog",
                option="schema",
                hint=f"declare it {expected}, and convert it by an expression",
            )
