"""What each endpoint does. The functions run in threads, several at the same time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import make_private_directory
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import headrace_server
from headrace_server.access.errors import AccessDeniedError
from headrace_server.api.endpoints import Asked, NotThereError
from headrace_server.api.events import changes, event_stream, last_lines, log_lines
from headrace_server.api.known_jobs import known_job
from headrace_server.api.server_metrics import metrics_text
from headrace_server.api.servers import servers_of
from headrace_server.api.views import (
    ActionBody,
    FileBody,
    JobDetail,
    JobView,
    LogView,
    OffsetsBody,
    OffsetsView,
    OtherServerView,
    RulesBody,
    RulesText,
    SavepointBody,
    ScheduledRunView,
    ScheduleView,
    ServerView,
    VersionBody,
    VersionDetail,
    VersionView,
)
from headrace_server.jobs_directory.scanning import SUFFIXES, is_job_file
from headrace_server.jobs_directory.settings import SETTINGS_FILE, is_name
from headrace_server.registry.records import (
    Desired,
    JobRecord,
    JobStatusRecord,
    OperationRecord,
    VersionRecord,
    VersionState,
)
from headrace_server.supervision.job_statuses import UNASSIGNED
from headrace_server.supervision.offsets import offsets_of
from headrace_server.supervision.selection import ALL, select_jobs
from headrace_server.supervision.supervisor import Supervisor

_SAVEPOINT_TIMEOUT_SECONDS = 310.0
_RULES_TIMEOUT_SECONDS = 120.0
#: Thirty years: longer times have no representation.
_TIMEOUT_MAX_SECONDS = 1e9
_DEFAULT_LINES = 100
_LINES_MAX = 10_000


class Handlers:
    """The endpoints' functions, on one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._services = supervisor.services
        self._registry = supervisor.services.registry

    # ------------------------------------------------------------------------------------------------------- reading

    def server(self, asked: Asked) -> ServerView:
        """Tell of the server itself."""
        return ServerView(
            name=self._services.server, version=headrace_server.__version__,
            jobs_directory=str(self._supervisor.directory), jobs=len(self._registry.jobs()),
            refused_files=self.refused_files(),
        )  # fmt: skip

    def servers(self, asked: Asked) -> list[OtherServerView]:
        """List the servers of the registry: this one alone, unless it shares the registry."""
        return servers_of(self._supervisor)

    def servers_now(self) -> list[OtherServerView]:
        """Return the servers if there may be several, for pages; empty if this one is alone on its registry."""
        return servers_of(self._supervisor) if self._services.member is not None else []

    def refused_files(self) -> Mapping[str, str]:
        """Return files of the jobs directory that cannot become a version, as the server sees that reads it."""
        reader = None if self._services.member is None else self._services.member.reader()
        if reader is None or reader.name == self._services.server:
            return self._supervisor.refused_files
        return msgspec.json.decode(reader.refused_files or "{}", type=dict[str, str])

    def metrics(self, asked: Asked) -> Response:
        """Return the figures of the server and its jobs."""
        return Response(metrics_text(self._supervisor), media_type="text/plain; version=0.0.4; charset=utf-8")

    def jobs(self, asked: Asked) -> list[JobView]:
        """List jobs."""
        return self.views(asked.query.get("select", ALL))

    def views(self, select: str = ALL) -> list[JobView]:
        """Return jobs as the API shows them. Also called by pages."""
        known = self._registry.jobs()
        chosen = known if select == ALL else select_jobs(known, select)
        statuses, newest = self._supervisor.statuses.of(chosen), self._registry.newest_versions()
        return [self._view(job, statuses[job.name], newest.get(job.name)) for job in chosen]

    async def job_events(self, asked: Asked) -> Any:
        """Follow the table of jobs."""
        select = asked.query.get("select", ALL)
        # What cannot be read is refused now: once a stream has begun, its status cannot say so.
        await run_in_threadpool(self.views, select)
        return event_stream(changes("jobs", lambda: self.views(select)))

    def job(self, asked: Asked) -> JobDetail:
        """Tell all about a job."""
        record = self._job(asked)
        versions = self._registry.versions(record.name)
        status = self._supervisor.statuses.of([record])[record.name]
        return JobDetail(
            job=self._view(record, status, versions[0].number if versions else None),
            figures=status.figures,
            versions=[_version_view(each) for each in versions],
            runs=self._registry.runs_of(record.name),
        )

    def version(self, asked: Asked) -> VersionDetail:
        """Tell of one version: plan, settings, files."""
        record = self._job(asked)
        text = asked.path["version"]
        if re.fullmatch(r"[0-9]{1,9}", text) is None:
            raise NotThereError(f"{text[:40]!r} is not the number of a version")
        number = int(text)
        found = self._registry.version(record.name, number)
        return VersionDetail(
            **msgspec.structs.asdict(_version_view(found)),
            plan=found.plan,
            settings=msgspec.json.decode(found.settings),
            files=self._services.versions.contents(record.name, number),
        )

    def operations(self, asked: Asked) -> list[OperationRecord]:
        """List the last operations."""
        return self._registry.operations()

    def operation(self, asked: Asked) -> OperationRecord:
        """Tell how far an operation is."""
        return self._operation(asked.path["operation"])

    async def operation_events(self, asked: Asked) -> Any:
        """Follow an operation to its end."""
        id = asked.path["operation"]
        await run_in_threadpool(self._operation, id)
        ended = lambda found: found.state != "running"  # noqa: E731
        return event_stream(changes("operation", lambda: self._operation(id), ended=ended))

    def logs(self, asked: Asked) -> LogView:
        """Return the last lines of a job's log."""
        return LogView(lines=last_lines(self._log(asked), _lines(asked)))

    async def log_events(self, asked: Asked) -> Any:
        """Follow a job's log."""
        return event_stream(log_lines(self._log(asked), _lines(asked)))

    # ------------------------------------------------------------------------------------------------------ changing

    def act(self, asked: Asked) -> OperationRecord:
        """Start, stop, restart, pause or resume jobs."""
        body: ActionBody = asked.body
        if not 0 <= body.timeout_seconds <= _TIMEOUT_MAX_SECONDS:
            raise JobError(
                f"timeout_seconds={body.timeout_seconds:g}: expected a number from 0 to {_TIMEOUT_MAX_SECONDS:g}",
                option="timeout_seconds",
            )
        timeout = timedelta(seconds=body.timeout_seconds)
        chosen = select_jobs(self._registry.jobs(), body.select)
        if body.action == "resume":
            chosen = [job for job in chosen if job.desired is Desired.PAUSED]
        if body.action == "start" and body.select == ALL:
            chosen = [job for job in chosen if job.desired is not Desired.PAUSED]
        waits = {job.name for job in chosen if self._waits_for_its_time(job, body)}
        if body.action == "restart":
            chosen = [job for job in chosen if job.name not in waits]
        if not chosen:
            what = "is paused" if body.action == "resume" else "can be restarted"
            raise JobError(f"no job of {body.select!r} {what}", hint="headrace jobs lists them")
        names = [job.name for job in chosen]
        runs = body.action in ("start", "resume", "restart")
        if body.action in ("start", "resume"):
            self._supervisor.desire([job for job in chosen if job.name in waits], Desired.SCHEDULED)
            self._supervisor.desire([job for job in chosen if job.name not in waits], Desired.RUNNING)
        elif body.action != "restart":
            self._supervisor.desire(chosen, Desired.PAUSED if body.action == "pause" else Desired.STOPPED)

        def work(operation: str) -> Mapping[str, str]:
            if body.action == "restart":
                self._registry.note_step(operation, "stopping")
                self._supervisor.desire(chosen, Desired.STOPPED)
                self._supervisor.wait_until(names, runs=False, timeout=timeout)
                self._supervisor.desire(chosen, Desired.RUNNING)
            self._registry.note_step(operation, "waiting until they run" if runs else "stopping at a checkpoint")
            return self._supervisor.wait_until(names, runs=runs, timeout=timeout)

        return self._begun(self._supervisor.begin(body.action, names, work))

    def _waits_for_its_time(self, job: JobRecord, body: ActionBody) -> bool:
        """Return whether an action leaves a job to its schedule. A start of the job itself, by its name, runs it now."""
        if self._supervisor.schedules.of(job) is None or job.desired is Desired.RUNNING:
            return False
        return body.action == "resume" or body.select != job.name

    def schedule(self, asked: Asked) -> ScheduleView:
        """Tell when a job is started next, and what became of the last times."""
        record = self._job(asked)
        schedules = self._supervisor.schedules
        settings = schedules.of(record)
        if settings is None:
            raise NotThereError("the job has no schedule", job=record.name, hint="add schedule: to its job.yaml")
        due = schedules.next_due(record)
        return ScheduleView(
            definition=settings.definition(),
            next_due_seconds=None if due is None else due.timestamp(),
            history=[
                ScheduledRunView(
                    due_seconds=each.due.timestamp(), state=each.state.value, reason=each.reason,
                    changed_seconds=each.changed.timestamp(),
                )
                for each in schedules.history(record.name)
            ],
        )  # fmt: skip

    def submit(self, asked: Asked) -> JobView | dict[str, str]:
        """Write the file of a job into the jobs directory; the server takes it as a new version."""
        body: FileBody = asked.body
        file = self._file(asked)
        if file.name == SETTINGS_FILE:
            raise JobError(
                f"{SETTINGS_FILE} is the name of the settings file", job=asked.job, hint="give the job another name"
            )
        for suffix in SUFFIXES:
            other = file.with_suffix(suffix)
            if suffix != body.suffix and other.name != SETTINGS_FILE and other.exists() and is_job_file(other):
                raise JobError(f"the job is a {suffix} file", job=asked.job, hint="remove that file first")
        file.parent.mkdir(parents=True, exist_ok=True)
        # The scan leaves out names that begin with a dot, so it never takes a part of the file.
        self._supervisor.files.note_author(asked.job, body.text.encode(), asked.principal.name)
        replace_durably(file, body.text.encode(), temporary=file.with_name(f".{file.name}.new"), private=False)
        return {"file": str(file)}

    def _file(self, asked: Asked) -> Path:
        parts = asked.job.split("/")
        if len(parts) > 2 or not all(is_name(part) for part in parts):
            raise JobError(
                f"{asked.job!r} cannot be the name of a job", hint="NAME or FOLDER/NAME, of a-z, 0-9, - and _"
            )
        return self._supervisor.directory.joinpath(*parts).with_suffix(asked.body.suffix)

    def upgrade(self, asked: Asked) -> OperationRecord:
        """Roll out a version: the newest one unless the body names another."""
        record = self._job(asked)
        versions = self._registry.versions(record.name)
        number = asked.body.version if asked.body.version is not None else versions[0].number
        self._registry.version(record.name, number)
        unit = self._supervisor.units.get(record.unit)
        if number == record.current_version and not (unit is not None and unit.is_of_another_server):
            raise JobError(f"version {number} is the current version", job=record.name)
        return self._rolled_out("upgrade", record.name, number)

    def roll_back(self, asked: Asked) -> OperationRecord:
        """Roll out the version before the present one, or the one that the body names."""
        record = self._job(asked)
        body: VersionBody = asked.body
        if body.version is not None:
            return self.upgrade(asked)
        current = record.current_version or 0
        earlier = [
            each.number for each in self._registry.versions(record.name)
            if each.number < current and each.state is VersionState.ACCEPTED
        ]  # fmt: skip
        if not earlier:
            raise JobError("no earlier version was accepted", job=record.name)
        return self._rolled_out("rollback", record.name, earlier[0])

    def savepoint(self, asked: Asked) -> OperationRecord:
        """Write a savepoint of a running job."""
        body: SavepointBody = asked.body
        record = self._job(asked)
        name = body.name or time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._services.clock.now()))
        if not is_name(name):
            raise JobError(f"{name!r} cannot be the name of a savepoint", hint="use a-z, 0-9, - and _")
        path = self._services.data.savepoint(record.name, name)
        if path.exists():
            raise JobError(f"there is a savepoint {name!r} already", job=record.name)
        make_private_directory(path.parent)

        def work(_: str) -> Mapping[str, str]:
            if body.stop:
                self._supervisor.stop_with_savepoint(record, path, timeout_seconds=_SAVEPOINT_TIMEOUT_SECONDS)
            else:
                self._supervisor.ask_runner(
                    record, "savepoint", path=str(path), timeout_seconds=_SAVEPOINT_TIMEOUT_SECONDS
                )
            return {"savepoint": str(path)}

        return self._begun(self._supervisor.begin("savepoint", [record.name], work))

    def rules(self, asked: Asked) -> Any:
        """Replace the rules of a running job."""
        body: RulesBody = asked.body
        record = self._job(asked)
        place = self._services.data.rules(record.name)
        make_private_directory(place)
        file = place / f"{int(self._services.clock.now() * 1_000_000)}{body.suffix}"
        replace_durably(file, body.text.encode())
        try:
            return self._supervisor.ask_runner(
                record, "rules", rules=str(file), node=body.node, who=asked.principal.name,
                timeout_seconds=_RULES_TIMEOUT_SECONDS,
            )  # fmt: skip
        except JobError:  # refused: the rules that were put before stay the last ones
            file.unlink(missing_ok=True)
            raise

    def rules_text(self, asked: Asked) -> RulesText:
        """Return the rules that were put last: boxes that test by the same rules fetch them."""
        record = self._job(asked)
        file = self._services.data.newest_rules(record.name)
        if file is None:
            raise NotThereError(
                f"no rules were put for {record.name!r}, which has those of its file", hint="headrace rules put"
            )
        return RulesText(text=file.read_text(encoding="utf-8", errors="replace"), suffix=file.suffix)

    # ------------------------------------------------------------------------------------------------------- offsets

    def offsets(self, asked: Asked) -> OffsetsView:
        """Show the next offset of each queue."""
        record = self._job(asked)
        figures = self._supervisor.statuses.figures(record)
        if figures is not None:
            return OffsetsView(offsets={each["queue"]: each["offset"] for each in figures["queues"]}, note="it runs")
        return OffsetsView(offsets=offsets_of(self._services, record.name))

    def set_offsets(self, asked: Asked) -> OffsetsView:
        """Let a stopped job continue at other offsets."""
        body: OffsetsBody = asked.body
        record = self._job(asked)
        self._supervisor.refuse_if_running(record.name)
        if not body.offsets:
            raise JobError("the request names no queue", job=record.name, option="offsets")
        return OffsetsView(offsets=offsets_of(self._services, record.name, body.offsets))

    def reset_offsets(self, asked: Asked) -> OffsetsView:
        """Reset a stopped job: its checkpoint is set aside, and it starts from the beginning."""
        aside = self._supervisor.reset_checkpoint(self._job(asked).name)
        return OffsetsView(
            offsets={},
            note=f"the checkpoint with its state and dead letters is now {aside}; offsets that a broker keeps for the "
            "group of the job, and positions that sinks keep, are as before",
        )

    # ------------------------------------------------------------------------- the state before a change, for the audit log

    def text_of_file(self, asked: Asked) -> str | None:
        """Return the text of a job's file as it is now; None if there is none."""
        try:
            return self._file(asked).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def version_now(self, asked: Asked) -> Mapping[str, int | None]:
        """Return the version that a job has now."""
        return {"version": self._job(asked).current_version}

    def offsets_now(self, asked: Asked) -> Mapping[str, Any]:
        """Return the offsets of a job as they are now, if they can be read without changing anything."""
        try:
            return {"offsets": self.offsets(asked).offsets}
        except JobError as error:  # a job that was never started has none
            return {"offsets": f"unknown: {error.message}"}

    def rules_now(self, asked: Asked) -> str | None:
        """Return the text of the rules that were put last; None if the job has those of its file."""
        file = self._services.data.newest_rules(self._job(asked).name)
        return None if file is None else file.read_text(encoding="utf-8", errors="replace")

    # -------------------------------------------------------------------------------------------------------- inside

    def _job(self, asked: Asked) -> JobRecord:
        return known_job(self._registry, asked.job)

    def _operation(self, id: str) -> OperationRecord:
        try:
            return self._registry.operation(id)
        except JobError as error:
            raise NotThereError(error.message) from None

    def _begun(self, operation: str) -> OperationRecord:
        return self._registry.operation(operation)

    def _rolled_out(self, kind: str, job: str, number: int) -> OperationRecord:
        return self._begun(self._supervisor.roll_out_later(kind, {job: number}))

    def _log(self, asked: Asked) -> Path:
        record = self._job(asked)
        return self._services.data.log(record.unit, group=record.unit != record.name)

    def view(self, job: JobRecord) -> JobView:
        """Return a job as the API shows it."""
        return self._view(job, self._supervisor.statuses.of([job])[job.name], self._registry.newest_version(job.name))

    def _view(self, job: JobRecord, status: JobStatusRecord, newest: int | None) -> JobView:
        figures = status.figures or {}
        lags = [each["lag"] for each in figures.get("queues", ()) if each["lag"] is not None]
        member, problem = self._services.member, job.problem
        if status.state == UNASSIGNED and member is not None:
            problem = member.why_without_server(job.unit)
        due = self._supervisor.schedules.next_due(job)
        stored, unit = figures.get("checkpoint_seconds"), self._supervisor.units.get(job.unit)
        return JobView(
            name=job.name, state=status.state, desired=job.desired.value, version=job.current_version,
            newest_version=newest, unit=job.unit, labels=job.labels, problem=problem, pid=status.pid,
            has_earlier_headrace=unit is not None and unit.is_of_another_server, records_read=figures.get("records_read"),
            rows_written=sum(figures["rows_written"].values()) if figures else None,
            dead_letters=figures.get("dead_letters"), lag_records=sum(lags) if lags else None, seconds=figures.get("seconds"),
            next_due_seconds=due.timestamp() if due is not None else None, server=self._supervisor.statuses.server_of(job),
            checkpoint_seconds=stored, error=figures.get("error"),
        )  # fmt: skip


def _version_view(record: VersionRecord) -> VersionView:
    return VersionView(
        number=record.number, state=record.state.value, reason=record.reason, author=record.author, note=record.note,
        created_seconds=record.created_seconds, content_hash=record.content_hash,
    )  # fmt: skip


def _lines(asked: Asked) -> int:
    text = asked.query.get("lines", str(_DEFAULT_LINES))
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > _LINES_MAX:
        raise AccessDeniedError(400, f"lines={text}: expected a number up to {_LINES_MAX:,}")
    return int(text)
