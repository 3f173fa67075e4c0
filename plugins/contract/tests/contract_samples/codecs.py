"""A healthy codec: an array of values per body, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.flow.schema import Schema
from headrace.interfaces.codec import BadBody, Codec, Decoded, Decoder, Encoder


class ArraySettings(hr.Settings, frozen=True, kw_only=True):
    ascii_only: Annotated[bool, hr.option("escape everything that is not ASCII")] = False


class ArrayCodec(Codec):
    """``[1, "text", null]``: one value per column, in the order of the schema."""

    Settings = ArraySettings

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        return ArrayDecoder(schema, columns)

    def encoder(self, schema: Schema | None) -> Encoder:
        return ArrayEncoder()


class ArrayDecoder(Decoder):
    def __init__(self, schema: Schema, columns: Sequence[str] | None) -> None:
        self.schema = schema
        self.columns = list(schema) if columns is None else list(columns)

    def decode(self, bodies: hr.Bodies) -> Decoded:
        good: list[dict[str, Any]] = []
        rows: list[int] = []
        bad: list[BadBody] = []
        for number, body in enumerate(bodies):
            try:
                good.append(self.row(body))
            except (ValueError, RecursionError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
                bad.append(BadBody(number, f"{type(error).__name__}: {error}"[:200]))
            else:
                rows.append(number)
        frame = pl.DataFrame(good, schema=dict(self.schema), orient="row").select(self.columns)
        return Decoded(frame, np.array(rows, dtype=np.int64), bad)

    def row(self, body: bytes) -> dict[str, Any]:
        """Return the row of a body. Raises ValueError when it is none."""
        values = json.loads(body.decode())
        if not isinstance(values, list) or len(values) != len(self.schema):
            raise ValueError(f"not an array of {len(self.schema)} values")
        row = dict(zip(self.schema, values, strict=True))
        for (name, kind), value in zip(self.schema.items(), values, strict=True):
            if kind == pl.Float64() and isinstance(value, int) and not isinstance(value, bool):
                row[name] = float(value)
            elif value is not None:
                pl.Series([value], dtype=kind, strict=True)
                if isinstance(value, str):
                    value.encode()
        return row


class ArrayEncoder(Encoder):
    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        return [json.dumps(list(row)).encode() for row in frame.iter_rows()]
