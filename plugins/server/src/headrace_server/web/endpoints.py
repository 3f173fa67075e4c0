"""What the page needs of the REST API beside what clients use: pictures, dead letters, rules, and trials of SQL texts."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
from headrace.foundation.errors import JobError
from headrace.interfaces.metrics import Snapshot
from starlette.responses import Response

from headrace_server.access.roles import Role
from headrace_server.api.endpoints import Asked, Change, Endpoint, check_number, number_of
from headrace_server.api.known_jobs import known_job
from headrace_server.registry.records import JobRecord, OperationRecord
from headrace_server.runner.specification import JobSpecification
from headrace_server.supervision.supervisor import Supervisor
from headrace_server.trials.process import Trials
from headrace_server.trials.rule_hits import hits_of_rules
from headrace_server.web.letters import (
    Letter,
    Replay,
    ReplayLock,
    as_view,
    chosen_letters,
    journal_of,
    note_replay,
    read_letters,
)

_LINT_TIMEOUT = timedelta(seconds=20)
_SAMPLE_TIMEOUT = timedelta(seconds=45)
_TRY_RULES_TIMEOUT = timedelta(minutes=2)
_REPLAY_TIMEOUT = timedelta(minutes=5)
_TEXT_LENGTH_MAX = 200_000
_MESSAGE_LENGTH_MAX = 100_000
_RECORDS_MAX, _ROWS_MAX, _LETTERS_MAX = 100_000, 500, 1_000
#: A picture has neither scripts nor links, and may have no more than its own style.
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"


class SqlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SQL text, and the values of its ``${NAME}``."""

    text: str
    variables: Mapping[str, str] = {}


class SampleBody(SqlBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``records``: how many of the last records of each queue are read; ``rows``: how many rows are shown."""

    records: int = 1_000
    rows: int = 50


class ReplayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which letters; ``again``: also those that were sent before."""

    letters: list[str]
    again: bool = False


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule's id and one message as JSON."""

    rule: str
    message: str


class TryRulesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A set of rules as text; ``node``: which verb, if the job has several; ``records``: how many of the last records are read."""

    text: str
    suffix: Literal[".yaml", ".sql"] = ".yaml"
    node: str | None = None
    records: int = 10_000


class WebHandlers:
    """The functions of these endpoints, on one supervisor."""

    def __init__(self, supervisor: Supervisor, trials: Trials) -> None:
        self.supervisor = self._supervisor = supervisor
        self._services = supervisor.services
        self._trials = trials

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints, with the role that each needs."""
        viewer, operator, author, job = Role.VIEWER, Role.OPERATOR, Role.AUTHOR, "/v1/jobs/{job}"
        letters = {"search": "a text in reason, body or place", "limit": "how many; 100 if it is left out"}
        return [
            Endpoint("GET", job + "/picture", operator, "The plan of a running job as SVG, with rates and lag", self.picture, where="job"),
            Endpoint(
                "GET", job + "/rules", viewer, "Hits of each rule since the start", self.rule_hits, where="job",
                returns=dict[str, float],
            ),
            Endpoint(
                "GET", job + "/dead-letters", operator, "The newest dead letters", self.dead_letters, where="job",
                returns=dict[str, Any], query=letters,
            ),
            Endpoint(
                "POST", job + "/dead-letters/replay", operator, "Send dead letters through the job again", self.replay, where="job",
                body=ReplayBody, returns=OperationRecord, status=202, change=Change("replay"),
            ),
            Endpoint(
                "POST", job + "/rules/explain", operator, "Why a rule matches a message or not", self.explain, where="job",
                body=MessageBody, returns=dict[str, str],
            ),
            Endpoint(
                "POST", job + "/rules/test", operator, "Hits of other rules on the last records, beside the present ones",
                self.try_rules, where="job", body=TryRulesBody, returns=dict[str, Any],
            ),
            Endpoint("POST", "/v1/sql/lint", author, "Check a SQL text", self.lint, body=SqlBody, returns=dict[str, Any]),
            Endpoint(
                "POST", "/v1/sql/sample", author, "Run a SQL text over the last records into memory", self.sample,
                body=SampleBody, returns=dict[str, Any],
            ),
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- reading

    def picture(self, asked: Asked) -> Response:
        """Return the picture of a running job."""
        record = self.job(asked.job)
        text = self._supervisor.ask_runner(record, "picture", timeout_seconds=10.0)
        headers = {
            "Content-Security-Policy": _PICTURE_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return Response(text, media_type="image/svg+xml", headers=headers)

    def rule_hits(self, asked: Asked) -> dict[str, float]:
        """Return hits by rule since the job's process has started."""
        return self.hits_of(self.job(asked.job))

    def hits_of(self, record: JobRecord) -> dict[str, float]:
        """Return hits by rule. Raises JobError if the job does not run."""
        found = self._supervisor.ask_runner(record, "metrics", timeout_seconds=10.0)
        return hits_of_rules(Snapshot.from_json(found))

    def rules_of(self, record: JobRecord) -> list[dict[str, Any]]:
        """Return the rules of a job, from a trial process. Raises JobError."""
        wanted = self._current(record)
        found: list[dict[str, Any]] = self._trials.ask(
            "rules", timeout=_LINT_TIMEOUT, **self._where(record), file=wanted.file,
            variables=wanted.variables, replaced=self._replaced_rules(record),
        )  # fmt: skip
        return found

    def dead_letters(self, asked: Asked) -> Any:
        """Return the newest dead letters."""
        limit = number_of(asked, "limit", _LETTERS_MAX) or 100
        place, journal = self._letter_places(self.job(asked.job))
        return as_view(read_letters(place, journal, search=asked.query.get("search", ""), limit=limit))

    # ------------------------------------------------------------------------------------------------------ trying

    def explain(self, asked: Asked) -> dict[str, str]:
        """Say why a rule matches a message or not."""
        body: MessageBody = asked.body
        record = self.job(asked.job)
        _check_length("message", body.message, _MESSAGE_LENGTH_MAX)
        wanted = self._current(record)
        text = self._trials.ask(
            "explain", timeout=_LINT_TIMEOUT, **self._where(record), file=wanted.file,
            variables=wanted.variables, replaced=self._replaced_rules(record), rule=body.rule, message=body.message,
        )  # fmt: skip
        return {"text": text}

    def try_rules(self, asked: Asked) -> Any:
        """Say how often each rule of another set would match the last records, and each present one."""
        body: TryRulesBody = asked.body
        record = self.job(asked.job)
        check_number("records", body.records, _RECORDS_MAX)
        wanted = self._current(record)
        with tempfile.TemporaryDirectory(prefix="headrace-rules-") as place:
            file = Path(place) / f"rules{body.suffix}"
            file.write_text(body.text, encoding="utf-8")
            return self._trials.ask(
                "try_rules", timeout=_TRY_RULES_TIMEOUT, **self._where(record), file=wanted.file,
                variables=wanted.variables, replaced=self._replaced_rules(record), rules=str(file), node=body.node,
                records=body.records,
            )  # fmt: skip

    def lint(self, asked: Asked) -> Any:
        """Check a SQL text."""
        body: SqlBody = asked.body
        _check_length("text", body.text, _TEXT_LENGTH_MAX)
        return self._trials.ask("lint", timeout=_LINT_TIMEOUT, text=body.text, variables=body.variables)

    def sample(self, asked: Asked) -> Any:
        """Run a SQL text over the last records."""
        body: SampleBody = asked.body
        _check_length("text", body.text, _TEXT_LENGTH_MAX)
        for name, value, most in (("records", body.records, _RECORDS_MAX), ("rows", body.rows, _ROWS_MAX)):
            check_number(name, value, most)
        return self._trials.ask(
            "sample",
            timeout=_SAMPLE_TIMEOUT,
            text=body.text,
            variables=body.variables,
            records=body.records,
            rows=body.rows,
        )

    def replay(self, asked: Asked) -> OperationRecord:
        """Send dead letters through the current version of their job, once, into its sinks."""
        body: ReplayBody = asked.body
        record = self.job(asked.job)
        if not 1 <= len(body.letters) <= _LETTERS_MAX:
            raise JobError(f"choose 1 to {_LETTERS_MAX:,} letters", option="letters")
        lock = ReplayLock(self._letter_places(record)[1])
        # Before the journal is read: what another replay has noted meanwhile counts.
        lock.take(record.name)
        try:
            return self._begun_replay(record, body, asked.principal.name, lock)
        except BaseException:
            lock.release()
            raise

    def _begun_replay(self, record: JobRecord, body: ReplayBody, who: str, lock: ReplayLock) -> OperationRecord:
        """Begin a replay; the lock is given back when it has ended. Raises what refuses it; nothing is noted then."""
        wanted = self._current(record)
        place, journal = self._letter_places(record)
        letters = chosen_letters(place, journal, body.letters)
        _check_replayable(record.name, letters, again=body.again)
        name = f"replay-{int(self._services.clock.now() * 1000)}"
        bodies: dict[str, list[str]] = defaultdict(list)
        for letter in letters:
            bodies[letter.source].append(letter.body or "")

        def work(operation: str) -> Mapping[str, Any]:
            try:
                self._services.registry.note_step(
                    operation, f"sending {len(letters)} bodies through version {wanted.version}"
                )
                # Noted first: after a crash nobody knows how many rows were written, so the letters count as sent.
                sent = Replay(letters=[each.id for each in letters], time_seconds=self._services.clock.now(), who=who)
                note_replay(place, journal, sent)
                found: Mapping[str, Any] = self._trials.ask(
                    "replay", timeout=_REPLAY_TIMEOUT, **self._where(record), file=wanted.file,
                    variables=wanted.variables, bodies=bodies, name=name, checkpoint=str(journal.parent / name),
                    keep_open=lock.descriptor,
                )  # fmt: skip
                return found
            finally:
                lock.release()

        # What the job's kind does not allow is refused before anything is noted.
        self._trials.ask(
            "check_replay", timeout=_LINT_TIMEOUT, **self._where(record), file=wanted.file,
            variables=wanted.variables, sources=sorted(bodies),
        )  # fmt: skip
        operation = self._supervisor.begin("replay", [record.name], work)
        return self._services.registry.operation(operation)

    # -------------------------------------------------------------------------------------------------------- inside

    def job(self, name: str) -> JobRecord:
        """Return a job. Raises NotThereError."""
        return known_job(self._services.registry, name)

    def _current(self, record: JobRecord) -> JobSpecification:
        if record.current_version is None:
            raise JobError("no version of the job was accepted", job=record.name)
        return self._services.job_specification(record.name, record.current_version)

    def _where(self, record: JobRecord) -> dict[str, Any]:
        return self._services.process_of(record.name, record.current_version or 0)

    def _letter_places(self, record: JobRecord) -> tuple[Path, Path]:
        data = self._services.data
        return data.checkpoint(record.name) / "dead-letters", journal_of(data.state_of_job(record.name))

    def _replaced_rules(self, record: JobRecord) -> str | None:
        """Return the file of the rules that were put last, if any: they are kept across restarts by the job's checkpoint."""
        file = self._services.data.newest_rules(record.name)
        return None if file is None else str(file)


def _check_replayable(job: str, letters: Sequence[Letter], *, again: bool) -> None:
    """Raise JobError if one of the letters cannot be sent, or was sent before; ``again``: that is meant."""
    rows = [each for each in letters if each.body is None]
    if rows:
        raise JobError(
            f"{len(rows)} of the dead letters have no body: they were refused by {rows[0].origin} after they were decoded",
            job=job, hint="send their records to the source again",
        )  # fmt: skip
    before = [each for each in letters if each.replayed_seconds is not None]
    if before and not again:
        raise JobError(
            f"{len(before)} of the dead letters were already replayed: their rows would be written twice",
            job=job, hint="choose others, or confirm that they are to be sent again",
        )  # fmt: skip


def _check_length(option: str, text: str, most: int) -> None:
    if len(text) > most:
        raise JobError(f"the text has {len(text):,} characters; at most {most:,} may be sent", option=option)
