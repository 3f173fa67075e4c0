"""The formats ``cri`` and ``docker-json``: logs of containers. They join the parts of divided lines.

A body is a line, or all lines from the first part of a divided line to its last part. The file source reads such
records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import check_fixed_columns
from headrace.interfaces.registry import default_registry
from numpy.typing import NDArray

from headrace_logformats.bodies import LogCodec, decoded, fitting, lines_of, shown, texts_of

_COLUMNS = hr.Schema.of({"time": "timestamp", "stream": "string", "message": "string", "partial": "boolean"})
_TIME = "%Y-%m-%dT%H:%M:%S%.f%#z"
_STREAMS = ("stdout", "stderr")


@dataclass
class Lines:
    """Lines as columns. ``more``: whether another part of the line follows. ``faults``: the reasons of bad lines, by
    their number.
    """

    time: pl.Series
    stream: pl.Series
    message: pl.Series
    more: pl.Series
    faults: dict[int, str]


class ContainerCodec(LogCodec):
    """Base of the formats of containers, which have the same columns."""

    def default_schema(self) -> hr.Schema:
        """Return all columns: ``time``, ``stream``, ``message`` and ``partial``."""
        return _COLUMNS

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for other columns, or other types."""
        check_fixed_columns(schema, _COLUMNS, self.name)
        wanted = list(schema if columns is None else columns)
        return _Decoder(self, wanted, self.settings.max_body_bytes)

    @abstractmethod
    def read(self, lines: hr.Bodies) -> Lines:
        """Return lines as columns. The values of bad lines are undefined."""


class CriCodec(ContainerCodec):
    """Lines of ``/var/log/pods``: ``2026-01-31T10:00:00.123456789Z stdout F message``."""

    name = "cri"

    def read(self, lines: hr.Bodies) -> Lines:
        texts, faults = texts_of(lines)
        parts = texts.str.splitn(" ", 4).struct.unnest()
        time, stream, tags, message = (parts.to_series(at) for at in range(4))
        # If the message is empty, the blank before it may be missing, and a carriage return may follow the tag.
        tag = tags.str.strip_suffix("\r").str.split(":").list.first()
        moments = time.str.to_datetime(_TIME, time_unit="us", time_zone="UTC", strict=False)
        good = moments.is_not_null() & stream.is_in(_STREAMS) & tag.is_in(["P", "F"])
        for number in np.flatnonzero(~good.fill_null(False).to_numpy()).tolist():
            reason = f"expected 'time stdout|stderr P|F message', found {shown(texts[number] or '')}"
            faults.setdefault(number, reason)
        return Lines(moments, stream, message.fill_null(""), (tag == "P").fill_null(False), faults)


class DockerJsonCodec(ContainerCodec):
    """Lines of Docker's json-file driver:
    ``{"log":"message\\n","stream":"stdout","time":"2026-01-31T10:00:00.123456789Z"}``.
    """

    name = "docker-json"

    def __init__(self, settings: object = None) -> None:
        super().__init__(settings)
        json = default_registry().find("codec", "json")
        options = json.Settings.of({"max_body_bytes": self.settings.max_body_bytes}, plugin=self.name)
        self._json = json(options)

    def read(self, lines: hr.Bodies) -> Lines:
        schema = hr.Schema.of({"log": "string", "stream": "string", "time": "string"})
        found = self._json.decoder(schema).decode(lines)
        faults = {each.row: each.reason for each in found.bad}
        frame = found.frame
        if found.rows is not None:
            places = np.full(len(lines), frame.height, dtype=np.int64)
            places[found.rows] = np.arange(frame.height)
            frame = pl.DataFrame([column.extend_constant(None, 1).gather(places) for column in frame])
        log, stream, time = frame["log"], frame["stream"], frame["time"]
        moments = time.str.to_datetime(_TIME, time_unit="us", time_zone="UTC", strict=False)
        for column, values in (("log", log), ("stream", stream), ("time", moments)):
            for number in np.flatnonzero(values.is_null().to_numpy()).tolist():
                faults.setdefault(number, f"{column!r} is missing, or is no {'time' if column == 'time' else 'text'}")
        ended = log.str.ends_with("\n").fill_null(True)
        return Lines(moments, stream, log.str.strip_suffix("\n"), ~ended, faults)


class _Decoder(hr.Decoder):
    def __init__(self, codec: ContainerCodec, wanted: list[str], max_body_bytes: int) -> None:
        self._codec = codec
        self._wanted = wanted
        self._max_body_bytes = max_body_bytes

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        good, rows, too_large = fitting(bodies, self._max_body_bytes)
        lines, body_of_line = lines_of(good)
        read = self._codec.read(lines)
        of_line = np.arange(len(lines), dtype=np.int64) if body_of_line is None else body_of_line
        faults: dict[int, str] = {}
        for number in sorted(read.faults):
            faults.setdefault(int(of_line[number]), read.faults[number])
        frame = pl.DataFrame(
            {
                "body": of_line,
                "time": read.time.cast(pl.Int64).cast(_COLUMNS["time"]),
                "stream": read.stream,
                "message": read.message,
                "partial": read.more,
            }
        )
        if faults:
            frame = frame.filter(~pl.col("body").is_in(list(faults)))
        if body_of_line is not None:
            frame = _joined(frame)
        # The program ended the line with \r\n.
        message = pl.when(pl.col("partial")).then(pl.col("message")).otherwise(pl.col("message").str.strip_suffix("\r"))
        made_from: NDArray[np.int64] = frame["body"].to_numpy()
        return decoded(
            frame.with_columns(message.alias("message")).select(self._wanted),
            made_from,
            faults,
            rows,
            too_large,
            len(bodies),
        )


def _joined(frame: pl.DataFrame) -> pl.DataFrame:
    """Join the parts of each line. A line has the time of its first part, and the position of its last part."""
    whole = (~pl.col("partial")).cast(pl.Int64)
    keyed = frame.with_row_index("place").with_columns(
        (whole.cum_sum().over("body", "stream") - whole).alias("line")  # how many lines of the stream ended before
    )
    return (
        keyed.group_by("body", "stream", "line", maintain_order=True)
        .agg(
            pl.col("time").first(),
            pl.col("message").str.join(""),
            pl.col("partial").last(),
            pl.col("place").last(),
        )
        .sort("place")
    )
