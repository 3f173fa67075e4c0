"""JSON bodies to frames: each body parsed in C straight to typed values, then whole columns made of the values."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import astuple

from headrace.codecs.body_checks import (
    REFUSALS,
    invalid_text_rows,
    on_fresh_stack,
    other_rows,
    oversized_rows,
    too_deep_rows,
)
from headrace.codecs.json_columns import JsonColumn, build_columns_apart, object_type
from headrace.codecs.json_reasons import JsonReasons
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import BadBody, Decoded, Decoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPENING, _CLOSING = ord("{"), ord("}")
#: So many bytes are parsed with one call at most: it keeps the interpreter lock all the time.
_TOGETHER_BYTES_MAX = 1 << 23
#: When bodies parsed with one call were not all good, so many batches are parsed body by body.
_BATCHES_APART = 16


class JsonDecoder(Decoder):
    """Decodes to the given columns. Values under other keys are parsed, so that a body is whole, but not kept."""

    def __init__(self, columns: Mapping[str, JsonColumn], max_body_bytes: int) -> None:
        self._columns = columns
        self._max_body_bytes = max_body_bytes
        object_class = object_type(columns)
        self._width = len(object_class.__struct_fields__)
        decoder = msgspec.json.Decoder(object_class)
        self._decode = decoder.decode
        self._decode_lines = decoder.decode_lines
        self._apart = 0
        self._reasons = JsonReasons(columns, self._decode, max_body_bytes)

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        unfit = np.concatenate(
            [oversized_rows(bodies, self._max_body_bytes), invalid_text_rows(bodies), too_deep_rows(bodies)]
        )
        rows = other_rows(len(bodies), unfit)
        wanted = bodies.take(rows) if len(unfit) else bodies
        values = self._parse_together(wanted)
        refused: list[int] = []
        if values is None:
            values, refused = self._parse(list(wanted))
        if refused:
            rows = np.delete(rows, refused)
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

    def _parse_together(self, bodies: Bodies) -> list[Any] | None:
        """Return the wanted values of all objects end to end, or None when bodies have to be looked at one by one.

        ``decode_lines`` takes values that follow one another, wherever lines end. When every body begins with a brace and ends
        with one, no value goes across a newline between bodies: no text may have one, and between two braces nothing but a
        text would need it. So each body holds one object or more; as many objects as bodies are one in each.
        """
        count = len(bodies)
        if self._apart:
            self._apart -= 1
            return None
        if not count or int((bodies.ends - bodies.starts).sum()) > _TOGETHER_BYTES_MAX or not _in_braces(bodies):
            return None
        try:
            objects = self._decode_lines(bodies.joined())
        except (*REFUSALS, RecursionError):
            self._apart = _BATCHES_APART
            return None
        return list(chain.from_iterable(map(astuple, objects))) if len(objects) == count else None

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


def _in_braces(bodies: Bodies) -> bool:
    """Say whether every body begins with an opening brace and ends with a closing one."""
    if not bool((bodies.ends - bodies.starts >= 2).all()):
        return False
    characters: NDArray[np.uint8] = np.frombuffer(bodies.buffer, dtype=np.uint8)
    return bool((characters[bodies.starts] == _OPENING).all() and (characters[bodies.ends - 1] == _CLOSING).all())
