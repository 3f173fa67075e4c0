"""A source of made-up rows, for trying texts: Flink's ``datagen`` with sequences and random values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import polars as pl
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.settings import Settings, option, parse_duration
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition
from headrace.interfaces.table_options import TableOptions

from headrace_sql.operators.range_reader import RangeReader

#: 2024-01-01, where event times begin.
_EPOCH_MS = 1_704_067_200_000


#: The options of a field, and which texts they take.
_OF_A_FIELD: Mapping[str, Callable[[str], bool]] = {
    "kind": lambda text: text in ("random", "sequence"),
    "min": lambda text: math.isfinite(float(text)),
    "max": lambda text: math.isfinite(float(text)),
    "start": lambda text: int(text) >= -(2**62),
    "end": lambda text: int(text) <= 2**62,
    "length": lambda text: 1 <= int(text) <= 1_000_000,
    "null-rate": lambda text: 0 <= float(text) <= 1,
    "max-past": lambda text: parse_duration(text) >= timedelta(0),
    "var-len": lambda text: text.lower() in ("true", "false"),
}


def _mixed(numbers: Any, salt: int) -> Any:
    """Return a number without visible order for each number: a value depends on its row alone, however the rows are read."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


def _share(mixed: Any) -> Any:
    """Return a number from 0 to below 1 for each."""
    return (mixed >> np.uint64(11)).astype(np.float64) / float(2**53)


class DatagenSettings(Settings, frozen=True, kw_only=True):
    """Options of the datagen source."""

    number_of_rows: Annotated[int, option("number of rows", ge=0)] = 1_000
    rows_per_second: Annotated[int, option("number of rows per second of event time", ge=1)] = 10_000
    fields: Annotated[
        dict[str, str],
        option(
            "how values are made, by column: NAME.kind, NAME.min, NAME.max, NAME.start, NAME.end, NAME.length, NAME.var-len, "
            "NAME.null-rate, NAME.max-past"
        ),
    ] = msgspec.field(default_factory=dict)
    columns: Annotated[dict[str, str], option("types by column; in SQL these are the columns of the table")] = (
        msgspec.field(default_factory=dict)
    )
    seed: Annotated[int, option("seed of the random values; the same seed gives the same rows")] = 0


class DatagenSource(Source):
    """Makes rows of one queue. The same options make the same rows."""

    Settings: ClassVar[type[Settings]] = DatagenSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "datagen": TableOptions(prefixes={"fields.": "fields"}, columns_option="columns")
    }

    def __init__(self, settings: DatagenSettings) -> None:
        self.settings: DatagenSettings = settings
        self._types = dict(Schema.of(settings.columns))
        self._check()

    def _check(self) -> None:
        """Raise OptionError for an option of a field that means nothing, and for a type of which no values are made."""
        for key, text in self.settings.fields.items():
            column, _, word = key.rpartition(".")
            if word not in _OF_A_FIELD:
                hint = did_you_mean(word, _OF_A_FIELD, known="options of a field")
                raise OptionError(f"unknown option fields.{key}", plugin="datagen", option=key, hint=hint)
            if column not in self._types:
                hint = did_you_mean(column, self._types, known="columns")
                raise OptionError(
                    f"fields.{key}: there is no column {column!r}", plugin="datagen", option=key, hint=hint
                )
            taken = _OF_A_FIELD[word]
            try:
                fits = taken(text)
            except (ValueError, OptionError):
                fits = False
            if not fits:
                raise OptionError(f"fields.{key} = {text!r} is not possible", plugin="datagen", option=key)
        for name, kind in self._types.items():
            if kind.is_nested() or isinstance(kind, pl.Binary | pl.Duration):
                raise OptionError(
                    f"values of type {type_name(kind)} cannot be generated", plugin="datagen", option=name,
                    hint="use a computed column (AS …) in the table, or compute it in a SELECT",
                )  # fmt: skip

    bounded = True

    def schema(self) -> Schema | None:
        return Schema.of(self.settings.columns)

    def queues(self) -> Collection[Queue]:
        return [Queue("rows")]

    def rows(self, begin: int, end: int) -> pl.DataFrame:
        """Return rows by number."""
        numbers = np.arange(begin, end, dtype=np.int64)
        return pl.DataFrame(
            [self._column(at, name, kind, numbers) for at, (name, kind) in enumerate(self._types.items())]
        )

    def _column(self, at: int, name: str, kind: pl.DataType, numbers: Any) -> pl.Series:
        mixed = _mixed(numbers, at * 7919 + self.settings.seed)
        made = self._values(name, kind, numbers, mixed)
        null_rate = float(self._field(name, "null-rate", "0"))
        if null_rate:
            made = made.set(pl.Series(_share(_mixed(mixed, 2)) < null_rate), None)
        return made.alias(name)

    def _values(self, name: str, kind: pl.DataType, numbers: Any, mixed: Any) -> pl.Series:
        if self._field(name, "kind", "random") == "sequence":
            first, last = int(self._field(name, "start", "0")), int(self._field(name, "end", str(2**62)))
            return pl.Series(first + numbers % (last - first + 1)).cast(kind)
        if isinstance(kind, pl.String):
            return self._texts(name, mixed)
        if isinstance(kind, pl.Boolean):
            return pl.Series((mixed & np.uint64(1)).astype(bool))
        if isinstance(kind, pl.Datetime | pl.Date):
            past_us = parse_duration(self._field(name, "max-past", "0 ms")) // timedelta(microseconds=1)
            times = _EPOCH_MS * 1000 + numbers * 1_000_000 // self.settings.rows_per_second
            instants = pl.Series(times - (_share(mixed) * past_us).astype(np.int64)).cast(pl.Datetime("us"))
            return instants.cast(pl.Int64).cast(kind) if isinstance(kind, pl.Datetime) else instants.cast(pl.Date)
        if isinstance(kind, pl.Time):
            return pl.Series((mixed % np.uint64(86_400)).astype(np.int64) * 1_000_000_000).cast(pl.Time)
        low, high = float(self._field(name, "min", "0")), float(self._field(name, "max", "1000000"))
        values = low + _share(mixed) * (high - low)
        return pl.Series(values if kind.is_float() else np.floor(values).astype(np.int64)).cast(kind)

    def _texts(self, name: str, mixed: Any) -> pl.Series:
        length = int(self._field(name, "length", "16"))
        parts = [mixed, *(_mixed(mixed, 3 + part) for part in range((length - 1) // 16))]
        texts = [
            "".join(f"{value:016x}" for value in row) for row in zip(*(part.tolist() for part in parts), strict=True)
        ]
        if self._field(name, "var-len", "false").lower() != "true":
            return pl.Series([text[:length] for text in texts], dtype=pl.String)
        lengths = (_share(_mixed(mixed, 1)) * length).astype(np.int64) + 1
        return pl.Series([text[:each] for text, each in zip(texts, lengths.tolist(), strict=True)], dtype=pl.String)

    def _field(self, name: str, key: str, default: str) -> str:
        return self.settings.fields.get(f"{name}.{key}", default)

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        total = self.settings.number_of_rows
        first = start.offset if isinstance(start, ReadPosition) else total if start is LATEST else 0
        return RangeReader(self.rows, first, total)
