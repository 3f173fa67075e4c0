"""CSV bodies to frames: records are checked with numpy, split by polars, and their texts converted column-wise."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.codecs.body_checks import (
    BYTE_ORDER_MARK,
    byte_order_mark_rows,
    decoded_rows,
    invalid_text_rows,
    other_rows,
    oversized_rows,
)
from headrace.codecs.csv_records import (
    Dialect,
    Field,
    malformed_rows,
    quoted_fields,
    split_record,
    without_carriage_returns,
)
from headrace.codecs.text_columns import UNEXPLAINED, TextColumn, either, shown
from headrace.flow.messages import Bodies, RawBatch
from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError
from headrace.interfaces.codec import Decoded, Decoder
from headrace.interfaces.format_parts import not_utf8, too_large

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Decoders for other headers that one keeps: a directory may have files of many programs, but of few versions of each.
_OTHERS_MAX = 64


@dataclass(frozen=True, slots=True)
class CsvColumn:
    """A wanted column: which field of the record it is, from 0 (None: not in the record, NULL), and how its text is read."""

    field: int | None
    text: TextColumn


class CsvDecoder(Decoder):
    """Decodes records of ``width`` fields to the given columns; the texts of other fields may be anything."""

    def __init__(self, columns: Mapping[str, CsvColumn], width: int, dialect: Dialect, max_body_bytes: int) -> None:
        self._columns = columns
        self._width = width
        self._dialect = dialect
        self._max_body_bytes = max_body_bytes
        self._wanted = sorted({column.field for column in columns.values() if column.field is not None})
        #: Of records whose fields have the names of the key, in this order.
        self._others: OrderedDict[tuple[str, ...], CsvDecoder] = OrderedDict()

    def decode_records(self, raw: RawBatch) -> Decoded:
        """Decode records whose fields may have names: columns are taken by name then, and those without a field are NULL."""
        assert raw.bodies is not None
        return (self if raw.fields is None else self._of_fields(raw.fields)).decode(raw.bodies)

    def _of_fields(self, fields: tuple[str, ...]) -> CsvDecoder:
        decoder = self._others.get(fields)
        if decoder is None:
            columns = {
                name: CsvColumn(fields.index(name) if name in fields else None, column.text)
                for name, column in self._columns.items()
            }
            decoder = self._others[fields] = CsvDecoder(columns, len(fields), self._dialect, self._max_body_bytes)
            if len(self._others) > _OTHERS_MAX:
                self._others.popitem(last=False)
        return decoder

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        unfit = np.concatenate(
            [oversized_rows(bodies, self._max_body_bytes), invalid_text_rows(bodies), byte_order_mark_rows(bodies)]
        )
        rows = other_rows(len(bodies), unfit)
        whole = not len(unfit) and bodies.newline_separated
        taken = bodies if whole else Bodies.of(list(bodies.take(rows)))
        texts, malformed = self._texts(taken)
        if malformed is not None:
            rows = rows[~malformed]
        series: list[pl.Series] = []
        bad: NDArray[np.bool_] | None = None
        for name, column in self._columns.items():
            found = (
                pl.Series([None], dtype=pl.String).new_from_index(0, len(rows))
                if column.field is None
                else texts[str(column.field)]
            )
            converted, bad_here = column.text.convert(found)
            series.append(converted.alias(name))
            bad = either(bad, bad_here)
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=len(rows))
        return decoded_rows(bodies, frame, rows, bad, self._reason)

    def _texts(self, bodies: Bodies) -> tuple[pl.DataFrame, NDArray[np.bool_] | None]:
        """Return the texts of the wanted fields, by number, and which records are malformed and thus left out."""
        if not len(bodies):
            return self._frame_of([]), None
        data = bodies.joined()
        starts, ends = bodies.starts - bodies.starts[0], bodies.ends - bodies.starts[0]
        ends, trimmed = without_carriage_returns(data, starts, ends)
        bad = malformed_rows(data, starts, ends, self._dialect, self._width)
        malformed = bad if bad.any() else None
        records = Bodies(data, starts, ends, newline_separated=True)
        if malformed is not None or trimmed:
            records = Bodies.of(list(Bodies(data, starts[~bad], ends[~bad])))
        return self._read(records), malformed

    def _read(self, records: Bodies) -> pl.DataFrame:
        """Return the wanted fields of well-formed records."""
        wanted = self._wanted
        if not len(records) or not wanted:
            return self._frame_of([])
        if self._width == 1 and (records.starts == records.ends).any():
            # polars skips blank lines, which are records here.
            return self._one_by_one(records)
        # polars takes the first bytes of a text for a byte order mark or for a compressed file ("x^" begins a zlib
        # stream). A record of our own keeps the bytes of others from that place.
        filler = next(each for each in "abc" if each not in (self._dialect.delimiter, self._dialect.quote))
        first = self._dialect.delimiter * (self._width - 1) or filler
        texts = pl.read_csv(
            first.encode() + b"\n" + records.joined(),
            has_header=False,
            schema={str(field): pl.String for field in range(self._width)},
            columns=wanted,
            separator=self._dialect.delimiter,
            quote_char=self._dialect.quote,
        )
        if texts.height != len(records) + 1:
            return self._one_by_one(records)
        return self._with_nulls(texts.slice(1), records)

    def _with_nulls(self, texts: pl.DataFrame, records: Bodies) -> pl.DataFrame:
        """Turn the texts that mean NULL into NULL. polars has already done that for unquoted empty fields, and only for
        these.
        """
        null_value = self._dialect.null_value
        if not null_value:
            return texts
        texts = texts.fill_null("")
        null = texts.select(pl.all() == null_value)
        if not any(column.any() for column in null):
            return texts
        quoted = quoted_fields(records.joined(), records.starts, records.ends, self._dialect, self._width)
        return texts.with_columns(
            pl.when(~(column & ~pl.Series(quoted[:, int(column.name)]))).then(pl.col(column.name)).alias(column.name)
            for column in null
        )

    def _one_by_one(self, records: Bodies) -> pl.DataFrame:
        return self._frame_of([split_record(record.decode(), self._dialect) for record in records])

    def _frame_of(self, records: Sequence[Sequence[Field]]) -> pl.DataFrame:
        return pl.DataFrame(
            [
                pl.Series(str(field), [record[field].value(self._dialect) for record in records], dtype=pl.String)
                for field in self._wanted
            ]
        )

    def _reason(self, body: bytes) -> str:
        """Return the first fault of a bad body: size, encoding, form, number of fields, then columns in their order."""
        if len(body) > self._max_body_bytes:
            return too_large(len(body), self._max_body_bytes)
        if body.startswith(BYTE_ORDER_MARK):
            return "the body begins with a byte order mark; texts are UTF-8 without one"
        try:
            fields = split_record(body.decode(), self._dialect)
        except UnicodeDecodeError as error:
            return not_utf8(error)
        except DataError as error:
            return error.message
        if len(fields) != self._width:
            return f"expected {self._width} fields, found {len(fields)}"
        for name, column in self._columns.items():
            if column.field is None:
                continue
            text = fields[column.field].value(self._dialect)
            _, bad = column.text.convert(pl.Series([text], dtype=pl.String))
            if bad is not None:
                return (
                    f"column {name!r} (field {column.field + 1}): expected {type_name(column.text.data_type)}, "
                    f"found {shown(text or '')}{column.text.advice(text or '')}"
                )
        return UNEXPLAINED
