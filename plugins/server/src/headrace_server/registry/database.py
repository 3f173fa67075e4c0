"""Reads and writes the registry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError
from sqlalchemy import Engine, MetaData, RowMapping, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

import headrace_server
from headrace_server.registry.engines import make_tables
from headrace_server.registry.records import (
    ON_SCHEDULE,
    Desired,
    JobRecord,
    OperationRecord,
    RunRecord,
    VersionRecord,
    VersionState,
)
from headrace_server.registry.schema import SCHEMA, check_schema
from headrace_server.registry.tables import (
    jobs,
    metadata,
    operations,
    pipelines,
    runs,
    scheduled_starts,
    servers,
    versions,
)


class Registry:
    """The registry of a server. May be used from any thread. ``further`` are the tables of other rooms, made at the start too."""

    def __init__(
        self, engine: Engine, clock: Clock, *, further: Iterable[MetaData] = (), server: str | None = None
    ) -> None:  # fmt: skip
        """Open the registry; create missing tables and columns. Raises OptionError if a newer headrace uses it in another way."""
        self.engine = engine
        self._server = server
        self._clock = clock
        check_schema(engine, headrace_server.__version__)
        make_tables(engine, (metadata, *further))

    # ------------------------------------------------------------------------------------------------------- jobs

    def jobs(self) -> list[JobRecord]:
        """Return all jobs by name, also those whose file is gone."""
        with self.engine.connect() as connection:
            return [_job(row) for row in connection.execute(select(jobs).order_by(jobs.c.name)).mappings()]

    def job(self, name: str) -> JobRecord:
        """Return a job. Raises JobError if no job has that name."""
        with self.engine.connect() as connection:
            row = connection.execute(select(jobs).where(jobs.c.name == name)).mappings().first()
        if row is None:
            raise JobError(f"there is no job {name!r}", job=name, hint="headrace jobs lists all of them")
        return _job(row)

    def add_job(self, name: str, *, desired: Desired, labels: Mapping[str, str], unit: str) -> None:
        """Note a job whose file was found for the first time."""
        with self.engine.begin() as connection:
            connection.execute(
                insert(jobs).values(
                    name=name, desired=desired.value, present=True, labels=_text(labels), unit=unit, problem=None
                )
            )

    def change_job(self, name: str, **values: Any) -> None:
        """Change columns of a job: desired, current_version, present, problem, labels, unit."""
        if "labels" in values:
            values["labels"] = _text(values["labels"])
        if "problem" in values:
            values["problem"] = _storable(values["problem"])
        with self.engine.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.name == name).values(**values))

    def move(self, name: str, of: Desired, to: Desired) -> bool:
        """Change the wanted state of a job if it is still ``of``: a person may have changed it. Return whether it was changed."""
        chosen = (jobs.c.name == name) & (jobs.c.desired == of.value)
        values = {"desired": to.value} | ({"problem": None} if to is Desired.FINISHED else {})
        with self.engine.begin() as connection:
            return bool(connection.execute(update(jobs).where(chosen).values(**values)).rowcount)

    def count_start(self, name: str) -> None:
        """Record that a person starts a job: its server resets the count of failures."""
        with self.engine.begin() as connection:
            starts = func.coalesce(jobs.c.starts, 0) + 1
            connection.execute(update(jobs).where(jobs.c.name == name).values(starts=starts))

    def begin_scheduled(self, name: str, due_ms: int) -> bool:
        """Note that a job is to run for an instant of its schedule, once: False if that was noted before."""
        try:
            with self.engine.begin() as connection:
                connection.execute(insert(scheduled_starts).values(job=name, due_ms=due_ms))
                starts = func.coalesce(jobs.c.starts, 0) + 1
                values = {"desired": Desired.RUNNING.value, "problem": None, "starts": starts}
                # Unless a person has stopped it in this moment.
                on_schedule = jobs.c.desired.in_([each.value for each in ON_SCHEDULE])
                connection.execute(update(jobs).where(jobs.c.name == name, on_schedule).values(**values))
        except IntegrityError:
            return False
        return True

    def remove_scheduled(self, before_ms: int) -> None:
        """Forget scheduled runs of instants before this one: nothing asks for them again."""
        with self.engine.begin() as connection:
            connection.execute(delete(scheduled_starts).where(scheduled_starts.c.due_ms < before_ms))

    # --------------------------------------------------------------------------------------------------- versions

    def versions(self, job: str) -> list[VersionRecord]:
        """Return the versions of a job, the newest first."""
        query = select(versions).where(versions.c.job == job).order_by(versions.c.number.desc())
        with self.engine.connect() as connection:
            return [_version(row) for row in connection.execute(query).mappings()]

    def version(self, job: str, number: int) -> VersionRecord:
        """Return a version. Raises JobError if no version has that number."""
        chosen = (versions.c.job == job) & (versions.c.number == number)
        row = None
        if 0 < number < 2**31:  # others have no place in the column
            with self.engine.connect() as connection:
                row = connection.execute(select(versions).where(chosen)).mappings().first()
        if row is None:
            raise JobError(f"the job has no version {number}", job=job, hint="headrace status NAME lists its versions")
        return _version(row)

    def add_version(self, record: VersionRecord) -> None:
        """Store a new version. ``number`` is what ``next_version`` gave."""
        values = {**msgspec.structs.asdict(record), "state": record.state.value, "files": _text(record.files)}
        with self.engine.begin() as connection:
            connection.execute(insert(versions).values(**values))

    def newest_versions(self) -> dict[str, int]:
        """Return the number of the newest version of each job that has one."""
        query = select(versions.c.job, func.max(versions.c.number)).group_by(versions.c.job)
        with self.engine.connect() as connection:
            return {job: number for job, number in connection.execute(query)}

    def newest_version(self, job: str) -> int | None:
        """Return the number of the newest version of a job; None: it has none."""
        query = select(func.max(versions.c.number)).where(versions.c.job == job)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def next_version(self, job: str) -> int:
        """Return the number of the next version of a job."""
        return (self.newest_version(job) or 0) + 1

    def judge_version(
        self, job: str, number: int, state: VersionState, *, reason: str | None = None, plan: str | None = None,
        notices: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Store the outcome of a version; with ``plan``, also the notices of the job's language about its text."""
        values: dict[str, Any] = {"state": state.value, "reason": _storable(reason)}
        if plan is not None:
            values |= {"plan": _storable(plan), "note": _storable("\n".join(notices) or None)}
        chosen = (versions.c.job == job) & (versions.c.number == number)
        with self.engine.begin() as connection:
            connection.execute(update(versions).where(chosen).values(**values))

    def claim_pipeline(self, pipeline: str, job: str) -> str | None:
        """Note that a job runs a pipeline (``namespace.pipeline``). Return the other job that has it; None: this one has it now.

        A job gives its pipeline up when its file is gone and it does not run any more.
        """
        at_work = select(runs.c.job).where(runs.c.ended_seconds.is_(None))
        in_use = jobs.c.present | jobs.c.name.in_(at_work)
        owner = select(pipelines.c.job).join(jobs, jobs.c.name == pipelines.c.job)
        others = owner.where(pipelines.c.pipeline == pipeline, pipelines.c.job != job, in_use)
        try:
            with self.engine.begin() as connection:
                other = connection.execute(others).scalar()
                if other is None:
                    connection.execute(delete(pipelines).where(pipelines.c.pipeline == pipeline))
                    connection.execute(insert(pipelines).values(pipeline=pipeline, job=job))
                return other
        except IntegrityError:  # another job has claimed it at the same moment
            with self.engine.connect() as connection:
                return connection.execute(others).scalar()

    # ------------------------------------------------------------------------------------------------------- runs

    def begin_run(self, **values: Any) -> int:
        """Note that a process runs a job; return the number of the run."""
        with self.engine.begin() as connection:
            made = connection.execute(insert(runs).values(started_seconds=self._clock.now(), **values))
            key = made.inserted_primary_key
            assert key is not None, "one row has one key"
            return int(key[0])

    def end_run(self, run: int, outcome: str, reason: str | None) -> None:
        """Note how a run has ended. The first note of a run counts."""
        chosen = (runs.c.id == run) & runs.c.ended_seconds.is_(None)
        with self.engine.begin() as connection:
            connection.execute(
                update(runs)
                .where(chosen)
                .values(ended_seconds=self._clock.now(), outcome=outcome, reason=_storable(reason))
            )

    def open_runs(self, server: str | None = None) -> list[RunRecord]:
        """Return the runs that have not ended, as far as the registry knows."""
        query = select(runs).where(runs.c.ended_seconds.is_(None)).order_by(runs.c.id)
        if server is not None:
            query = query.where(runs.c.server == server)
        with self.engine.connect() as connection:
            return [msgspec.convert(_plain(row), RunRecord) for row in connection.execute(query).mappings()]

    def runs_of(self, job: str, *, limit: int = 20) -> list[RunRecord]:
        """Return the last runs of a job, the newest first."""
        query = select(runs).where(runs.c.job == job).order_by(runs.c.id.desc()).limit(limit)
        with self.engine.connect() as connection:
            return [msgspec.convert(_plain(row), RunRecord) for row in connection.execute(query).mappings()]

    # ------------------------------------------------------------------------------------------------- operations

    def begin_operation(self, kind: str, of: Iterable[str]) -> str:
        """Note an operation that begins; return its id."""
        made = uuid.uuid4().hex
        with self.engine.begin() as connection:
            connection.execute(
                insert(operations).values(
                    id=made, kind=kind, jobs=json.dumps(list(of)), state="running", step="begins",
                    started_seconds=self._clock.now(), server=self._server,
                )
            )  # fmt: skip
        return made

    def note_step(self, operation: str, step: str) -> None:
        """Note what an operation is doing now."""
        with self.engine.begin() as connection:
            connection.execute(update(operations).where(operations.c.id == operation).values(step=step))

    def end_operation(self, operation: str, *, result: str | None = None, error: str | None = None) -> None:
        """Note the end of an operation: its result, or why it has failed."""
        state = "done" if error is None else "failed"
        with self.engine.begin() as connection:
            connection.execute(
                update(operations)
                .where(operations.c.id == operation)
                .values(
                    state=state,
                    step=state,
                    result=_storable(result),
                    error=_storable(error),
                    ended_seconds=self._clock.now(),
                )
            )

    def operations(self, *, limit: int = 50) -> list[OperationRecord]:
        """Return the last operations, the newest first."""
        query = select(operations).order_by(operations.c.started_seconds.desc()).limit(limit)
        with self.engine.connect() as connection:
            return [_operation(row) for row in connection.execute(query).mappings()]

    def operation(self, id: str) -> OperationRecord:
        """Return an operation. Raises JobError if no operation has that id."""
        with self.engine.connect() as connection:
            row = connection.execute(select(operations).where(operations.c.id == id)).mappings().first()
        if row is None:
            raise JobError(f"there is no operation {id!r}")
        return _operation(row)

    def abandon_operations(self, reason: str) -> None:
        """End the operations of a server that has died. Called when the only server of the registry starts."""
        with self.engine.begin() as connection:
            connection.execute(
                update(operations)
                .where(operations.c.state == "running")
                .values(state="failed", step="failed", error=reason, ended_seconds=self._clock.now())
            )

    # ---------------------------------------------------------------------------------------------------- servers

    def note_server(self, name: str, *, pid: int, url: str | None) -> None:
        """Note that a server has started."""
        values = {
            "pid": pid, "url": url, "started_seconds": self._clock.now(), "ended_seconds": None, "schema": SCHEMA
        }  # fmt: skip
        with self.engine.begin() as connection:
            if not connection.execute(update(servers).where(servers.c.name == name).values(**values)).rowcount:
                connection.execute(insert(servers).values(name=name, **values))

    def end_server(self, name: str) -> None:
        """Note that a server has ended in order."""
        with self.engine.begin() as connection:
            connection.execute(update(servers).where(servers.c.name == name).values(ended_seconds=self._clock.now()))


def _storable(text: str | None) -> str | None:
    """Return a text without the character that PostgreSQL does not store. Messages of other programs may have it."""
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _text(value: Mapping[str, str]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _job(row: RowMapping) -> JobRecord:
    return msgspec.convert({**_plain(row), "labels": json.loads(row["labels"])}, JobRecord)


def _version(row: RowMapping) -> VersionRecord:
    return msgspec.convert({**_plain(row), "files": json.loads(row["files"])}, VersionRecord)


def _operation(row: RowMapping) -> OperationRecord:
    return msgspec.convert({**_plain(row), "jobs": json.loads(row["jobs"])}, OperationRecord)


def _plain(row: RowMapping) -> dict[str, Any]:
    """Return a row with names that are plain texts: SQLAlchemy's own are a subclass, which msgspec refuses."""
    return {str(name): value for name, value in row.items()}
