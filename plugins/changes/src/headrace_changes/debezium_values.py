"""Values as Debezium writes them in JSON: days since 1970, times as whole numbers, decimals as the bytes of a whole number in base 64.

https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-data-types. A body that begins with its
schema says which type each field has. Without, options of the format and the column's type say it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import polars as pl
from headrace.codecs.body_checks import REFUSALS
from headrace.codecs.json_columns import Built, JsonColumn, json_column
from headrace.codecs.text_columns import DateOrTimeColumn, TimestampOptions, either

from headrace_changes.envelopes import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_DAY_US = 86_400_000_000
#: Microseconds (of a smaller unit: how many of it are one) of the units in which times are counted.
_UNIT_US: Mapping[str, tuple[int, int]] = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
#: The days of the years 1 to 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
#: What fields of a schema are called, and the unit of their numbers. Days: "d".
_UNITS: Mapping[str, str] = {
    "io.debezium.time.Date": "d", "org.apache.kafka.connect.data.Date": "d",
    "io.debezium.time.Time": "ms", "org.apache.kafka.connect.data.Time": "ms",
    "io.debezium.time.MicroTime": "us", "io.debezium.time.NanoTime": "ns",
    "io.debezium.time.Timestamp": "ms", "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us", "io.debezium.time.NanoTimestamp": "ns",
}  # fmt: skip
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_SCHEMAS_MAX = 64
#: No column has so many digits before or after the point, and making a text of more would take long.
_DIGITS_MAX = 1_000
#: More bytes are a whole number with more digits than ``_DIGITS_MAX``.
_DECIMAL_BYTES_MAX = 416
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class _Field(msgspec.Struct, gc=False):
    """A field of a schema of Kafka Connect."""

    field: str | None = None
    type: str | None = None
    name: str | None = None
    parameters: dict[str, str] | None = None
    fields: list[_Field] | None = None


_decode_schema = msgspec.json.Decoder(_Field).decode


def encoded_column(
    data_type: pl.DataType, timestamps: TimestampOptions, name: str, *, time_unit: str, decimals_are_bytes: bool
) -> JsonColumn:
    """Return what reads a column whose values are Debezium's. Raises OptionError for a type that JSON has no form for."""
    if isinstance(data_type, pl.Date | pl.Time):
        return _DayOrTimeColumn(data_type, time_unit)
    if isinstance(data_type, pl.Decimal) and decimals_are_bytes:
        return _DecimalBytesColumn(data_type, json_column(data_type, timestamps, name))
    return json_column(data_type, timestamps, name)


class _DayOrTimeColumn(JsonColumn):
    """Texts, days since 1970, or times since midnight in a unit."""

    annotation = str | _Int64 | None

    def __init__(self, data_type: pl.Date | pl.Time, time_unit: str) -> None:
        super().__init__(data_type)
        self._texts = DateOrTimeColumn(data_type)
        self._unit = _UNIT_US[time_unit]

    def build(self, values: list[Any]) -> Built:
        series, bad = self._texts.convert(
            pl.Series([value if isinstance(value, str) else None for value in values], dtype=pl.String)
        )
        numbers = pl.Series([value if isinstance(value, int) else None for value in values], dtype=pl.Int64)
        if numbers.null_count() == len(numbers):
            return series, bad
        made, beyond = self._of_numbers(numbers)
        return series.zip_with(series.is_not_null(), made), either(bad, beyond if beyond.any() else None)

    def _of_numbers(self, numbers: pl.Series) -> tuple[pl.Series, NDArray[np.bool_]]:
        if isinstance(self.data_type, pl.Date):
            fits = numbers.is_between(_FIRST_DAY, _LAST_DAY)
            made = numbers.set(~fits, None).cast(pl.Int32).cast(pl.Date)
        else:
            times, parts = self._unit
            # Compared before they are multiplied: a large number of milliseconds has no number of nanoseconds.
            fits = numbers.is_between(0, _DAY_US * parts // times - 1)
            made = (numbers.set(~fits, None) * (times * 1000 // parts)).cast(pl.Time)
        return made, (~fits).fill_null(False).to_numpy()


class _DecimalBytesColumn(JsonColumn):
    """The bytes of a whole number in base 64; the column's type says how many of its digits are after the point."""

    annotation = msgspec.Raw

    def __init__(self, data_type: pl.Decimal, texts: JsonColumn) -> None:
        super().__init__(data_type)
        self._texts, self._scale = texts, data_type.scale

    def build(self, values: list[Any]) -> Built:
        return self._texts.build([None if value is None else _decimal(value, self._scale) for value in values])


def _decimal(raw: Any, scale: int) -> Any:
    """Return the JSON number of a decimal in Base64.

    Another value, and one with more digits than any column has, is returned unchanged; the conversion of the column refuses it later.
    """
    body = bytes(raw)
    if not body.startswith(b'"') or abs(scale) > _DIGITS_MAX:
        return raw
    try:
        number = base64.b64decode(body[1:-1], validate=True)
    except (binascii.Error, ValueError):
        return raw
    if len(number) > _DECIMAL_BYTES_MAX:
        return raw
    unscaled = int.from_bytes(number, "big", signed=True)
    digits = str(abs(unscaled)).rjust(max(scale, 0) + 1, "0")
    text = digits + "0" * -scale if scale <= 0 else f"{digits[:-scale]}.{digits[-scale:]}"
    return f"{'-' if unscaled < 0 else ''}{text}".encode()


class _Variable(msgspec.Struct, gc=False):
    scale: int
    value: msgspec.Raw


_decode_variable = msgspec.json.Decoder(_Variable).decode


def _variable_decimal(raw: Any) -> Any:
    try:
        found = _decode_variable(bytes(raw))
    except REFUSALS:
        return raw
    return _decimal(found.value, found.scale)


class SchemaValues:
    """Converts values of rows to the types of the columns, by the schemas in front of their bodies.

    Columns are to be made by ``encoded_column`` with timestamps and times in microseconds.
    """

    def __init__(self, columns: Mapping[str, JsonColumn], timestamp_unit: str) -> None:
        self._kinds = {
            name: column.data_type
            for name, column in columns.items()
            if isinstance(column.data_type, pl.Date | pl.Time | pl.Datetime | pl.Decimal)
        }
        self._places = {name: at for at, name in enumerate(columns) if name in self._kinds}
        self._timestamp_unit = timestamp_unit
        self._known: dict[bytes, Mapping[str, Callable[[Any], Any]]] = {}

    def decode(self, rows: Rows, schemas: Sequence[Any]) -> None:
        """Change the values of rows. ``schemas``: of each envelope, as JSON; None: it has none."""
        if not self._places:
            return
        mine = [b"" if (raw := schemas[at]) is None else bytes(raw) for at in rows.envelopes.tolist()]
        if len(set(mine)) == 1:
            decoders = self._decoders(mine[0])
            for name, decode in decoders.items():
                values = rows.values[self._places[name]]
                rows.values[self._places[name]] = [value if value is None else decode(value) for value in values]
            return
        for name, place in self._places.items():
            rows.values[place] = [
                value if value is None else self._decoders(schema).get(name, _same)(value)
                for schema, value in zip(mine, rows.values[place], strict=True)
            ]

    def _decoders(self, schema: bytes) -> Mapping[str, Callable[[Any], Any]]:
        found = self._known.get(schema)
        if found is None:
            if len(self._known) >= _SCHEMAS_MAX:
                self._known.clear()
            found = self._known[schema] = self._made(schema)
        return found

    def _made(self, schema: bytes) -> Mapping[str, Callable[[Any], Any]]:
        fields = _fields_of_rows(schema)
        made: dict[str, Callable[[Any], Any]] = {}
        for name, kind in self._kinds.items():
            field = fields.get(name, _Field())
            if isinstance(kind, pl.Decimal):
                if field.name == _DECIMAL:
                    scale = (field.parameters or {}).get("scale", "")
                    known = re.fullmatch(r"-?[0-9]{1,9}", scale) is not None
                    made[name] = functools.partial(_decimal, scale=int(scale) if known else kind.scale)
                elif field.name == _VARIABLE_DECIMAL:
                    made[name] = _variable_decimal
            else:
                unit = _UNITS.get(field.name or "")
                made[name] = functools.partial(_moment, kind=kind, unit=unit or self._unit_of(kind))
        return made

    def _unit_of(self, kind: pl.DataType) -> str:
        """Return the unit of numbers of which the schema says nothing."""
        return "d" if isinstance(kind, pl.Date) else "us" if isinstance(kind, pl.Time) else self._timestamp_unit


def _same(value: Any) -> Any:
    return value


def _moment(value: Any, *, kind: pl.DataType, unit: str) -> Any:
    """Return a number as microseconds, of dates as days; texts stay.

    A result that has more than 64 bits becomes the largest or smallest number, which the column refuses.
    """
    if not isinstance(value, int):
        return value
    if unit == "d":
        moment = value if isinstance(kind, pl.Date) else value * _DAY_US
    else:
        times, parts = _UNIT_US[unit]
        moment = value * times // parts
        moment = moment // _DAY_US if isinstance(kind, pl.Date) else moment
    return min(max(moment, _SMALLEST), _LARGEST)


def _fields_of_rows(schema: bytes) -> Mapping[str, _Field]:
    """Return the fields of the rows in an envelope by name; none where there is no schema that can be read."""
    try:
        whole = _decode_schema(schema)
    except REFUSALS:
        return {}
    for part in whole.fields or ():
        if part.field == "after":
            return {each.field: each for each in part.fields or () if each.field is not None}
    return {}
