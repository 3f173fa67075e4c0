"""Rows to CSV records, column-wise: values to texts, texts to fields with quotes where needed, fields to records."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from headrace.codecs.csv_records import Dialect
from headrace.codecs.json_encoder import JsonEncoder, json_text_of
from headrace.codecs.value_texts import text_forms, value_text
from headrace.flow.messages import ROW
from headrace.flow.rows import unpack_rows
from headrace.foundation.errors import DataError
from headrace.interfaces.codec import Encoder

#: Delimiters that no number, date or time can hold, so that only texts need a look.
_PLAIN_DELIMITERS = frozenset(",;\t| ")


class CsvEncoder(Encoder):
    """Encodes rows as records of the given fields, ended by a line feed each.

    Raises DataError for a row that has no form as a record: a dynamic row with other columns, or, where nothing may be
    quoted, a text with a special character.
    """

    def __init__(self, fields: Sequence[str], dialect: Dialect) -> None:
        self._fields = list(fields)
        self._dialect = dialect

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one record per row of ``frame``."""
        return self._records(frame).cast(pl.Binary).to_list()

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Return all records, each ended by a line feed."""
        text: str = self._records(frame).str.join("\n").item() if frame.height else ""
        return f"{text}\n".encode() if frame.height else b""

    def _records(self, frame: pl.DataFrame) -> pl.Series:
        if ROW in frame.columns:
            texts, text_columns = self._of_rows(unpack_rows(frame[ROW])), set(self._fields)
        else:
            texts, text_columns = self._of_columns(frame.select(self._fields))
        if self._dialect.null_value or self._dialect.delimiter not in _PLAIN_DELIMITERS:
            text_columns = set(self._fields)
        fields = [self._field(texts[name]) if name in text_columns else texts[name] for name in self._fields]
        present = [field.fill_null(self._dialect.null_value) for field in fields]
        return pl.DataFrame(present).select(record=pl.concat_str(pl.all(), separator=self._dialect.delimiter))["record"]

    def _field(self, texts: pl.Series) -> pl.Series:
        """Return a column's texts with quotes where they are needed."""
        dialect = self._dialect
        specials = [dialect.delimiter, "\n", "\r", *([dialect.quote] if dialect.quote else [])]
        special = texts.str.contains("[" + "".join(f"\\x{ord(character):02x}" for character in specials) + "]")
        if dialect.quote is None:
            if special.any():
                raise DataError(
                    f"column {texts.name!r} holds {texts.filter(special)[0]!r:.100}, which needs quotes",
                    plugin="csv",
                    option="quote",
                    hint="without a quote character, texts with delimiters or line breaks cannot be written",
                )
            return texts
        special |= texts == dialect.null_value
        if not special.any():
            return texts
        column = pl.col(texts.name)
        doubled = column.str.replace_all(dialect.quote, dialect.quote * 2, literal=True)
        quoted = pl.concat_str([pl.lit(dialect.quote), doubled, pl.lit(dialect.quote)])
        return texts.to_frame().select(pl.when(special).then(quoted).otherwise(column).alias(texts.name)).to_series()

    def _of_columns(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, set[str]]:
        """Return all columns as texts, and which of them may hold special characters."""
        forms = text_forms(frame)
        texts: list[pl.Series] = []
        special = set()
        for column in forms:
            if column.dtype.is_nested():
                lines = JsonEncoder().encode(column.alias("v").to_frame())
                values = [None if line == b'{"v":null}' else line[5:-1].decode() for line in lines]
                column = pl.Series(column.name, values, dtype=pl.String)
            if column.dtype.is_float():
                column = column.set(~column.is_finite(), None)
            if column.dtype in (pl.String, pl.Categorical, pl.Enum):
                special.add(column.name)
            texts.append(column.cast(pl.String))
        return pl.DataFrame(texts), special

    def _of_rows(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        known = set(self._fields)
        for row in rows:
            if not known.issuperset(row):
                other = next(name for name in row if name not in known)
                raise DataError(
                    f"a row has the column {other!r}, which is none of the fields", plugin="csv", option="columns"
                )
        return pl.DataFrame([_texts(name, [row.get(name) for row in rows]) for name in self._fields])


def _texts(name: str, values: list[Any]) -> pl.Series:
    """Return the texts of one column of dynamic rows."""
    texts: list[str | None] = []
    floats: dict[int, float] = {}
    for row, value in enumerate(values):
        text = value_text(value)
        if isinstance(text, bool):
            text = "true" if text else "false"
        elif isinstance(text, float):
            floats[row], text = text, None
        elif isinstance(text, bytes):
            text = base64.b64encode(text).decode()
        elif isinstance(text, Mapping | list | tuple):
            text = json_text_of(text)
        elif text is not None:
            text = str(text)
        texts.append(text)
    # As columns of numbers are written, which is by polars.
    written = pl.Series(list(floats.values()), dtype=pl.Float64).cast(pl.String)
    for row, text in zip(floats, written, strict=True):
        texts[row] = text
    return pl.Series(name, texts, dtype=pl.String)
