"""Savepoints that were asked for while a job runs: the engine takes them between two entries."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from pathlib import Path

from headrace.foundation.errors import CheckpointError, HeadraceError, JobError
from headrace.plan.graph import Plan
from headrace.runtime.savepoints import Place, SavepointWriter, check_free

logger = logging.getLogger(__name__)


class OpenSavepoint:
    """A savepoint that is being written. Errors go to the caller who asked for it and do not affect the job."""

    def __init__(self, path: str | os.PathLike[str], answer: Future[Path]) -> None:
        self._answer = answer
        self._writer: SavepointWriter | None = None
        try:
            self._writer = SavepointWriter(path)
        except HeadraceError as error:
            answer.set_exception(error)

    def add_state(self, shuffle: str, shard: int, state: bytes) -> None:
        """Add the state of a shard."""
        if self._writer is not None:
            try:
                self._writer.add_state(shuffle, shard, state)
            except HeadraceError as error:
                self.abandon(error)

    def finish(self, plan: Plan, place: Place) -> None:
        """All states were added, and the rows that belong to them are durable in the sinks."""
        if self._writer is not None:
            try:
                path = self._writer.finish(plan, "light", place)
            except HeadraceError as error:
                self.abandon(error)
                return
            logger.info("job %s: savepoint %s", plan.job_name, path)
            self._answer.set_result(path)

    def abandon(self, error: Exception) -> None:
        """Remove the written files, and raise the error in the calling thread."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()
        if not self._answer.done():
            self._answer.set_exception(error)


class SavepointRequests:
    """Takes requests from any thread; the engine's thread takes them out."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._asked: list[tuple[str | os.PathLike[str], Future[Path]]] = []
        self._begun: list[OpenSavepoint] = []
        self._ended = False

    def ask(self, path: str | os.PathLike[str]) -> Future[Path]:
        """Ask for a savepoint. Raises JobError when the job has ended, CheckpointError when the path is taken."""
        with self._lock:
            if self._ended:
                raise self._too_late()
            check_free(path)
            answer: Future[Path] = Future()
            self._asked.append((path, answer))
            return answer

    @property
    def waiting(self) -> bool:
        """Whether there is a request."""
        return bool(self._asked)

    def begin(self, refusal: JobError | None = None) -> list[OpenSavepoint]:
        """Begin all savepoints that were asked for, or refuse them. Called by the engine, which then adds the states and finishes them."""
        with self._lock:
            asked, self._asked = self._asked, []
        if refusal is not None:
            for _, answer in asked:
                answer.set_exception(refusal)
            asked = []
        self._begun = [OpenSavepoint(path, answer) for path, answer in asked]
        return self._begun

    def end(self, error: BaseException | None) -> None:
        """The job has ended: open requests fail."""
        with self._lock:
            self._ended = True
            asked, self._asked = self._asked, []
        reason = self._too_late()
        reason.__cause__ = error
        for each in self._begun:
            each.abandon(reason)
        for _, answer in asked:
            answer.set_exception(reason)

    def _too_late(self) -> JobError:
        return CheckpointError("the job has ended, so no savepoint can be taken", job=self._job, option="savepoint")
