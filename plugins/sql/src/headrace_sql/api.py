"""What users call: ``headrace.sql``, ``headrace.table``, ``headrace.register``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from headrace.foundation.errors import OptionError, PlanError
from headrace.interfaces.language import Language
from headrace.jobs.dsl import Stream
from headrace.jobs.job import Job

from headrace_sql.compiling.script import Script
from headrace_sql.operators.frames import polars_frame
from headrace_sql.operators.sinks import CollectSettings, CollectSink, collected, materialized


@dataclass
class _Session:
    """What earlier texts have defined in this process: tables, views, functions, frames, streams."""

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)


_session = _Session()


@dataclass(frozen=True)
class SqlJob(Job):
    """The job of a SQL text: like every job it has ``run``, ``start`` and ``plan``. ``collect`` gives its rows."""

    script: Script = field(default=None, repr=False)  # type: ignore[assignment]

    @property
    def namespace(self) -> str:
        return self.script.catalog.pipeline.namespace

    @property
    def pipeline(self) -> str:
        return self.script.catalog.pipeline.pipeline

    @property
    def notices(self) -> tuple[str, ...]:
        """What of the text has no effect here, in sentences."""
        return tuple(self.script.catalog.notices)

    def collect(
        self, table: str | None = None, *, backend: str = "light", changes: bool = False, **options: Any
    ) -> Any:
        """Run to the end of what is there and return the rows as a polars frame, instead of writing them to the sinks.

        A text with several sinks gives a dict of frames by table unless ``table`` names one. Results that change are
        given as they are at the end; with ``changes`` each change is a row, its kind in the column ``op`` (``+I``, ``-U``,
        ``+U``, ``-D``). For bounded input that fits into memory.
        """
        relations = self.script.relations()
        if not relations:
            raise PlanError("the text has no INSERT INTO and no SELECT, so there is nothing to run", job=self.name)
        if table is not None and table not in relations:
            raise OptionError(f"no table {table!r} is written", option="table", hint=f"written: {', '.join(relations)}")
        wanted = {name: relation for name, relation in relations.items() if table in (None, name)}
        place = tempfile.mkdtemp(prefix="headrace-collect-")
        try:
            jobs, types = [], {}
            for index, (name, relation) in enumerate(wanted.items()):
                types[name] = relation.schema
                path = os.path.join(place, str(index))
                jobs.append(relation.stream.to(CollectSink(CollectSettings(path=path)), name=f"collect_{name}"))
            jobs[0].also(*jobs[1:]).run(backend, **options)
            made = {name: collected(os.path.join(place, str(i)), types[name]) for i, name in enumerate(wanted)}
        finally:
            shutil.rmtree(place, ignore_errors=True)
        frames = {name: frame if changes else materialized(frame) for name, frame in made.items()}
        return next(iter(frames.values())) if len(frames) == 1 else frames


def sql(
    source: str | os.PathLike[str],
    *,
    functions: Mapping[str, Any] | Sequence[Any] = (),
    dialect: str | None = None,
    namespace: str = "sql",
    pipeline: str | None = None,
    variables: Mapping[str, str] | None = None,
    insert_by_name: bool = False,
    bad_records: str | None = None,
) -> SqlJob:
    """Return the job of a SQL text, or of a file whose name ends in ``.sql``: all its INSERTs together.

    ``functions`` are user functions: a list of functions made by ``hr.udf``, ``hr.udtf``, ``hr.udaf``, or a mapping from the
    class names that CREATE FUNCTION has in the text. ``dialect`` is ``"flink"`` or ``"blink"``; without, the text decides.
    ``variables`` replaces ``${NAME}`` in the text. ``insert_by_name`` maps the columns of INSERT … SELECT by name where the
    names agree, as old rsqldb does. Tables, views and frames of earlier texts and of ``register`` are known. Raises JobError, with the
    place in the text, before anything is read.
    """
    text, name = _text_of(source)
    for key, value in (variables or {}).items():
        text = text.replace("${" + key + "}", value)
    script = Script(
        text, functions=functions, dialect=dialect, namespace=namespace, pipeline=pipeline or name, by_name=insert_by_name,
        frames=_session.frames, streams=_session.streams, bad_records=bad_records, tables=_session.tables, views=_session.views,
        known_functions=_session.functions,
    )  # fmt: skip
    _session.tables.update(script.catalog.tables)
    _session.views.update(script.catalog.views)
    _session.functions.update(script.created_functions)
    if not script.inserts and not script.queries:
        return SqlJob(None, (), script)  # type: ignore[arg-type]
    job = script.job()
    return SqlJob(job.stream, job.sink_nodes, script)


def _text_of(source: str | os.PathLike[str]) -> tuple[str, str]:
    if isinstance(source, os.PathLike) or (source.strip().endswith(".sql") and "\n" not in source.strip()):
        path = Path(source)
        if not path.is_file():
            raise OptionError(
                f"{path} does not exist",
                option="source",
                hint="give the SQL text, or the path of a file that ends in .sql",
            )
        return path.read_text(encoding="utf-8"), path.stem
    return source, "job"


def table(name: str, *, namespace: str = "sql", pipeline: str | None = None) -> Stream:
    """Return a table or view that an earlier text has defined, as a stream to build on with the DSL.

    Raises PlanError when there is none of that name.
    """
    if name in _session.streams:
        return _session.streams[name]
    quoted = ".".join(f"`{part}`" for part in [name])
    script = Script(
        f"SELECT * FROM {quoted}",  # noqa: S608  # a name in backticks, read by our own compiler
        namespace=namespace, pipeline=pipeline or name, frames=_session.frames,
        streams=_session.streams, tables=_session.tables, views=_session.views, known_functions=_session.functions,
    )  # fmt: skip
    return next(iter(script.relations().values())).stream


def register(name: str, data: Any) -> None:
    """Let queries read a polars or pandas frame, or a stream of the DSL, under a name. Replaces what had the name."""
    _session.frames.pop(name, None)
    _session.streams.pop(name, None)
    if isinstance(data, Stream):
        _session.streams[name] = data
    else:
        _session.frames[name] = polars_frame(data)


def forget() -> None:
    """Forget everything that texts and ``register`` have defined in this process."""
    global _session
    _session = _Session()


class SqlLanguage(Language):
    """Flink and Blink SQL, for ``headrace.sql`` and the console."""

    suffixes = (".sql",)

    def job(self, source: str | os.PathLike[str], **options: Any) -> SqlJob:
        return sql(source, **options)

    def table(self, name: str, **options: Any) -> Stream:
        return table(name, **options)

    def register(self, name: str, data: Any) -> None:
        register(name, data)

    def lint(self, path: str, parameters: Mapping[str, str]) -> list[str]:
        job = sql(Path(path), variables=parameters)
        if job.sink_nodes:
            job.plan()
        return list(job.notices)


__all__ = ["SqlJob", "SqlLanguage", "forget", "register", "sql", "table"]
