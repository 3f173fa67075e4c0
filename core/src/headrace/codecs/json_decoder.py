"""JSON bodies to frames: each body parsed in C straight to typed values, then whole columns made of the values."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import astuple

from headrace.codec import BadBody, Decoded, Decoder
from headrace.codecs.body_checks import (
    REFUSALS,
    invalid_text_rows,
    on_fresh_stack,
    other_rows,
    oversized_rows,
    too_deep_rows,
)
from headrace.codecs.json_columns import JsonColumn, build_columns, object_type
from headrace.codecs.json_reasons import JsonReasons
from headrace.messages import Bodies

if TYPE_CHECKING:
    pass


class JsonDecoder(Decoder):
    """Decodes to the given columns. Values under other keys are parsed, so that a body is whole, but not kept."""

    def __init__(self, columns: Mapping[str, JsonColumn], max_body_bytes: int) -> None:
        self._columns = columns
        self._max_body_bytes = max_body_bytes
        object_class = object_type(columns)
        self._width = len(object_class.__struct_fields__)
        self._decode = msgspec.json.Decoder(object_class).decode
        self._reasons = JsonReasons(columns, self._decode, max_body_bytes)

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        unfit = np.concatenate(
            [oversized_rows(bodies, self._max_body_bytes), invalid_text_rows(bodies), too_deep_rows(bodies)]
        )
        rows = other_rows(len(bodies), unfit)
        values, refused = self._parse(list(bodies.take(rows) if len(unfit) else bodies))
        if refused:
            rows = np.delete(rows, refused)
        series, mask = build_columns(self._columns, values)
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=len(rows))
        if mask is not None:
            frame, rows = frame.filter(~mask), rows[~mask]
        if len(rows) == len(bodies):
            return Decoded(frame)
        bad = other_rows(len(bodies), rows).tolist()
        return Decoded(frame, rows, [BadBody(row, self._reasons.reason(bodies[row])) for row in bad])

    def _parse(self, bodies: list[bytes]) -> tuple[list[Any], list[int]]:
        """Return the wanted values of all objects end to end, and which bodies are refused."""
        values: list[Any] = []
        refused: list[int] = []
        remaining = iter(bodies)
        while True:
            try:
                # A refused body ends ``extend``, but what came before it is kept, and the next round goes on after it.
                values.extend(chain.from_iterable(map(astuple, map(self._decode, remaining))))
                return values, refused
            except REFUSALS:
                refused.append(len(values) // self._width + len(refused))
            except RecursionError:
                # It nests within the limit: the caller's stack had not enough left.
                at = len(values) // self._width + len(refused)
                try:
                    values.extend(astuple(on_fresh_stack(self._decode, bodies[at])))
                except REFUSALS:
                    refused.append(at)
