"""What users call: ``headrace.sql``, ``headrace.table``, ``headrace.register``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.foundation.errors import OptionError, PlanError
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.language import Language
from headrace.jobs.collecting import collect_all, materialized, with_kinds
from headrace.jobs.dsl import Stream
from headrace.jobs.job import Job
from headrace.plan.graph import Plan

from headrace_sql.binding.session import SqlSession
from headrace_sql.compiling.clear_secrets import clear_secrets
from headrace_sql.compiling.script import Script
from headrace_sql.operators.frames import polars_frame

#: The session of calls that name none.
_default = SqlSession()


@dataclass(frozen=True, repr=False)
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

    def plan(self, options: RunOptions | None = None) -> Plan:
        """Return the plan that runs, as every job's. Raises PlanError for a text that only defines."""
        if not self.sink_nodes:
            raise self._nothing_to_run()
        return super().plan(options)

    def _nothing_to_run(self) -> PlanError:
        return PlanError("the text has no INSERT INTO and no SELECT, so there is nothing to run", job=self.name)

    def collect(
        self, table: str | None = None, *, backend: str = "light", changes: bool = False, **options: Any
    ) -> Any:
        """Run to the end of the present input and return the rows as a polars frame, instead of writing them to the sinks.

        A text with several sinks gives a dict of frames by table unless ``table`` names one. Results that change are
        given as they are at the end; with ``changes`` each change is a row, its kind in the last column ``op`` (``+I``, ``-U``,
        ``+U``, ``-D``; ``op_2`` if the result has a column ``op``). For bounded input that fits into memory. How many records
        became dead letters, and why, is said in the log.
        """
        relations = self.script.relations()
        if not relations:
            raise self._nothing_to_run()
        if table is not None and table not in relations:
            raise OptionError(f"no table {table!r} is written", option="table", hint=f"written: {', '.join(relations)}")
        wanted = {name: relation for name, relation in relations.items() if table in (None, name)}
        made = collect_all({name: relation.stream for name, relation in wanted.items()}, backend, **options)
        frames = {name: with_kinds(frame) if changes else materialized(frame) for name, frame in made.items()}
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
    session: SqlSession | None = None,
) -> SqlJob:
    """Return the job of a SQL text, or of a file whose name ends in ``.sql``: all its INSERTs together.

    ``functions`` are user functions: a list of functions made by ``hr.udf``, ``hr.udtf``, ``hr.udaf``, or a mapping from the
    class names that CREATE FUNCTION has in the text. ``dialect`` is ``"flink"`` or ``"blink"``; without, the text decides.
    ``variables`` replaces ``${NAME}`` in the text. ``insert_by_name`` maps the columns of INSERT … SELECT by name where the
    names agree, as old rsqldb does. Raises JobError, with the place in the text, before anything is read.

    Tables, views, functions and frames that earlier texts of the session and ``register`` have defined are known. Without a
    ``session`` that is the default one, where a text with an INSERT or a SELECT keeps what it defines to itself.
    """
    text, name = _text_of(source)
    for key, value in (variables or {}).items():
        text = text.replace("${" + key + "}", value)
    known = _session_of(session)
    script = Script(
        text, functions=functions, dialect=dialect, namespace=namespace, pipeline=pipeline or name, by_name=insert_by_name,
        bad_records=bad_records, session=known,
    )  # fmt: skip
    job = script.job() if script.inserts or script.queries else None
    if session is None and script.is_job:
        known.keep_to_itself(script.own)
    else:
        known.take(script.session)
    if job is None:
        return SqlJob(None, (), script)  # type: ignore[arg-type]
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


def table(
    name: str, *, namespace: str = "sql", pipeline: str | None = None, session: SqlSession | None = None
) -> Stream:
    """Return a table or view that a session knows, as a stream to build on with the DSL.

    Raises ExpressionError when there is none of that name.
    """
    known = _session_of(session)
    if name in known.streams:
        return known.streams[name]
    text = f"SELECT * FROM `{name}`"  # noqa: S608  # a name in backticks, read by our own compiler
    script = Script(text, namespace=namespace, pipeline=pipeline or name, session=known)
    return next(iter(script.relations().values())).stream


def register(name: str, data: Any, *, session: SqlSession | None = None) -> None:
    """Let queries of a session read rows under a name (it replaces an earlier one): a polars frame (also a lazy one), a pandas
    frame, an Arrow table, a relation of DuckDB, the path of a Parquet file, or a stream of the DSL.
    """
    is_stream = isinstance(data, Stream)
    _session_of(session).register(name, data if is_stream else polars_frame(data), is_stream=is_stream)


def default_session() -> SqlSession:
    """Return the session of calls that name none. For tools that run texts beside ``headrace.sql``."""
    return _default


def forget() -> None:
    """Forget everything that the default session of this process knows."""
    _default.forget()


def _session_of(session: SqlSession | None) -> SqlSession:
    if session is not None and not isinstance(session, SqlSession):
        raise OptionError(
            f"{session!r:.100} is not a session", option="session", hint="from headrace_sql import SqlSession"
        )
    return _default if session is None else session


class SqlLanguage(Language):
    """Flink and Blink SQL, for ``headrace.sql`` and the console."""

    suffixes = (".sql",)

    def job(self, source: str | os.PathLike[str], **options: Any) -> SqlJob:
        return sql(source, **options)

    def table(self, name: str, **options: Any) -> Stream:
        return table(name, **options)

    def register(self, name: str, data: Any, **options: Any) -> None:
        register(name, data, **options)

    def lint(self, path: str, parameters: Mapping[str, str]) -> list[str]:
        job = sql(Path(path), variables=parameters)
        if job.sink_nodes:
            job.plan()
        return [
            *job.notices,
            *clear_secrets(job.script.text, Path(path).read_text(encoding="utf-8"), job.script.dialect),
        ]


__all__ = ["SqlJob", "SqlLanguage", "default_session", "forget", "register", "sql", "table"]
