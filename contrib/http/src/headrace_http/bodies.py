"""Rows as bodies of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import polars as pl
from headrace.flow.messages import ROW
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

from headrace_http.settings import ROWS, HttpSinkSettings

_KINDS = {"array": "application/json", "row": "application/json", "ndjson": "application/x-ndjson"}


class RequestBodies(Protocol):
    """Makes the bodies of requests from rows. Each process that writes has one object."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request that describe its body, such as ``content-type``; names in lower case."""

    def objects(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return one object per row; its length is about the length of the row in a body. Raises DataError for a row
        that cannot be written.
        """

    def body(self, objects: Sequence[bytes]) -> bytes:
        """Return the body of a request with these objects, which are some of the results of ``objects``."""


def divided(objects: Sequence[bytes], *, rows_max: int, bytes_max: int) -> Iterator[slice]:
    """Yield for each request which objects it contains. The same objects are always divided in the same way."""
    ends = np.cumsum(np.fromiter((len(each) + 1 for each in objects), dtype=np.int64, count=len(objects)))
    begin = 0
    while begin < len(objects):
        done = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, done + bytes_max, side="right"))
        end = min(max(begin + 1, end), begin + rows_max)
        yield slice(begin, end)
        begin = end


class BodyMaker:
    """Makes JSON objects from rows, and bodies from objects. ``schema`` is the stream's schema; None if columns are
    known only row by row.
    """

    def __init__(self, settings: HttpSinkSettings, schema: Schema | None) -> None:
        codec = default_registry().find("codec", "json")
        options = codec.Settings.of({"json_columns": settings.json_columns}, plugin="http")
        self._encoder = codec(options).encoder(schema)
        self._row_id = settings.row_id
        self._body = settings.body
        before, _, after = (settings.template or ROWS).partition(ROWS)
        self._before, self._after = before.encode(), after.encode()
        self.headers: Mapping[str, str] = {"content-type": settings.content_type or _KINDS[settings.body]}

    def objects(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return one JSON object per row. Raises DataError for a row that JSON cannot hold."""
        if batch.dynamic:
            rows = batch.rows()
            if self._row_id is not None:
                rows = [{**row, self._row_id: id} for row, id in zip(rows, batch.ids(), strict=True)]
            frame = pl.DataFrame({ROW: pack_rows(rows)}, schema={ROW: pl.Binary})
        else:
            frame = batch.to_polars()
            if self._row_id is not None:
                frame = frame.with_columns(pl.Series(self._row_id, batch.ids(), dtype=pl.String))
            if not frame.width:
                return [b"{}"] * len(batch)
        found: Sequence[bytes] = self._encoder.encode(frame)
        return found

    def body(self, objects: Sequence[bytes]) -> bytes:
        """Return the body of a request."""
        if self._body == "ndjson":
            return b"\n".join(objects) + b"\n"
        rows = objects[0] if self._body == "row" else b"[" + b",".join(objects) + b"]"
        return self._before + rows + self._after
