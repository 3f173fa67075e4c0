"""Conversion of rows and maps between headrace and functions that are written as for PyFlink."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


class RowValue(Sequence[Any]):
    """A row as a function gets it, with fields by name (``row.a``, ``row['a']``) and by place (``row[0]``), like
    PyFlink's Row.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._fields:
            raise AttributeError(name)
        return self._fields[name]

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key] if isinstance(key, str) else list(self._fields.values())[key]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by their names."""
        return dict(self._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RowValue, (dict(self._fields),))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"


def as_flink_gives(value: Any) -> Any:
    """Return an argument in PyFlink's form: a row as a ``RowValue``, a map as a dict."""
    if isinstance(value, dict):
        return RowValue({name: as_flink_gives(each) for name, each in value.items()})
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in value):
            return {each["key"]: as_flink_gives(each["value"]) for each in value}
        return [as_flink_gives(each) for each in value]
    return value


def as_declared(value: Any, kind: pl.DataType) -> Any:
    """Return a result in headrace's form of its type: rows as dicts, maps as lists of entries."""
    import polars as pl

    if value is None:
        return None
    if isinstance(kind, pl.Struct):
        return _fields_of(value, kind)
    if isinstance(kind, pl.List):
        inner = _plain(kind.inner)
        if (
            isinstance(value, Mapping)
            and isinstance(inner, pl.Struct)
            and [f.name for f in inner.fields] == ["key", "value"]
        ):
            of_key, of_value = (_plain(each.dtype) for each in inner.fields)
            return [{"key": as_declared(k, of_key), "value": as_declared(v, of_value)} for k, v in value.items()]
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            return value
        return [as_declared(each, inner) for each in value]
    return value


def row_of(value: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return one result of a table function as a tuple: from a dict, a row of PyFlink, a dataclass, a tuple or a
    single value.
    """
    found = _by_name(value)
    if found is not None:
        return tuple(found.get(name) for name in names)
    return tuple(value) if is_row(value) else (value,)


def is_row(value: Any) -> bool:
    """Return whether a value is a row without names: a tuple, a list, or a row of PyFlink."""
    return isinstance(value, tuple | list | RowValue) or type(value).__name__ == "Row"


def _by_name(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, RowValue) or (type(value).__name__ == "Row" and getattr(value, "_from_dict", False)):
        made: Mapping[str, Any] = value.as_dict()
        return made
    return None


def _fields_of(value: Any, kind: pl.Struct) -> Any:
    names = [each.name for each in kind.fields]
    found = _by_name(value)
    if found is None:
        if not is_row(value):
            return value  # a value that is not a row is refused when the series is made
        found = dict(zip(names, value, strict=False))
    return {each.name: as_declared(found.get(each.name), _plain(each.dtype)) for each in kind.fields}


def _plain(kind: Any) -> pl.DataType:
    return kind() if isinstance(kind, type) else kind  # type: ignore[no-any-return]
