"""One column of texts or bytes as bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from headrace.flow.messages import ROW
from headrace.flow.rows import unpack_rows
from headrace.foundation.errors import DataError
from headrace.interfaces.codec import Encoder


class RawEncoder(Encoder):
    """Writes one column as it is, NULL as an empty body; other columns are left out.

    Raises DataError for a value of a dynamic row that is neither text nor bytes.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return the value of each row."""
        if ROW in frame.columns:
            return [self._bytes(row.get(self._name)) for row in unpack_rows(frame[ROW])]
        return frame[self._name].cast(pl.Binary).fill_null(b"").to_list()

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Return all values, each ended by a newline. Raises DataError for a value that holds one."""
        bodies = self.encode(frame)
        for body in bodies:
            if b"\n" in body:
                raise DataError(f"column {self._name!r} holds a line break, which would end the line: {body!r:.100}")
        return b"".join(body + b"\n" for body in bodies)

    def _bytes(self, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes):
            return value
        if value is None:
            return b""
        raise DataError(f"column {self._name!r} must be text or bytes, but is of type {type(value).__name__}")
