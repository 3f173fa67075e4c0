"""Keeps a process that has lost a unit, and may wake up, away from the checkpoints of the unit's jobs.

A process that was paused on another machine cannot be killed from here, and locks of its file system may be gone. When it wakes up it
ends itself within moments, but until then it may write, through its paths and open files. So the next process gets
its own directory: a copy of the checkpoint, with hard links to files that never change.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from headrace.foundation.durable_files import sync_directory
from headrace.foundation.errors import HeadraceError, RetriableError
from headrace.interfaces.registry import default_registry

from headrace_server.supervision.data_directory import FENCED, DataDirectory
from headrace_server.supervision.going_back import copy_checkpoint, same_content

logger = logging.getLogger(__name__)
_DEAD_LETTERS = "dead-letters"
_TRIES = 5
#: A checkpoint that was set aside: this, and the token of the lease with which the job began without it.
_BEFORE = "before-"
_SET_ASIDE_SECONDS = 7 * 86_400.0


def fence_checkpoint(data: DataDirectory, job: str, token: int) -> Path:
    """Give a job another directory for its checkpoint, with the content of the present one. Returns it.

    May be called again after a crash. Raises RetriableError if the old process writes all the time, OSError.
    """
    old = data.checkpoint(job)
    place = data.state_of_job(job)
    target = place / f"{FENCED}{token:010d}"
    if not old.exists() or target == old:
        return old
    beside = place / f".{target.name}.new"
    for _ in range(_TRIES):
        shutil.rmtree(beside, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):  # the old process has removed it in the meantime: try again
            copy_checkpoint(old, beside)
            if same_content(old, beside):
                break
    else:
        raise RetriableError(
            f"the checkpoint {old} changes while it is copied, so its process is still running", job=job
        )
    os.rename(beside, target)
    sync_directory(place)
    logger.warning("job %s: an old process of the job may still resume, so the job continues in %s", job, target)
    _take_dead_letters(place, target)
    for each in place.glob(f"{FENCED}*[0-9]"):
        if each not in (old, target):  # two takeovers ago: that process has ended itself long since
            shutil.rmtree(each, ignore_errors=True)
    return target


def _take_dead_letters(place: Path, target: Path) -> None:
    """Bring the dead letters into the new directory: those of the last one that has some, in which a crash may have left them."""
    others = sorted((each for each in place.glob(f"{FENCED}*[0-9]") if each != target), reverse=True)
    for each in (*others, place / "checkpoint"):
        letters = each / _DEAD_LETTERS
        if letters.exists() and not (target / _DEAD_LETTERS).exists():
            os.rename(letters, target / _DEAD_LETTERS)
            sync_directory(target)


def take_from_lost_process(backend: str, checkpoint: Path, job: str) -> None:
    """Let a backend that fences its runs by itself, as Spark does by claims, have a checkpoint that a lost process may hold a lock of.

    Raises OSError.
    """
    try:
        kind = default_registry().find("backend", backend)
    except HeadraceError as error:  # it is in the environment of the job alone
        logger.warning("job %s: a lock that a paused process holds cannot be removed: %s", job, error.message)
        return
    kind.take_from_lost_process(str(checkpoint))


def begin_without_checkpoint(data: DataDirectory, job: str, token: int) -> None:
    """Set a checkpoint aside that is outdated because the job has run elsewhere since. For jobs that do not need it."""
    old = data.checkpoint(job)
    if old.exists():
        for each in set_aside(data, job):  # that of an earlier move, which is older still
            shutil.rmtree(each, ignore_errors=True)
        aside = old.with_name(f"{_BEFORE}{token:010d}")
        os.rename(old, aside)
        os.utime(aside)  # since when it lies there


def set_aside(data: DataDirectory, job: str) -> list[Path]:
    """Return the checkpoints of a job that were set aside when it came back to this server."""
    return sorted(data.state_of_job(job).glob(f"{_BEFORE}*[0-9]"))


def remove_set_aside(data: DataDirectory, job: str, *, now_seconds: float) -> None:
    """Remove checkpoints that have been set aside for a week: the job has gone on without them for long."""
    for each in set_aside(data, job):
        with contextlib.suppress(FileNotFoundError):
            if now_seconds - each.stat().st_mtime >= _SET_ASIDE_SECONDS:
                shutil.rmtree(each, ignore_errors=True)
                logger.info("job %s: %s is removed: the job has not needed it for a week", job, each)
