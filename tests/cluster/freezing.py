"""Processes that are stopped (SIGSTOP) for as long as a test wants, as on a machine that was paused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import psutil

from tests.conformance.case import Case
from tests.conformance.stateful_inputs import SCHEMA, clicks
from tests.eventually import eventually

_FROZEN, _WOKEN, _ASKED = "frozen.json", "woken", "freeze"
_HOLD, _GO = "hold", "go"


@dataclass(frozen=True)
class Frozen:
    """A worker process that has stopped itself in a keyed micro-batch, with everything above it up to the Worker of Spark."""

    directory: Path
    #: The Python worker, its daemon, the executor and Spark's Worker.
    processes: tuple[int, ...]

    @classmethod
    def find(cls, directory: Path) -> Frozen | None:
        """Return the process that has stopped below a case's directory; None while there is none."""
        path = directory / _FROZEN
        if not path.exists():
            return None
        processes = tuple(json.loads(path.read_text()))
        stopped = psutil.Process(processes[0]).status() == psutil.STATUS_STOPPED
        return cls(directory, processes) if stopped else None

    def wake_worker(self) -> None:
        """Let the Python worker alone continue: nobody can end it before it has written."""
        os.kill(self.processes[0], signal.SIGCONT)

    def wake_rest(self) -> None:
        """Let the others continue that still exist."""
        for each in self.processes[1:]:
            if psutil.pid_exists(each):
                os.kill(each, signal.SIGCONT)

    @property
    def woken(self) -> bool:
        """Whether the Python worker has continued in the job's function."""
        return (self.directory / _WOKEN).exists()


def ask_to_freeze(directory: Path) -> None:
    """Let the first worker process that comes to the row of ``freezing`` stop there."""
    (directory / _ASKED).touch()


def hold(directory: Path) -> None:
    """Let the job of ``freezing_case`` wait at its row until ``let_go``."""
    (directory / _HOLD).touch()


def let_go(directory: Path) -> None:
    """Let it continue."""
    (directory / _GO).touch()


def freezing_case(rows: int, at: int) -> Case:
    """Return a job with state whose function stops its process and those above it, or waits, at the row with id ``at``, if asked to."""

    def build(directory: Path) -> hr.Job:
        def numbered(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
            if row["id"] == at:
                freeze_here(directory)
                if (directory / _HOLD).exists():
                    eventually((directory / _GO).exists, "the test lets the job go on")
            state["n"] = state.get("n", 0) + 1
            yield {"key": row["key"], "id": row["id"], "n": state["n"]}

        pipe = hr.stream("cluster", "freezing")
        events = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA).key_by("key")
        made = events.process(numbered, schema={"key": "string", "id": "int64", "n": "int64"})
        written: hr.Job = made.to_file(f"{directory}/out/rows", format="json")
        return written

    return Case("freezing", {"clicks.ndjson": clicks(rows, 1)}, build)


def freeze_here(directory: Path) -> None:
    """Stop this worker process, its daemon, its executor and Spark's Worker, if a test asks for it and no process was stopped yet."""
    try:
        os.rename(directory / _ASKED, directory / f"{_ASKED}.{os.getpid()}")
    except FileNotFoundError:
        return
    own = psutil.Process()
    processes = [own.pid, *(parent.pid for parent in own.parents()[:3])]
    new = directory / f"{_FROZEN}.new"
    new.write_text(json.dumps(processes))
    new.replace(directory / _FROZEN)
    for each in reversed(processes):
        os.kill(each, signal.SIGSTOP)
    (directory / _WOKEN).touch()


def stop_program(process: int) -> list[int]:
    """Stop a program with all its children, Java and Spark's Python processes among them; return which."""
    program = psutil.Process(process)
    processes = [program, *program.children(recursive=True)]
    for each in processes:
        each.suspend()
    return [each.pid for each in processes]


def wake(processes: list[int]) -> None:
    """Let stopped processes continue."""
    for each in processes:
        if psutil.pid_exists(each):
            os.kill(each, signal.SIGCONT)
