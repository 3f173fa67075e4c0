"""Decodes bodies of one schema to frames: by columns if that is certain, otherwise record by record with fastavro."""

from __future__ import annotations

import io
from collections.abc import Mapping

import fastavro
import numpy as np
import polars as pl
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import BadBody, Decoded, Decoder
from headrace.interfaces.format_parts import too_large
from numpy.typing import NDArray

from headrace_avro.bodies import BYTES_MAX, BodyBytes
from headrace_avro.conversions import Conversion, TypeMismatchError, conversion, is_text_of
from headrace_avro.defaults import parsed_for_reading
from headrace_avro.readers import NotColumnarError, field_readers, read_fields
from headrace_avro.records import RecordReader, encoded_type
from headrace_avro.schemas import AvroType

_Columns = dict[str, pl.Series]


class RecordDecoder(Decoder):
    """Decodes bodies that are records of ``written`` to columns that are fields of ``wanted``, the reader's schema.

    ``columnar=False`` reads record by record. Raises TypeMismatchError if a column is not a field, or if its field
    cannot be converted to its type.
    """

    def __init__(
        self,
        written: AvroType,
        wanted: AvroType,
        columns: Mapping[str, pl.DataType],
        max_body_bytes: int,
        *,
        columnar: bool = True,
    ) -> None:
        self._columns = dict(columns)
        self._max_body_bytes = max_body_bytes
        pruned = wanted.with_fields(list(columns))
        _check_logical_types(written, pruned)
        self._conversions: dict[str, Conversion] = {}
        for name, kind in columns.items():
            found = pruned.field(name)
            if found is None:
                raise TypeMismatchError(f"the schema has no field {name!r}")
            try:
                self._conversions[name] = conversion(found.type, kind)
            except TypeMismatchError as error:
                raise TypeMismatchError(f"column {name!r}: {error}") from error
        self._records = RecordReader(written, pruned, columns)
        self._by_columns = _ByColumns.of(written, pruned, columns) if columnar else None

    @property
    def columnar(self) -> bool:
        """Whether bodies are read by columns."""
        return self._by_columns is not None

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        count = len(bodies)
        sizes = bodies.ends - bodies.starts
        left = sizes <= self._max_body_bytes
        reasons = {int(row): too_large(int(sizes[row]), self._max_body_bytes) for row in np.flatnonzero(~left)}
        pieces: list[tuple[_Columns, NDArray[np.int64]]] = []
        if self._by_columns is not None and left.any():
            rows = np.flatnonzero(left)
            for part in _parts(rows, sizes):
                found, certain = self._by_columns.read(bodies, part)
                pieces.append((found, part[certain]))
                left[part[certain]] = False
        if left.any() or not pieces:
            pieces.append(self._single(bodies, np.flatnonzero(left), reasons))
        made, rows = _together(pieces)
        frame, rows = self._converted(made, rows, reasons)
        if len(rows) == count:
            return Decoded(frame)
        return Decoded(frame, rows, [BadBody(row, reasons[row]) for row in sorted(reasons)])

    def _single(
        self, bodies: Bodies, rows: NDArray[np.int64], reasons: dict[int, str]
    ) -> tuple[_Columns, NDArray[np.int64]]:
        records, good = [], []
        for row in rows.tolist():
            found = self._records.record(bodies[row])
            if isinstance(found, str):
                reasons[row] = found
            else:
                records.append(found)
                good.append(row)
        return self._records.columns(records), np.array(good, dtype=np.int64)

    def _converted(
        self, made: _Columns, rows: NDArray[np.int64], reasons: dict[int, str]
    ) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Return the rows whose values are within the range of their columns."""
        columns: list[pl.Series] = []
        good = np.ones(len(rows), dtype=np.bool_)
        for name, each in self._conversions.items():
            values, bad = each.convert(made[name])
            columns.append(values.alias(name))
            if bad is not None:
                for at in np.flatnonzero(bad & good).tolist():
                    reasons[int(rows[at])] = _outside(name, made[name][at], self._columns[name])
                good &= ~bad
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        return (frame, rows) if good.all() else (frame.filter(good), rows[good])


def _check_logical_types(written: AvroType, wanted: AvroType) -> None:
    """Raise TypeMismatchError if the same number means another value in the reader's schema. Avro itself does not
    check this.
    """
    for each in wanted.fields:
        found = written.field(each.name) or next((f for f in written.fields if f.name in each.aliases), None)
        if found is not None:
            _check_logical_type(found.type, each.type, each.name)


def _check_logical_type(written: AvroType, wanted: AvroType, name: str) -> None:
    written = written.nullable[1] if written.nullable else written
    wanted = wanted.nullable[1] if wanted.nullable else wanted
    if written.kind == wanted.kind == "record":
        _check_logical_types(written, wanted)
    elif written.kind == wanted.kind == "array":
        _check_logical_type(written.inner, wanted.inner, name)
    elif written.logical and wanted.logical:
        other = written.logical != wanted.logical or written.scale != wanted.scale
        if other or written.precision > wanted.precision:
            raise TypeMismatchError(f"field {name!r} is written as {written}, and the reader's schema has {wanted}")


def _outside(name: str, value: object, kind: pl.DataType) -> str:
    from headrace.flow.schema import type_name

    shown = value.hex() if isinstance(value, bytes) else str(value.to_list() if isinstance(value, pl.Series) else value)
    return f"column {name!r}: {shown[:80]} is not in the range of {type_name(kind)}"


class _ByColumns:
    """Reads bodies by columns."""

    def __init__(self, written: AvroType, wanted: AvroType, columns: Mapping[str, pl.DataType]) -> None:
        for each in wanted.fields:
            if is_text_of(each.type, columns[each.name]):
                raise NotColumnarError(f"{each.type} as text")
        if written.name.rpartition(".")[2] != wanted.name.rpartition(".")[2]:
            raise NotColumnarError(f"{written} as {wanted}")
        self._steps, missing = field_readers(written, wanted)
        self._types = {each.name: encoded_type(each.type) for each in wanted.fields}
        self._defaults = _defaults(wanted.with_fields(missing)) if missing else {}

    @classmethod
    def of(cls, written: AvroType, wanted: AvroType, columns: Mapping[str, pl.DataType]) -> _ByColumns | None:
        """Return the reader, or None if some type can only be read record by record."""
        try:
            return cls(written, wanted, columns)
        except NotColumnarError:
            return None

    def read(self, bodies: Bodies, rows: NDArray[np.int64]) -> tuple[_Columns, NDArray[np.bool_]]:
        """Return the values of the bodies that could be read with certainty, and which bodies these are."""
        body = BodyBytes(bodies.buffer, bodies.starts[rows], bodies.ends[rows])
        every = np.arange(len(rows))
        found, after = read_fields(self._steps, body, every, body.starts.copy())
        certain = ~body.uncertain & (after == body.ends)
        whole = bool(certain.all())
        made = {}
        for name, kind in self._types.items():
            if name in self._defaults:
                made[name] = self._defaults[name].new_from_index(0, int(certain.sum()))
            else:
                values = found[name] if found[name].dtype == kind else found[name].cast(kind)
                made[name] = values if whole else values.filter(certain)
        return made, certain


def _defaults(missing: AvroType) -> _Columns:
    """Return the defaults of fields that are missing in the written records, one value for each field."""
    empty = fastavro.parse_schema({"type": "record", "name": missing.name, "fields": []})
    try:
        made = fastavro.schemaless_reader(io.BytesIO(b""), empty, parsed_for_reading(missing))
    except Exception as error:  # a field without a default: reading a record raises the error
        raise NotColumnarError(str(error)) from error
    assert isinstance(made, dict)
    return {each.name: pl.Series([made[each.name]], dtype=encoded_type(each.type)) for each in missing.fields}


def _parts(rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Divide rows into parts whose bodies do not exceed the maximum size."""
    sums = np.cumsum(sizes[rows])
    if sums[-1] <= BYTES_MAX:
        return [rows]
    return np.split(rows, np.flatnonzero(np.diff(sums // (BYTES_MAX // 2))) + 1)


def _together(pieces: list[tuple[_Columns, NDArray[np.int64]]]) -> tuple[_Columns, NDArray[np.int64]]:
    """Return the columns of all pieces, in the order of the rows."""
    if len(pieces) == 1:
        return pieces[0]
    rows = np.concatenate([rows for _, rows in pieces])
    order = np.argsort(rows, kind="stable")
    names = list(pieces[0][0])
    return {name: pl.concat([made[name] for made, _ in pieces])[order] for name in names}, rows[order]
