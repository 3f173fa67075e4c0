"""Which run owns a checkpoint: a fence for storage without locks.

Each start of a job claims its checkpoint by a file ``spark/runs/<number>``, one greater than the last. The run with the greatest
number owns the checkpoint. Every other one finds the file of its successor before it plans or completes a micro-batch, and before
its workers store state or rows. State files are named by the run that wrote them, and the claim says from which micro-batch on each
run's files count, so a run that was stopped and continues later overwrites nothing that its successor reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.foundation.checksums import checksum_of
from headrace.foundation.errors import CheckpointError, RetriableError

from headrace_spark.checkpoints.object_stores import S3Options
from headrace_spark.checkpoints.state_files import StateFiles, state_files

#: The directory of a checkpoint that has Spark's own files.
SPARK_DIRECTORY = "spark"
#: Below the directory of the checkpoint.
_RUNS = "runs"
DIRECTORY = f"{SPARK_DIRECTORY}/{_RUNS}"
#: State files of older micro-batches are not needed: each shard stores a snapshot at least every 200 micro-batches.
_BATCHES_MAX = 1_000
#: Runs that begin with the same micro-batch, because none of them completed it.
_SAME_FIRST_MAX = 3
#: What the error of a task says that comes too late; it reaches the driver as a text.
COMPLETED = "was completed by another attempt"
#: Within this time a process looks only once. The clock runs on while a process is stopped (SIGSTOP).
_LOOK_AGAIN_SECONDS = 0.1


def lock_of(checkpoint: str) -> Path:
    """Return the file that a run locks where the checkpoint is a directory on a disk of this machine, or mounted on it."""
    return Path(checkpoint).absolute() / SPARK_DIRECTORY / "headrace.lock"


@dataclass(frozen=True)
class Spans:
    """From which micro-batch on the files of each run count: pairs of micro-batch and run, ascending."""

    spans: tuple[tuple[int, int], ...] = ((0, 0),)

    def runs(self, batch_id: int) -> Iterator[int]:
        """Yield the runs that may have completed a micro-batch, the most likely first.

        That is the last run that began with it or before. If a run began with it, an earlier run may have completed it at the
        same moment; its files have the same content, because results depend only on the input.
        """
        for first, run in reversed(self.spans):
            if first <= batch_id:
                yield run
                if first < batch_id:
                    return

    def followed_by(self, run: int, first: int) -> Spans:
        """Return the spans with those of a new run that begins with micro-batch ``first``."""
        kept = list(self.spans)
        while len(kept) > 1 and kept[1][0] <= first - _BATCHES_MAX:
            del kept[0]
        same = [span for span in kept if span[0] == first][-_SAME_FIRST_MAX + 1 :]
        return Spans((*(span for span in kept if span[0] != first), *same, (first, run)))


@dataclass(frozen=True)
class Ownership:
    """A run's claim of its checkpoint. Travels to all its processes."""

    job: str
    #: The directory of the checkpoint, as a URI.
    uri: str
    number: int
    #: How the directory is reached if it is in S3.
    s3: S3Options | None = None
    #: Whether the planning and the committing process reach the directory, and whether workers do.
    by_driver: bool = False
    by_workers: bool = False

    def check_on_driver(self) -> None:
        """Check that no later run has claimed the checkpoint. Raises CheckpointError, RetriableError when it cannot be read."""
        if self.by_driver:
            self._check(None)

    def check_in_worker(self, batch_id: int) -> None:
        """Check that this run still owns the checkpoint, and that the micro-batch is not completed: it was if this task was
        stopped for long, and another attempt has run instead. Raises CheckpointError, RetriableError when it cannot be read."""
        if self.by_workers and time.monotonic() - _looked_at.get((self.uri, self.number, batch_id), -1e9) > (
            _LOOK_AGAIN_SECONDS
        ):
            self._check(batch_id)
            _looked_at.clear()
            _looked_at[self.uri, self.number, batch_id] = time.monotonic()

    def _check(self, batch_id: int | None) -> None:
        files = _files(self.uri, self.s3)
        try:
            if files.exists(f"{DIRECTORY}/{self.number + 1}"):
                raise taken_over(self.job, self.number, self._successor(files))
            completed = batch_id is not None and files.exists(f"spark/commits/{batch_id}")
        except OSError as error:
            raise RetriableError(
                f"the checkpoint {self.uri} cannot be read: {error}", job=self.job, option="checkpoint"
            ) from error
        if completed:
            raise CheckpointError(
                f"micro-batch {batch_id} {COMPLETED} of this task, while this attempt was paused or slow, so this attempt stores nothing",
                job=self.job,
            )

    def _successor(self, files: StateFiles) -> Mapping[str, Any]:
        try:
            content: Mapping[str, Any] = json.loads(files.read(f"{DIRECTORY}/{self.number + 1}") or b"{}")["content"]
            return content
        except (ValueError, KeyError, TypeError):
            return {}


#: When a worker looked last, by checkpoint, run and micro-batch.
_looked_at: dict[tuple[str, int, int], float] = {}


#: What was opened last, with how it was reached.
_opened: dict[tuple[str, S3Options | None], StateFiles] = {}


def _files(uri: str, s3: S3Options | None) -> StateFiles:
    found = _opened.get((uri, s3))
    if found is None:
        _opened.clear()
        found = _opened[uri, s3] = state_files(uri, s3)
    return found


def reaches(uri: str, number: int, s3: S3Options | None = None) -> bool:
    """Return whether Python reaches the checkpoint: whether it sees the claim that Java has just written."""
    try:
        return _files(uri, s3).exists(f"{DIRECTORY}/{number}")
    except (OSError, CheckpointError):
        return False


def taken_over(job: str, number: int, successor: Mapping[str, Any]) -> CheckpointError:
    """Return the error of a run whose checkpoint was claimed by a later one."""
    who = ""
    if "host" in successor:
        who = f" by process {successor.get('process')} on {successor['host']} at {successor.get('at')}"
    return CheckpointError(
        f"the checkpoint was taken over{who}: the job was started again while this run ({number}) was still running, so this run ends and "
        "stores nothing more",
        job=job,
        option="checkpoint",
        hint="no row is lost or doubled: the later run continues from the checkpoint. Run only one driver of a job at a time",
    )


def checked_content(found: object, name: str) -> Mapping[str, Any] | None:
    """Return the content of a file that headrace wrote under this name; None when an older version of headrace wrote it.

    Raises ValueError when it is damaged or another file.
    """
    if not isinstance(found, dict):
        raise ValueError("it does not contain a map")
    if set(found) != {"of", "checksum", "content"}:
        return None
    if found["checksum"] != checksum_of(found):
        raise ValueError("its checksum does not match")
    if found["of"] != name:
        raise ValueError(f"it is {found['of']}")
    content: Mapping[str, Any] = found["content"]
    return content


def newest_spans(
    runs: Iterable[int],
    claim: Callable[[int], Mapping[str, Any] | None],
    damaged: Callable[[int, str], CheckpointError],
) -> Spans:
    """Return the spans of the last claim. ``claim`` gives what one holds; None: a start was killed before it wrote anything."""
    for run in sorted(runs, reverse=True):
        content = claim(run)
        if content is None:
            continue
        try:
            return Spans(tuple((int(first), int(number)) for first, number in content["spans"]))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(run, f"{error!r}") from error
    return Spans()


def spans_below(files: StateFiles) -> Spans:
    """Return the spans of the last claim in a checkpoint, for programs that only look. ``files``: those of the checkpoint's directory.

    Raises CheckpointError when the claim is damaged.
    """

    def damaged(run: int, why: str) -> CheckpointError:
        return CheckpointError(f"{DIRECTORY}/{run} of the checkpoint is damaged: {why}")

    def claim(run: int) -> Mapping[str, Any] | None:
        found = files.read(f"{DIRECTORY}/{run}")
        if not found:
            return None
        try:
            content = checked_content(json.loads(found), f"{_RUNS}/{run}")
        except (ValueError, RecursionError) as error:
            raise damaged(run, str(error)) from error
        return {} if content is None else content

    return newest_spans((int(name) for name in files.names(DIRECTORY) if name.isdigit()), claim, damaged)
