"""Files of rows in columns: what the sources of Parquet, ORC and Arrow files have in common."""

from __future__ import annotations

import contextlib
import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import BrokenQueueError, DataError, JobError, OptionError, did_you_mean
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartAt, StartPosition

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from headrace.interfaces.codec import Codec

DECODED_ROWS = 65_536


class ColumnarFileSettings(Settings, frozen=True, kw_only=True):
    """What ``from_parquet``, ``from_orc`` and ``from_arrow`` take."""

    in_pictures: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[
        str | tuple[str, ...],
        option("file, directory (all files in it with the format's ending), glob pattern, or a list of these"),
    ]
    columns: Annotated[tuple[str, ...] | None, option("columns to read; default: all")] = None


class ColumnarFile(ABC):
    """One open file. Its rows are in groups that can be read by themselves."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the file."""

    @property
    @abstractmethod
    def group_rows(self) -> Sequence[int]:
        """How many rows each group has."""

    @abstractmethod
    def read(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return some columns of a group, in pieces. Raises an error of pyarrow or OSError for a damaged file."""

    def close(self) -> None:
        """Close the file."""


class ColumnarFileSource(Source):
    """Reads files to their end: each file is a queue, whose offsets number its rows.

    Files must not change while they are read. The columns are those that the job declares, else those of the first file when the job is
    built; each file is matched with them by their names. Made by optimizers with ``needed``: the columns that a job uses.
    """

    Settings: ClassVar[type[Settings]] = ColumnarFileSettings
    bounded = True
    #: The name of the plug-in, and the ending of the files in a directory.
    plugin: ClassVar[str]
    ending: ClassVar[str]

    def __init__(self, settings: ColumnarFileSettings, *, needed: Sequence[str] | None = None) -> None:
        self.settings: ColumnarFileSettings = settings
        self._needed = needed
        self._declared: Schema | None = None

    @staticmethod
    @abstractmethod
    def open_file(path: str) -> ColumnarFile:
        """Open a file. Raises an error of pyarrow, or OSError, for a file of another format."""

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        """Take the columns of the job."""
        if format is not None:
            raise OptionError(
                f"the rows of a file of {self.plugin} have no format",
                plugin=self.plugin,
                option="format",
                hint="leave it out",
            )
        self._declared = schema

    def only(self, needed: Sequence[str]) -> ColumnarFileSource:
        """Return a source that reads only these columns from the files. Called by the optimizer."""
        made = type(self)(self.settings, needed=needed)
        made._declared = self.schema()
        made.start, made.node_name, made.reader_name = self.start, self.node_name, self.reader_name
        made.header_fields = self.header_fields
        return made

    def schema(self) -> Schema:
        """Return the columns. Raises JobError when there is no file or it is damaged, OptionError for a column that is not there."""
        if self._declared is not None:
            return self._declared
        path = self._paths()[0]
        with _damage_told(path, self.plugin, JobError):
            file = self.open_file(path)
            found = file.schema
            file.close()
        for name in self.settings.columns or ():
            if name not in found.names:
                hint = did_you_mean(name, found.names, known="columns of the file")
                raise OptionError(f"{path} has no column {name!r}", plugin=self.plugin, option="columns", hint=hint)
        chosen = list(self.settings.columns or found.names)
        return Schema(dict(as_frame(found.empty_table().select(chosen)).schema))

    def queues(self) -> Collection[Queue]:
        """Return a queue for each file."""
        return [Queue(path) for path in self._paths()]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader. Raises BrokenQueueError for a file that is damaged or whose columns do not fit."""
        if isinstance(start, StartAt):
            raise OptionError(
                "rows of a file have no time, so a time cannot be the start", plugin=self.plugin, option="start"
            )
        schema = self.schema()
        wanted = {name: schema[name] for name in schema if self._needed is None or name in self._needed}
        with _damage_told(queue.name, self.plugin, BrokenQueueError):
            file = self.open_file(queue.name)
        try:
            with _damage_told(queue.name, self.plugin, BrokenQueueError):
                reader = ColumnarFileReader(queue, file, wanted, self.plugin)
            if start is not EARLIEST:
                offset = reader.latest if start is LATEST else start.offset  # type: ignore[union-attr]
                if not 0 <= offset <= reader.latest:
                    raise DataError(
                        f"the offset is beyond the end of the file, which has {reader.latest} rows",
                        queue=queue.id,
                        offset=offset,
                    )
                reader.seek(ReadPosition(offset))
        except BaseException:
            file.close()
            raise
        return reader

    def _paths(self) -> Sequence[str]:
        given = self.settings.path
        found: list[str] = []
        for one in [given] if isinstance(given, str) else given:
            pattern = os.path.join(glob.escape(one), f"*{self.ending}") if Path(one).is_dir() else one
            found += [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        if not found:
            hint = f"name a {self.ending} file, a directory with {self.ending} files, or a pattern such as 'tables/*{self.ending}'"
            raise JobError(f"there is no file {given!r}", plugin=self.plugin, option="path", hint=hint)
        return list(dict.fromkeys(found))


class ColumnarFileReader(Reader):
    """Reads one file, group by group; at most 65,536 rows are decoded at a time."""

    def __init__(self, queue: Queue, file: ColumnarFile, wanted: Mapping[str, pl.DataType], plugin: str) -> None:
        self._queue = queue
        self._file = file
        self._plugin = plugin
        self._wanted = dict(wanted)
        self._present = _present(file.schema, wanted, queue, plugin)
        self._group_rows = list(file.group_rows)
        self._rows: Iterator[pa.RecordBatch] | None = None
        self._decoded: pl.DataFrame | None = None
        self._offset = 0

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        """Return the next rows, without waiting; None only at the end of the file. Raises BrokenQueueError at a damaged place."""
        import numpy as np

        if self._decoded is None or not self._decoded.height:
            with _damage_told(self._queue.name, self._plugin, BrokenQueueError, self._offset):
                self._decoded = self._next()
            if self._decoded is None:
                return None
        part, self._decoded = self._decoded[:max_records], self._decoded[max_records:]
        offsets = np.arange(self._offset, self._offset + part.height, dtype=np.int64)
        self._offset += part.height
        return RawBatch(offsets, self.position, frame=part)

    def seek(self, position: ReadPosition) -> None:
        """Go to a row. Only the group that it is in is read before it."""
        self._offset = position.offset
        self._rows = self._decoded = None

    @property
    def position(self) -> ReadPosition:
        """The next row."""
        return ReadPosition(self._offset)

    @property
    def earliest(self) -> int:
        """The first row: 0."""
        return 0

    @property
    def latest(self) -> int:
        """The number of rows of the file."""
        return sum(self._group_rows)

    def position_after(self, max_records: int) -> ReadPosition:
        """Return the end of the last whole group within reach, so that no group is read for two ranges; else as far as it goes."""
        reach, end = min(self.latest, self._offset + max_records), 0
        whole = 0
        for rows in self._group_rows:
            end += rows
            whole = end if end <= reach else whole
        return ReadPosition(whole if whole > self._offset else reach)

    def close(self) -> None:
        """Close the file."""
        self._rows = self._decoded = None
        self._file.close()

    def _next(self) -> pl.DataFrame | None:
        """Return the next rows of the file from the position on, or None at its end."""
        skipped = 0
        if self._rows is None:
            group, skipped = 0, self._offset
            while group < len(self._group_rows) and skipped >= self._group_rows[group]:
                skipped -= self._group_rows[group]
                group += 1
            self._rows = self._from(group)
        for batch in self._rows:
            if batch.num_rows > skipped:
                batch.validate(full=True)  # polars takes it that offsets and texts are right
                return self._frame(batch.slice(skipped))
            skipped -= batch.num_rows
        return None

    def _from(self, first: int) -> Iterator[pa.RecordBatch]:
        for group in range(first, len(self._group_rows)):
            yield from self._file.read(group, self._present)

    def _frame(self, batch: pa.RecordBatch) -> pl.DataFrame:
        """Return rows with the columns that are wanted, in their types."""
        import polars as pl

        found = as_frame(batch)
        made = []
        for name, kind in self._wanted.items():
            if name not in self._present:
                made.append(pl.repeat(None, batch.num_rows, dtype=kind, eager=True).alias(name))
                continue
            try:
                made.append(found[name] if found[name].dtype == kind else found[name].cast(kind))
            except (pl.exceptions.InvalidOperationError, pl.exceptions.ComputeError) as error:
                raise BrokenQueueError(
                    f"column {name!r} has values that are not in the range of {type_name(kind)}: {error}",
                    plugin=self._plugin,
                    queue=self._queue.id,
                    offset=self._offset,
                ) from error
        return pl.DataFrame(made)


@contextlib.contextmanager
def _damage_told(
    path: str, plugin: str, kind: type[JobError | BrokenQueueError], offset: int | None = None
) -> Iterator[None]:
    """Turn what pyarrow says of a file that cannot be read into an error of headrace."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise kind(
            f"{path} cannot be read as a file of {plugin}: {error}",
            plugin=plugin,
            offset=offset,
            hint="it is of another format, damaged, or not yet written to its end: name a file when it is whole",
        ) from error


def _present(found: pa.Schema, wanted: Mapping[str, pl.DataType], queue: Queue, plugin: str) -> list[str]:
    """Return the wanted columns that a file has. Raises BrokenQueueError for types that do not become the wanted ones."""
    present = [name for name in wanted if name in found.names]
    if wanted and not present:
        raise BrokenQueueError(
            f"the file has none of the columns {', '.join(map(repr, wanted))}", plugin=plugin, queue=queue.id
        )
    types = as_frame(found.empty_table().select(present)).schema
    for name in present:
        if not _fits(types[name], wanted[name]):
            raise BrokenQueueError(
                f"column {name!r} is {type_name(types[name])} in the file, which cannot be converted to {type_name(wanted[name])}",
                plugin=plugin,
                queue=queue.id,
                hint="declare types that fit the values of all files: schema={…}",
            )
    return present


def _fits(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Return whether values of a type become another without a loss; integers that are too large are found as they come."""
    import polars as pl

    if found == wanted or found == pl.Null():
        return True
    if found.is_integer() and wanted.is_integer():
        return True
    if isinstance(found, pl.Decimal) and isinstance(wanted, pl.Decimal):
        return wanted.scale >= found.scale
    small = found.is_integer() and found not in (pl.Int64(), pl.UInt64())
    return wanted == pl.Float64() and (found == pl.Float32() or small)


def as_frame(rows: Any) -> pl.DataFrame:
    """Return rows in the types of streams: dictionaries become texts, timestamps have microseconds and those with a zone UTC."""
    import polars as pl

    frame: Any = pl.from_arrow(rows)
    others = {name: made for name, kind in frame.schema.items() if (made := _type_in_streams(kind)) != kind}
    return frame.cast(others) if others else frame  # type: ignore[no-any-return]


def _type_in_streams(kind: pl.DataType) -> pl.DataType:
    import polars as pl

    if isinstance(kind, pl.Categorical | pl.Enum):
        return pl.String()
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", None if kind.time_zone is None else "UTC")
    if isinstance(kind, pl.List | pl.Array):
        return pl.List(_type_in_streams(kind.inner))  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _type_in_streams(field.dtype) for field in kind.fields})  # type: ignore[arg-type]
    return kind
