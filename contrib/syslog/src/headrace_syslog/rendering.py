"""Writes rows as messages of RFC 5424, a batch at once."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

import msgspec
import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

from headrace_syslog.lines import shown
from headrace_syslog.priorities import FACILITIES, SEVERITIES
from headrace_syslog.sink_settings import SyslogSinkSettings
from headrace_syslog.source_settings import refused

#: Text fields of the header, and their maximum lengths.
_TEXTS = {"host": 255, "app": 48, "process_id": 128, "message_id": 32}
_NAME_MAX = 32
_NO_NAME = re.compile(r"[^!-~]|[=\]\"]")
_VALUE_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "]": "\\]"})
_elements = msgspec.json.Decoder(dict[str, dict[str, str | list[str]]])


class MessageMaker:
    """Makes messages from rows. ``schema`` is the stream's schema; None if columns are known only row by row.

    Raises OptionError if columns do not fit the fields that have their names.
    """

    def __init__(self, settings: SyslogSinkSettings, schema: Schema | None) -> None:
        self._settings = settings
        codec = default_registry().find("codec", "json")
        self._encoder = codec(codec.Settings.of({})).encoder(schema)
        self._defaults = {"host": settings.from_host or socket.gethostname(), "app": settings.app}
        if schema is not None:
            _check(schema, settings)

    def messages(self, batch: SinkBatch) -> pl.Series:
        """Return one message for each row. Raises DataError for a row that cannot be written as a message."""
        frame = batch.to_polars()
        rows = frame if frame.width else pl.DataFrame(height=len(batch))
        named = self._settings.message or ("message" if "message" in frame.columns else None)
        if named is None:
            lines = self._encoder.encode_lines(batch.frame if batch.dynamic else frame)
            text = pl.Series(lines.split(b"\n")[:-1], dtype=pl.Binary).cast(pl.String)
        elif named not in frame.columns:
            raise DataError(f"the rows have no column {named!r}, which must contain the message", plugin="syslog")
        else:
            text = frame[named].cast(pl.String)
        facility = self._codes(rows, "facility", FACILITIES)
        severity = self._codes(rows, "severity", SEVERITIES)
        made = pl.DataFrame({"text": text, "priority": facility * 8 + severity}).select(
            pl.concat_str(
                pl.lit("<"), pl.col("priority").cast(pl.String), pl.lit(">1 "), _times(rows),
                *(part for name, length in _TEXTS.items() for part in (pl.lit(" "), self._header(rows, name, length))),
                pl.lit(" "), _structured(rows), pl.when(pl.col("text").is_null()).then(pl.lit("")).otherwise(" " + pl.col("text")),
            ).alias("message")
        )["message"]  # fmt: skip
        if (made.str.len_bytes() > self._settings.message_bytes).any():
            longest = int(made.str.len_bytes().max())  # type: ignore[arg-type]
            raise DataError(
                f"a message has {longest} bytes, more than message_bytes = {self._settings.message_bytes}",
                plugin="syslog",
            )
        return made

    def _codes(self, frame: pl.DataFrame, name: str, names: Sequence[str]) -> pl.Series:
        """Return facilities or severities as numbers."""
        default = names.index(getattr(self._settings, name))
        if name not in frame.columns:
            return pl.Series([default], dtype=pl.Int64).new_from_index(0, frame.height)
        given = frame[name]
        if given.dtype == pl.String:
            codes = given.str.to_lowercase().replace_strict(
                list(names), range(len(names)), default=None, return_dtype=pl.Int64
            )
        else:
            codes = given.cast(pl.Int64, strict=False)
        wrong = given.is_not_null() & ~codes.is_between(0, len(names) - 1).fill_null(False)
        if wrong.any():
            found = given.filter(wrong)[0]
            raise DataError(f"column {name!r}: {found!r} is not a {name}", plugin="syslog")
        return codes.fill_null(default)

    def _header(self, frame: pl.DataFrame, name: str, length: int) -> pl.Series:
        """Return a field of the header: printable ASCII without blanks, or - for NULL."""
        default = self._defaults.get(name, "-")
        if name not in frame.columns:
            return pl.Series([default]).new_from_index(0, frame.height)
        texts = frame[name].cast(pl.String).str.replace_all(r"[^!-~]+", "_").str.head(length)
        return texts.set(texts == "", None).fill_null(default)


def _check(schema: Schema, settings: SyslogSinkSettings) -> None:
    for name, kind in schema.items():
        if name in ("facility", "severity"):
            fits, expected = kind.is_integer() or kind == pl.String(), "an integer, or its name as a string"
        elif name in _TEXTS:
            fits, expected = kind.is_integer() or kind == pl.String(), "a string"
        elif name == "timestamp":
            fits, expected = isinstance(kind, pl.Datetime), "a timestamp"
        elif name == "structured_data":
            fits, expected = kind == pl.String(), "JSON as a string"
        else:
            continue
        if not fits:
            raise refused("schema", f"column {name!r} is {kind}, but this field of a syslog message is {expected}",
                          "cast the column, or give it another name")  # fmt: skip
    named = settings.message or ("message" if "message" in schema else None)
    if named is not None and named not in schema:
        raise refused("message", f"there is no column {named!r}", f"the columns are {', '.join(schema)}")
    if named is not None and schema[named] != pl.String():
        raise refused("message", f"column {named!r} does not contain text", "cast it to string")


def _times(frame: pl.DataFrame) -> pl.Series:
    if "timestamp" not in frame.columns:
        return pl.Series(["-"]).new_from_index(0, frame.height)
    times = frame["timestamp"]
    if not isinstance(times.dtype, pl.Datetime):
        raise DataError(f"column 'timestamp' holds {times.dtype}, not timestamps", plugin="syslog")
    if times.dtype.time_zone is not None:
        times = times.dt.convert_time_zone("UTC")
    shown_times = times.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return shown_times.set(~times.dt.year().is_between(1, 9999).fill_null(False), None).fill_null("-")


def _structured(frame: pl.DataFrame) -> pl.Series:
    """Return structured data from its JSON, in the form in which the format reads it. Texts are mostly equal; equal
    texts are converted once.
    """
    if "structured_data" not in frame.columns or not frame["structured_data"].count():
        return pl.Series(["-"]).new_from_index(0, frame.height)
    given = frame["structured_data"]
    each = given.drop_nulls().unique()
    made = pl.Series([_elements_text(text) for text in each.to_list()], dtype=pl.String)
    return given.replace_strict(each, made, default=None, return_dtype=pl.String).fill_null("-")


def _elements_text(text: str) -> str:
    try:
        elements = _elements.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise DataError(
            f'column \'structured_data\': {shown(text)} is not JSON such as {{"id": {{"name": "value"}}}}',
            plugin="syslog",
        ) from None
    written = []
    for element, pairs in elements.items():
        each = [
            f' {_name(name)}="{value.translate(_VALUE_ESCAPES)}"'
            for name, values in pairs.items()
            for value in ([values] if isinstance(values, str) else values)
        ]
        written.append(f"[{_name(element)}{''.join(each)}]")
    return "".join(written) or "-"


def _name(text: str) -> str:
    return _NO_NAME.sub("_", text)[:_NAME_MAX] or "_"
