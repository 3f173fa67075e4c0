"""Builds requests of OTLP from rows: one record for each row, grouped by resource and scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import headrace as hr
import msgspec
import polars as pl
from headrace.interfaces.sink import SinkBatch
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

#: Columns by which records are grouped: service, attributes of the resource, name, version and attributes of the scope.
OWNER_COLUMNS = ("service_name", "resource_attributes", "scope_name", "scope_version", "scope_attributes")
Columns = Mapping[str, Sequence[Any]]
_INT64 = range(-(2**63), 2**63)


class Record(bytes):
    """A record encoded as Protocol Buffers, with its encoded resource and scope."""

    owner: tuple[bytes, bytes]


def field(number: int, content: bytes) -> bytes:
    """Return an encoded field that holds a message, a text or bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a non-negative integer as a varint of Protocol Buffers."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def bad(problem: str) -> hr.DataError:
    """Return the error for a row that cannot be written as a record."""
    return hr.DataError(problem, plugin="otlp")


def any_value(value: Any) -> AnyValue:
    """Return a value as an ``AnyValue`` of OTLP. A value whose type OTLP does not have becomes a text, as in JSON."""
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value) if value in _INT64 else AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(value.items())))
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(each) for each in value]))
    return AnyValue() if value is None else AnyValue(string_value=str(msgspec.to_builtins(value)))


def key_values(pairs: Iterable[tuple[str, Any]]) -> list[KeyValue]:
    """Return attributes."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in pairs]


def json_object(text: str | None, column: str) -> Mapping[str, Any]:
    """Return the object that a JSON text holds; an empty one for NULL. Raises DataError if the text holds no object."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise bad(f"{column!r} is not a JSON object: {error}") from None


def identifier(text: str | None, length: int, column: str) -> bytes:
    """Return an id of hexadecimal digits as bytes; empty bytes for NULL. Raises DataError for another text."""
    try:
        found = bytes.fromhex(text or "")
    except ValueError:
        found = b"?"
    if len(found) not in (0, length):
        raise bad(f"{column!r} is no id of {2 * length} hexadecimal digits: {text!r:.80}")
    return found


def nanoseconds(column: pl.Series) -> list[int]:
    """Return times as nanoseconds since 1970. NULL becomes 0, which means "unknown" in OTLP."""
    times: list[int] = column.cast(pl.Datetime("us", "UTC")).cast(pl.Int64).fill_null(0).to_list()
    return [time * 1000 for time in times]


class OtlpBodies(ABC):
    """Builds requests from rows. ``known``: the columns of the signal and their types; every other column becomes an
    attribute.
    """

    headers = {"content-type": "application/x-protobuf"}  # noqa: RUF012

    def __init__(self, schema: hr.Schema, known: Mapping[str, str], service_name: str | None) -> None:
        self._known = known
        self._others = [name for name in schema if name not in known]
        self._json = frozenset(schema.json_columns)
        self._service_name = service_name
        self._owners: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}
        types = hr.Schema.of(known)
        for name, kind in schema.items():
            if name in known and not _fits(kind, types[name]):
                raise hr.OptionError(
                    f"column {name!r} is {kind}, but in OpenTelemetry it is {known[name]}",
                    plugin="otlp",
                    option="signal",
                    hint=f"convert it by an expression, or rename({name}='…') to send it as an attribute",
                )

    @abstractmethod
    def record(self, row: Mapping[str, Any], attributes: list[KeyValue]) -> bytes:
        """Return one record. Raises DataError or ValueError when a value does not fit."""

    def objects(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return the record of each row. Raises DataError for a row that does not make one."""
        frame = batch.to_polars()
        columns = {
            name: nanoseconds(frame[name]) if self._known.get(name) == "timestamp" else frame[name].to_list()
            for name in frame.columns
        }
        names = list(columns)
        return [self._object(dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    def body(self, objects: Sequence[bytes]) -> bytes:
        """Return a request, with its records grouped by resource and scope."""
        groups: dict[tuple[bytes, bytes], list[bytes]] = {}
        for each in objects:
            assert isinstance(each, Record)
            groups.setdefault(each.owner, []).append(each)
        made = []
        for (resource, scope), records in groups.items():
            of_scope = field(1, scope) + b"".join(field(2, record) for record in records)
            made.append(field(1, field(1, resource) + field(2, of_scope)))
        return b"".join(made)

    def _object(self, row: Mapping[str, Any]) -> Record:
        pairs = dict(json_object(row.get("attributes"), "attributes"))
        for name in self._others:
            value = row[name]
            if value is not None:
                pairs[name] = _read(value, name) if name in self._json else value
        try:
            made = Record(self.record(row, key_values(pairs.items())))
        except (ValueError, TypeError) as error:
            raise bad(f"the row has no form as a record: {error}") from None
        made.owner = self._owner(tuple(row.get(name) for name in OWNER_COLUMNS))
        return made

    def _owner(self, values: tuple[Any, ...]) -> tuple[bytes, bytes]:
        found = self._owners.get(values)
        if found is None:
            service, resource, name, version, attributes = values
            pairs = dict(json_object(resource, "resource_attributes"))
            if service is not None or (self._service_name is not None and "service.name" not in pairs):
                pairs["service.name"] = service if service is not None else self._service_name
            scope = InstrumentationScope(
                name=name or "",
                version=version or "",
                attributes=key_values(json_object(attributes, "scope_attributes").items()),
            )
            found = Resource(attributes=key_values(pairs.items())).SerializeToString(), scope.SerializeToString()
            if len(self._owners) >= _OWNERS_MAX:
                self._owners.clear()
            self._owners[values] = found
        return found


#: How many encoded resources and scopes are cached.
_OWNERS_MAX = 10_000
Judge = Callable[[bytes], None]


def _read(text: Any, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise bad(f"{name!r} is not JSON: {error}") from None


def _fits(kind: pl.DataType, wanted: pl.DataType) -> bool:
    if isinstance(wanted, pl.Datetime):
        return isinstance(kind, pl.Datetime) and kind.time_zone is not None
    return kind.is_integer() if wanted.is_integer() else kind == wanted
