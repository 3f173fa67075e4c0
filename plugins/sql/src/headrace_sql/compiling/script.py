"""A script: statements in their order, and the job that its INSERTs make together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl
from headrace.foundation.errors import ExpressionError, OptionError, PlanError, did_you_mean
from headrace.jobs.dsl import FunctionCatalog, Pipeline, Stream
from headrace.jobs.job import Job
from sqlglot import exp

from headrace_sql.binding.catalog import Catalog
from headrace_sql.binding.column_values import value_of
from headrace_sql.binding.connectors import connector_of, sink_job
from headrace_sql.binding.emitting import emit_of
from headrace_sql.binding.named_arguments import place_named_arguments
from headrace_sql.binding.places import label_of, parts_of
from headrace_sql.binding.scope import Column, Relation, error_at, is_updating
from headrace_sql.binding.session import SqlSession
from headrace_sql.binding.sink_constraints import constraints_of
from headrace_sql.binding.sink_keys import is_known_by, keyed, resolved
from headrace_sql.binding.tables import Table
from headrace_sql.binding.trees import text_of
from headrace_sql.binding.zones import zone_name
from headrace_sql.compiling.altering import alter
from headrace_sql.compiling.definitions import Definitions
from headrace_sql.compiling.explaining import explained
from headrace_sql.compiling.fitting import fitted, partition_texts, sources_of, with_partition
from headrace_sql.compiling.query import QueryCompiler, view_relation
from headrace_sql.compiling.sets import united
from headrace_sql.compiling.showing import Showing
from headrace_sql.operators.frames import FrameSource
from headrace_sql.operators.plan_sink import PlanSink
from headrace_sql.reading import nodes, options
from headrace_sql.reading.parsing import parse
from headrace_sql.reading.table_hints import OPTIONS


@dataclass(frozen=True)
class Insert:
    """One INSERT of a script: the relation that it writes, with the columns of its table."""

    table: str
    relation: Relation
    node: exp.Expr
    #: Options of a hint behind the table.
    options: tuple[tuple[str, str, int], ...] = ()
    #: The table as it was defined there: a later statement may drop or alter it.
    definition: Table | None = None
    #: Whether the rows of the query are known by the table's primary key.
    fits: bool = True


@dataclass(frozen=True)
class Query:
    """A SELECT that stands alone, or an EXPLAIN: rows to be printed."""

    relation: Relation
    is_plan: bool = False
    #: The rows of an answer to SHOW or DESCRIBE, which no job has to make.
    answer: pl.DataFrame | None = None


class Script:
    """The statements of a text, compiled one after the other."""

    def __init__(
        self,
        text: str,
        *,
        functions: Mapping[str, Any] | Sequence[Any] = (),
        dialect: str | None = None,
        namespace: str = "sql",
        pipeline: str = "job",
        by_name: bool = False,
        bad_records: str | None = None,
        session: SqlSession | None = None,
    ) -> None:
        """``session`` has the definitions of earlier texts; it is not changed: the session after this text is ``self.session``."""
        session = SqlSession() if session is None else session
        #: The session as the text leaves it.
        self.session = session.copy()
        self.text = text
        statements, self.dialect = parse(text, dialect)
        for each in statements:
            if isinstance(each, nodes.SetOption) and each.this.name == "pipeline.name":
                pipeline = re.sub(r"[^A-Za-z0-9._-]+", "-", each.expression.name)
        texts = "\n".join([text, *(view.text for view in session.views.values())])
        streams = {name: each for name, each in session.streams.items() if re.search(rf"\b{re.escape(name)}\b", texts)}
        made = (
            next(iter(streams.values())).pipeline
            if streams
            else Pipeline(namespace, pipeline, FunctionCatalog(), bad_records)
        )
        self.catalog = Catalog(made, _named_functions(functions), view_relation, self.session)
        self.catalog.streams.update(streams)
        for name, function in session.functions.items():
            self.catalog.add_function(name, function)
        self.catalog.kept_elsewhere = session.kept
        self.definitions = Definitions(self.catalog, text)
        self.definitions.take_kept_functions()
        self.showing = Showing(self.catalog, text)
        self.by_name = by_name
        self.inserts: list[Insert] = []
        self.queries: list[Query] = []
        #: The jobs of the INSERTs of an EXPLAIN STATEMENT SET that has not ended yet.
        self._explained_set: list[Job] | None = None
        for name, frame in session.frames.items():
            self._register(name, frame)
        for statement in statements:
            try:
                place_named_arguments(statement, self.catalog.functions, text)
                self._name_database(statement)
                self._run(statement)
            except RecursionError:
                raise ExpressionError("the statement is nested too deeply", text=self.text, position=None) from None
        if self._explained_set is not None:
            raise ExpressionError(
                "EXPLAIN STATEMENT SET has no END", text=text, position=len(text), hint="write END; behind its INSERTs"
            )

    def _register(self, name: str, frame: pl.DataFrame) -> None:
        stream = self.catalog.pipeline.from_(FrameSource.of(frame), name=name)
        self.catalog.streams[name] = stream

    def _name_database(self, statement: exp.Expr) -> None:
        """Put the name of the database that is in use where CURRENT_DATABASE() stands."""
        for each in list(statement.find_all(exp.Anonymous)):
            if each.name.upper() == "CURRENT_DATABASE" and not each.expressions:
                each.replace(exp.Literal.string(self.session.place.database))

    def _run(self, node: exp.Expr) -> None:
        if isinstance(node, nodes.StatementSet | exp.EndStatement):
            if isinstance(node, exp.EndStatement) or node.name == "END":
                self._end_explained_set()
        elif isinstance(node, nodes.Explain):
            self._explain(node)
        elif self._explained_set is not None:
            self._explained_set.append(self._explained_job(node))
        elif isinstance(node, nodes.SetOption):
            self._set(node)
        elif isinstance(node, nodes.ResetOption):
            self._reset(node)
        elif isinstance(node, nodes.ShowList | nodes.DescribeDefinition):
            frame = self.showing.show(node) if isinstance(node, nodes.ShowList) else self.showing.describe(node)
            stream = self.catalog.pipeline.from_(FrameSource.of(frame), name=self.catalog.unused_source_name("answer"))
            columns = tuple(Column(name, name) for name in frame.columns)
            self.queries.append(Query(Relation(stream, columns), answer=frame))
        elif isinstance(node, exp.Create):
            self._create(node)
        elif isinstance(node, nodes.DropDefinition):
            self.definitions.drop(node)
        elif isinstance(node, nodes.Alteration):
            alter(self.definitions, node)
        elif isinstance(node, nodes.UsePlace):
            self.definitions.use(node)
        elif isinstance(node, nodes.CreatePlace):
            self.definitions.create_place(node)
        elif isinstance(node, exp.Insert):
            self.inserts.append(self._insert(node))
        elif isinstance(node, exp.Query | exp.Values):
            self.queries.append(Query(self._query(node)))
        else:
            raise error_at(node, self.text, f"{type(node).__name__} is not supported as a statement")

    def _query(self, node: exp.Expr) -> Relation:
        compiler = self._compiler(node.meta.get("emit"))
        return compiler.settled(node, compiler.query(node))

    def _explain(self, node: nodes.Explain) -> None:
        for word in node.args.get("details") or ():
            self.catalog.notices.append(f"EXPLAIN {word} has no effect here: plans have one form")
        if node.args.get("set"):
            self._explained_set = []
            if node.this is not None:
                self._run(node.this)
            return
        self.queries.append(Query(explained(self.catalog, self._explained_job(node.this)), is_plan=True))

    def _explained_job(self, node: exp.Expr) -> Job:
        """Return the job of a statement that is only explained."""
        if isinstance(node, exp.Insert):
            return self.insert_job(self._insert(node))
        if isinstance(node, exp.Query | exp.Values) and self._explained_set is None:
            made: Job = _printable(self._query(node)).to_print(name="result")
            return made
        words = "only queries, INSERTs and statement sets are explained"
        if self._explained_set is not None:
            words = "a statement set has INSERTs only"
        raise error_at(node, self.text, f"EXPLAIN: {words}")

    def _end_explained_set(self) -> None:
        jobs, self._explained_set = self._explained_set, None
        if jobs:
            self.queries.append(Query(explained(self.catalog, jobs[0].also(*jobs[1:])), is_plan=True))

    def _set(self, node: nodes.SetOption) -> None:
        key, value = node.this.name, node.expression.name
        try:
            notice = options.check(key, value)
        except OptionError as error:
            raise error_at(node.this, self.text, error.message, error.hint) from error
        if notice is not None:
            self.catalog.notices.append(notice)
            return
        if key == "table.local-time-zone":
            try:
                value = zone_name(value)
            except OptionError as error:
                raise error_at(node.expression, self.text, error.message, error.hint) from error
        self.catalog.options[key] = value

    def _reset(self, node: nodes.ResetOption) -> None:
        if node.this is None:
            self.catalog.options.clear()
        else:
            self.catalog.options.pop(node.this.name, None)

    def _create(self, node: exp.Create) -> None:
        if node.args["kind"] == "FUNCTION":
            self.definitions.create_function(node)
            return
        filled = self.definitions.create(node, self._query)
        if filled is not None:
            key, relation, columns = filled
            insert = exp.Insert(this=node.this.this, expression=node.expression)
            self.inserts.append(self._inserted(key, relation, columns, insert))

    def _compiler(self, emit: exp.Expr | None) -> QueryCompiler:
        compiler = QueryCompiler(self.catalog, self.text)
        self.catalog.emit = emit_of(self.catalog.options, emit, self.text)
        return compiler

    def _insert(self, node: exp.Insert) -> Insert:
        target = node.this
        name_node = target.this if isinstance(target, exp.Schema) else target
        key = self.catalog.key_of(name_node)
        found = self.catalog.find(key)
        if found is None:
            raise self.catalog.unknown(key, name_node, self.text)
        if found not in self.catalog.tables:
            hint = self.catalog.hint_of(name_node.name, self.catalog.tables)
            raise error_at(name_node, self.text, f"{name_node.name!r} is not a table", hint)
        table = self.catalog.tables[found]
        listed = [each.name for each in target.expressions] if isinstance(target, exp.Schema) else []
        columns = table.sink_columns
        for each, part in zip(listed, target.expressions if listed else (), strict=True):
            if each not in columns:
                raise error_at(
                    part,
                    self.text,
                    f"table {found!r} has no column {each!r}",
                    did_you_mean(each, columns, known="columns"),
                )
        compiler = self._compiler(node.args.get("emit"))
        relation = compiler.settled(node.expression, compiler.query(node.expression))
        self._check_overwritten(node, table)
        if node.args.get("partition"):
            relation, listed = with_partition(compiler, relation, table, listed, node.args["partition"])
        return self._inserted(found, relation, listed, node)

    def _check_overwritten(self, node: exp.Insert, table: Table) -> None:
        """Check that the text names the directory that is emptied: for partitioned tables that of one partition."""
        if not node.args.get("overwrite"):
            return
        declared = connector_of(table, "sink").offered("sink")
        if declared is None or declared.with_partitions is None:
            if node.args.get("partition"):
                raise error_at(
                    node.this,
                    self.text,
                    "INSERT OVERWRITE … PARTITION: this connector has no directories of partitions",
                )
            return
        given = [each.this.name for each in node.args.get("partition") or ()]
        missing = [name for name in table.partitioned if name not in given]
        if missing:
            raise error_at(
                node.this, self.text,
                f"INSERT OVERWRITE of a table in partitions replaces one partition, and no value is given for {', '.join(missing)}",
                f"PARTITION ({', '.join(name + ' = …' for name in table.partitioned)}), one INSERT for each partition",
            )  # fmt: skip

    def _inserted(self, key: str, relation: Relation, listed: list[str], node: exp.Insert) -> Insert:
        columns = self.catalog.tables[key].sink_columns
        compiler = QueryCompiler(self.catalog, self.text)
        table = self.catalog.tables[key]
        made = fitted(compiler, relation, columns, listed, node, by_name=self.by_name)
        sources = sources_of(compiler, relation, columns, listed, node, by_name=self.by_name)
        keys = [name for name in table.primary_key if name in columns]
        fits = is_known_by(relation, [sources.get(name) for name in keys], [columns[name] for name in keys])
        constraints = constraints_of(table, self.catalog.options)
        if constraints is not None:
            made = replace(made, stream=made.stream.apply(constraints))
        conflict = node.args.get("conflict")
        if conflict is not None:
            if not table.primary_key:
                raise error_at(
                    conflict, self.text, f"ON CONFLICT is for tables with a PRIMARY KEY, and {table.name!r} has none"
                )
            made = replace(made, stream=resolved(made.stream, table.primary_key, conflict.name, self.catalog.options))
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        return Insert(key, made, node, target.meta.get(OPTIONS, ()), table, fits)

    def job(self) -> Job:
        """Return the job that all INSERTs make together; a query that stands alone is printed. Raises PlanError."""
        jobs = [self.insert_job(insert) for insert in self.inserts]
        for index, query in enumerate(self.queries):
            name = "result" if not index else f"result_{index + 1}"
            stream = _printable(query.relation)
            jobs.append(stream.to(PlanSink(), name=name) if query.is_plan else stream.to_print(name=name))
        if not jobs:
            raise PlanError(
                "the text has no INSERT INTO and no SELECT, so there is nothing to run",
                job=self.catalog.pipeline.pipeline,
            )
        return jobs[0].also(*jobs[1:])

    @property
    def is_job(self) -> bool:
        """Whether the text has something to run, beside statements that show definitions."""
        return bool(self.inserts) or any(each.answer is None for each in self.queries)

    @property
    def own(self) -> set[str]:
        """The names of the tables and views that the text defines itself."""
        return {parts_of(key)[1] for key in self.definitions.own}

    def insert_job(self, insert: Insert) -> Job:
        """Return the job of one INSERT."""
        assert insert.definition is not None
        table = insert.definition.with_options(insert.options, self.text)
        by_key = partial(
            keyed, fits=insert.fits, conflict=insert.node.args.get("conflict"), options=self.catalog.options
        )
        overwrites = bool(insert.node.args.get("overwrite"))
        stream, within = insert.relation.stream, None
        if overwrites and insert.node.args.get("partition"):
            within = partition_texts(self._compiler(None), table, insert.node.args["partition"])
            stream = stream.drop(*within)
        return sink_job(
            self.catalog.notices, table, stream, label_of(insert.table), by_key, overwrites=overwrites, within=within
        )

    def relations(self) -> dict[str, Relation]:
        """Return the relations of INSERTs and queries, by table; a query alone is called ``result``."""
        made: dict[str, Relation] = {}
        for insert in self.inserts:
            if insert.table in made:
                made[insert.table] = united([made[insert.table], insert.relation])
            else:
                made[insert.table] = insert.relation
        for index, query in enumerate(self.queries):
            made["result" if not index else f"result_{index + 1}"] = replaced_names(query.relation)
        return made


def replaced_names(relation: Relation) -> Relation:
    return Relation(_printable(relation), relation.columns)


def _printable(relation: Relation) -> Stream:
    """Return the rows under the names that the query gives them; of equal names the later ones get a number, as in Flink.

    Columns of processing time hold the time at which the row is given.
    """
    wanted: dict[str, Column] = {}
    for column in relation.columns:
        if column.hidden or (column.physical not in relation.schema and column.time != "processing"):
            continue
        if column.time == "processing" and is_updating(relation):
            raise PlanError(
                f"column {column.name!r} is a processing time, and the rows change: a retracted row would have another time than the row "
                "before",
                hint="leave it out, or convert it to a plain time before the join or aggregation: CAST(p AS TIMESTAMP(3))",
            )
        name, number = column.name, 0
        while name in wanted:
            name, number = f"{column.name}{number}", number + 1
        wanted[name] = column
    if list(wanted) == list(relation.schema) and all(name == column.physical for name, column in wanted.items()):
        return relation.stream
    return relation.stream.select(**{name: text_of(value_of(relation, column)[0]) for name, column in wanted.items()})


def _named_functions(functions: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return functions by name: of a list, each under its own."""
    if isinstance(functions, Mapping):
        return dict(functions)
    made = {}
    for each in functions:
        name = getattr(each, "name", None) or getattr(each, "__name__", None) or type(each).__name__
        made[str(name)] = each
    return made
