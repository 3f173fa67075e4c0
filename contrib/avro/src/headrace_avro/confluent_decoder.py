"""Decodes bodies with ids of schemas to one frame. Bodies with the same id are decoded together, by the schema in the
registry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import polars as pl
from headrace.flow.messages import Bodies
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import Decoded, Decoder
from headrace_schemaregistry import RegisteredDecoder, RegisteredSchema, UnusableSchemaError

from headrace_avro.conversions import TypeMismatchError
from headrace_avro.decoder import RecordDecoder
from headrace_avro.registry_settings import FORMAT, ConfluentSettings
from headrace_avro.schemas import AvroType, parse_schema


class ConfluentDecoder(RegisteredDecoder):
    """Decodes bodies with ids of schemas. ``wanted`` is the reader's schema; None: fields become columns by their
    names.
    """

    kind = "AVRO"

    def __init__(
        self,
        settings: ConfluentSettings,
        wanted: AvroType | None,
        columns: Mapping[str, pl.DataType],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, columns, monotonic=monotonic)
        self._max_body_bytes = settings.max_body_bytes
        self._wanted = wanted

    def decoder_of(self, schema_id: int, schema: RegisteredSchema) -> Decoder:
        """Return the decoder for the records of a schema; see ``RegisteredDecoder``."""
        try:
            written = parse_schema(
                schema.text,
                plugin=FORMAT,
                option="registry_url",
                references=tuple(each.text for each in schema.references),
            )
            return _OfOneSchema(written, self._wanted, self._columns, self._max_body_bytes)
        except OptionError as error:
            raise UnusableSchemaError(f": {error.message}") from error
        except TypeMismatchError as error:
            raise UnusableSchemaError(f": {error}") from error


class _OfOneSchema(Decoder):
    """Decodes the bodies of one schema. Without a reader's schema, columns that the schema does not have are NULL."""

    def __init__(
        self, written: AvroType, wanted: AvroType | None, columns: Mapping[str, pl.DataType], max_body_bytes: int
    ) -> None:
        reader = written if wanted is None else wanted
        present = columns if wanted is not None else {n: kind for n, kind in columns.items() if written.field(n)}
        self._decoder = RecordDecoder(written, reader, present, max_body_bytes)
        self._columns = columns if len(present) < len(columns) else None

    def decode(self, bodies: Bodies) -> Decoded:
        decoded = self._decoder.decode(bodies)
        if self._columns is None:
            return decoded
        frame = decoded.frame
        made = [
            frame[name] if name in frame.columns else pl.repeat(None, frame.height, dtype=kind, eager=True).alias(name)
            for name, kind in self._columns.items()
        ]
        return Decoded(pl.DataFrame(made), decoded.rows, decoded.bad)
