"""Fields of messages as columns: their types, and functions that get values from a message and set them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from headrace.flow.schema import type_name

#: Gets the value of a field from a message; raises ValueError for a value that the column cannot hold.
Take = Callable[[Any], Any]
#: Converts a value of a column to a value of a field; raises ValueError.
Put = Callable[[Any], Any]

_UTC = pl.Datetime("us", "UTC")
_F = FieldDescriptor
_TYPES: Mapping[int, pl.DataType] = {
    _F.TYPE_DOUBLE: pl.Float64(), _F.TYPE_FLOAT: pl.Float32(), _F.TYPE_BOOL: pl.Boolean(), _F.TYPE_STRING: pl.String(),
    _F.TYPE_BYTES: pl.Binary(), _F.TYPE_INT32: pl.Int32(), _F.TYPE_SINT32: pl.Int32(), _F.TYPE_SFIXED32: pl.Int32(),
    _F.TYPE_INT64: pl.Int64(), _F.TYPE_SINT64: pl.Int64(), _F.TYPE_SFIXED64: pl.Int64(), _F.TYPE_UINT32: pl.Int64(),
    _F.TYPE_FIXED32: pl.Int64(), _F.TYPE_UINT64: pl.Decimal(20, 0), _F.TYPE_FIXED64: pl.Decimal(20, 0),
    _F.TYPE_ENUM: pl.String(),
}  # fmt: skip
_UNSIGNED_64 = (_F.TYPE_UINT64, _F.TYPE_FIXED64)
_INTEGER_LIMITS = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys(_UNSIGNED_64, (0, 2**64 - 1)),
}
_BITS: Mapping[type[pl.DataType], int] = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
#: Messages with values of any type; they are kept as JSON.
_ANY = frozenset(f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue", "FieldMask"))
#: 0001-01-01 and 9999-12-31, in seconds since 1970.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_DURATION_SECONDS_MAX = 315_576_000_000


class TypeMismatchError(Exception):
    """Values of a field cannot be converted to a column of this type."""


def column_type(field: FieldDescriptor, above: frozenset[str] = frozenset()) -> pl.DataType | None:
    """Return the type of a column for a field; None for those whose values are kept as JSON texts."""
    if is_map(field):
        return None
    inner = _single_type(field, above)
    return pl.List(inner) if inner is not None and field.is_repeated else inner


def _single_type(field: FieldDescriptor, above: frozenset[str]) -> pl.DataType | None:
    if field.message_type is None:
        return _TYPES.get(field.type)
    message = field.message_type
    if message.full_name == _TIMESTAMP:
        return _UTC
    if message.full_name == _DURATION:
        return pl.Duration("us")
    if message.full_name in _WRAPPERS:
        return _TYPES[message.fields_by_name["value"].type]
    if message.full_name in _ANY or message.full_name in above or not message.fields:
        return None
    made: dict[str, pl.DataType] = {}
    for each in message.fields:
        found = column_type(each, above | {message.full_name})
        if found is None:
            return None
        made[each.name] = found
    return pl.Struct(made)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def taker(field: FieldDescriptor, column: pl.DataType) -> Take:
    """Return a function that gets the value of a field from a message. Raises TypeMismatchError."""
    name = field.name
    if _is_text_of(field, column):
        return _json_taker(field)
    if field.is_repeated:
        if is_map(field) or not isinstance(column, pl.List):
            raise _mismatch(field, column)
        of = _value_taker(field, column.inner)  # type: ignore[arg-type]
        return lambda message: list(getattr(message, name)) if of is None else [of(v) for v in getattr(message, name)]
    of = _value_taker(field, column)
    if not field.has_presence:
        return (lambda message: getattr(message, name)) if of is None else (lambda message: of(getattr(message, name)))
    if of is None:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: of(getattr(message, name)) if message.HasField(name) else None


def _is_text_of(field: FieldDescriptor, column: pl.DataType) -> bool:
    if column != pl.String():
        return False
    scalar = field.type in (_F.TYPE_STRING, _F.TYPE_ENUM) and not field.is_repeated
    wrapper = field.message_type is not None and field.message_type.full_name == "google.protobuf.StringValue"
    return (field.message_type is not None and not (wrapper and not field.is_repeated)) or (
        field.is_repeated and not scalar
    )


def _json_taker(field: FieldDescriptor) -> Take:
    """Return a function that gets a field as JSON, in the form that Protocol Buffers define."""
    import msgspec

    name, wanted = field.name, field.name

    def take(message: Any) -> str | None:
        if field.has_presence and not message.HasField(name):
            return None
        alone = type(message)()
        if field.is_repeated:
            getattr(alone, name).MergeFrom(getattr(message, name))
        else:
            getattr(alone, name).CopyFrom(getattr(message, name))
        try:
            made = json_format.MessageToDict(
                alone, preserving_proto_field_name=True, descriptor_pool=message.DESCRIPTOR.file.pool
            )
        except (json_format.Error, TypeError, KeyError) as error:
            raise ValueError(f"it cannot be written as JSON: {error}") from error
        empty: Any = {} if is_map(field) else []
        return msgspec.json.encode(made.get(wanted, empty if field.is_repeated else None)).decode()

    return take


def _value_taker(field: FieldDescriptor, column: pl.DataType) -> Take | None:
    """Return a function that converts a single value to the value of a column; None: no conversion is needed."""
    if field.message_type is not None:
        return _message_taker(field.message_type, field, column)
    if field.type == _F.TYPE_ENUM:
        return _enum_taker(field.enum_type, field, column)
    return _scalar_taker(field, column)


def _scalar_taker(field: FieldDescriptor, column: pl.DataType) -> Take | None:
    if field.type in _INTEGER_LIMITS and type(column) in _BITS:
        low, high = _INTEGER_LIMITS[field.type]
        limit = 2 ** (_BITS[type(column)] - 1)
        return None if low >= -limit and high < limit else _within(-limit, limit - 1, column)
    if field.type in _UNSIGNED_64 and isinstance(column, pl.Decimal) and (column.precision or 38) - column.scale >= 20:
        return Decimal
    if column == _TYPES.get(field.type) or (field.type == _F.TYPE_FLOAT and column == pl.Float64()):
        return None
    raise _mismatch(field, column)


def _within(low: int, high: int, column: pl.DataType) -> Take:
    def check(value: int) -> int:
        if not low <= value <= high:
            raise ValueError(f"{value} is not in the range of {type_name(column)}")
        return value

    return check


def _enum_taker(enum: EnumDescriptor, field: FieldDescriptor, column: pl.DataType) -> Take | None:
    if column in (pl.Int32(), pl.Int64()):
        return None
    if column != pl.String():
        raise _mismatch(field, column)
    names: dict[int, str] = {number: each.name for number, each in enum.values_by_number.items()}

    def name_of(number: int) -> str:
        found = names.get(number)
        if found is None:
            raise ValueError(f"{number} is not a value of the enum {enum.full_name}")
        return found

    return name_of


def _message_taker(message: Descriptor, field: FieldDescriptor, column: pl.DataType) -> Take:
    if message.full_name == _TIMESTAMP and column == _UTC:
        return _timestamp
    if message.full_name == _DURATION and column == pl.Duration("us"):
        return _duration
    if message.full_name in _WRAPPERS:
        inner = _scalar_taker(message.fields_by_name["value"], column)
        return (lambda value: value.value) if inner is None else (lambda value: inner(value.value))
    if not isinstance(column, pl.Struct):
        raise _mismatch(field, column)
    takers = {}
    for each in column.fields:
        found = message.fields_by_name.get(each.name)
        if found is None:
            raise TypeMismatchError(f"the message {message.full_name} has no field {each.name!r}")
        takers[each.name] = taker(found, each.dtype)  # type: ignore[arg-type]
    return lambda value: {name: take(value) for name, take in takers.items()}


def _timestamp(value: Any) -> int:
    if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND or not 0 <= value.nanos < 10**9:
        raise ValueError(f"{value.seconds} s and {value.nanos} ns is not a timestamp")
    return int(value.seconds * 1_000_000 + value.nanos // 1000)


def _duration(value: Any) -> int:
    opposite = value.seconds * value.nanos < 0
    if abs(value.seconds) > _DURATION_SECONDS_MAX or abs(value.nanos) >= 10**9 or opposite:
        raise ValueError(f"{value.seconds} s and {value.nanos} ns is not a duration")
    return int(value.seconds * 1_000_000 + int(value.nanos / 1000))


def putter(field: FieldDescriptor, column: pl.DataType) -> Put:
    """Return a function that converts a value other than NULL to a value of a field. Raises TypeMismatchError."""
    if field.is_repeated:
        if is_map(field) or not isinstance(column, pl.List):
            raise _mismatch(field, column)
        put = _value_putter(field, column.inner)  # type: ignore[arg-type]

        def put_all(values: Any) -> list[Any]:
            if None in values:
                raise ValueError("a list contains NULL, which a repeated field cannot")
            return [put(value) for value in values]

        return put_all
    return _value_putter(field, column)


def _value_putter(field: FieldDescriptor, column: pl.DataType) -> Put:
    message = field.message_type
    if message is None:
        return _scalar_putter(field, column)
    if message.full_name == _TIMESTAMP and column == _UTC:
        return _put_timestamp
    if message.full_name == _DURATION and column == pl.Duration("us"):
        return lambda value: {"seconds": _whole(value)[0], "nanos": _whole(value)[1]}
    if message.full_name in _WRAPPERS:
        put = _scalar_putter(message.fields_by_name["value"], column)
        return lambda value: {"value": put(value)}
    if not isinstance(column, pl.Struct):
        raise _mismatch(field, column)
    putters = {}
    for each in column.fields:
        found = message.fields_by_name.get(each.name)
        if found is None:
            raise TypeMismatchError(f"the message {message.full_name} has no field {each.name!r}")
        putters[each.name] = (found, putter(found, each.dtype))  # type: ignore[arg-type]
    return lambda row: {
        name: put(row[name]) for name, (each, put) in putters.items() if row[name] is not None or _needed(each)
    }


def _needed(field: FieldDescriptor) -> bool:
    if field.has_presence:
        return False
    raise ValueError(f"field {field.name!r} cannot express NULL (it has no presence), and its value is NULL")


def _scalar_putter(field: FieldDescriptor, column: pl.DataType) -> Put:
    if field.type in _INTEGER_LIMITS and (
        type(column) in _BITS or (isinstance(column, pl.Decimal) and not column.scale)
    ):
        low, high = _INTEGER_LIMITS[field.type]

        def put(value: Any) -> int:
            if not low <= value <= high:
                raise ValueError(f"{value} is not in the range of the field {field.name!r}")
            return int(value)

        return put
    if field.type == _F.TYPE_ENUM and column == pl.String():
        numbers: dict[str, int] = {each.name: each.number for each in field.enum_type.values}

        def number_of(value: str) -> int:
            found = numbers.get(value)
            if found is None:
                raise ValueError(f"{value!r:.100} is not a value of the enum {field.enum_type.full_name}")
            return found

        return number_of
    if field.type == _F.TYPE_ENUM and column in (pl.Int32(), pl.Int64()):
        return int
    same = _TYPES.get(field.type) == column
    if same or (field.type == _F.TYPE_DOUBLE and column == pl.Float32()):
        return lambda value: value
    raise _mismatch(field, column)


def _put_timestamp(value: dt.datetime) -> dict[str, int]:
    seconds, nanos = divmod(
        round((value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1)), 10**6
    )
    return {"seconds": seconds, "nanos": nanos * 1000}


def _whole(value: dt.timedelta) -> tuple[int, int]:
    micros = value // dt.timedelta(microseconds=1)
    seconds = int(abs(micros) // 10**6)
    nanos = int(abs(micros) % 10**6) * 1000
    return (seconds, nanos) if micros >= 0 else (-seconds, -nanos)


def _mismatch(field: FieldDescriptor, column: pl.DataType) -> TypeMismatchError:
    kind = field.message_type.full_name if field.message_type is not None else _names().get(field.type, str(field.type))
    shown = f"repeated {kind}" if field.is_repeated and not is_map(field) else "map" if is_map(field) else kind
    return TypeMismatchError(f"the field {field.name!r} of type {shown} cannot be converted to {type_name(column)}")


def _names() -> dict[int, str]:
    """Return the names of types in ``.proto`` files, by their numbers."""
    names = [name for name in dir(_F) if name.startswith("TYPE_") and isinstance(getattr(_F, name), int)]
    return {getattr(_F, name): name.removeprefix("TYPE_").lower() for name in names}
