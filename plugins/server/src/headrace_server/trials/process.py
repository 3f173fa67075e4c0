"""Starts a trial as a child process and waits for its answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.errors import JobError, RetriableError

#: Trials at the same time: each is a Python process with polars.
_TRIALS_MAX = 2
_WAIT_SECONDS = 10.0
_ANSWER_MAX_BYTES = 16 * 1024 * 1024
_MEMORY_MAX_BYTES = 2 * 1024**3


class TrialRefusedError(JobError):
    """A trial was refused, and why."""


class TrialBusyError(RetriableError):
    """Too many trials run at the moment."""


@dataclass
class Trials:
    """Runs trials. May be called from any thread; each call waits for its child, which is killed with what it has started."""

    environment: Mapping[str, str] = field(default_factory=dict)
    _places: threading.Semaphore = field(default_factory=lambda: threading.BoundedSemaphore(_TRIALS_MAX))

    def ask(
        self, do: str, *, timeout: timedelta, environment: Mapping[str, str] | None = None,
        python: str | None = None, keep_open: int | None = None, **arguments: Any,
    ) -> Any:  # fmt: skip
        """Return the answer of a trial. Raises TrialRefusedError with the reason, TrialBusyError, TimeoutError.

        ``python``: the interpreter of a job with plug-ins of its own. ``keep_open``: a descriptor that the trial's
        process gets as well, so that its lock is held until that process has ended.
        """
        if not self._places.acquire(timeout=_WAIT_SECONDS):
            raise TrialBusyError("too many trials are running", hint="try again in a few seconds")
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-trial-") as place:
                command = [python or sys.executable, "-m", "headrace_server.trials"]
                return self._asked(
                    command, do, arguments, Path(place), timeout, environment or self.environment, keep_open
                )
        finally:
            self._places.release()

    def _asked(
        self, command: list[str], do: str, arguments: Mapping[str, Any], place: Path, timeout: timedelta, environment: Mapping[str, str],
        keep_open: int | None,
    ) -> Any:  # fmt: skip
        answer = place / "answer.json"
        request = msgspec.json.encode(
            {"do": do, "answer": str(answer), "memory_max_bytes": _MEMORY_MAX_BYTES, **arguments}
        )
        work = place / "work"
        work.mkdir()
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=work, start_new_session=True,
            env=dict(environment), pass_fds=() if keep_open is None else (keep_open,),
        )  # fmt: skip
        try:
            _, errors = child.communicate(request, timeout.total_seconds())
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it did not end after {timeout.total_seconds():g} s and was stopped") from None
        finally:
            _end(child)
        return _answer_of(answer, child.returncode, errors)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process group: also what the trial has started."""
    with contextlib.suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stderr):
        if pipe is not None:
            pipe.close()


def _answer_of(file: Path, code: int, errors: bytes) -> Any:
    try:
        with open(file, "rb") as opened:
            content = opened.read(_ANSWER_MAX_BYTES + 1)
    except FileNotFoundError:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise TrialRefusedError(f"the process ended with code {code}: {last[0][:500]}") from None
    if len(content) > _ANSWER_MAX_BYTES:
        raise TrialRefusedError("the answer is too large", hint="ask for fewer rows")
    found = msgspec.json.decode(content)
    if "error" in found:
        raise TrialRefusedError(found["error"], hint=found.get("hint"))
    return found["answer"]
