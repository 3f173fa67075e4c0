"""Encodes frames: each row becomes a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl
from headrace.flow.messages import ROW
from headrace.flow.rows import unpack_rows
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.codec import Encoder

from headrace_msgpack.notations import Notation, NotationError


class BinaryEncoder(Encoder):
    """Encodes rows. ``texts`` are the columns that hold JSON. Raises DataError for a row that the format cannot
    hold.
    """

    def __init__(self, notation: Notation, texts: frozenset[str]) -> None:
        self._notation = notation
        self._texts = texts

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one body per row of ``frame``."""
        rows = unpack_rows(frame[ROW]) if ROW in frame.columns else frame.iter_rows(named=True)
        return [self._body(dict(row)) for row in rows]

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Raise OptionError: bodies hold any byte, so that they cannot be lines of a file."""
        raise OptionError(
            f"{self._notation.name} records are binary and cannot be written as lines of a file",
            plugin=self._notation.name,
            option="format",
            hint="write another format, such as format='json'",
        )

    def _body(self, row: dict[str, Any]) -> bytes:
        try:
            for name in self._texts:
                if row.get(name) is not None:
                    row[name] = msgspec.json.decode(row[name])
            return self._notation.write(row)
        except (NotationError, msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise DataError(f"the row cannot be encoded: {error}", plugin=self._notation.name) from error
