"""Decodes bodies: each body is converted to JSON text with the same values, and the decoder of ``json`` makes columns
of these texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import BadBody, Decoded, Decoder
from headrace.interfaces.format_parts import too_large

from headrace_msgpack.notations import Notation, NotationError


class BinaryDecoder(Decoder):
    """Decodes with the rules of ``json`` for types, missing keys, texts of times and reasons."""

    def __init__(self, notation: Notation, inner: Decoder, max_body_bytes: int) -> None:
        self._notation = notation
        self._inner = inner
        self._max_body_bytes = max_body_bytes
        self._encode = msgspec.json.Encoder().encode

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        texts: list[bytes] = []
        rows: list[int] = []
        bad: list[BadBody] = []
        for row, body in enumerate(bodies):
            try:
                texts.append(self._text(body))
                rows.append(row)
            except NotationError as error:
                bad.append(BadBody(row, str(error)))
        decoded = self._inner.decode(Bodies.of(texts))
        if not bad and decoded.rows is None:
            return decoded
        places = np.array(rows, dtype=np.int64)
        bad += [BadBody(int(places[each.row]), each.reason) for each in decoded.bad]
        kept = places if decoded.rows is None else places[decoded.rows]
        return Decoded(decoded.frame, kept, sorted(bad, key=lambda each: each.row))

    def _text(self, body: bytes) -> bytes:
        if len(body) > self._max_body_bytes:
            raise NotationError(too_large(len(body), self._max_body_bytes))
        value = self._notation.read(body)
        try:
            text = self._encode(value)
            if b"null" in text:  # null is also what NaN would become
                _check_numbers(value)
        except NotationError:
            raise
        except (msgspec.EncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise NotationError(f"a value cannot be written as JSON: {error}") from error
        return text


def _check_numbers(value: Any) -> None:
    """Raise NotationError for NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotationError(f"{value} is not a number")
    if isinstance(value, Mapping):
        for each in value.values():
            _check_numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_numbers(each)
