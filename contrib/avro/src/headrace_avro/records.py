"""Decodes single bodies with fastavro: for types that cannot be read by columns, and for bodies that are uncertain
there.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import msgspec
import polars as pl

from headrace_avro.conversions import is_text_of
from headrace_avro.defaults import parsed_for_reading
from headrace_avro.schemas import AvroType, rendered
from headrace_avro.walking import BodyWalker


class RecordReader:
    """Reads bodies of one schema as records of another schema, and keeps only the given columns."""

    def __init__(self, written: AvroType, wanted: AvroType, columns: Mapping[str, pl.DataType]) -> None:
        self._walker = BodyWalker(written)
        # Without logical types: values are converted as whole columns, those read by columns too.
        self._written = fastavro.parse_schema(rendered(written, logical=False))
        self._wanted = parsed_for_reading(wanted)
        self._kinds: dict[str, tuple[pl.DataType, bool]] = {}
        for name, column in columns.items():
            found = wanted.field(name)
            assert found is not None
            text = is_text_of(found.type, column)
            self._kinds[name] = (pl.String() if text else encoded_type(found.type), text)

    def record(self, body: bytes) -> dict[str, Any] | str:
        """Return the record of a body, or why there is none."""
        fault = self._walker.fault(body)
        if fault is not None:
            return fault
        try:
            made = fastavro.schemaless_reader(io.BytesIO(body), self._written, self._wanted)
        except UnicodeDecodeError as error:
            return f"not valid UTF-8: {error.reason}"
        except Exception as error:  # fastavro has no class for what a body can do wrong
            return f"cannot be read by the reader's schema: {error or type(error).__name__}"
        assert isinstance(made, dict)
        return made

    def columns(self, records: Sequence[dict[str, Any]]) -> dict[str, pl.Series]:
        """Return the wanted columns of records, with values as they are encoded."""
        return {
            name: pl.Series(name, [_text(each[name]) if text else each[name] for each in records], dtype=kind)
            for name, (kind, text) in self._kinds.items()
        }


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def encoded_type(kind: AvroType) -> pl.DataType:
    """Return the type of a column that holds values as Avro encodes them."""
    if kind.nullable is not None:
        return encoded_type(kind.nullable[1])
    if kind.kind == "array":
        return pl.List(encoded_type(kind.inner))
    if kind.kind == "record":
        return pl.Struct({each.name: encoded_type(each.type) for each in kind.fields})
    return {
        "null": pl.Null(), "boolean": pl.Boolean(), "int": pl.Int64(), "long": pl.Int64(), "float": pl.Float32(),
        "double": pl.Float64(), "bytes": pl.Binary(), "fixed": pl.Binary(),
    }.get(kind.kind, pl.String())  # fmt: skip
