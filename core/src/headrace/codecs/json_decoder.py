"""JSON bodies to frames: each body parsed in C straight to typed values, then whole columns made of the values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from headrace.codecs.body_checks import other_rows
from headrace.codecs.json_columns import JsonColumn, build_columns_apart, object_type
from headrace.codecs.json_objects import JsonObjects
from headrace.codecs.json_reasons import JsonReasons
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import BadBody, Decoded, Decoder


class JsonDecoder(Decoder):
    """Decodes to the given columns. Values under other keys are parsed, so that a body is whole, but not kept."""

    def __init__(self, columns: Mapping[str, JsonColumn], max_body_bytes: int) -> None:
        self._columns = columns
        self._objects = JsonObjects(object_type(columns), max_body_bytes)
        self._reasons = JsonReasons(columns, self._objects.decode, max_body_bytes)

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        values, rows = self._objects.parse(bodies)
        series, masks = build_columns_apart(self._columns, values)
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=len(rows))
        # The column that is to blame, of rows that are bad for a value of theirs; the first in the order of the columns.
        blamed: dict[int, str] = {}
        if masks:
            for name, mask in reversed(masks.items()):
                blamed.update(dict.fromkeys(rows[mask].tolist(), name))
            good = ~np.logical_or.reduce(list(masks.values()))
            frame, rows = frame.filter(good), rows[good]
        if len(rows) == len(bodies):
            return Decoded(frame)
        bad = other_rows(len(bodies), rows).tolist()
        return Decoded(frame, rows, [BadBody(row, self._reasons.reason(bodies[row], blamed.get(row))) for row in bad])
