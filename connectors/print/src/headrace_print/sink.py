"""The print sink."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TextIO

from headrace.errors import JobError
from headrace.registry import default_registry
from headrace.settings import option
from headrace.sink import Sink, SinkBatch, SinkSettings

from headrace_print.table import TableWriter

if TYPE_CHECKING:
    from headrace.codec import Encoder
    from headrace.schema import Schema


class PrintSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of the print sink."""

    format: Annotated[Literal["json", "table"], option("how rows look: one JSON object a line, or aligned columns")] = (
        "json"
    )
    target: Annotated[Literal["stdout", "stderr"], option("where they are printed")] = "stdout"
    limit: Annotated[int | None, option("most rows that a process prints; the others are only counted", ge=0)] = None


class PrintSink(Sink):
    """Prints rows where the job runs: in this process, or in the worker process that has the queue. At least once."""

    Settings: ClassVar[type[SinkSettings]] = PrintSettings
    settings: PrintSettings = PrintSettings()

    def __init__(self, settings: PrintSettings | None = None) -> None:
        self.settings = settings if settings is not None else PrintSettings()
        self._schema: Schema | None = None
        self._encoder: Encoder | None = None
        self._table: TableWriter | None = None
        self._printed = 0

    @property
    def prints_to_terminal(self) -> bool:
        """Whether rows appear on the terminal of this process, where nothing else should be drawn meanwhile."""
        return self._stream.isatty()

    def check(self, schema: Schema | None) -> None:
        self._schema = schema

    def open(self) -> None:
        if self.settings.format == "table":
            self._table = TableWriter()
        else:
            self._encoder = default_registry().find("codec", "json")().encoder(self._schema)

    def batch_insert(self, batch: SinkBatch) -> None:
        left = None if self.settings.limit is None else self.settings.limit - self._printed
        if left is not None and left <= 0:
            return
        frame = batch.to_polars().head(left) if left is not None else batch.to_polars()
        if self._table is not None:
            text = self._table.lines(frame)
        else:
            assert self._encoder is not None, "batch_insert is called after open"
            text = self._encoder.encode_lines(frame).decode()
        self._write(text)
        self._printed += frame.height
        if left is not None and frame.height == left:
            print(
                f"print: the limit of {self.settings.limit} rows is reached; the others are only counted",
                file=sys.stderr,
            )

    @property
    def _stream(self) -> TextIO:
        return sys.stdout if self.settings.target == "stdout" else sys.stderr

    def _write(self, text: str) -> None:
        stream = self._stream
        encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            # What the terminal cannot show is escaped: no row is lost because of it.
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError) as error:
            # Whoever read it has gone (``| head``). The rows are not to blame, and trying again does not help.
            raise JobError(
                f"cannot print to {self.settings.target}: {error}",
                plugin="print",
                hint="the program that read the output has ended; use limit=… to print only the first rows",
            ) from error
