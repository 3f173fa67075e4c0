"""``lookup_join``: joins each row with the matching rows of a table, as the table is when the row is processed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary, finalize

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, Batch, Watermark
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows, renumber
from headrace.interfaces.settings import parse_duration
from headrace.interfaces.sink import Sink, SinkBatch
from headrace.jobs.dsl import Stream
from headrace.plan.graph import Node, SinkNode

from headrace_dimension.loading import load_table, table_plan
from headrace_dimension.shared_table import SharedTable, sharing_for, table_of_another_process
from headrace_dimension.table import Lookup, Table, places_for_all
from headrace_dimension.table_files import TableFiles, can_share, remove_tables

On = str | Sequence[str] | Mapping[str, Any]


class _TableEnd(Sink):
    """The sink of a table's plan. It gets no rows: the loader takes them."""

    def batch_insert(self, batch: SinkBatch) -> None:
        raise AssertionError("the plan of a table has no run: its rows go to the loader")


class LookupJoin(OperatorSpec):
    """Join each row with a dimension table: ``stream.lookup_join(users, on="user")``.

    ``table`` is a stream of one source that has an end (file, MySQL, …), with or without ``where``, ``select`` and other
    verbs that process each row alone. It is loaded when the first rows come, once per process, and shared by all jobs that
    are built with the same stream object. Spark's worker processes on one machine map one copy.

    ``on``: equal columns (a name, several names, ``{"column": "table column"}``); ``match="range"`` with
    ``{"column": ("low", "high")}``, both included; ``match="prefix"`` with ``{"ip": "network"}`` for the longest prefix.
    ``how``: "inner" leaves out rows without a match, "left" keeps them with NULLs. ``refresh``: the table is loaded again
    after this time ("10 min", seconds, or a timedelta), in the background. ``suffix`` is added to the names of table columns
    that the stream also has. ``threads``: how many queues of the table are loaded at a time; a refresh for which no row waits
    loads one. ``show_progress``: whether a progress bar is shown while the table is loaded.

    A row is joined with the table as it is when the row is processed. If a row is processed again after a crash, the table
    may be another one. A bad record in the table ends the job. Raises JobError when the job is built if options or columns
    do not fit.
    """

    name = "lookup_join"

    def __init__(
        self,
        table: Stream,
        on: On,
        *,
        how: Literal["inner", "left"] = "inner",
        match: Literal["equal", "range", "prefix"] = "equal",
        refresh: Any = None,
        suffix: str = "_right",
        threads: int = 4,
        show_progress: bool = False,
    ) -> None:
        if how not in ("inner", "left"):
            raise OptionError(f"unusable value {how!r}: 'inner' or 'left'", option="how")
        if match not in ("equal", "range", "prefix"):
            raise OptionError(f"unusable value {match!r}: 'equal', 'range' or 'prefix'", option="match")
        if not isinstance(threads, int) or threads < 1:
            raise OptionError(f"unusable value {threads!r}: it must be a whole number from 1 on", option="threads")
        if not isinstance(table, Stream):
            raise OptionError(
                f"{table!r} is not a table",
                option="table",
                hint='give it a stream of the table\'s rows, such as hr.stream("shop", "prices").from_file(…)',
            )
        schema = table.schema
        if schema is None:
            raise PlanError("the columns of the table are not known", hint="give its map() a schema")
        self.how = how
        self.suffix = suffix
        try:
            self.refresh = None if refresh is None else parse_duration(refresh)
        except ValueError as error:
            raise OptionError(str(error), option="refresh") from error
        self._table_schema = schema
        self._probes, self._lookup = _pairs(on, match)
        for column in self._lookup[1]:
            if column not in schema:
                hint = did_you_mean(column, list(schema), known="columns of the table")
                raise PlanError(f"the table has no column {column!r}", hint=hint)
        node = SinkNode(label="table", schema=schema, sink=_TableEnd(), input=table.edge)
        self._plan = table_plan(node, table.pipeline.pipeline)
        self._threads = threads
        self._show_progress = show_progress
        self._source = table.edge.node
        built = _tables.setdefault(self._source, {})
        key = f"{table.edge.output}-{self._lookup}-{self.refresh}"
        if key not in built:
            built[key] = _Built(uuid.uuid4().hex, SharedTable(self._plan.job_name, self.refresh))
        self._token, self._table = built[key].token, built[key].table

    def __getstate__(self) -> dict[str, Any]:
        for built in _tables.get(self._source, {}).values():
            if built.token == self._token and built.removal is None and can_share():
                # The files that other processes of this machine write are removed with the stream, or when this process ends.
                directory = TableFiles(self._token).directory
                built.removal = finalize(self._source, remove_tables, directory, os.getpid())
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # It is unpickled in each of the processes that run parts of the job.
        self._table = table_of_another_process(self._token, self._shared)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        if schema is None:
            raise PlanError(
                "the columns are not known when the job is built",
                hint="give the map() before it an option schema={...}",
            )
        kind, columns = self._lookup
        probes = self._probes * 2 if kind == "range" else self._probes
        for probe, column in zip(probes, columns, strict=True):
            if probe not in schema:
                hint = did_you_mean(probe, list(schema), known="columns")
                raise PlanError(f"unknown column {probe!r}", hint=hint)
            mine, theirs = schema[probe], self._table_schema[column]
            if not _comparable(mine, theirs):
                raise PlanError(
                    f"{probe!r} is {type_name(mine)}, the table's {column!r} {type_name(theirs)}: they cannot be compared",
                    hint="CAST one of them before this verb",
                )
            if kind == "prefix" and mine != pl.String():
                raise PlanError(
                    f"{probe!r} is {type_name(mine)}: an address must be text", hint="CAST it AS STRING before"
                )
            if kind == "range" and self._table_schema[columns[0]] != theirs:
                kinds = " and ".join(f"{name!r} is {type_name(self._table_schema[name])}" for name in columns)
                raise PlanError(
                    f"{kinds}: both ends of a range must have the same type", hint="CAST one of them before this verb"
                )
        return Schema({**schema, **{name: self._table_schema[own] for own, name in self._names(schema).items()}})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        return {*(name for name in wanted if name in schema), *self._probes}

    def open(self, schema: Schema | None) -> Operator:
        assert schema is not None
        return _Lookups(self, self._names(schema))

    def describe(self) -> str:
        kind, columns = self._lookup
        pairs = ", ".join(f"{probe} {_SIGNS[kind]} {', '.join(columns)}" for probe in self._probes[:1])
        if kind == "equal":
            pairs = ", ".join(f"{probe} = {column}" for probe, column in zip(self._probes, columns, strict=True))
        (source,) = self._plan.sources
        return f"{self.how}, {pairs}, table from {source}" + (
            f", refreshed every {self.refresh}" if self.refresh else ""
        )

    @property
    def probes(self) -> tuple[str, ...]:
        """The columns of the stream whose values are looked up."""
        return self._probes

    def table(self) -> Table:
        """Return the table as it is now. Called for every batch; the first call loads it."""
        return self._table.current(self._load)

    def reload(self) -> None:
        """Load the table again now and replace it. Raises what its source raises; then the old one stays in use."""
        self._table.reload(self._load)

    def _load(self) -> Table:
        title = f"loading {self._plan.job_name}"
        # Each thread has rows in memory beside both tables; behind a table that is in use nobody waits for them.
        threads = self._threads if self._table.is_awaited else 1
        return load_table(self._plan, self._lookup, threads=threads, title=title, show_progress=self._show_progress)

    def _shared(self) -> SharedTable:
        sharing = sharing_for(self._token, dict(self._table_schema), self._lookup)
        return SharedTable(self._plan.job_name, self.refresh, sharing=sharing)

    def _names(self, schema: Schema) -> dict[str, str]:
        """Return the columns of the table that are added to the rows, with the names that they get."""
        kind, columns = self._lookup
        added = [name for name in self._table_schema if kind != "equal" or name not in columns]
        return {name: name + self.suffix if name in schema else name for name in added}


@dataclass
class _Built:
    """The table of a stream that was used for a job in this process."""

    #: The name of its directory in other processes.
    token: str
    table: SharedTable
    removal: finalize[[Path, int], Node] | None = None


#: The tables by the last node of their streams. An entry is removed with its node, so its values must not refer to the node.
_tables: WeakKeyDictionary[Node, dict[str, _Built]] = WeakKeyDictionary()
_SIGNS = {"range": "between", "prefix": "in network", "equal": "="}


class _Lookups(Operator):
    """The running operator."""

    def __init__(self, spec: LookupJoin, names: Mapping[str, str]) -> None:
        self._spec = spec
        self._names = dict(names)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        table = self._spec.table()
        frame = batch.frame
        probes, places = table.find(frame.select(self._spec.probes))
        if self._spec.how == "left":
            at, to = places_for_all(frame.height, (probes, places))
        else:
            at, to = pl.Series("at", probes), pl.Series("to", places)
        if not len(at):
            return
        mine = frame.select(pl.all().gather(at))
        theirs = table.take(to).select(list(self._names)).rename(self._names)
        joined = pl.concat([mine, theirs], how="horizontal")
        if at.n_unique() != len(at):
            joined = renumber(joined)
        header = [name for name in HEADER_COLUMNS if name in joined.columns]
        yield batch.with_frame(joined.select([*header, *[name for name in joined.columns if name not in header]]))


def _pairs(on: On, match: str) -> tuple[tuple[str, ...], Lookup]:
    """Return the columns of the stream, and the kind of lookup with the columns of the table."""
    if isinstance(on, Mapping):
        probes = tuple(on)
        columns: list[str] = []
        for target in on.values():
            columns += [target] if isinstance(target, str) else list(target)
    else:
        probes = (on,) if isinstance(on, str) else tuple(on)
        columns = list(probes)
    wanted = {"equal": len(probes), "range": 2, "prefix": 1}[match]
    if not probes or len(columns) != wanted or (match != "equal" and len(probes) != 1):
        form = {"equal": '"column" or {"column": "table column"}', "range": '{"column": ("low", "high")}'}
        raise OptionError(
            f"{on!r} does not name the columns to compare", option="on", hint=form.get(match, '{"ip": "network"}')
        )
    return probes, (match, tuple(columns))


def _comparable(one: Any, other: Any) -> bool:
    return bool(one == other or (one.is_integer() and other.is_integer()))
