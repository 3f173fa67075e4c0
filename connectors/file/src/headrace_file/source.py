"""The file source: files, directories and globs as queues."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import FormatFraming
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import LATEST, Source, StartAt, StartPosition

from headrace_file.context import Context
from headrace_file.entry_framing import CriFraming, DockerJsonFraming, JournalExportFraming
from headrace_file.file_system import file_system
from headrace_file.framing import CsvFraming, Framing, NewlineFraming
from headrace_file.header import FileHeader
from headrace_file.multiline_framing import MultilineFraming
from headrace_file.reader import FileReader
from headrace_file.rotation import RotatedNames
from headrace_file.settings import FileSourceSettings
from headrace_file.table_options import SOURCE_TABLES
from headrace_file.tracker import Tracker

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec

logger = logging.getLogger(__name__)
_FRAMINGS: Mapping[str, type[Framing]] = {
    "cri": CriFraming,
    "docker-json": DockerJsonFraming,
    "journal-export": JournalExportFraming,
}


class FileSource(Source):
    """Reads files: each is a queue whose name is its path as it was found, and whose offsets number its records.

    A file is followed through rotation (renamed or copied, compressed afterwards or not), replacement and truncation:
    the queue's numbers go on growing. See ``docs/connectors/file.md`` for the rules. May be pickled at any time; a copy begins
    without knowledge of the files; positions carry it.
    """

    Settings: ClassVar[type[Settings]] = FileSourceSettings
    table_options = SOURCE_TABLES
    read_by_workers = True

    def __init__(self, settings: FileSourceSettings, *, clock: Clock | None = None) -> None:
        self.settings: FileSourceSettings = settings
        self._clock = clock
        self._format: str | None = None
        self._csv_options: tuple[str, str | None] = (settings.csv_delimiter or ",", settings.csv_quote or '"')
        self._body_bytes_max = 0
        self._columns: tuple[str, ...] | None = None
        self._codec_columns: tuple[str, ...] = ()
        self._until_end = False
        self._context: Context | None = None
        self._listed: tuple[Sequence[str], tuple[Queue, ...]] = (), ()

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks at its own machine's clock.
        return {**self.__dict__, "_context": None, "_clock": None, "_listed": ((), ())}

    # ------------------------------------------------------------------------------------------------ building

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None = None) -> None:
        """Take the job's format, which decides about the framing. Called when the job is built, before ``check``.

        ``schema`` has the columns to which the bodies are decoded. The header of csv files is compared with the format's option
        ``columns``, else with the schema, as far as either is given.
        """
        self._format = format
        framing = FormatFraming() if codec is None else codec.framing()
        self._csv_options = (
            self.settings.csv_delimiter or framing.delimiter,
            self.settings.csv_quote or framing.quote,
        )
        self._body_bytes_max = framing.body_bytes_max
        self._codec_columns = tuple(framing.fields)
        columns = self._codec_columns or tuple(schema or ())
        self._columns = columns if columns and format == "csv" else None

    def use_run(self, *, until: Literal["end"] | None) -> None:
        """Take whether the run ends with the input: then a last line without newline is a record.

        Called by a backend before the first ``queues``, in every process.
        """
        self._until_end = until == "end"
        if self._context is not None:
            self._context.until_end = self._until_end

    @property
    def framing(self) -> str:
        """What ends a record: one of the values of the option but "auto"."""
        if self.settings.framing != "auto":
            return self.settings.framing
        if self.settings.first_line is not None or self.settings.continuation is not None:
            return "multiline"
        return self._format if self._format in ("csv", *_FRAMINGS) else "newline"

    def check(self) -> None:
        """Check the options. Raises OptionError."""
        patterns = self.settings.first_line, self.settings.continuation
        if self.framing == "multiline":
            if patterns == (None, None):
                why = "a record of several lines needs first_line or continuation"
                raise OptionError(
                    why, plugin="file", option="framing", hint=r"for example first_line=r'^\d{4}-\d\d-\d\d '"
                )
            self._make_framing()
        elif patterns != (None, None):
            raise OptionError(f"first_line and continuation are for framing='multiline', not {self.framing!r}", plugin="file",
                              option="framing", hint="leave framing out")  # fmt: skip
        self._check_header_options()
        if self.framing == "csv" and len(set(self._csv_options)) < 2:
            raise OptionError("delimiter and quote are the same character", plugin="file", option="csv_quote")
        if self.settings.rotate_wait.total_seconds() < 0 or self.settings.last_line_timeout.total_seconds() < 0:
            raise OptionError("the duration is negative", plugin="file", option="rotate_wait")
        file_system(self.settings).close()  # raises for what no installed package reads

    def _check_header_options(self) -> None:
        settings = self.settings
        if settings.columns_by == "order":
            if settings.missing_columns != "fail":
                raise OptionError("it is for columns_by='header'", plugin="file", option="missing_columns")
            return
        if not settings.header:
            raise OptionError("columns_by='header' needs a header line in each file", plugin="file", option="columns_by",
                              hint="add header=True")  # fmt: skip
        if self._format is not None and self._format != "csv":
            raise OptionError(f"this option is for csv only; the fields of {self._format!r} have",
                              plugin="file", option="columns_by", hint="leave it out")  # fmt: skip
        if self._codec_columns:
            raise OptionError("the option 'columns' of csv cannot be combined with names from the header", plugin="file",
                              option="columns_by", hint="leave 'columns' out")  # fmt: skip

    # ------------------------------------------------------------------------------------------------ running

    @property
    def context(self) -> Context:
        """What the readers of this object share; made on first use."""
        if self._context is None:
            settings = self.settings
            clock = self._clock or SystemClock()
            names = RotatedNames(settings.rotated)
            files = file_system(settings)
            wait = settings.rotate_wait.total_seconds()
            self._context = Context(
                settings,
                self._make_framing(),
                names,
                Tracker(
                    files.paths(settings),
                    names,
                    settings.compression,
                    rotate_wait_seconds=wait,
                    clock=clock,
                    files=files,
                ),
                FileHeader(settings, self._columns, self._csv_options),
                clock,
                self._until_end,
                # A record that is cut is longer than the format takes, so that it is refused there.
                max(settings.max_record_bytes, self._body_bytes_max),
                files=files,
            )
        return self._context

    def _make_framing(self) -> Framing:
        if self.framing in _FRAMINGS:
            return _FRAMINGS[self.framing]()
        if self.framing == "multiline":
            settings = self.settings
            try:
                return MultilineFraming(
                    first_line=settings.first_line,
                    continuation=settings.continuation,
                    lines_max=settings.record_lines_max,
                )
            except ValueError as error:
                naming = "continuation" if settings.first_line is None else "first_line"
                raise OptionError(str(error), plugin="file", option=naming) from error
        delimiter, quote = self._csv_options
        return CsvFraming(delimiter, quote) if self.framing == "csv" and quote else NewlineFraming()

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Take the files of a checkpoint: which are read, and which belong to which queue."""
        for queue, position in positions.items():
            self.context.tracker.learn(queue.name, position)

    def queues(self) -> Collection[Queue]:
        """Return a queue for each file that exists now, except for rotated files of known queues.

        Raises JobError when a path was never there, RetriableError when a directory that existed is missing.
        """
        names = self.context.tracker.discover()
        if names is not self._listed[0]:
            # The same tuple while nothing changes: there may be very many files.
            self._listed = names, tuple(Queue(name) for name in names)
        return self._listed[1]

    def open(self, queue: Queue, start: StartPosition) -> FileReader:
        """Return a reader of the queue.

        Raises DataError when ``start`` names records that are known to have been there and are gone.
        """
        context, name = self.context, queue.name
        if isinstance(start, ReadPosition):
            return FileReader(context, name, start)
        reader = FileReader(context, name, context.tracker.queue(name).beginning)
        if start is LATEST or (isinstance(start, StartAt) and self._unchanged_since(name, start.time)):
            self._go_to_end(reader)
        return reader

    def _unchanged_since(self, name: str, time: datetime) -> bool:
        status = self.context.files.status_or_none(name)
        return status is not None and status.st_mtime_ns < time.timestamp() * 1e9

    def _go_to_end(self, reader: FileReader) -> None:
        while (end := reader.position_after(1_000_000)).offset > reader.position.offset:
            reader.seek(end)

    def close(self) -> None:
        """Drop the knowledge of the files; readers are closed by their users."""
        if self._context is not None:
            self._context.tracker.close()
            self._context.files.close()
            self._context = None
