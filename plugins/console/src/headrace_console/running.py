"""Runs a job for ``headrace run``: waits for its end, handles signals, and prints the report."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
import typer
from headrace.foundation.errors import JobFailedError, OptionError
from headrace.interfaces.backend import JobHandle, JobReport, JobState, RunOptions
from headrace.jobs.job import Job

from headrace_console.command import StopAsked
from headrace_console.command import ask_to_stop as ask_to_stop_at_once
from headrace_console.job_files import load_job, parse_assignments
from headrace_console.reporting import EXIT_ALL_DEAD_LETTERS, EXIT_BROKEN_QUEUES, EXIT_INTERRUPTED, EXIT_JOB_FAILED, say
from headrace_console.watchdog import stop_timeout, watching

_POLL = timedelta(milliseconds=200)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(
    target: str,
    *,
    backend: str | None,
    until: Literal["end"] | None,
    checkpoint: Path | None,
    from_savepoint: Path | None = None,
    drop_state: Sequence[str] = (),
    options: Sequence[str],
    parameters: Sequence[str],
    choices: Mapping[str, bool | str | None] | None = None,
) -> int:
    """Load the job, run it to its end or until a signal, and print the report. Returns the exit code.

    ``choices``: options of the run that have a flag of their own. A flag that was not given (None, False) changes nothing:
    then ``options``, the namespace or the default decides. Raises JobError, JobFailedError.
    """
    given: dict[str, Any] = run_options(options)
    given |= {name: chosen for name, chosen in (choices or {}).items() if chosen}
    given["until"] = until
    if checkpoint is not None:
        given["checkpoint"] = str(checkpoint)
    if from_savepoint is not None:
        given["from_savepoint"] = str(from_savepoint)
    if drop_state:
        given["drop_state"] = tuple(drop_state)
    stop = _StopRequest()
    with _signals_handled_by(stop):
        try:
            job = load_job(target, parse_assignments(parameters, flag="--set"))
            given.setdefault("show_progress", sys.stderr.isatty() and not _prints_to_terminal(job))
            handle = job.start(backend, **given)
            stop.job_runs = True
        except StopAsked:
            say("stopped before the job had started", style="yellow")
            return 0
        # A backend may have installed its own signal handlers when it started (Spark's context does so for Ctrl-C).
        with _signals_handled_by(stop):
            report = _wait(handle, stop.asked)
    show_report(report)
    if report.broken_queues:
        return EXIT_BROKEN_QUEUES
    return EXIT_ALL_DEAD_LETTERS if report.all_dead_letters else 0


class _StopRequest:
    """Handles signals. Before the job runs, a signal ends the command at once.

    Later, the first signal requests a graceful stop, and the second one ends the process.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.job_runs = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.job_runs:
            ask_to_stop_at_once(number, frame)
        if self.asked.is_set():
            say("stopped at once; records read after the last checkpoint are read again at the next start", style="red")
            os._exit(EXIT_INTERRUPTED)
        self.asked.set()


def run_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return ``--option KEY=VALUE`` as options of ``Job.start``. Numbers and booleans among the run's options are converted.

    Options of the backend stay texts, which its settings convert. Raises JobError for a text that is not KEY=VALUE, for a
    value that cannot be converted, and for an option that has its own flag.
    """
    options: dict[str, Any] = dict(parse_assignments(texts, flag="--option"))
    for name, flag in (
        ("until", "until"),
        ("checkpoint", "checkpoint"),
        ("from_savepoint", "from"),
        ("drop_state", "drop-state"),
    ):
        if name in options:
            raise OptionError(f"{name!r} has its own flag", option=name, hint=f"write --{flag} {options[name]}")
    hints = typing.get_type_hints(RunOptions)
    for field in fields(RunOptions):
        kind = int if hints[field.name] == int | None else hints[field.name]
        if field.name in options and kind in (int, bool):
            try:
                options[field.name] = msgspec.convert(options[field.name], kind, strict=False)
            except msgspec.ValidationError as error:
                raise OptionError(str(error), option=field.name) from error
    return options


def _prints_to_terminal(job: Job) -> bool:
    """Whether the job prints rows on a terminal: rows and a progress line would overwrite each other."""
    return any(node.sink.prints_to_terminal for node in job.sink_nodes)


def _wait(handle: JobHandle, stop_asked: threading.Event) -> JobReport:
    """Wait until the job ends, or stop it after a signal. If the job failed, print the report and raise JobFailedError."""
    try:
        report = _wait_or_stop(handle, stop_asked)
    except JobFailedError:
        show_report(JobReport.of(handle.status()))
        raise
    if report.state is JobState.FAILED:
        show_report(report)
        raise JobFailedError(report.error or "the job failed", job=report.job)
    return report


def _wait_or_stop(handle: JobHandle, stop_asked: threading.Event) -> JobReport:
    with watching(stop_timeout()) as watchdog:
        while not stop_asked.is_set():
            watchdog.look(handle)
            try:
                return handle.wait(_POLL)
            except TimeoutError:
                continue
        say("\nstopping: finishing the current batch (Ctrl-C again stops at once)", style="yellow")
        try:
            watchdog.stop(handle)
        except TimeoutError as error:
            # The threads of a job that hangs would prevent the interpreter from exiting.
            say(f"error: {error}", style="red")
            os._exit(EXIT_JOB_FAILED)
    return handle.wait()


@contextmanager
def events_logged(format: str | None, level: str | None) -> Iterator[None]:
    """Log events as the command's flags say. Without any of them what Python does by itself stays: warnings, as plain texts."""
    if format is None and level is None:
        yield
        return
    from headrace.foundation.logs import configure

    before = logging.getLogger().level
    handler = configure("json" if format == "json" else "console", level or "warning")
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(before)
        handler.close()


@contextmanager
def _signals_handled_by(handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


def show_report(report: JobReport) -> None:
    """Print the report of a job on standard error."""
    mark = typer.style("✓", fg="green")
    if report.state is JobState.FAILED:
        mark = typer.style("✗", fg="red")
    elif report.all_dead_letters or report.broken_queues:
        mark = typer.style("!", fg="yellow")
    say(f"{mark} {report.job} on {report.backend}: {report.state.value} after {report.seconds:.1f} s")
    rate = f"  ({report.records_read / report.seconds:,.0f}/s)" if report.seconds else ""
    say(f"  records read  {report.records_read:,}{rate}")
    for name, count in report.rows_written.items():
        say(f"  rows written  {count:,} to {name}")
    if report.dead_letters:
        places = f" to {', '.join(report.dead_letter_places)}" if report.dead_letter_places else ""
        say(f"  dead letters  {report.dead_letters:,}{places}", style="yellow")
        for reason in report.dead_letter_reasons:
            say(f"    {reason}", style="yellow")
    for queue in report.broken_queues:
        say(f"  broken queue  {queue.queue} at offset {queue.offset:,}: {queue.broken}", style="yellow")
    if report.all_dead_letters:
        say("  nothing was written: every record that was read is a dead letter", style="yellow")
