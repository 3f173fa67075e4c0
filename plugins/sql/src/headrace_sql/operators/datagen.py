"""A source of made-up rows, for trying texts: Flink's ``datagen`` with sequences and random values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import polars as pl
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition
from headrace.interfaces.table_options import TableOptions

from headrace_sql.operators.range_reader import RangeReader

#: 2024-01-01, where event times begin.
_EPOCH_MS = 1_704_067_200_000


class DatagenSettings(Settings, frozen=True, kw_only=True):
    """Options of the datagen source."""

    number_of_rows: Annotated[int, option("number of rows", ge=0)] = 1_000
    rows_per_second: Annotated[int, option("number of rows per second of event time", ge=1)] = 10_000
    fields: Annotated[
        dict[str, str],
        option("how values are made, by column: NAME.kind, NAME.min, NAME.max, NAME.start, NAME.end, NAME.length"),
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
        known = {"kind", "min", "max", "start", "end", "length", "null-rate"}
        for key in settings.fields:
            if key.rpartition(".")[2] not in known:
                raise OptionError(
                    f"unknown option fields.{key}",
                    plugin="datagen",
                    option=key,
                    hint=f"one of {', '.join(sorted(known))}",
                )
        self._types = dict(Schema.of(settings.columns))

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
        fields: Mapping[str, str] = self.settings.fields
        if fields.get(f"{name}.kind", "random") == "sequence":
            first, last = int(fields.get(f"{name}.start", "0")), int(fields.get(f"{name}.end", str(2**62)))
            return pl.Series(name, first + numbers % (last - first + 1)).cast(kind)
        # A value depends on its row's number alone, so that reading in other pieces gives the same rows.
        mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
            at * 7919 + self.settings.seed
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
        if isinstance(kind, pl.String):
            length = int(fields.get(f"{name}.length", "16"))
            return pl.Series(name, [f"{value:016x}"[:length] for value in mixed.tolist()])
        if isinstance(kind, pl.Boolean):
            return pl.Series(name, (mixed & np.uint64(1)).astype(bool))
        if isinstance(kind, pl.Datetime):
            return pl.Series(name, _EPOCH_MS * 1000 + numbers * 1_000_000 // self.settings.rows_per_second).cast(kind)
        low, high = float(fields.get(f"{name}.min", "0")), float(fields.get(f"{name}.max", "1000000"))
        share = (mixed >> np.uint64(11)).astype(np.float64) / float(2**53)
        values = low + share * (high - low)
        return pl.Series(name, values if kind.is_float() else np.floor(values).astype(np.int64)).cast(kind)

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        total = self.settings.number_of_rows
        first = start.offset if isinstance(start, ReadPosition) else total if start is LATEST else 0
        return RangeReader(self.rows, first, total)
