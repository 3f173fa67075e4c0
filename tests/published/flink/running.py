"""Runs a program, in one run or with a stop in between, and compares its rows with those that are expected."""

from __future__ import annotations

import re
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import headrace as hr
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import HeadraceError, JobFailedError
from headrace.interfaces.backend import JobHandle, JobReport
from headrace.jobs.collecting import MARK, collected
from headrace.jobs.job import PreparedJob, options_of
from headrace_light.backend import LightBackend
from headrace_sql import SqlSession
from headrace_sql.api import SqlJob

from tests.published.flink.reading import Program
from tests.published.flink.tables import RowsSource, offer
from tests.published.flink.texts import NotSql, Texts, functions_of, metadata_of, texts_of
from tests.published.flink.values import KINDS, Change, parts, row_values, same_rows, shown, table_of

Mode = Literal["one run", "stopped"]
Outcome = Literal["passes", "refused", "different", "no SQL", "no stop", "the clock"]
#: The changes of each sink, as texts.
Wanted = Mapping[str, Sequence[str]]
_SECONDS_MAX = 60
_BY_CLOCK = re.compile(r"(?i)proctime|state[._]ttl")
#: Flink's test of these goes on from the stop with sources that never end, and ends when the rows that it waits for are there: those of the
#: first window of 5 seconds.
_ENDS_IN_BETWEEN = re.compile(r"window-table-function-(hop|cumulate)-tvf-agg-proc-time$")
_FIRST_WINDOW_SECONDS = 5


@dataclass(frozen=True)
class Result:
    """What came of a program. ``why``: the reason, or what differs."""

    outcome: Outcome
    why: str = ""
    text: str = ""


class _Clock(ManualClock):
    """Stands still while a job reads: rows of processing time all come at one moment, until the test moves it."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(min(seconds, 0.005))


class _Runner:
    """Starts the jobs of one program."""

    def __init__(self, program: Program, backend: str, place: Path) -> None:
        self._program, self._backend, self._place = program, backend, place
        self._functions = functions_of(program)
        self._clock = _Clock(1_600_000_000.0)
        self.job: SqlJob | None = None

    def one_run(self, failing: str | None = None) -> tuple[Texts, JobReport]:
        texts = texts_of(self._program, self._place, before=False, ends=True, failing=failing)
        return texts, self._start(texts, until="end").wait()

    def stopped(self) -> tuple[Texts, JobReport]:
        """Run with the rows of before, stop, and go on with all."""
        checkpoint = str(self._place / "checkpoint")
        first = texts_of(self._program, self._place, before=True, ends=False)
        handle = self._start(first, checkpoint=checkpoint)
        assert self.job is not None
        # Tables that no statement reads, and those that rows are looked up in, are no sources of the job.
        sources = [node.source for node in self.job.plan().sources.values()]
        wanted = sum(first.records[each.settings.table] for each in sources if isinstance(each, RowsSource))
        deadline = time.monotonic() + _SECONDS_MAX
        while handle.status().records_read < wanted:
            if time.monotonic() > deadline:
                handle.stop()
                handle.wait()
                raise TimeoutError(f"{handle.status().records_read} of {wanted} records were read")
            if _has_ended(handle):
                break
        if _BY_CLOCK.search(first.text):
            self._clock.advance(3600)
            time.sleep(0.35)  # ticks come by the machine's clock: time of the job has no meaning for its loop
        handle.stop()
        handle.wait()
        texts = texts_of(self._program, self._place, before=False, ends=False)
        if _ENDS_IN_BETWEEN.search(self._program.name):
            return texts, self._until_the_first_window(texts, checkpoint)
        return texts, self._start(texts, until="end", checkpoint=checkpoint).wait()

    def _until_the_first_window(self, texts: Texts, checkpoint: str) -> JobReport:
        before = sum(len(step["before"]) for step in self._program.steps("SOURCE"))
        wanted = sum(texts.records.values()) - before
        handle = self._start(texts, checkpoint=checkpoint)
        deadline = time.monotonic() + _SECONDS_MAX
        while handle.status().records_read < wanted and not _has_ended(handle):
            assert time.monotonic() < deadline, f"{handle.status().records_read} of {wanted} records were read"
        self._clock.advance(_FIRST_WINDOW_SECONDS)
        time.sleep(0.35)
        handle.stop()
        return handle.wait()

    def _start(self, texts: Texts, **options: Any) -> JobHandle:
        self.job = hr.sql(texts.text, functions=self._functions, session=SqlSession())
        if self._backend != "light":
            return self.job.start(self._backend, show_progress=False, master="local[2]", **options)
        # Rows of both sides come in turn; and each change of a row is told, where those of a batch are told as one.
        if re.search("JoinTestPrograms/window-join|ToChangelogTestPrograms/.*upsert", self._program.name):
            options["max_batch_records"] = 1
        given, settings = options_of(LightBackend, "light", {"until": None, "show_progress": False, **options})
        runner = LightBackend(settings, clock=self._clock)
        return PreparedJob(self.job.name, "light", self.job.plan(given), given, runner).start()


def _has_ended(handle: JobHandle) -> bool:
    """Wait a little; return whether the job ended meanwhile. Raises JobFailedError."""
    try:
        handle.wait(timedelta(milliseconds=20))
    except TimeoutError:
        return False
    return True


def run_program(program: Program, mode: Mode, backend: str = "light", *, wanted: Wanted | None = None) -> Result:
    """Run a program and say what came of it. A mistake in headrace itself is an outcome, too: the list goes on.

    ``wanted``: the changes that are expected, other ones than those that the program lists.
    """
    offer()
    texts: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as place:
            return _result(program, mode, backend, Path(place), texts, wanted)
    except NotSql as reason:
        return Result("no SQL", str(reason))
    except JobFailedError as error:
        return Result("different", f"the job failed: {error}", *texts[-1:])
    except HeadraceError as error:
        return Result("refused", str(error), *texts[-1:])
    except Exception as error:
        return Result("different", f"{type(error).__name__}: {error}\n{traceback.format_exc()[-800:]}", *texts[-1:])


def _result(program: Program, mode: Mode, backend: str, place: Path, texts: list[str], wanted: Wanted | None) -> Result:
    text = texts_of(program, place, before=False, ends=True).text
    texts.append(text)
    if mode == "stopped" and not program.restores:
        return Result("no stop")
    if backend != "light" and _BY_CLOCK.search(text):
        return Result("the clock", "a test cannot move the clock of Spark's processes")
    if program.steps("SQL", "STATEMENT_SET"):
        if (differences := _differences(program, mode, backend, place, wanted)) is not None:
            return Result("different", differences, text)
    elif not program.steps("FAILING_SQL"):
        raise NotSql("it runs no SQL")
    for number, step in enumerate(program.steps("FAILING_SQL")):
        fails = place / f"fails-{number}"
        fails.mkdir()
        try:
            _, report = _Runner(program, backend, fails).one_run(step["sql"])
        except HeadraceError:
            continue
        if not report.dead_letters:
            return Result("different", f"no error and no dead letter; Flink: {step['error']}", text)
    return Result("passes", "", text)


def _differences(program: Program, mode: Mode, backend: str, place: Path, wanted_changes: Wanted | None) -> str | None:
    """Return what differs from the rows that are expected; None: nothing."""
    runner = _Runner(program, backend, place)
    texts, report = runner.one_run() if mode == "one run" else runner.stopped()
    assert runner.job is not None
    tables = {key.rpartition(".")[2]: table for key, table in runner.job.script.catalog.tables.items()}
    wrong = []
    for step in program.steps("SINK"):
        path = texts.written[step["name"]]
        if not path.is_dir():
            continue
        table = tables[step["name"]]
        late = metadata_of(step)
        kinds = {name: kind for name, kind in table.sink_columns.items() if name not in late}
        kinds |= {name: table.sink_columns[name] for name in late}
        key = [list(kinds).index(name) for name in table.primary_key]
        if wanted_changes is None:
            wanted = _expected(step, kinds, key)
        else:
            wanted = table_of([_change(text) for text in wanted_changes[step["name"]]], key)
        frame = collected(str(path), kinds)
        changes: list[Change] = [
            (KINDS[mark], [shown(value) for value in values])
            for mark, values in zip(frame[MARK], frame.select(list(kinds)).rows(), strict=True)
        ]
        have = table_of(changes, key)
        if not same_rows(wanted, have):
            wrong.append(f"{step['name']}:\n  wanted {sorted(wanted)}\n  have   {sorted(have)}")
    if wrong and report.dead_letters:
        wrong.append(f"{report.dead_letters} dead letters: {report.dead_letter_reasons}")
    return "\n".join(wrong) or None


def _expected(step: dict[str, Any], kinds: dict[str, Any], key: Sequence[int]) -> list[list[str]]:
    """Return the rows that a sink has at the end, of the rows or changes that the program lists."""

    def changes(rows: list[dict[str, Any]] | None, texts: list[str] | None) -> list[Change]:
        if texts is not None:
            return [_change(text) for text in texts]
        return [(KINDS[row["kind"]], [shown(each) for each in row_values(row, kinds)]) for row in rows or ()]

    if (step["final"] or step["final_texts"]) and not step["tests_changes"]:
        return [values for _, values in changes(step["final"], step["final_texts"])]
    return table_of([*changes(step["before"], step["before_texts"]), *changes(step["after"], step["after_texts"])], key)


def _change(text: str) -> Change:
    return KINDS[text[:2]], parts(text[3:-1])
