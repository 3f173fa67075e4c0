"""What a script has defined so far: tables, views, functions, options; and each table's one stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import polars as pl
from headrace.foundation.errors import FunctionError, did_you_mean
from headrace.interfaces.functions import UserFunction, resolve
from headrace.jobs.dsl import Pipeline, Stream
from sqlglot import exp

from headrace_sql.binding import connectors
from headrace_sql.binding.constants import factor
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import Column, Relation, error_at
from headrace_sql.binding.tables import Table
from headrace_sql.binding.zones import zone_name
from headrace_sql.operators.frames import FrameSource

#: Whether sources may give a change more than once.
_REPEATS = "table.exec.source.cdc-events-duplicate"


@dataclass
class View:
    """A CREATE VIEW statement, read."""

    name: str
    query: exp.Expr
    columns: tuple[str, ...]
    text: str


class Catalog:
    """All that names can mean. One per script; its pipeline is the job's."""

    def __init__(
        self, pipeline: Pipeline, user_functions: Mapping[str, Any], view_relation: Callable[[Catalog, View], Relation]
    ) -> None:
        """``view_relation`` compiles the query of a view, which only a room above can."""
        self.pipeline = pipeline
        self._view_relation = view_relation
        #: What CREATE FUNCTION may name, beside importable objects.
        self.given = dict(user_functions)
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.streams: dict[str, Stream] = {}
        self.options: dict[str, str] = {}
        self.notices = Notices()
        #: What the statement at hand says of early and late results of windows.
        self.emit: Any = None
        #: Names that earlier texts of the process have defined and kept to themselves.
        self.kept_elsewhere: Collection[str] = ()
        self._relations: dict[str, Relation] = {}
        self._unnamed: dict[str, int] = {}
        for name, function in self.given.items():
            if not isinstance(name, str) or "." in name:
                continue
            self.add_function(name, function)

    @property
    def functions(self) -> Mapping[str, Any]:
        return self.pipeline.functions

    @property
    def zone(self) -> str:
        """The time zone of the session."""
        return zone_name(self.options.get("table.local-time-zone", "UTC"))

    @cached_property
    def no_columns(self) -> Relation:
        """What expressions are compiled over that name no column. Nothing reads it."""
        return Relation(self.pipeline.from_(FrameSource.of(pl.DataFrame({"__one": [1]})), name="values"), ())

    def create_function(self, node: exp.Create, text: str) -> UserFunction:
        """Take CREATE FUNCTION: a class, any callable by its import path, or an object with ``eval``."""
        path = node.args["expression"].name
        language = (node.args.get("language") or "PYTHON").upper()
        reference = self.given.get(path, path)
        if reference is path and language not in ("PYTHON", "JAVA", "SCALA"):
            raise error_at(node.args["expression"], text, f"functions in {language} cannot be called here")
        try:
            return self.add_function(node.this.name, reference)
        except FunctionError as error:
            raise error_at(
                node.args["expression"], text, f"function {node.this.name!r}: {error.message}",
                error.hint or f"pass it: hr.sql(…, functions={{{path!r}: my_function}})",
            ) from error  # fmt: skip

    def forget(self, name: str) -> None:
        """Make room for a new definition of a name that an earlier text has defined."""
        for known in (self.tables, self.views, self.streams):
            known.pop(name, None)

    def add_function(self, name: str, reference: Any) -> UserFunction:
        """Let expressions call a function by a name."""

        function: UserFunction = resolve(reference, name=name)
        self.pipeline.functions.add(name, function)
        return function

    def unused_source_name(self, wanted: str) -> str:
        """Return a name for a source that no text names: the wanted one, or with a number behind it."""
        self._unnamed[wanted] = number = self._unnamed.get(wanted, 0) + 1
        return wanted if number == 1 else f"{wanted}_{number}"

    def names(self) -> list[str]:
        return [*self.tables, *self.views, *self.streams]

    def find(self, name: str) -> str | None:
        """Return the defined name that is meant: as written, else the one that differs only in case."""
        names = self.names()
        if name in names:
            return name
        return next((each for each in names if each.lower() == name.lower()), None)

    def hint_of(self, name: str, known: Iterable[str], what: str = "tables") -> str | None:
        """Return the hint for an unknown table."""
        if name in self.kept_elsewhere:
            return (
                "an earlier text with a job of its own has defined it and keeps it to itself: define it in a text without INSERT "
                "and SELECT, or give both texts one session, hr.sql(…, session=s)"
            )
        return did_you_mean(name, known, known=what)

    def relation(self, name: str, node: exp.Expr, text: str) -> Relation:
        """Return the relation of a table or view: always the same one, so that its source is read once."""
        found = self.find(name)
        if found is None:
            raise error_at(node, text, f"unknown table {name!r}", self.hint_of(name, self.names(), "tables and views"))
        if found not in self._relations:
            self._relations[found] = self._made(found)
        return self._relations[found]

    def hinted(self, name: str, options: tuple[tuple[str, str, int], ...], node: exp.Expr, text: str) -> Relation:
        """Return the relation of a table with the options of a hint; of equal hints the same one."""
        found = self.find(name)
        if found is None or found not in self.tables:
            raise error_at(node, text, f"OPTIONS goes with tables, and {name!r} is none")
        key = f"{found} {sorted((key, value) for key, value, _ in options)}"
        if key not in self._relations:
            table = self.tables[found].with_options(options, text)
            self._relations[key] = self.scanned(table, self.unused_source_name(f"{found}_hinted"))
        return self._relations[key]

    def _made(self, name: str) -> Relation:
        if name in self.views:
            view = self.views[name]
            return self._view_relation(self, view).named(name, view.columns)
        if name in self.tables:
            return self.scanned(self.tables[name])
        stream = self.streams[name]
        schema = dict(stream.schema or {})
        return Relation(stream, tuple(Column(each, each, name) for each in schema), base=name)

    def scanned(self, table: Table, source_name: str | None = None) -> Relation:
        """Return the stream of a table: its source, computed columns, watermark."""
        repeats = self.options.get(_REPEATS, "false").lower() == "true"
        begun = connectors.source_stream(self.pipeline, self.notices, table, source_name, repeats=repeats)
        stream = begun.stream
        columns = [Column(each, each, table.name) for each in (*table.columns, *table.metadata_types)]
        relation = Relation(stream, tuple(columns), base=table.name)
        for name, node in table.computed.items():
            if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME":
                columns.append(Column(name, name, table.name, "processing"))
            else:
                translator = Translator(relation, table.text, self.functions, self.zone)
                stream = stream.with_columns(**{name: translator.sql(node)})
                columns.append(Column(name, name, table.name))
            relation = Relation(stream, tuple(columns), base=table.name)
        if table.watermark is not None:
            relation = self._with_watermark(table, relation)
        if begun.normalizes:
            ttl = state_ttl(self.options).get("ttl")
            normalized = relation.stream.normalize_changes(table.primary_key, state_ttl=ttl)
            relation = Relation(normalized, relation.columns, base=table.name)
        ordered = sorted(relation.columns, key=lambda column: table.order.index(column.name))
        return Relation(relation.stream, tuple(ordered), base=table.name)

    def _with_watermark(self, table: Table, relation: Relation) -> Relation:
        assert table.watermark is not None
        name, node = table.watermark
        column = next(each for each in relation.columns if each.name == name)
        kind = relation.schema.get(column.physical)
        if not isinstance(kind, pl.Datetime):
            raise error_at(node, table.text, f"WATERMARK: {name!r} is no TIMESTAMP column")
        delay_us = _watermark_delay(node, name, table.text)
        # Flink's watermark says that nothing up to it comes any more, ours that nothing before it does.
        stream = relation.stream.watermark(column.physical, delay=timedelta(microseconds=delay_us), inclusive=True)
        columns = [Column(c.name, c.physical, c.table, "event") if c is column else c for c in relation.columns]
        return Relation(stream, tuple(columns), base=relation.base)


def _watermark_delay(node: exp.Expr, name: str, text: str) -> int:
    """Return the microseconds that rows may come late: ``ts``, ``ts - INTERVAL …`` or ``withOffset(ts, 2000)``."""
    if isinstance(node, exp.Column) and node.name == name:
        return 0
    if isinstance(node, exp.Sub) and isinstance(node.this, exp.Column) and node.this.name == name:
        micros = interval_us(node.expression, text, "WATERMARK")
        if micros >= 0:
            return micros
    if isinstance(node, exp.Anonymous) and node.name.upper() == "WITHOFFSET" and len(node.expressions) == 2:
        return round(factor(node.expressions[1], text) * 1000)
    raise error_at(node, text, "this watermark is not supported", f"write {name} - INTERVAL '5' SECOND")
