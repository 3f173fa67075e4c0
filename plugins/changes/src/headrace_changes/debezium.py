"""``debezium-json``: the envelopes of Debezium, with or without their schema.

https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events. Fields and options as in Flink's format of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from headrace.codecs.text_columns import TimestampOptions
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Encoder
from headrace.interfaces.settings import option

from headrace_changes.before_after import CREATE, DELETE, TRUNCATE, UPDATE, BeforeAfterEnvelope
from headrace_changes.codec import ChangeCodec
from headrace_changes.debezium_values import SchemaValues, encoded_column
from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import (
    MOMENT,
    TEXT,
    ChangeEnvelope,
    MetadataField,
    Parsed,
    Rows,
    part_field,
    plain_field,
    raw_field,
    texts_of_object,
)
from headrace_changes.settings import TableSettings

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from headrace.codecs.json_columns import JsonColumn
    from headrace.flow.schema import Schema
    from numpy.typing import NDArray


class DebeziumJsonSettings(TableSettings, frozen=True, kw_only=True):
    """Options of the format ``debezium-json``."""

    schema_include: Annotated[
        bool, option('Whether bodies have their schema in front: {"schema": …, "payload": …}. Only for reading.')
    ] = False
    time_unit: Annotated[
        Literal["s", "ms", "us", "ns"],
        option(
            "The unit of a time of day that is a whole number, where no schema says it: ms with Debezium's time.precision.mode=connect."
        ),
    ] = "us"
    decimal_encoding: Annotated[
        Literal["text", "base64"],
        option(
            "text: decimals are numbers or texts (decimal.handling.mode=string or double). base64: the bytes of a whole number, whose "
            "digits behind the point the column's type says (decimal.handling.mode=precise, Debezium's default). A schema in front "
            "says it itself."
        ),
    ] = "text"


class DebeziumEnvelope(BeforeAfterEnvelope):
    """``op``, ``before``, ``after``, ``source``, ``ts_ms``."""

    operation = "op"
    operations: ClassVar[Mapping[str, int]] = {"c": CREATE, "r": CREATE, "u": UPDATE, "d": DELETE, "t": TRUNCATE}
    no_before = (
        "let the database log old rows (PostgreSQL: REPLICA IDENTITY FULL), or read with changelog_mode='upsert'"
    )
    no_operation = " (does the body have its schema in front? Then set schema_include)"
    metadata: ClassVar[Mapping[str, MetadataField]] = {
        "schema": raw_field("schema"),
        "ingestion-timestamp": plain_field(MOMENT, "ts_ms"),
        "source.timestamp": part_field(MOMENT, "source", "ts_ms"),
        "source.database": part_field(TEXT, "source", "db"),
        "source.schema": part_field(TEXT, "source", "schema"),
        "source.table": part_field(TEXT, "source", "table"),
        "source.properties": texts_of_object("source"),
    }
    _values: SchemaValues | None = None

    def use(self, columns: Mapping[str, JsonColumn], settings: Any) -> None:
        if settings.schema_include:
            self._values = SchemaValues(columns, settings.timestamp_unit)

    def fields(self) -> Mapping[str, Any]:
        fields = super().fields()
        return fields if self._values is None else {**fields, "schema": msgspec.Raw}

    def rows(self, parsed: Parsed, wanted: NDArray[np.int64]) -> Rows:
        rows = super().rows(parsed, wanted)
        if self._values is not None:
            self._values.decode(rows, parsed["schema"])
        return rows

    database = "source.database"
    table = "source.table"


class DebeziumJsonCodec(ChangeCodec):
    """What Debezium writes for each change of a row: create, read (of a snapshot), update, delete."""

    Settings: ClassVar[type[declared.Settings]] = DebeziumJsonSettings
    envelope: ClassVar[type[ChangeEnvelope]] = DebeziumEnvelope
    wrapping = Wrapping(
        added=(b'{"before":null,"after":', b',"op":"c"}'), removed=(b'{"before":', b',"after":null,"op":"d"}')
    )

    @property
    def payload_field(self) -> str | None:
        return "payload" if self._options.schema_include else None

    def column(self, data_type: pl.DataType, timestamps: TimestampOptions, name: str) -> JsonColumn:
        """Return what reads the values of a column, as Debezium writes them."""
        options = self._options
        if options.schema_include:  # then numbers are made microseconds, and decimals texts, by the schemas
            timestamps = TimestampOptions("us", timestamps.format)
            return encoded_column(data_type, timestamps, name, time_unit="us", decimals_are_bytes=False)
        return encoded_column(
            data_type,
            timestamps,
            name,
            time_unit=options.time_unit,
            decimals_are_bytes=options.decimal_encoding == "base64",
        )

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError where bodies are to have a schema: that can only be read."""
        if self._options.schema_include:
            raise OptionError("a schema can only be read, not written", plugin="debezium-json", option="schema_include")
        return super().encoder(schema)
