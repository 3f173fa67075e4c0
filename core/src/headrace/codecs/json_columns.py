"""The values of JSON objects to columns of a schema's types.

msgspec parses each body straight to the wanted fields with their types (faster on one core than parsing to a frame, and
strict by nature: polars makes text of a number in a text column, and lets neighbours decide what happens to a bad body).
For each type of column: the type that msgspec expects, and how parsed values become a column, many values in one call.
"""

from __future__ import annotations

import datetime as dt
import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import chain, compress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import polars as pl

from headrace.codecs.body_checks import NESTING_MAX, REFUSALS, nesting, on_fresh_stack
from headrace.codecs.text_columns import (
    DateOrTimeColumn,
    TextColumn,
    TimestampColumn,
    TimestampOptions,
    decimals,
    durations,
    either,
    epoch_moments,
    finite,
    moments_to_series,
    spread,
    spread_mask,
    text_column,
    timestamp_advice,
    timestamp_pattern,
)
from headrace.codecs.timestamps import parse_moments
from headrace.flow.schema import RESERVED_PREFIX, type_name
from headrace.foundation.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Built = tuple[pl.Series, "NDArray[np.bool_] | None"]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_INTEGER_LIMITS: Mapping[type[pl.DataType], tuple[int, int]] = {
    pl.Int8: (-(2**7), 2**7 - 1),
    pl.Int16: (-(2**15), 2**15 - 1),
    pl.Int32: (-(2**31), 2**31 - 1),
    pl.Int64: (_INT64_MIN, _INT64_MAX),
    pl.Int128: (-(2**127), 2**127 - 1),
    pl.UInt8: (0, 2**8 - 1),
    pl.UInt16: (0, 2**16 - 1),
    pl.UInt32: (0, 2**32 - 1),
    pl.UInt64: (0, 2**64 - 1),
}
#: A replacement for JSON values that cannot be a text of the wanted type.
_NO_TEXT = "\x00"


class JsonColumn(ABC):
    """One column: the type that msgspec is to expect (``annotation``), and what makes a column of parsed values."""

    annotation: Any

    def __init__(self, data_type: pl.DataType) -> None:
        self.data_type = data_type

    @abstractmethod
    def build(self, values: list[Any]) -> Built:
        """Return the column, and which rows are bad (None: not one). None is NULL; values of bad rows mean nothing."""

    def advice(self, raw: bytes) -> str:
        """Return the advice at the end of a reason for a bad value, given as JSON: how to declare the column; may be empty."""
        return ""


def json_column(
    data_type: pl.DataType, timestamps: TimestampOptions, name: str, *, raw_json: bool = False
) -> JsonColumn:
    """Return what reads a column of a type. Raises OptionError, naming the column, when JSON has no form for it."""
    if raw_json:
        if data_type != pl.String:
            raise OptionError(f"column {name!r} must contain JSON text, but has type {type_name(data_type)}")
        return _JsonTextColumn(data_type)
    if data_type.is_integer():
        return _IntegerColumn(data_type)
    if data_type.is_float():
        return _FloatColumn(data_type)
    if isinstance(data_type, pl.Decimal):
        return _DecimalColumn(data_type)
    if isinstance(data_type, pl.Datetime):
        return _TimestampColumn(data_type, timestamps)
    if isinstance(data_type, pl.Date | pl.Time):
        return _DateOrTimeColumn(data_type)
    if isinstance(data_type, pl.List):
        assert isinstance(data_type.inner, pl.DataType)
        return _ListColumn(data_type, json_column(data_type.inner, timestamps, name))
    if isinstance(data_type, pl.Struct) and data_type.fields:
        fields = {}
        for field in data_type.fields:
            assert isinstance(field.dtype, pl.DataType)
            fields[field.name] = json_column(field.dtype, timestamps, f"{name}.{field.name}")
        return _StructColumn(data_type, fields)
    if isinstance(data_type, pl.Duration):
        return _DurationColumn(data_type)
    for simple, python_type in _SIMPLE_TYPES.items():
        if isinstance(data_type, simple):
            return _SimpleColumn(data_type, python_type)
    raise OptionError(f"column {name!r}: type {type_name(data_type)} cannot be read from JSON")


_SIMPLE_TYPES: Mapping[type[pl.DataType], Any] = {
    pl.String: str,
    pl.Boolean: bool,
    pl.Binary: bytes,
}


def column_of_texts(data_type: pl.DataType, timestamps: TimestampOptions, name: str) -> TextColumn:
    """Return what converts texts to a type, arrays and structs being written as JSON. Raises OptionError if nothing does."""
    if isinstance(data_type, pl.List | pl.Struct):
        return _NestedTextColumn(json_column(data_type, timestamps, name))
    found = text_column(data_type, timestamps)
    if found is None:
        raise OptionError(f"column {name!r}: type {type_name(data_type)} cannot be read from text")
    return found


def object_type(columns: Mapping[str, JsonColumn], missing: Any = None) -> type[msgspec.Struct]:
    """Return a struct of the columns; ``msgspec.structs.astuple`` gives its values in their order, ``missing`` for keys that are not there.

    With no column it has one field that no user's column can have as its name, so that its objects can be counted.
    """
    names = {f"field{at}": name for at, name in enumerate(columns)} or {"nothing": f"{RESERVED_PREFIX}nothing"}
    fields = tuple((field, columns[name].annotation if columns else msgspec.Raw) for field, name in names.items())
    try:
        return _struct(fields, tuple(names.items()), missing)
    except ValueError as error:
        raise OptionError(f"a column name cannot be a JSON key here: {error}") from error


@functools.lru_cache(maxsize=64)
def _struct(
    fields: tuple[tuple[str, Any], ...], names: tuple[tuple[str, str], ...], missing: Any
) -> type[msgspec.Struct]:
    """Make a struct once for all queues of a source: there may be very many."""
    return msgspec.defstruct(
        "Object",
        [(field, annotation, missing) for field, annotation in fields],
        rename=dict(names),
        # Its instances live for one batch only and never form cycles.
        gc=False,
    )


def build_columns(
    columns: Mapping[str, JsonColumn], flat: list[Any]
) -> tuple[list[pl.Series], NDArray[np.bool_] | None]:
    """Return the columns of objects whose values were laid end to end, and which rows are bad in any."""
    series, masks = build_columns_apart(columns, flat)
    return series, functools.reduce(either, masks.values(), None)


def build_columns_apart(
    columns: Mapping[str, JsonColumn], flat: list[Any]
) -> tuple[list[pl.Series], dict[str, NDArray[np.bool_]]]:
    """As ``build_columns``, but say of each column with bad rows which these are."""
    series: list[pl.Series] = []
    masks: dict[str, NDArray[np.bool_]] = {}
    for at, (name, column) in enumerate(columns.items()):
        built, bad = column.build(flat[at :: len(columns)])
        series.append(built.alias(name))
        if bad is not None:
            masks[name] = bad
    return series, masks


class _SimpleColumn(JsonColumn):
    def __init__(self, data_type: pl.DataType, python_type: Any) -> None:
        super().__init__(data_type)
        self.annotation = python_type | None

    def build(self, values: list[Any]) -> Built:
        return pl.Series(values, dtype=self.data_type, strict=True), None


class _IntegerColumn(JsonColumn):
    def __init__(self, data_type: pl.DataType) -> None:
        super().__init__(data_type)
        least, most = _INTEGER_LIMITS[type(data_type)]
        # msgspec checks bounds of 64 bits at most.
        self._limits = (least, most) if least < _INT64_MIN or most > _INT64_MAX else None
        checked = Annotated[int, msgspec.Meta(ge=least, le=most)] if self._limits is None else int
        self.annotation = checked | None

    def build(self, values: list[Any]) -> Built:
        bad = None
        if self._limits is not None:
            least, most = self._limits
            beyond = np.fromiter(
                (value is not None and not least <= value <= most for value in values), np.bool_, len(values)
            )
            if beyond.any():
                bad, values = beyond, [None if b else v for v, b in zip(values, beyond.tolist(), strict=True)]
        return pl.Series(values, dtype=self.data_type, strict=True), bad


class _FloatColumn(JsonColumn):
    annotation = float | None

    def build(self, values: list[Any]) -> Built:
        column = pl.Series(values, dtype=pl.Float64, strict=True)
        # JSON has no infinity, and msgspec refuses numbers beyond float64.
        return (column, None) if self.data_type == pl.Float64 else finite(column, self.data_type)


class _DurationColumn(JsonColumn):
    annotation = dt.timedelta | None

    def build(self, values: list[Any]) -> Built:
        assert isinstance(self.data_type, pl.Duration)
        return durations(values, self.data_type)


class _JsonTextColumn(JsonColumn):
    annotation = msgspec.Raw

    def build(self, values: list[Any]) -> Built:
        texts = [None if value is None or (raw := bytes(value)) == b"null" else raw.decode() for value in values]
        return pl.Series(texts, dtype=pl.String), None


class _DecimalColumn(JsonColumn):
    """Read from the text of the number, so that it stays exact; a string with a number is taken too."""

    annotation = msgspec.Raw

    def build(self, values: list[Any]) -> Built:
        assert isinstance(self.data_type, pl.Decimal)
        texts = [None if value is None else _decimal_text(bytes(value)) for value in values]
        return decimals(pl.Series(texts, dtype=pl.String), self.data_type)


def _decimal_text(raw: bytes) -> str | None:
    if raw[0] in b"-0123456789":
        return raw.decode()
    if raw[0] == ord('"'):
        return str(msgspec.json.decode(raw))
    return None if raw == b"null" else _NO_TEXT


class _TimestampColumn(JsonColumn):
    annotation = str | Annotated[int, msgspec.Meta(ge=_INT64_MIN, le=_INT64_MAX)] | None

    def __init__(self, data_type: pl.Datetime, options: TimestampOptions) -> None:
        super().__init__(data_type)
        self._options = options
        self._pattern = timestamp_pattern(data_type)
        self._formatted = None if options.format is None else TimestampColumn(data_type, options)

    def build(self, values: list[Any]) -> Built:
        if _are_texts(values):
            return self._of_texts(values)
        kinds = set(map(type, values))
        column, bad = spread(pl.Series([], dtype=self.data_type), np.zeros(0, np.int64), len(values)), None
        for kind, build in ((str, self._of_texts), (int, self._of_numbers)):
            if kind in kinds:
                rows = np.flatnonzero(np.fromiter((type(value) is kind for value in values), np.bool_, len(values)))
                part, bad_part = build([values[row] for row in rows.tolist()])
                column = column.zip_with(column.is_not_null(), spread(part, rows, len(values)))
                bad = either(bad, spread_mask(bad_part, rows, len(values)))
        return column, bad

    def advice(self, raw: bytes) -> str:
        assert isinstance(self.data_type, pl.Datetime)
        if not raw.startswith(b'"'):
            return ""
        return timestamp_advice(raw[1:-1].decode("utf-8", "replace"), self.data_type, self._options)

    def _of_texts(self, texts: list[str]) -> Built:
        if self._formatted is not None:
            return self._formatted.convert(pl.Series(texts, dtype=pl.String))
        return moments_to_series(parse_moments(texts, self._pattern), self.data_type)

    def _of_numbers(self, numbers: list[int]) -> Built:
        return moments_to_series(epoch_moments(np.array(numbers, dtype=np.int64), self._options.unit), self.data_type)


def _are_texts(values: list[Any]) -> bool:
    """Say whether all values are texts, in less time than it takes to ask each for its type."""
    try:
        "".join(values)
    except TypeError:
        return False
    return True


class _DateOrTimeColumn(JsonColumn):
    annotation = str | None

    def __init__(self, data_type: pl.DataType) -> None:
        super().__init__(data_type)
        self._texts = DateOrTimeColumn(data_type)

    def build(self, values: list[Any]) -> Built:
        return self._texts.convert(pl.Series(values, dtype=pl.String))


class _ListColumn(JsonColumn):
    def __init__(self, data_type: pl.DataType, inner: JsonColumn) -> None:
        super().__init__(data_type)
        self._inner = inner
        self.annotation = list[inner.annotation] | None  # type: ignore[name-defined]

    def build(self, values: list[Any]) -> Built:
        lengths = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
        flat, bad_flat = self._inner.build(list(chain.from_iterable(value for value in values if value)))
        owners = np.repeat(np.arange(len(values)), lengths)
        lists = (
            pl.DataFrame([pl.Series("owner", owners).set_sorted(), flat.alias("value")])
            .group_by("owner", maintain_order=True)
            .agg("value")["value"]
        )
        # After the lists that hold something come an empty one and NULL, for the rows to choose from.
        choices = pl.concat([lists, pl.Series([[], None], dtype=self.data_type)])
        places = np.full(len(values), len(lists), dtype=np.int64)
        places[lengths > 0] = np.arange(len(lists))
        places[np.fromiter((value is None for value in values), np.bool_, len(values))] = len(lists) + 1
        bad = None
        if bad_flat is not None:
            bad = np.zeros(len(values), dtype=np.bool_)
            bad[owners[bad_flat]] = True
        return choices.gather(places), bad


class _StructColumn(JsonColumn):
    def __init__(self, data_type: pl.DataType, fields: Mapping[str, JsonColumn]) -> None:
        super().__init__(data_type)
        self._fields = fields
        self.annotation = object_type(fields) | None

    def build(self, values: list[Any]) -> Built:
        # msgspec's objects are true.
        present = list(filter(None, values))
        series, bad = build_columns(self._fields, list(chain.from_iterable(map(msgspec.structs.astuple, present))))
        structs = pl.DataFrame(series).to_struct()
        if len(present) == len(values):
            return structs, bad
        rows = np.fromiter(compress(range(len(values)), values), np.int64, len(present))
        return spread(structs, rows, len(values)), spread_mask(bad, rows, len(values))


class _NestedTextColumn(TextColumn):
    """Arrays and structs written as JSON in a field of another format."""

    def __init__(self, column: JsonColumn) -> None:
        super().__init__(column.data_type)
        self._column = column
        self._decode = msgspec.json.Decoder(column.annotation).decode

    def convert(self, texts: pl.Series) -> Built:
        values: list[Any] = []
        refused = np.zeros(len(texts), dtype=np.bool_)
        for row, text in enumerate(texts):
            value = None
            if text is not None:
                value = self._value(text)
                refused[row] = value is None
            values.append(value)
        column, bad = self._column.build(values)
        return column, either(refused if refused.any() else None, bad)

    def _value(self, text: str) -> Any:
        """Return the value, or None when the text is not JSON of this type; ``null`` is none either."""
        body = text.encode()
        if nesting(body) > NESTING_MAX:
            return None
        try:
            return self._decode(body)
        except RecursionError:
            return on_fresh_stack(self._value, text)
        except REFUSALS:
            return None
