"""A broken codec for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import headrace as hr
import polars as pl
from headrace.flow.schema import Schema
from headrace.interfaces.codec import BadBody, Codec, Decoded, Decoder, Encoder

from contract_samples.broken import Fault
from contract_samples.codec_contracts import ArrayContract
from contract_samples.codecs import ArrayCodec, ArrayDecoder, ArrayEncoder


class Arrays(Fault, ArrayContract):
    """The contract of a broken ArrayCodec; ``decoder`` and ``encoder`` are what it makes."""

    decoder: ClassVar[type[ArrayDecoder]] = ArrayDecoder
    encoder: ClassVar[type[ArrayEncoder]] = ArrayEncoder

    def make_codec(self) -> Codec:
        decoder_class, encoder_class = self.decoder, self.encoder

        class Made(ArrayCodec):
            def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
                return decoder_class(schema, columns)

            def encoder(self, schema: Schema | None) -> Encoder:
                return encoder_class()

        return Made()

    def make_body(self, row: dict[str, Any]) -> bytes:
        return json.dumps(list(row.values())).encode()


class BrokenFastPath(Arrays):
    breaks = "test_round_trip"

    class encoder(ArrayEncoder):
        def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
            bodies = super().encode(frame)
            return [body.replace(b"true", b"1") for body in bodies] if frame.height > 40 else bodies


class BrokenNegates(Arrays):
    """Reads what it writes, but not what others write."""

    breaks = "test_decodes_bodies"

    class decoder(ArrayDecoder):
        def row(self, body: bytes) -> dict[str, Any]:
            return {name: not value if isinstance(value, bool) else value for name, value in super().row(body).items()}

    class encoder(ArrayEncoder):
        def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
            return super().encode(frame.with_columns(~pl.col(pl.Boolean)))


class BrokenEmptyIsNull(Arrays):
    breaks = "test_values_of_type"

    class decoder(ArrayDecoder):
        def row(self, body: bytes) -> dict[str, Any]:
            return {name: None if value == "" else value for name, value in super().row(body).items()}


class BrokenLineEnds(Arrays):
    breaks = "test_one_body_per_row"

    class encoder(ArrayEncoder):
        def encode_lines(self, frame: pl.DataFrame) -> bytes:
            return b"\r\n".join(self.encode(frame))


class BrokenSplitsRows(Arrays):
    breaks = "test_one_body_per_row"

    class encoder(ArrayEncoder):
        def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
            return [body.replace(b"\\n", b"\n") if frame.height == 50 else body for body in super().encode(frame)]


class BrokenLosesEmptyBodies(Arrays):
    breaks = "test_every_body_is_accounted_for"

    class decoder(ArrayDecoder):
        def decode(self, bodies: hr.Bodies) -> Decoded:
            decoded = super().decode(bodies)
            return Decoded(decoded.frame, decoded.rows, [bad for bad in decoded.bad if bodies[bad.row]])


class BrokenRaises(Arrays):
    breaks = "test_every_body_is_accounted_for"
    also = frozenset({"test_bodies_are_decoded_by_themselves"})

    class decoder(ArrayDecoder):
        def row(self, body: bytes) -> dict[str, Any]:
            if b"\x00" in body:
                raise KeyError("NUL")
            return super().row(body)


class BrokenFillsUp(Arrays):
    breaks = "test_bad_bodies_are_refused"

    class decoder(ArrayDecoder):
        def row(self, body: bytes) -> dict[str, Any]:
            values = json.loads(body.decode())
            if isinstance(values, list) and len(values) < len(self.schema):
                body = json.dumps(values + [None] * (len(self.schema) - len(values))).encode()
            return super().row(body)


class BrokenNamesPlace(Arrays):
    breaks = "test_bodies_are_decoded_by_themselves"

    class decoder(ArrayDecoder):
        def decode(self, bodies: hr.Bodies) -> Decoded:
            decoded = super().decode(bodies)
            return Decoded(
                decoded.frame, decoded.rows, [BadBody(bad.row, f"body {bad.row}: {bad.reason}") for bad in decoded.bad]
            )


class BrokenOwnOrder(Arrays):
    breaks = "test_columns_can_be_chosen"

    class decoder(ArrayDecoder):
        def __init__(self, schema: Schema, columns: Sequence[str] | None) -> None:
            super().__init__(schema, [name for name in schema if columns is None or name in columns])


class BrokenNoColumns(Arrays):
    breaks = "test_no_bodies"

    class decoder(ArrayDecoder):
        def decode(self, bodies: hr.Bodies) -> Decoded:
            decoded = super().decode(bodies)
            return decoded if decoded.frame.height else Decoded(pl.DataFrame(), decoded.rows, decoded.bad)


class BrokenSplitsBuffer(Arrays):
    breaks = "test_bodies_lie_anywhere"

    class decoder(ArrayDecoder):
        def decode(self, bodies: hr.Bodies) -> Decoded:
            lines = bodies.buffer.split(b"\n") if len(bodies) else []
            return super().decode(hr.Bodies.of(lines))


class BrokenHoldsLock(Arrays):
    breaks = "test_survives_pickle"

    def make_codec(self) -> Codec:
        codec = super().make_codec()
        vars(codec)["lock"] = threading.Lock()
        return codec
