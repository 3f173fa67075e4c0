"""Decoders and encoders that check each object by a schema, and use those of the format ``json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from headrace.flow.messages import Bodies
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.codec import BadBody, Decoded, Decoder, Encoder

from headrace_jsonschema.documents import Validator

_decode = msgspec.json.Decoder().decode


class ValidatingDecoder(Decoder):
    """Decodes with ``inner``. A body that ``inner`` accepts and that does not conform to the schema is bad."""

    def __init__(self, inner: Decoder, validator: Validator) -> None:
        self._inner = inner
        self._validator = validator

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        decoded = self._inner.decode(bodies)
        good = bodies if decoded.rows is None else bodies.take(decoded.rows)
        conforms = self._validator.conforms
        faults: dict[int, str] = {}
        for number, body in enumerate(good):
            try:
                value = _decode(body)
                if conforms(value):
                    continue
                reason = self._validator.reason(value)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                reason = f"cannot be checked by the schema: {error}"
            if reason is not None:
                faults[number] = reason
        if not faults:
            return decoded
        rows = np.arange(len(bodies), dtype=np.int64) if decoded.rows is None else decoded.rows
        kept = np.setdiff1d(np.arange(len(rows), dtype=np.int64), np.fromiter(faults, dtype=np.int64))
        bad = [*decoded.bad, *(BadBody(int(rows[number]), reason) for number, reason in faults.items())]
        return Decoded(decoded.frame[kept], rows[kept], sorted(bad, key=lambda each: each.row))


class ValidatingEncoder(Encoder):
    """Encodes with ``inner``, and puts ``prefix`` before each body. Raises DataError for a row that does not conform."""

    def __init__(self, inner: Encoder, validator: Validator, plugin: str, prefix: bytes = b"") -> None:
        self._inner = inner
        self._validator = validator
        self._plugin = plugin
        self._prefix = prefix

    def encode(self, frame: Any) -> Sequence[bytes]:
        """Return one body per row of ``frame``."""
        bodies = self._inner.encode(frame)
        for body in bodies:
            value = _decode(body)
            if not self._validator.conforms(value):
                raise DataError(f"the row {self._validator.reason(value)}", plugin=self._plugin)
        return [self._prefix + body for body in bodies] if self._prefix else bodies

    def encode_lines(self, frame: Any) -> bytes:
        """Return all bodies, each followed by a newline. Raises OptionError if bodies begin with ids of schemas."""
        if self._prefix:
            raise OptionError(
                "bodies with schema ids are binary and cannot be written as lines of a file",
                plugin=self._plugin,
                option="format",
                hint="write another format, such as format='json'",
            )
        return super().encode_lines(frame)
