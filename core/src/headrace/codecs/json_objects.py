"""JSON bodies to the values of one struct type: many bodies with one call where that is possible. For formats that are made of JSON."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from headrace.codecs.body_checks import (
    REFUSALS,
    invalid_text_rows,
    on_fresh_stack,
    other_rows,
    oversized_rows,
    too_deep_rows,
)
from headrace.flow.messages import Bodies

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPENING, _CLOSING = ord("{"), ord("}")
#: So many bytes are parsed with one call at most: it keeps the interpreter lock all the time.
_TOGETHER_BYTES_MAX = 1 << 23
#: When bodies parsed with one call were not all good, so many batches are parsed body by body.
_BATCHES_APART = 16


class JsonObjects:
    """Parses bodies to objects of a msgspec struct. Used by one thread at a time."""

    def __init__(self, object_class: type[msgspec.Struct], max_body_bytes: int, *, strict: bool = True) -> None:
        """``strict`` False: numbers and booleans may be written as texts."""
        self._width = len(object_class.__struct_fields__)
        self._max_body_bytes = max_body_bytes
        decoder = msgspec.json.Decoder(object_class, strict=strict)
        #: Parses one body; raises one of ``REFUSALS``, or RecursionError.
        self.decode: Callable[[bytes], msgspec.Struct] = decoder.decode
        self._decode_lines = decoder.decode_lines
        self._apart = 0

    def parse(self, bodies: Bodies) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the values of all good objects end to end, and which bodies they are. The others are bad."""
        unfit = np.concatenate(
            [oversized_rows(bodies, self._max_body_bytes), invalid_text_rows(bodies), too_deep_rows(bodies)]
        )
        rows = other_rows(len(bodies), unfit)
        wanted = bodies.take(rows) if len(unfit) else bodies
        values = self._parse_together(wanted)
        refused: list[int] = []
        if values is None:
            values, refused = self._parse(list(wanted))
        return values, np.delete(rows, refused) if refused else rows

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
                # A refused body ends ``extend``, but the bodies before it are kept, and the next round continues after it.
                values.extend(chain.from_iterable(map(astuple, map(self.decode, remaining))))
                return values, refused
            except REFUSALS:
                refused.append(len(values) // self._width + len(refused))
            except RecursionError:
                # It nests within the limit: the caller's stack had not enough left.
                at = len(values) // self._width + len(refused)
                try:
                    values.extend(astuple(on_fresh_stack(self.decode, bodies[at])))
                except REFUSALS:
                    refused.append(at)


def _in_braces(bodies: Bodies) -> bool:
    """Say whether every body begins with an opening brace and ends with a closing one."""
    if not bool((bodies.ends - bodies.starts >= 2).all()):
        return False
    characters: NDArray[np.uint8] = np.frombuffer(bodies.buffer, dtype=np.uint8)
    return bool((characters[bodies.starts] == _OPENING).all() and (characters[bodies.ends - 1] == _CLOSING).all())
