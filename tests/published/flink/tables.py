"""The tables of programs as a source and a sink, found by SQL texts as connectors ``program_rows`` and ``program_changes``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import polars as pl
from headrace.flow.messages import CHANGE, Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.output_definition import OutputDefinition
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.source import Reader, Source, StartPosition
from headrace.interfaces.table_options import TableOptions
from headrace.jobs.collecting import CollectSettings, CollectSink
from headrace_sql.operators.range_reader import RangeReader

from tests.published.flink.values import KINDS, row_values


class RowsSettings(Settings, frozen=True, kw_only=True):
    """Options of a program's source."""

    path: Annotated[str, option("file with the rows, as JSON")]
    table: Annotated[str, option("name of the table")]
    ends: Annotated[bool, option("whether no row comes behind the last one")] = False
    changes: Annotated[
        Literal["none", "upsert", "all"], option("whether rows change, and whether old rows come, too")
    ] = "none"
    columns: Annotated[dict[str, str], option("types by column")] = msgspec.field(default_factory=dict)


class RowsSource(Source):
    """Gives rows of a file, with the kinds of changes."""

    Settings: ClassVar[type[Settings]] = RowsSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {"program_rows": TableOptions(columns_option="columns")}

    def __init__(self, settings: RowsSettings) -> None:
        self.settings: RowsSettings = settings
        self.bounded = settings.ends
        # Flink's own sources of these tables tell a watermark of their own.
        self.time_delay = timedelta(0)

    def identity(self) -> Mapping[str, Any]:
        return {"table": self.settings.table}

    def schema(self) -> Schema:
        return Schema.of(self.settings.columns)

    def changes(self) -> SourceChanges | None:
        if self.settings.changes == "none":
            return None
        return SourceChanges(before_images=self.settings.changes == "all")

    def queues(self) -> Collection[Queue]:
        return [Queue("rows")]

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        kinds = dict(self.schema())
        read = json.loads(Path(self.settings.path).read_text(encoding="utf-8"))
        rows = [row_values(each, kinds) for each in read]
        frame = pl.DataFrame(
            [pl.Series(name, [row[n] for row in rows], dtype=kind) for n, (name, kind) in enumerate(kinds.items())]
        )
        if self.settings.changes == "none":
            return frame
        # Of an upsert stream, a new row and a changed one look the same.
        marks = ["+U" if self.settings.changes == "upsert" and each["kind"] == "+I" else each["kind"] for each in read]
        return frame.with_columns(pl.Series(CHANGE, [KINDS[each] for each in marks], dtype=pl.Int8))

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        frame = self.frame()
        first = start.offset if isinstance(start, ReadPosition) else 0
        return RangeReader(lambda begin, end: frame.slice(begin, end - begin), first, frame.height)


class ChangesSettings(CollectSettings, frozen=True, kw_only=True):
    """Options of a program's sink."""

    takes: Annotated[Literal["append", "upsert", "changelog"], option("which changes it takes")] = "changelog"


class ChangesSink(CollectSink):
    """Keeps the changes that it is given in files."""

    Settings: ClassVar[type[SinkSettings]] = ChangesSettings
    can_replace = True

    def __init__(self, settings: ChangesSettings) -> None:
        super().__init__(settings)
        self.accepts = settings.takes

    def adopt(self, output: OutputDefinition) -> None:
        if output.replace:
            shutil.rmtree(self.settings.path, ignore_errors=True)
            self.prepare(None)


class _Plugin:
    @hookimpl
    def headrace_sources(self) -> Mapping[str, str]:
        return {"program_rows": "tests.published.flink.tables:RowsSource"}

    @hookimpl
    def headrace_sinks(self) -> Mapping[str, str]:
        return {"program_changes": "tests.published.flink.tables:ChangesSink"}


@cache
def offer() -> None:
    """Let SQL texts of this process find source and sink."""
    default_registry().register(_Plugin(), "published_programs")
