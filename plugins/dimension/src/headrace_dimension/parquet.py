"""``from_parquet``: the rows of parquet files, as they are when the job starts. For dimension tables and for other jobs."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, OptionError, did_you_mean
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartAt, StartPosition

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_DECODED_ROWS = 65_536


class ParquetSettings(Settings, frozen=True, kw_only=True):
    """What ``from_parquet`` takes."""

    in_pictures: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[
        str | tuple[str, ...], option("file, directory (all *.parquet files in it), glob pattern, or a list of these")
    ]
    columns: Annotated[tuple[str, ...] | None, option("columns to read; default: all")] = None


class ParquetSource(Source):
    """Reads parquet files to their end: each file is a queue, whose offsets number its rows.

    Files must not change while they are read. All must have the same columns and types. The schema is that of the first
    file when the job is built.
    """

    Settings: ClassVar[type[Settings]] = ParquetSettings
    bounded = True

    def __init__(self, settings: ParquetSettings) -> None:
        self.settings: ParquetSettings = settings

    def schema(self) -> Schema:
        """Return the files' columns. Raises JobError when there is no file, OptionError for a column that is not there."""
        return self._schema_of(self._paths()[0])

    def queues(self) -> Collection[Queue]:
        return [Queue(path) for path in self._paths()]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        wanted, found = self.schema(), self._schema_of(queue.name)
        if wanted != found:
            raise DataError(f"the file has the columns {found!r}, other files have {wanted!r}", queue=queue.id)
        if isinstance(start, StartAt):
            raise OptionError(
                "rows of a file have no time, so a time cannot be the start", plugin="parquet", option="start"
            )
        reader = ParquetReader(queue, found)
        if start is not EARLIEST:
            offset = reader.latest if start is LATEST else start.offset  # type: ignore[union-attr]
            if not 0 <= offset <= reader.latest:
                raise DataError(
                    f"the offset is not in the file, which has {reader.latest} rows", queue=queue.id, offset=offset
                )
            reader.seek(ReadPosition(offset))
        return reader

    def _schema_of(self, path: str) -> Schema:
        import pyarrow.parquet as pq

        schema: Any = pq.read_schema(path)
        for name in self.settings.columns or ():
            if name not in schema.names:
                hint = did_you_mean(name, schema.names, known="columns of the file")
                raise OptionError(f"{path} has no column {name!r}", plugin="parquet", option="columns", hint=hint)
        chosen = self.settings.columns or schema.names
        frame = _as_frame(schema.empty_table().select(list(chosen)))
        return Schema(dict(frame.schema))

    def _paths(self) -> Sequence[str]:
        given = self.settings.path
        found: list[str] = []
        for one in [given] if isinstance(given, str) else given:
            pattern = os.path.join(glob.escape(one), "*.parquet") if Path(one).is_dir() else one
            found += [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        if not found:
            hint = "name a .parquet file, a directory with .parquet files, or a pattern such as 'tables/*.parquet'"
            raise JobError(f"there is no file {given!r}", plugin="parquet", option="path", hint=hint)
        return list(dict.fromkeys(found))


class ParquetReader(Reader):
    """Reads one file, row group by row group; at most 65,536 rows are decoded at a time."""

    def __init__(self, queue: Queue, schema: Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._file: Any = pq.ParquetFile(queue.name, memory_map=True)
        self._rows: Iterator[pa.RecordBatch] | None = None
        self._decoded: pl.DataFrame | None = None
        self._offset = 0

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        """Return the next rows, without waiting; None only at the end of the file."""
        import numpy as np

        if self._decoded is None or not self._decoded.height:
            self._decoded = self._next()
            if self._decoded is None:
                return None
        part, self._decoded = self._decoded[:max_records], self._decoded[max_records:]
        offsets = np.arange(self._offset, self._offset + part.height, dtype=np.int64)
        self._offset += part.height
        return RawBatch(offsets, self.position, frame=part)

    def seek(self, position: ReadPosition) -> None:
        self._offset = position.offset
        self._rows = self._decoded = None

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._offset)

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        return int(self._file.metadata.num_rows)

    def close(self) -> None:
        self._rows = self._decoded = None
        self._file.close()

    def _next(self) -> pl.DataFrame | None:
        """Return the next rows of the file from the position on, or None at its end."""
        skipped = 0
        if self._rows is None:
            metadata = self._file.metadata
            group, skipped = 0, self._offset
            while group < metadata.num_row_groups and skipped >= metadata.row_group(group).num_rows:
                skipped -= metadata.row_group(group).num_rows
                group += 1
            groups = range(group, metadata.num_row_groups)
            self._rows = self._file.iter_batches(_DECODED_ROWS, row_groups=list(groups), columns=list(self._schema))
        for batch in self._rows:
            if batch.num_rows > skipped:
                return _as_frame(batch.slice(skipped)).select(list(self._schema))
            skipped -= batch.num_rows
        return None


def _as_frame(rows: Any) -> pl.DataFrame:
    """Return rows in the types of streams: dictionaries become texts, and timestamps have microseconds."""
    import polars as pl

    frame: Any = pl.from_arrow(rows)
    return frame.with_columns(  # type: ignore[no-any-return]
        pl.col(pl.Categorical, pl.Enum).cast(pl.String),
        *(
            pl.col(name).cast(pl.Datetime("us", getattr(kind, "time_zone", None)))
            for name, kind in frame.schema.items()
            if isinstance(kind, pl.Datetime) and kind.time_unit != "us"
        ),
    )
