"""Rows as the lines of a bulk request, a column at a time.

The form is that of https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk: a line that says what to
do, and for what is stored a line with the document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.codecs.json import JsonCodec
from headrace.flow.messages import CHANGE, OFFSET, ROW, ChangeKind
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.codec import Encoder
from headrace.interfaces.sink import SinkBatch
from numpy.typing import NDArray

from headrace_elasticsearch.settings import ElasticsearchSinkSettings, columns_of, has_time, key_columns

#: https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/mapping-id-field
ID_BYTES_MAX = 512
TIMESTAMP = "@timestamp"
#: Room in an id for offset, index and separators.
_PLACE_BYTES = 40
_GONE = (ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE)
_PLAIN = (pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum)


class Documents:
    """The documents of a batch's rows: to store or to delete, and rows that give no document.

    The actions are made at once; the lines of a request are made when they are needed, because this takes time in which the
    server can already work.
    """

    def __init__(
        self,
        batch: SinkBatch,
        frame: pl.DataFrame,
        header: pl.DataFrame,
        encoder: Encoder,
        settings: ElasticsearchSinkSettings,
        refused: dict[int, str],
    ) -> None:
        self._frame = frame
        self._header = header
        self._encoder = encoder
        self._verb = "create" if settings.creates else "index"
        self._kinds = batch.frame[CHANGE].to_numpy() if CHANGE in batch.frame.columns else None
        #: Why a row cannot become a document, by its place in the batch.
        self.refused = refused
        #: Identifies documents: rows with the same text concern the same document. None: each row has its own.
        self.identities: pl.Series | None = None
        if settings.id_template is not None:
            named = pl.col("^(_index|routing|_id)$")
            self.identities = header.select(pl.concat_str(named, separator="\0", ignore_nulls=True)).to_series()

    @property
    def sendable(self) -> NDArray[np.bool_]:
        """The rows that must be sent. Of rows with the same identity only the last is sent."""
        found = np.ones(self._frame.height, dtype=np.bool_)
        found[list(self.refused)] = False
        return found

    def lines(self, places: NDArray[np.int64]) -> list[bytes]:
        """Return the lines of rows, those of each in one. Raises DataError when a row has no form as JSON."""
        header, frame = _taken(self._header, places), _taken(self._frame, places)
        actions = header.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()
        documents = self._encoder.encode_lines(frame).splitlines(keepends=True)
        verb = f'{{"{self._verb}":'
        found = [f"{verb}{action}}}\n".encode() + document for action, document in zip(actions, documents, strict=True)]
        if self._kinds is not None:
            # The new half of an update may be missing: a WHERE may have left it out, or it has another document.
            for row in np.flatnonzero(np.isin(self._kinds[places], _GONE)).tolist():
                found[row] = f'{{"delete":{actions[row]}}}\n'.encode()
        return found


class DocumentMaker:
    """Makes documents of batches. ``schema`` is that of the stream, None when columns are known row by row."""

    def __init__(self, settings: ElasticsearchSinkSettings, schema: Schema | None) -> None:
        self._settings = settings
        self._encoder: Encoder = JsonCodec().encoder(_stored(schema, settings))
        self._named = named_columns(settings)

    def make(self, batch: SinkBatch) -> Documents:
        """Return the documents. Raises JobError for changes that have no id."""
        if CHANGE in batch.frame.columns:
            _check_changes(self._settings)
        rows = batch.rows() if batch.dynamic else None
        named = {name: _column(batch, rows, name) for name in self._named}
        problems = _Problems()
        header = self._header(batch, named, problems)
        frame = self._frame(batch, rows, named, problems)
        return Documents(batch, frame, header, self._encoder, self._settings, problems.reasons)

    def _header(self, batch: SinkBatch, named: dict[str, pl.Series], problems: _Problems) -> pl.DataFrame:
        """Return the contents of the action lines, as columns."""
        settings = self._settings
        columns: list[pl.Series] = []
        if has_time(settings.index) or columns_of(settings.index):
            time = named[settings.index_time] if settings.index_time else None
            index = _index_names(settings.index, named, time, len(batch))
            problems.add("index", index.is_null() | (index == ""), "a value in the name of its index is NULL")
            columns.append(index.alias("_index"))
        if settings.id_template is None:
            columns.append(pl.Series("_id", row_ids(batch), dtype=pl.String))
        else:
            id = _filled(settings.id_template, named, len(batch))
            problems.add("id", id.is_null() | (id == ""), "its id is NULL or empty")
            problems.add("id", id.str.len_bytes() > ID_BYTES_MAX, f"its id is longer than {ID_BYTES_MAX} bytes")
            columns.append(id.alias("_id"))
        if settings.routing is not None:
            routing = _filled(settings.routing, named, len(batch))
            problems.add("routing", routing.is_null() | (routing == ""), "its routing is NULL or empty")
            columns.append(routing.alias("routing"))
        if settings.version is not None:
            version = batch.frame[OFFSET] if settings.version == "offset" else named[settings.version]
            version = version.cast(pl.Int64, strict=False)
            problems.add("version", version.is_null() | (version < 0), "its version is NULL, negative or no integer")
            kind = pl.Series("version_type", ["external_gte"] * len(batch), dtype=pl.String)
            columns += [version.alias("version"), kind]
        return pl.DataFrame(columns)

    def _frame(
        self, batch: SinkBatch, rows: list[dict[str, Any]] | None, named: dict[str, pl.Series], problems: _Problems
    ) -> pl.DataFrame:
        """Return the columns that are stored."""
        settings = self._settings
        times = named[settings.index_time] if settings.data_stream and settings.index_time else None
        left_out = frozenset(settings.exclude or ())
        if rows is not None:
            kept = [{name: value for name, value in row.items() if name not in left_out} for row in rows]
            if times is not None:
                kept = [{TIMESTAMP: time, **row} for row, time in zip(kept, times.to_list(), strict=True)]
            frame = pl.DataFrame({ROW: pack_rows(kept)}, schema={ROW: pl.Binary})
        else:
            frame = batch.to_polars().drop(left_out, strict=False)
            if times is not None and TIMESTAMP not in frame.columns:
                frame = frame.with_columns(times.alias(TIMESTAMP))
            if not frame.width:
                frame = pl.DataFrame(height=len(batch))
        if times is not None:
            problems.add("index_time", times.is_null(), "it has no time")
        return frame


def _taken(frame: pl.DataFrame, places: NDArray[np.int64]) -> pl.DataFrame:
    begin, end = int(places[0]), int(places[-1]) + 1
    return frame.slice(begin, len(places)) if end - begin == len(places) else frame[places.tolist()]


def row_ids(batch: SinkBatch) -> Sequence[str]:
    """Return the batch's row ids, with a hash of writer and queue in place of names that are too long for an id."""
    ids = batch.ids()
    place = f":{batch.first.offset}:{batch.first.index}"
    prefix = ids[0].removesuffix(place)
    if len(prefix.encode()) + _PLACE_BYTES <= ID_BYTES_MAX:
        return ids
    short = hashlib.sha256(prefix.encode()).hexdigest()
    return [short + id[len(prefix) :] for id in ids]


def named_columns(settings: ElasticsearchSinkSettings) -> dict[str, str]:
    """Return the columns that options name, each with the option."""
    named = dict.fromkeys(columns_of(settings.index), "index")
    if settings.index_time is not None:
        named[settings.index_time] = "index_time"
    for option, key in (("id", settings.id_template), ("routing", settings.routing)):
        if key is not None:
            named |= dict.fromkeys(key_columns(key), option)
    if settings.version is not None and settings.version != "offset":
        named[settings.version] = "version"
    return named


def is_key(kind: pl.DataType) -> bool:
    """Return whether values of a type can be part of an id, a routing or the name of an index."""
    return kind.is_integer() or isinstance(kind, _PLAIN)


def is_time(kind: pl.DataType) -> bool:
    """Return whether values of a type are times by which indices can be named."""
    return isinstance(kind, pl.Datetime | pl.Date)


class _Problems:
    """Collects why rows cannot be sent: the first reason of each."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, option: str, wrong: pl.Series, reason: str) -> None:
        for row in wrong.fill_null(False).arg_true().to_list():
            self.reasons.setdefault(row, f"{reason} (option {option})")


def _check_changes(settings: ElasticsearchSinkSettings) -> None:
    """Raise JobError when rows that change earlier ones cannot be stored as such."""
    if settings.id_template is None:
        raise JobError(
            "the rows of the stream change, but no option names the column that identifies a document",
            plugin="elasticsearch",
            option="id",
            hint="name that column: id='...'",
        )
    if settings.creates:
        raise JobError(
            "the rows of the stream change, but with this option existing documents are never changed",
            plugin="elasticsearch",
            option="data_stream" if settings.data_stream else "mode",
            hint="write to an index with mode='index'",
        )


def _column(batch: SinkBatch, rows: list[dict[str, Any]] | None, name: str) -> pl.Series:
    """Return a column; of rows of unknown columns, the values as far as they are of one of the types that fit."""
    if rows is None:
        return batch.frame[name]
    return _series([row.get(name) for row in rows])


def _series(values: list[Any]) -> pl.Series:
    import datetime as dt

    if any(isinstance(value, dt.datetime) for value in values):
        times = [value if isinstance(value, dt.datetime) else None for value in values]
        utc = [time and (time if time.tzinfo else time.replace(tzinfo=dt.UTC)) for time in times]
        return pl.Series(utc, dtype=pl.Datetime("us", "UTC"))
    if all(isinstance(value, dt.date | None) for value in values):
        return pl.Series(values, dtype=pl.Date)
    texts = [
        str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, str | int) else None
        for value in values
    ]
    return pl.Series(texts, dtype=pl.String)


def _text(column: pl.Series) -> pl.Series:
    return column.cast(pl.String)


def _filled(key: str, named: dict[str, pl.Series], count: int) -> pl.Series:
    """Return the texts of an ``id`` or ``routing``; NULL where a value is."""
    if not columns_of(key):
        return _text(named[key])
    return _put_together(key, lambda name: _text(named[name]), lambda text: text, count)


def _index_names(index: str, named: dict[str, pl.Series], time: pl.Series | None, count: int) -> pl.Series:
    def of_text(text: str) -> str | pl.Series:
        if "%" not in text:
            return text
        assert time is not None  # checked with the options
        moments = time
        if isinstance(time.dtype, pl.Datetime) and time.dtype.time_zone:
            moments = time.dt.convert_time_zone("UTC")
        if isinstance(moments.dtype, pl.Date):
            moments = moments.cast(pl.Datetime("us"))
        # A row of unknown columns may have no time at all, and then the column is one of texts.
        return moments.dt.to_string(text) if moments.dtype.is_temporal() else pl.Series([None] * count, dtype=pl.String)

    return _put_together(index, lambda name: _text(named[name]), of_text, count)


def _put_together(
    template: str,
    of_column: Callable[[str], pl.Series],
    of_text: Callable[[str], str | pl.Series],
    count: int,
) -> pl.Series:
    parts: list[pl.Series] = []
    rest = template
    for name in columns_of(template):
        text, _, rest = rest.partition("{" + name + "}")
        parts += [_as_series(of_text(text), count), of_column(name)]
    parts.append(_as_series(of_text(rest), count))
    frame = pl.DataFrame([part.alias(str(number)) for number, part in enumerate(parts)])
    return frame.select(pl.concat_str(pl.all())).to_series()


def _as_series(part: str | pl.Series, count: int) -> pl.Series:
    return part if isinstance(part, pl.Series) else pl.Series([part] * count, dtype=pl.String)


def _stored(schema: Schema | None, settings: ElasticsearchSinkSettings) -> Schema | None:
    if schema is None:
        return None
    left_out = frozenset(settings.exclude or ())
    kept = {name: kind for name, kind in schema.items() if name not in left_out}
    return Schema(kept, json_columns=schema.json_columns)
