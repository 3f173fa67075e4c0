"""Requests to a running job from another process of its machine: files in its checkpoint directory.

``headrace savepoint`` writes a request below ``<checkpoint>/control``. A thread of the job finds it, carries it out
and writes an answer. Everyone who can write to the checkpoint can send requests. Nothing listens on the network.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import CheckpointError, HeadraceError, JobError
from headrace.foundation.private_files import private_opener
from headrace.foundation.storage_faults import storage_error
from headrace.interfaces.backend import JobHandle
from headrace.runtime.savepoints import MANIFEST, check_free

logger = logging.getLogger(__name__)
_DIRECTORY = "control"
_PROCESS = "process"
_LOOK = timedelta(milliseconds=500)
#: The resolution of times in file systems: two changes within it may leave the same time.
_CLOCK_STEP_NS = 5_000_000_000
_STOP_TIMEOUT = timedelta(minutes=5)
_ANSWER_LOOK_SECONDS = 0.1


def watch(handle: JobHandle, checkpoint: str | None, job: str) -> None:
    """Carry out the requests in the checkpoint directory of a job until it ends. Called once, when the job has started.

    A checkpoint that is not a directory of this machine is not watched.
    """
    if checkpoint is None or "://" in checkpoint:
        return
    directory = Path(checkpoint) / _DIRECTORY
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in directory.iterdir():  # left by an earlier run: nobody waits for it any more
            left.unlink(missing_ok=True)
        with open(directory / _PROCESS, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(str(os.getpid()))
    except OSError as error:  # the job runs; only requests of other processes are not heard
        logger.warning(
            "job %s cannot take requests from other processes: %s", job, storage_error(error, directory).message
        )
        return
    threading.Thread(target=_watch, args=(handle, directory), name=f"control {job}", daemon=True).start()


def _watch(handle: JobHandle, directory: Path) -> None:
    seen: int | None = None
    while True:
        try:
            handle.wait(_LOOK)
        except TimeoutError:
            try:
                # The directory is listed only after it has changed, because a machine may have hundreds of jobs.
                changed = directory.stat().st_mtime_ns
                if changed == seen and time.time_ns() - changed > _CLOCK_STEP_NS:
                    continue
                for request in sorted(directory.glob("*.request")):
                    _do(handle, request)
                seen = changed  # only now: requests that could not be taken, or arrived since, are looked for again
            except FileNotFoundError:  # somebody has removed the directory
                continue
            except OSError as error:  # the process that asked waits until its own time-out
                logger.warning("control: %s", storage_error(error, directory, what="answer to a request").message)
            continue
        except HeadraceError as error:  # a caller that waits for the job gets the error from its own wait()
            logger.debug("control: the job has failed: %s", error)
        return


def _do(handle: JobHandle, request: Path) -> None:
    taken = request.with_suffix(".taken")
    request.rename(taken)
    answer: Mapping[str, Any]
    try:
        asked = json.loads(taken.read_bytes())
        path = str(asked["savepoint"])
        if asked["stop"]:
            handle.stop(_STOP_TIMEOUT, savepoint=path)
        else:
            handle.savepoint(path)
        answer = {"savepoint": path}
    except HeadraceError as error:
        answer = {"error": error.message, "hint": error.hint}
    except (ValueError, KeyError, TypeError, TimeoutError) as error:
        answer = {"error": str(error) or repr(error), "hint": None}
    _write(request.with_suffix(".answer"), answer)
    taken.unlink(missing_ok=True)


def ask_for_savepoint(
    checkpoint: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    stop: bool,
    claim_timeout: timedelta = timedelta(seconds=30),
    clock: Clock | None = None,
) -> Path:
    """Ask the job that runs with a checkpoint for a savepoint, and with ``stop`` to stop there; return its path when it is written.

    Raises CheckpointError if no job takes the request within ``claim_timeout``, and the error with which the job refuses it.
    """
    clock, never = clock or SystemClock(), threading.Event()
    directory = Path(checkpoint) / _DIRECTORY
    target = Path(path).absolute()
    if not directory.is_dir():
        raise _nobody(checkpoint)
    check_free(target)
    request = directory / f"{uuid.uuid4().hex}.request"
    _write(request, {"savepoint": str(target), "stop": stop})
    answer = request.with_suffix(".answer")
    begun = clock.monotonic()
    # A job that stops with the savepoint may end before it has answered. The savepoint itself tells whether it is
    # complete.
    while not (answer.exists() or (target / MANIFEST).exists()):
        if request.exists() and clock.monotonic() - begun >= claim_timeout.total_seconds():
            with contextlib.suppress(FileNotFoundError):
                request.unlink()
                raise _nobody(checkpoint)
        clock.wait(never, _ANSWER_LOOK_SECONDS)
        if not (request.exists() or answer.exists() or (target / MANIFEST).exists() or _is_alive(directory)):
            raise JobError("the job has ended meanwhile, and wrote no savepoint", option="savepoint")
    try:
        found = json.loads(answer.read_bytes())
    except FileNotFoundError:
        return target
    answer.unlink(missing_ok=True)
    if "error" in found:
        raise CheckpointError(found["error"], option="savepoint", hint=found["hint"])
    return target


def _is_alive(directory: Path) -> bool:
    """Return whether the process of the job exists."""
    try:
        os.kill(int((directory / _PROCESS).read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _nobody(checkpoint: str | os.PathLike[str]) -> CheckpointError:
    return CheckpointError(
        f"no job runs with the checkpoint {os.fspath(checkpoint)!r} on this machine",
        option="checkpoint",
        hint="give the directory that the running job was given as its checkpoint",
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file atomically."""
    new = path.with_name(f".{path.name}.new")
    with open(new, "w", encoding="utf-8", opener=private_opener) as file:
        json.dump(content, file)
    new.replace(path)
