"""Runs a job for ``headrace run``: waits, listens to signals, reports."""

from __future__ import annotations

import os
import signal
import sys
import threading
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
import typer
from headrace.backend import JobHandle, JobReport, JobState, JobStatus, RunOptions
from headrace.errors import JobFailedError, OptionError
from headrace.jobs import Job

from headrace_console.job_files import load_job, parse_assignments
from headrace_console.reporting import EXIT_INTERRUPTED, EXIT_JOB_FAILED, say

_POLL = timedelta(milliseconds=200)
#: How long a graceful stop may take before the command gives up waiting.
STOP_TIMEOUT = timedelta(minutes=5)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(
    target: str,
    *,
    backend: str | None,
    until: Literal["end"] | None,
    checkpoint: Path | None,
    options: Sequence[str],
    parameters: Sequence[str],
) -> None:
    """Load the job, run it to its end or until a signal, and report. Raises JobError, JobFailedError."""
    given: dict[str, Any] = run_options(options)
    given["until"] = until
    if checkpoint is not None:
        given["checkpoint"] = str(checkpoint)
    job = load_job(target, parse_assignments(parameters, flag="--set"))
    given.setdefault("show_progress", sys.stderr.isatty() and not _prints_to_terminal(job))
    report = _run_until_signal(job, backend, given)
    show_report(job, report)
    if report.state is JobState.FAILED:
        raise JobFailedError(report.error or "the job failed", job=report.job)


def run_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return ``--option KEY=VALUE`` as options of ``Job.start``: those of the run itself become numbers and booleans.

    The backend's own stay texts, which its settings convert.
    """
    options: dict[str, Any] = dict(parse_assignments(texts, flag="--option"))
    for name in ("until", "checkpoint"):
        if name in options:
            raise OptionError(f"{name!r} has a flag of its own", option=name, hint=f"write --{name} {options[name]}")
    hints = typing.get_type_hints(RunOptions)
    for field in fields(RunOptions):
        if field.name in options and hints[field.name] in (int, bool):
            try:
                options[field.name] = msgspec.convert(options[field.name], hints[field.name], strict=False)
            except msgspec.ValidationError as error:
                raise OptionError(str(error), option=field.name) from error
    return options


def _prints_to_terminal(job: Job) -> bool:
    """Whether rows appear on a terminal: they and a progress line would write over each other."""
    return any(getattr(node.sink, "prints_to_terminal", False) for node in job.sink_nodes)


def _run_until_signal(job: Job, backend: str | None, options: dict[str, Any]) -> JobReport:
    stop_asked = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop_asked.is_set():
            say("stopped at once; what was not checkpointed is read again at the next start", style="red")
            os._exit(EXIT_INTERRUPTED)
        stop_asked.set()

    with _signals_handled_by(ask_to_stop):
        handle = job.start(backend, **options)
        # A backend may have put handlers of its own in place while it started (Spark's context does for Ctrl-C).
        with _signals_handled_by(ask_to_stop):
            try:
                return _wait(handle, stop_asked)
            except JobFailedError:
                show_report(job, handle.status())
                raise


def _wait(handle: JobHandle, stop_asked: threading.Event) -> JobReport:
    while not stop_asked.is_set():
        try:
            return handle.wait(_POLL)
        except TimeoutError:
            continue
    say("\nstopping: finishing the batch at hand (Ctrl-C again stops at once)", style="yellow")
    try:
        handle.stop(STOP_TIMEOUT)
    except TimeoutError as error:
        # Threads of a job that hangs would keep the interpreter from ending.
        say(f"error: {error}", style="red")
        os._exit(EXIT_JOB_FAILED)
    return handle.wait()


@contextmanager
def _signals_handled_by(handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


def show_report(job: Job, report: JobReport | JobStatus) -> None:
    """Say what a job did, on standard error."""
    mark = typer.style("✗", fg="red") if report.state is JobState.FAILED else typer.style("✓", fg="green")
    say(f"{mark} {report.job} on {report.backend}: {report.state.value} after {report.seconds:.1f} s")
    rate = f"  ({report.records_read / report.seconds:,.0f}/s)" if report.seconds else ""
    say(f"  records read  {report.records_read:,}{rate}")
    for name, count in report.rows_written.items():
        say(f"  rows written  {count:,} to {name}")
    if report.dead_letters:
        say(f"  dead letters  {report.dead_letters:,}{_dead_letters_place(job)}", style="yellow")


def _dead_letters_place(job: Job) -> str:
    plan = job.plan()
    if plan.dead_letters_id is None:
        return ""
    behind = plan.reachable(plan.nodes[plan.dead_letters_id])
    return " to " + ", ".join(name for name in plan.sinks if name in behind)
