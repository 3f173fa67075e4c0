"""Runs a text in the shell's session: answers about definitions, rows of SELECT, and INSERTs, all in one job."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import polars as pl
from headrace.foundation.errors import JobFailedError
from headrace.interfaces.backend import JobHandle, JobReport
from headrace_sql import SqlSession
from headrace_sql.api import sql
from headrace_sql.compiling.script import Script
from headrace_sql.operators.sinks import CollectSettings, CollectSink

from headrace_shell.views import View

_POLL = timedelta(milliseconds=100)


@dataclass
class Settings:
    """What the user has chosen for the runs of a shell."""

    backend: str = "light"
    #: "end": read the present input; "never": until Ctrl-C; "auto": until the end, if all sources have one.
    until: str = "auto"
    checkpoint: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Result:
    """What a text has given."""

    #: Answers and rows, in the order of the text: (name, rows). A plan has one row of text.
    frames: list[tuple[str, pl.DataFrame]]
    #: What the job did; None when there was none to run.
    report: JobReport | None
    seconds: float
    notices: tuple[str, ...] = ()
    #: Whether Ctrl-C has ended the job.
    stopped: bool = False
    #: The tables that INSERTs have written.
    written: tuple[str, ...] = ()


class Execution:
    """A text that is compiled: nothing of it has run yet, and its definitions are known to the session."""

    def __init__(self, text: str, session: SqlSession, settings: Settings) -> None:
        """Compile a text. Raises JobError, after which the session is as it was before."""
        self._settings = settings
        self._job = sql(text if "\n" in text else text + "\n", session=session, variables=settings.variables)
        self.script: Script = self._job.script
        self.views: list[View] = []

    @property
    def is_streaming(self) -> bool:
        """Whether the job runs until it is stopped."""
        if self._settings.until != "auto":
            return self._settings.until == "never"
        plan = self._job.plan() if self._job.sink_nodes else None
        return plan is not None and any(not _ends(node.source) for node in plan.sources.values())

    def run(
        self, looked_at: Callable[[Execution, float], None] | None = None, *, show_progress: bool = False
    ) -> Result:
        """Run the job to its end, or until Ctrl-C. ``looked_at`` is called from time to time while it runs. Raises JobError."""
        begun = time.perf_counter()
        if not self.script.is_job:
            frames = [(name, query.answer) for name, query in self._queries() if query.answer is not None]
            return Result(frames, None, time.perf_counter() - begun, self._job.notices)
        place = tempfile.mkdtemp(prefix="headrace-shell-")
        try:
            report, stopped = self._run_job(place, looked_at, begun, show_progress=show_progress)
            by_name = {view.name: view for view in self.views}
            frames = []
            for name, query in self._queries():
                if query.answer is not None:
                    frames.append((name, query.answer))
                else:
                    by_name[name].refresh()
                    frames.append((name, by_name[name].frame()))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        written = tuple(dict.fromkeys(insert.table for insert in self.script.inserts))
        return Result(frames, report, time.perf_counter() - begun, self._job.notices, stopped, written)

    def _queries(self) -> Iterator[tuple[str, Any]]:
        for index, query in enumerate(self.script.queries):
            yield "result" if not index else f"result_{index + 1}", query

    def _run_job(
        self, place: str, looked_at: Callable[[Execution, float], None] | None, begun: float, *, show_progress: bool
    ) -> tuple[JobReport, bool]:
        jobs = [self.script.insert_job(insert) for insert in self.script.inserts]
        relations = self.script.relations()
        for index, (name, query) in enumerate(self._queries()):
            if query.answer is None:
                path = f"{place}/{index}"
                relation = relations[name]
                settings = CollectSettings(path=path, flush_interval=timedelta(milliseconds=100))
                jobs.append(relation.stream.to(CollectSink(settings), name=f"collect_{name}"))
                unlimited = looked_at is None or not self.is_streaming
                self.views.append(View(name, path, dict(relation.schema), rows_max=10**12 if unlimited else 10_000))
        options = {
            **self._settings.options,
            "show_progress": show_progress,
            "until": None if self.is_streaming else "end",
        }
        if self._settings.checkpoint is not None:
            options["checkpoint"] = self._settings.checkpoint
        stop = threading.Event()
        with _interrupts_stop(stop):
            handle = jobs[0].also(*jobs[1:]).start(self._settings.backend, **options)
            return self._waited(handle, stop, looked_at, begun), stop.is_set()

    def _waited(
        self,
        handle: JobHandle,
        stop: threading.Event,
        looked_at: Callable[[Execution, float], None] | None,
        begun: float,
    ) -> JobReport:
        while True:
            try:
                report = handle.wait(_POLL)
            except TimeoutError:
                if stop.is_set():
                    handle.stop()
                    report = handle.wait()
                else:
                    self._look(looked_at, begun)
                    continue
            if report.error:
                raise JobFailedError(report.error, job=report.job)
            self._look(looked_at, begun)
            return report

    def _look(self, looked_at: Callable[[Execution, float], None] | None, begun: float) -> None:
        if looked_at is not None:
            changed = [view.refresh() for view in self.views]
            if any(changed) or not self.views:
                looked_at(self, time.perf_counter() - begun)


def _ends(source: Any) -> bool:
    """Return whether a source is read to its end unless the user says otherwise: it has one, or it is a file."""
    return bool(source.bounded) or type(source).__name__ == "FileSource"


@contextmanager
def _interrupts_stop(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C stop the job instead of the shell. Elsewhere than in the main thread there are no signals to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
