"""What a script has defined so far: tables, views, functions, options; and each table's one stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import polars as pl
from headrace.foundation.errors import FunctionError, PlanError, did_you_mean
from headrace.interfaces.functions import UserFunction, resolve
from headrace.interfaces.source import Source
from headrace.jobs.dsl import Pipeline, Stream
from sqlglot import exp

from headrace_sql.binding import connectors
from headrace_sql.binding.constants import factor
from headrace_sql.binding.definition_stores import KINDS
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.idleness import idle_timeout
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.places import DEFAULT_PLACE, Place, full_place, label_of, parts_of
from headrace_sql.binding.scope import Column, Relation, error_at
from headrace_sql.binding.session import SqlSession
from headrace_sql.binding.tables import Table, read_table
from headrace_sql.binding.zones import zone_name
from headrace_sql.operators.frames import FrameSource
from headrace_sql.reading import nodes
from headrace_sql.reading.options import choice
from headrace_sql.reading.parsing import parse

#: Whether sources may give a change more than once.
_REPEATS = "table.exec.source.cdc-events-duplicate"


@dataclass
class View:
    """A CREATE VIEW statement, read."""

    name: str
    query: exp.Expr
    columns: tuple[str, ...]
    text: str
    #: Where the names of its query lie.
    place: Place = DEFAULT_PLACE
    #: The query as it is written.
    written: str = ""


def view_of(node: exp.Create, text: str, place: Place) -> View:
    """Read a CREATE VIEW statement."""
    named = node.this
    columns = tuple(each.name for each in named.expressions) if isinstance(named, exp.Schema) else ()
    name = (named.this if isinstance(named, exp.Schema) else named).name
    query = node.expression
    return View(name, query, columns, text, place, query.meta.get(nodes.WRITTEN, ""))


class Catalog:
    """All that names can mean. One per script; its pipeline is the job's."""

    def __init__(
        self,
        pipeline: Pipeline,
        user_functions: Mapping[str, Any],
        view_relation: Callable[[Catalog, View], Relation],
        session: SqlSession,
    ) -> None:
        """``view_relation`` compiles the query of a view, which only a room above can. The catalog changes ``session``."""
        self.pipeline = pipeline
        self.session = session
        self._view_relation = view_relation
        #: What CREATE FUNCTION may name, beside importable objects.
        self.given = dict(user_functions)
        self.tables: dict[str, Table] = session.tables
        self.views: dict[str, View] = session.views
        self.streams: dict[str, Stream] = {}
        self.options: dict[str, str] = session.options
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

    def create_function(self, name: str, path_node: exp.Expr, language: str | None, text: str) -> UserFunction:
        """Take CREATE FUNCTION: a class, any callable by its import path, or an object with ``eval``."""
        path = path_node.name
        language = (language or "PYTHON").upper()
        reference = self.given.get(path, path)
        if reference is path and language not in ("PYTHON", "JAVA", "SCALA"):
            raise error_at(path_node, text, f"functions in {language} cannot be called here")
        try:
            return self.add_function(name, reference)
        except FunctionError as error:
            raise error_at(
                path_node, text, f"function {name!r}: {error.message}",
                error.hint or f"pass it: hr.sql(…, functions={{{path!r}: my_function}})",
            ) from error  # fmt: skip

    def forget(self, name: str) -> None:
        """Make room for a new definition of a name that an earlier text has defined."""
        session = self.session
        for known in (self.tables, self.views, self.streams, session.frames, session.streams, self._relations):
            known.pop(name, None)
        session.kept.discard(name)

    def add_function(self, name: str, reference: Any) -> UserFunction:
        """Let expressions call a function by a name."""

        function: UserFunction = resolve(reference, name=name)
        self.pipeline.functions.add(name, function)
        return function

    def remove_function(self, name: str) -> None:
        """Let expressions call a function no more."""
        self.pipeline.functions.remove(name)

    def unused_source_name(self, wanted: str) -> str:
        """Return a name for a source that no text names: the wanted one, or with a number behind it."""
        self._unnamed[wanted] = number = self._unnamed.get(wanted, 0) + 1
        return wanted if number == 1 else f"{wanted}_{number}"

    def names(self) -> list[str]:
        return [*self.tables, *self.views, *self.streams]

    def place_of(self, node: exp.Expr) -> Place:
        """Return the catalog and database of a name, from the words in front of it."""
        return full_place(self.session.place, [node.text(part) for part in ("catalog", "db") if node.text(part)])

    def key_of(self, node: exp.Expr) -> str:
        """Return the key of a name in a text: the key of its definition, or of the place where it would be defined."""
        key = self.place_of(node).key(node.name)
        if self.find(key) is None and not node.text("db") and node.name in self.streams:
            return node.name  # names registered in Python are known in each database of the session
        return key

    def find(self, key: str) -> str | None:
        """Return the key of the definition that is meant: as written, else the one that differs only in case."""
        names = self.names()
        if key in names or self._read_definition(key):
            return key
        return next((each for each in names if each.lower() == key.lower()), None)

    def _read_definition(self, key: str) -> bool:
        """Take a definition from where its catalog keeps it. Returns whether it is there."""
        place, name = parts_of(key)
        entry = self.session.catalogs.get(place.catalog)
        if entry is None or entry.store is None or key in self.session.dropped or place.database not in entry.databases:
            return False
        for kind in KINDS[:2]:
            kept = entry.store.definition(place.database, name, kind)
            if kept is not None:
                self._take_definition(key, kept, place)
                self.session.read.add(key)
                return True
        return False

    def _take_definition(self, key: str, text: str, place: Place) -> None:
        [node] = parse(text)[0]
        if not isinstance(node, exp.Create):
            raise PlanError(f"{key} is stored as {text[:60]!r}, which is not a definition")
        if node.args["kind"] == "TABLE":
            self.tables[key] = read_table(node, text, key)
        else:
            self.views[key] = view_of(node, text, place)

    def hint_of(self, name: str, known: Iterable[str], what: str = "tables") -> str | None:
        """Return the hint for an unknown table."""
        if parts_of(name)[1] in self.kept_elsewhere:
            return (
                "an earlier text with a job of its own has defined it and keeps it to itself: define it in a text without INSERT "
                "and SELECT, or give both texts one session, hr.sql(…, session=s)"
            )
        return did_you_mean(name, known, known=what)

    def relation(self, name: str, node: exp.Expr, text: str) -> Relation:
        """Return the relation of a table or view: always the same one, so that its source is read once."""
        found = self.find(name)
        if found is None:
            raise self.unknown(name, node, text)
        if found not in self._relations:
            self._relations[found] = self._made(found)
        return self._relations[found]

    def unknown(self, key: str, node: exp.Expr, text: str) -> Exception:
        """Return the error of a name that nothing has, at its place in a text."""
        place, name = parts_of(key)
        entry = self.session.catalogs.get(place.catalog)
        if entry is None:
            hint = did_you_mean(place.catalog, self.session.catalogs, known="catalogs")
            return error_at(node, text, f"unknown catalog {place.catalog!r}", hint)
        if place.database not in entry.databases:
            hint = did_you_mean(place.database, entry.databases, known="databases")
            return error_at(node, text, f"catalog {place.catalog!r} has no database {place.database!r}", hint)
        names = [parts_of(each)[1] for each in self.names() if parts_of(each)[0] == place]
        if entry.store is not None:
            kept = {place.key(each) for kind in KINDS[:2] for each in entry.store.names(place.database, kind)}
            names += [parts_of(each)[1] for each in kept - self.session.dropped]
        where = "" if place == DEFAULT_PLACE else f" in {place.catalog}.{place.database}"
        return error_at(node, text, f"unknown table {name!r}{where}", self.hint_of(key, names, "tables and views"))

    def hinted(self, name: str, options: tuple[tuple[str, str, int], ...], node: exp.Expr, text: str) -> Relation:
        """Return the relation of a table with the options of a hint; of equal hints the same one."""
        found = self.find(name)
        if found is None or found not in self.tables:
            raise error_at(node, text, f"OPTIONS goes with tables, and {name!r} is none")
        key = f"{found} {sorted((key, value) for key, value, _ in options)}"
        if key not in self._relations:
            table = self.tables[found].with_options(options, text)
            self._relations[key] = self.scanned(table, self.unused_source_name(f"{label_of(found)}_hinted"))
        return self._relations[key]

    def _made(self, name: str) -> Relation:
        if name in self.views:
            view = self.views[name]
            before, self.session.place = self.session.place, view.place
            try:
                return self._view_relation(self, view).named(parts_of(name)[1], view.columns)
            finally:
                self.session.place = before
        if name in self.tables:
            return self.scanned(self.tables[name])
        stream = self.streams[name]
        schema = dict(stream.schema or {})
        return Relation(stream, tuple(Column(each, each, name) for each in schema), base=name)

    def scanned(self, table: Table, source_name: str | None = None) -> Relation:
        """Return the stream of a table: its source, computed columns, watermark."""
        repeats = choice(self.options, _REPEATS) == "TRUE"
        name = source_name or label_of(table.key)
        if repeats:
            self._check_key(table)
        begun = connectors.source_stream(self.pipeline, self.notices, table, name, repeats=repeats)
        return self._with_columns(table, begun.stream, begun.source, normalizes=begun.normalizes)

    def _check_key(self, table: Table) -> None:
        for name in table.primary_key:
            if name not in table.columns:
                raise error_at(
                    table.node.this.this,
                    table.text,
                    f"the primary key has {name!r}, which is not a column of the records",
                )

    def described(self, table: Table) -> Relation:
        """Return a relation with the columns of a table, computed ones too, and no rows: no connector is asked."""
        types = {**table.columns, **table.metadata_types}
        source = FrameSource.of(pl.DataFrame(schema=types)) if types else FrameSource.of(pl.DataFrame({"__one": [1]}))
        apart = Pipeline("sql", "described", self.pipeline.functions)
        return self._with_columns(table, apart.from_(source, name="described"), None)

    def _with_columns(
        self, table: Table, stream: Stream, source: Source | None, *, normalizes: bool = False
    ) -> Relation:
        columns = [Column(each, each, table.name) for each in (*table.columns, *table.metadata_types)]
        relation = Relation(stream, tuple(columns), base=table.key)
        for name, node in table.computed.items():
            if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME":
                columns.append(Column(name, name, table.name, "processing"))
            else:
                translator = Translator(relation, table.text, self.functions, self.zone)
                stream = stream.with_columns(**{name: translator.sql(node)})
                columns.append(Column(name, name, table.name))
            relation = Relation(stream, tuple(columns), base=table.key)
        if table.watermark is not None:
            relation = self._with_watermark(table, relation, source)
        if normalizes:
            ttl = state_ttl(self.options).get("ttl")
            normalized = relation.stream.normalize_changes(table.primary_key, state_ttl=ttl)
            relation = Relation(normalized, relation.columns, base=table.key)
        ordered = sorted(relation.columns, key=lambda column: table.order.index(column.name))
        return Relation(relation.stream, tuple(ordered), base=table.key)

    def _with_watermark(self, table: Table, relation: Relation, source: Source | None) -> Relation:
        assert table.watermark is not None
        name, node = table.watermark
        column = next(each for each in relation.columns if each.name == name)
        kind = relation.schema.get(column.physical)
        if not isinstance(kind, pl.Datetime):
            raise error_at(node, table.text, f"WATERMARK: {name!r} is no TIMESTAMP column")
        idle = idle_timeout(table, self.options)
        if isinstance(node, exp.Anonymous) and node.name.upper() == "SOURCE_WATERMARK" and not node.expressions:
            delay = _source_delay(table, source)
            stream = relation.stream.watermark(column.physical, delay=delay, by_source=True, **idle)
        else:
            delay_us = _watermark_delay(node, name, table.text)
            # Flink's watermark says that nothing up to it comes any more, ours that nothing before it does.
            delay = timedelta(microseconds=delay_us)
            stream = relation.stream.watermark(column.physical, delay=delay, inclusive=True, **idle)
        columns = [Column(c.name, c.physical, c.table, "event") if c is column else c for c in relation.columns]
        return Relation(stream, tuple(columns), base=relation.base)


def _source_delay(table: Table, source: Source | None) -> timedelta:
    """Return how far times of records may go back in a queue of the table's source. Raises ExpressionError if the
    source does not guarantee it.
    """
    assert table.watermark is not None
    name, node = table.watermark
    if source is None:  # the table is described only: no connector is asked
        return timedelta(0)
    if source.time_delay is None:
        message = f"SOURCE_WATERMARK: connector {connectors.connector_of(table, 'source').name!r} tells no watermark of its own"
        hint = connectors.source_watermark_hint(table) or f"write {name} - INTERVAL '5' SECOND"
        raise error_at(node, table.text, message, hint)
    return source.time_delay


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
