"""The print sink."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TextIO

import msgspec
from headrace.flow.changelog import KIND_MARKS
from headrace.flow.messages import CHANGE, HEADER_COLUMNS
from headrace.foundation.errors import JobError
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import option
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions

from headrace_print.table import TableWriter

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Encoder


class PrintSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of the print sink."""

    format: Annotated[
        Literal["json", "table"],
        option("format of the rows: one JSON object per line, or a table with aligned columns"),
    ] = "json"
    target: Annotated[Literal["stdout", "stderr"], option("standard stream to print to")] = "stdout"
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        option("maximum number of rows that a process prints; further rows are only counted; default: no limit"),
    ] = None
    json_columns: Annotated[
        tuple[str, ...], option("text columns whose values are JSON; they are printed as JSON, not as strings")
    ] = ()


_TABLE_OPTIONS = TableOptions(
    unused=dict.fromkeys(("print-identifier", "standard-error", "sink.parallelism"), OF_FLINKS_RUNTIME)
)


class PrintSink(Sink):
    """Prints rows where the job runs: in this process, or in the worker process that has the queue. At least once.

    Rows that change earlier ones are marked: ``+I`` insert, ``-U`` and ``+U`` update before and after, ``-D`` delete.
    """

    accepts = "changelog"
    Settings: ClassVar[type[SinkSettings]] = PrintSettings
    table_options = dict.fromkeys(("print", "console"), _TABLE_OPTIONS)
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
        return self.stream.isatty()

    def check(self, schema: Schema | None) -> None:
        self._schema = schema

    def open(self) -> None:
        if self.settings.format == "table":
            self._table = TableWriter()
        else:
            codec = default_registry().find("codec", "json")
            given = codec.Settings.of({"json_columns": self.settings.json_columns}, plugin="json")
            self._encoder = codec(given).encoder(self._schema)

    def batch_insert(self, batch: SinkBatch) -> None:
        limit = self.settings.limit
        rows = len(batch) if limit is None else min(len(batch), limit - self._printed)
        if rows <= 0:
            return
        shown = replace(batch, frame=batch.frame.head(rows))
        marks = None
        if CHANGE in shown.frame.columns:
            marks = [KIND_MARKS[kind] for kind in shown.frame[CHANGE].to_list()]
        if self._table is not None:
            text = self._table.lines(shown.to_polars(), marks)
        else:
            assert self._encoder is not None, "batch_insert is called after open"
            # Rows of unknown columns go to the encoder as they are, so that each is printed with its own keys.
            text = self._encoder.encode_lines(shown.frame.drop(HEADER_COLUMNS, strict=False)).decode()
            if marks is not None:
                lines = text.removesuffix("\n").split("\n")  # texts in JSON hold no newline
                text = "".join(f"{mark} {line}\n" for mark, line in zip(marks, lines, strict=True))
        self._write(text)
        self._printed += rows
        if self._printed == limit:
            print(f"print: the limit of {limit} rows is reached; further rows are only counted", file=sys.stderr)

    @property
    def stream(self) -> TextIO:
        """The stream to print to: looked up at each use, because programs and tests redirect it."""
        return sys.stdout if self.settings.target == "stdout" else sys.stderr

    def _write(self, text: str) -> None:
        stream = self.stream
        encoding = stream.encoding or "utf-8"
        try:
            # Characters that the terminal cannot show are escaped, so no row is lost.
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError) as error:
            # The program that read the output has ended (``| head``). This is no error of the rows, and trying again does not help.
            raise JobError(
                f"cannot print to {self.settings.target}: {error}",
                plugin="print",
                hint="the program that read the output has probably ended; to print only the first rows, use limit=…",
            ) from error
