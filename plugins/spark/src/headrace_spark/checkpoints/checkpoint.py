"""The checkpoint of a job on Spark: Spark's own directory of a streaming query, checked before the query starts."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.foundation.checksums import checksum_of
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import CheckpointError
from headrace.foundation.private_files import make_private_directory
from headrace.interfaces.state_definition import DefinedState, definitions_from_json, definitions_to_json
from pyspark.sql import SparkSession

from headrace_spark.checkpoints.object_stores import S3Options
from headrace_spark.checkpoints.offsets import JobOffsets
from headrace_spark.checkpoints.ownership import (
    SPARK_DIRECTORY,
    Ownership,
    Spans,
    checked_content,
    lock_of,
    newest_spans,
    reaches,
    taken_over,
)

logger = logging.getLogger(__name__)
#: How long a start waits for an earlier run to end: the Java process of a run that was killed ends a little later.
_LOCK_WAIT_SECONDS = 20.0
_LOCK_PAUSE_SECONDS = 0.1
_RUNS = "runs"
#: Claims of earlier runs that are kept: those runs may still exist.
_CLAIMS_MAX = 1_000
_STATE_DIRECTORY = "shards"
_BEGINNING = "beginning.json"
_DEFINITIONS = "definitions.json"
_SAVEPOINT = "savepoint.json"
_FRAMES = "frames.json"
#: Keys of the files of an older version of headrace, which have no checksum: definitions, beginnings, savepoints.
_KEYS_WITHOUT_CHECKSUM = frozenset({"format", "operators", "outputs", "job", "plan", "sources", "gone", "keyed", "id"})


class SparkCheckpoint:
    """The directory ``<checkpoint>/spark``, on the local disk or on any file system that Hadoop reaches."""

    def __init__(self, session: SparkSession, checkpoint: str, *, local: bool, job: str) -> None:
        on_disk = local and "://" not in checkpoint
        self.location = (
            (Path(checkpoint).absolute() / SPARK_DIRECTORY).as_uri()
            if on_disk
            else f"{checkpoint.rstrip('/')}/{SPARK_DIRECTORY}"
        )
        self._job = job
        self._checkpoint = checkpoint
        context: Any = session.sparkContext
        self._jvm = context._jvm
        # Each name on the way to a class is a request to Java, so it is looked up only once.
        self._java_path = self._jvm.org.apache.hadoop.fs.Path
        self._java_text = self._jvm.org.apache.commons.io.IOUtils.toString
        self._java_bytes = self._jvm.org.apache.commons.io.IOUtils.toByteArray
        self._root = self._java_path(self.location)
        self._files: Any = None
        self._configuration = context._jsc.hadoopConfiguration()
        self.only_here = on_disk
        self._lock_path = lock_of(checkpoint) if on_disk else None
        self._lock: Any = None
        self._id: str | None = None
        #: The number of this run's claim, 0: it has made none.
        self._run = 0
        self._spans = Spans()
        #: Where the last micro-batches end, as far as they were read.
        self._offsets: dict[int, JobOffsets] = {}
        #: Who claims: all queries of one job handle.
        self._owner = uuid.uuid4().hex

    def open(self, clock: Clock | None = None) -> None:
        """Make the directory and, on the local disk, lock it for this process. Raises CheckpointError."""
        try:
            self._files = self._root.getFileSystem(self._configuration)
            if self._lock_path is not None:
                if not self._lock_path.parent.parent.exists():
                    make_private_directory(self._lock_path.parent.parent)  # dead letters are kept there too
                make_private_directory(self._lock_path.parent)
            self._files.mkdirs(self._root)
            if self._lock_path is not None:
                self._take_lock(clock or SystemClock())
        except CheckpointError:
            raise
        except Exception as error:  # py4j: whatever the file system says
            raise self._unusable(error) from error

    @property
    def state_uri(self) -> str:
        """Where keyed stages keep their state: beside Spark's own files, with the file system named in full."""
        qualified = str(self._files.makeQualified(self._root).toString())
        return f"{qualified.rstrip('/').removesuffix(SPARK_DIRECTORY)}{_STATE_DIRECTORY}"

    @property
    def s3(self) -> S3Options | None:
        """How workers reach ``state_uri`` if it is in S3: as Spark does, by the same settings."""
        return S3Options.of_hadoop(self._jvm, self._configuration, self.state_uri)

    @property
    def spans(self) -> Spans:
        """Which run's state files count, by micro-batch: after ``check`` of earlier runs, after ``claim`` of this one too."""
        return self._spans

    def ownership(self, *, keyed: bool) -> Ownership | None:
        """Return the claim of this run for its other processes; None when it has made none.

        ``keyed``: the job has keyed stages, so that Python reaches the checkpoint in all of its processes. Without them it
        does where the checkpoint is a directory or in S3; elsewhere only Java may have the credentials.
        """
        if self._run == 0:
            return None
        uri = self.state_uri.removesuffix(f"/{_STATE_DIRECTORY}")
        s3 = self.s3
        seen = (keyed or s3 is not None or uri.startswith("file:")) and reaches(uri, self._run, s3)
        return Ownership(self._job, uri, self._run, s3, by_driver=seen, by_workers=seen)

    def claim(self) -> None:
        """Take the checkpoint over from earlier runs that may still exist: from now on they plan, complete and store nothing.

        Called after the check that the directory belongs to this job, so the run of another job continues. An earlier run of this job may
        have planned until now, so planned micro-batches are read again afterwards. Raises CheckpointError.
        """
        while True:
            runs = self._batches(_RUNS)
            number, first = max(runs, default=0) + 1, self._next_batch()
            spans = self._spans_of(runs).followed_by(number, first)
            claimed = {
                "spans": spans.spans,
                "owner": self._owner,
                "host": socket.gethostname(),
                "process": os.getpid(),
                "at": _now(),
            }
            name = f"{_RUNS}/{number}"
            # Stores of objects may let two runs create a file at one moment: then it is of the run that wrote last.
            mine = self._create(name, claimed) and (self._find(name) or {}).get("owner") == self._owner
            if mine and self._next_batch() == first:
                break  # else another run has claimed it, or completed a micro-batch since
        self._run, self._spans = number, spans
        for old in runs:
            if old <= number - _CLAIMS_MAX:
                self._files.delete(self._path(f"{_RUNS}/{old}"), False)

    def check_owned(self) -> None:
        """Check that no later run has claimed the checkpoint. Raises CheckpointError.

        A claim of the same job handle comes from its own restart that failed early, for example because the disk was full.
        """
        if not self._run or not self._files.exists(self._path(f"{_RUNS}/{self._run + 1}")):
            return
        newest = f"{_RUNS}/{max(self._batches(_RUNS))}"
        found = (self._find(newest) or {}) if self._length(newest) else {}
        if found.get("owner") != self._owner:
            raise taken_over(self._job, self._run, found)

    def _next_batch(self) -> int:
        """Return the micro-batch that a start runs first."""
        interrupted = self.interrupted_batch()
        return max(self._batches("commits"), default=-1) + 1 if interrupted is None else interrupted

    def _spans_of(self, runs: set[int]) -> Spans:
        """Return the spans of the last claim. One that is empty is of a start that was killed before it wrote anything."""

        def claim(run: int) -> Mapping[str, Any] | None:
            name = f"{_RUNS}/{run}"
            return (self._find(name) or {}) if self._length(name) else None

        return newest_spans(runs, claim, lambda run, why: self._damaged(f"{_RUNS}/{run}", why))

    def _length(self, name: str) -> int:
        return int(self._files.getFileStatus(self._path(name)).getLen())

    def _create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Write a file that must not be there yet; return whether it was not. Raises CheckpointError."""
        try:
            self._write(self._files.create(self._path(name), False), name, content)
        except Exception as error:  # py4j: whatever the file system says
            if "already exists" in _java_message(error).lower() or "AlreadyExists" in _java_message(error):
                return False
            with contextlib.suppress(
                Exception
            ):  # py4j's: a file that is left of a claim is empty, and starts expect that
                self._files.delete(self._path(name), False)
            raise self._unusable(error) from error
        return True

    def _unusable(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"checkpoint directory {self._checkpoint!r} cannot be used: {_java_message(error)}",
            job=self._job,
            option="checkpoint",
        )

    def close(self) -> None:
        """Unlock the directory, so that other processes can use it. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            try:
                lock.close()
            except Exception as error:  # py4j's: Java has ended, and with it the lock
                logger.debug("while unlocking %s: %s", self.location, error)

    @property
    def id(self) -> str | None:
        """The id that distinguishes its files from those of other checkpoints; None: an older version of headrace created it."""
        return self._id

    @property
    def began_at_savepoint(self) -> bool:
        """Whether shards began with the state of a savepoint. Known after ``check``."""
        beginning = self._find(_BEGINNING)
        return beginning is not None and "keyed" in beginning

    def check(self, before: SparkCheckpoint | None = None, *, of_frames: bool = False) -> None:
        """Check that all files that a start needs exist, are undamaged and belong to one checkpoint. Called when the directory was opened.

        ``before`` is the checkpoint that the job's earlier query in this run had: it must be the same one. Without this check,
        a query that is started again would start without state if the directory was removed. ``of_frames``: the job
        reads DataFrames, whose offsets only Spark can read. Raises CheckpointError that names the file.
        """
        if before is not None:
            self._owner = before._owner
        planned, completed = self._batches("offsets"), self._batches("commits")
        self._check_spark_files(planned, completed, ours=not of_frames)
        self._spans = self._spans_of(self._batches(_RUNS))
        found = self._find(_DEFINITIONS) or self._find(f"{_DEFINITIONS}.new")
        last = None if not planned or of_frames else self._offsets_of(max(planned))[1]
        known = None if last is None else last.checkpoint
        if found is None and known is not None:
            raise self._damaged(_DEFINITIONS, "it is missing")
        if found is not None:
            self._id = found.get("checkpoint")
        elif not planned:
            self._id = uuid.uuid4().hex
        if last is not None and known != self._id:
            raise self._damaged(_DEFINITIONS, f"it is of another checkpoint than offsets/{max(planned)}")
        beginning = self._find(_BEGINNING)
        if self._id is not None and last is not None and (beginning is None or beginning.get("checkpoint") != self._id):
            raise self._damaged(_BEGINNING, "it is missing" if beginning is None else "it is of another checkpoint")
        if before is not None and before.id != self._id:
            how = (
                "it is missing: the checkpoint was removed"
                if found is None
                else "it was replaced by that of another checkpoint"
            )
            raise self._damaged(_DEFINITIONS, f"{how} while the job ran")

    def _check_spark_files(self, planned: set[int], completed: set[int], *, ours: bool) -> None:
        """Check that Spark's own files can be read and fit together, as after a run that was interrupted at any place."""
        metadata = self._path("metadata")
        if self._files.exists(metadata):
            self._check_json("metadata", 0)
        last = max(planned, default=-1)
        if max(completed, default=-1) > last:
            raise self._damaged(f"offsets/{max(completed)}", f"it is missing, but there is commits/{max(completed)}")
        if last > 0 and last - 1 not in planned:
            raise self._damaged(f"offsets/{last - 1}", "it is missing")
        if last > 0 and not completed & {last, last - 1}:
            raise self._damaged(f"commits/{last - 1}", "it is missing")
        ids = set()
        for number in sorted(planned)[-2:]:
            self._check_json(f"offsets/{number}", 1)
            if not ours:
                continue
            offsets = self._offsets_of(number)[1]
            if offsets.number is not None and offsets.number != number + 1:
                raise self._damaged(f"offsets/{number}", f"it is of micro-batch {offsets.number - 1}")
            ids.add(offsets.checkpoint)
        if len(ids) > 1:
            raise self._damaged(f"offsets/{last - 1}", f"it is of another checkpoint than offsets/{last}")
        if completed:
            self._check_json(f"commits/{max(completed)}", 1)

    def _check_json(self, name: str, line: int) -> None:
        lines = self._read(name).splitlines()
        try:
            if (line and lines[0] != "v1") or not isinstance(json.loads(lines[line]), dict):
                raise ValueError("Spark has not written this file")
        except (IndexError, ValueError, RecursionError) as error:
            raise self._damaged(name, str(error)) from error

    def _damaged(self, name: str, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self.location}/{name} is damaged: {why}",
            job=self._job,
            option="checkpoint",
            hint="restore the whole checkpoint directory from one copy, or start from the beginning with another checkpoint directory",
        )

    def offsets(self) -> tuple[int, JobOffsets] | None:
        """Return the last micro-batch that was planned, and where it ends; None when there is none."""
        batches = self._batches("offsets")
        return self._offsets_of(max(batches)) if batches else None

    def completed(self) -> tuple[int, JobOffsets] | None:
        """Return the last micro-batch that was completed, and where it ends; None when there is none."""
        batches = self._batches("commits")
        return self._offsets_of(max(batches)) if batches else None

    def _offsets_of(self, last: int) -> tuple[int, JobOffsets]:
        """Return where a micro-batch ends. Its file is written once and never replaced, so it is read once."""
        if last not in self._offsets:
            self._offsets = {number: kept for number, kept in self._offsets.items() if number >= last - 1}
            self._offsets[last] = self._read_offsets(last)
        return last, self._offsets[last]

    def _read_offsets(self, last: int) -> JobOffsets:
        lines = self._read(f"offsets/{last}").splitlines()
        try:
            return JobOffsets.from_json(json.loads(lines[2]))
        except (IndexError, ValueError, RecursionError) as error:
            raise self._damaged(f"offsets/{last}", f"{error!r}") from error
        except CheckpointError as error:
            raise self._damaged(f"offsets/{last}", error.message) from error

    def last_planned(self) -> int | None:
        """Return the number of the last micro-batch that Spark has planned; None when there is none."""
        return max(self._batches("offsets"), default=None)

    def spark_file(self, name: str) -> bytes:
        """Return the content of a file of Spark's. Raises CheckpointError when it cannot be read."""
        try:
            stream = self._files.open(self._path(name))
            try:
                return bytes(self._java_bytes(stream))
            finally:
                stream.close()
        except Exception as error:  # py4j: whatever the file system says
            raise self._damaged(name, f"it cannot be read: {_java_message(error)}") from error

    def put_spark_file(self, name: str, content: bytes) -> None:
        """Write a file as Spark would. Called before a query begins here."""
        self.check_owned()
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(content))
        stream.close()

    def names_below(self, directory: str) -> list[str]:
        """Return the names of the files in a directory of Spark's; none when there is no such directory."""
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path) if status.isFile())

    def forget_spark_files(self) -> None:
        """Remove the files of a start from a savepoint that was interrupted."""
        for name in ("offsets", "commits", "sources", "metadata"):
            self._files.delete(self._path(name), True)

    def note_savepoint(self, savepoint_id: str) -> None:
        """Store at which savepoint a job over DataFrames is going to begin: before ``keep_frames`` it has not begun."""
        self._keep(_SAVEPOINT, {"id": savepoint_id})

    def noted_savepoint(self) -> str | None:
        """Return what ``note_savepoint`` has stored."""
        found = self._find(_SAVEPOINT)
        return None if found is None else str(found["id"])

    def query_id(self) -> str | None:
        """Return the id of Spark's query, by which the state of jobs over DataFrames is named; None: it has not begun."""
        if not self._files.exists(self._path("metadata")):
            return None
        return str(json.loads(self._read("metadata").splitlines()[0])["id"])

    def frames(self) -> Mapping[str, Any] | None:
        """Return what ``keep_frames`` has stored; None when there is nothing."""
        return self._find(_FRAMES)

    def keep_frames(self, content: Mapping[str, Any]) -> None:
        """Store what later starts of a job that reads DataFrames must know of the first one."""
        self._keep(_FRAMES, content)

    def forget_frames(self) -> None:
        """Remove what ``keep_frames`` has stored: the job has come to its end."""
        self._files.delete(self._path(_FRAMES), False)

    def interrupted_batch(self) -> int | None:
        """Return the number of the micro-batch that was planned but not completed: it will be run again."""
        planned, completed = self._batches("offsets"), self._batches("commits")
        last = max(planned, default=None)
        return last if last is not None and last not in completed else None

    def beginning(self, find: Callable[[], JobOffsets | None] | None) -> Mapping[str, Any] | None:
        """Return where the job begins, as JSON: what its first start found, else what ``find`` gives, which is kept.

        It is kept before anything is planned, so that a start after a crash in the first micro-batch begins at the same
        place. Without ``find``, for jobs that have planned already, None says that nothing was known when they began.
        """
        kept = self._find(_BEGINNING)
        if kept is not None and find is not None and kept.get("checkpoint") != self._id:
            found: JobOffsets | None = JobOffsets.from_json(
                kept
            )  # a start by an older version of headrace came no further
        else:
            found = None if kept is not None or find is None else find()
        if found is None:
            return kept
        begun = found.begun_in(self._id).to_json()
        self._keep(_BEGINNING, begun)
        return begun

    def definitions(self) -> dict[str, DefinedState] | None:
        """Return the definitions of the stored state, by operator; None: none are stored (older versions of headrace stored none)."""
        # A crash while they were replaced leaves the new ones under the other name.
        found = self._find(_DEFINITIONS) or self._find(f"{_DEFINITIONS}.new")
        try:
            return None if found is None else definitions_from_json(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(_DEFINITIONS, f"{error!r}") from error

    def outputs(self) -> dict[str, str]:
        """Return the digests of what makes the rows of each output, by sink; none where an older version has stored nothing."""
        found = self._find(_DEFINITIONS) or self._find(f"{_DEFINITIONS}.new") or {}
        return {str(name): str(digest) for name, digest in found.get("outputs", {}).items()}

    def keep_definitions(self, definitions: Mapping[str, DefinedState], outputs: Mapping[str, str]) -> None:
        """Store the definitions of state and outputs from now on, and the checkpoint's id. Called before the query starts."""
        content = {**definitions_to_json(definitions), "outputs": dict(outputs)}
        if self._id is not None:
            content["checkpoint"] = self._id
        if self._find(_DEFINITIONS) != content:
            self._keep(_DEFINITIONS, content)

    def _find(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON values of a file of ours; None when there is none. Raises CheckpointError when it is damaged."""
        if not self._files.exists(self._path(name)):
            return None
        try:
            found: dict[str, Any] = json.loads(self._read(name))
            content = checked_content(found, name.removesuffix(".new"))
            if content is not None:
                return content
            if not set(found) <= _KEYS_WITHOUT_CHECKSUM:
                raise ValueError(f"unknown parts {sorted(set(found) - _KEYS_WITHOUT_CHECKSUM)}")
            return found
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, str(error)) from error

    def savepoint(self) -> tuple[bool, str | None]:
        """Return whether the job has begun here, and the id of the savepoint at which it did."""
        beginning = self._path(_BEGINNING)
        if not (self._files.exists(beginning) or self._batches("offsets")):
            return False, None
        found = self._find(_SAVEPOINT)
        return True, None if found is None else str(found["id"])

    def begin_at(self, savepoint_id: str, offsets: JobOffsets) -> None:
        """Store that the job begins at a savepoint. Before this call the job has not begun."""
        self._keep(_SAVEPOINT, {"id": savepoint_id})
        self._keep(_BEGINNING, offsets.begun_in(self._id).to_json())

    def _keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of ours, over one that may be there; a crash leaves one of them."""
        self.check_owned()
        path = self._path(name)
        written = self._java_path(self._root, f"{name}.new")
        self._write(self._files.create(written, True), name, content)
        # A rename does not replace; an older file is there only where definitions have changed.
        self._files.delete(path, False)
        self._files.rename(written, path)

    @staticmethod
    def _write(stream: Any, name: str, content: Mapping[str, Any]) -> None:
        whole: dict[str, Any] = {"of": name, "content": content}
        stream.write(bytearray(json.dumps({**whole, "checksum": checksum_of(whole)}).encode()))
        stream.close()

    def _batches(self, directory: str) -> set[int]:
        path = self._java_path(self._root, directory)
        if not self._files.exists(path):
            return set()
        names = [status.getPath().getName() for status in self._files.listStatus(path)]
        return {int(name) for name in names if name.isdigit()}

    def _path(self, name: str) -> Any:
        return self._java_path(self._root, name)

    def _read(self, name: str) -> str:
        try:
            stream = self._files.open(self._path(name))
            try:
                return str(self._java_text(stream, "UTF-8"))
            finally:
                stream.close()
        except Exception as error:  # py4j: whatever the file system says
            raise self._damaged(name, f"it cannot be read: {_java_message(error)}") from error

    def _take_lock(self, clock: Clock) -> None:
        """Lock a file in the Java process, not in Python, because Java may still work after this process was killed."""
        begun = clock.monotonic()
        never = threading.Event()
        file = self._jvm.java.io.RandomAccessFile(str(self._lock_path), "rw")
        while True:
            try:
                if file.getChannel().tryLock() is not None:
                    self._lock = file
                    return
            except Exception as error:
                # Another job of this process holds the lock.
                if "OverlappingFileLockException" not in _java_message(error):
                    raise
            if clock.monotonic() - begun >= _LOCK_WAIT_SECONDS:
                file.close()
                raise CheckpointError(
                    f"checkpoint directory {self._checkpoint!r} is in use by another running job",
                    job=self._job,
                    option="checkpoint",
                    hint="stop the other process, or give this job a directory of its own",
                )
            clock.wait(never, _LOCK_PAUSE_SECONDS)


def not_shared(
    job: str, hint: str = "name a directory on a shared disk, or in hdfs, s3, gs or abfs"
) -> CheckpointError:
    """Return the error of a job whose keyed stages would store their state where only the driver sees it."""
    return CheckpointError(
        "a job with keyed stages on a cluster needs a checkpoint directory that all machines can access",
        job=job,
        option="checkpoint",
        hint=hint,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _java_message(error: Exception) -> str:
    java_error = getattr(error, "java_exception", None)
    return str(java_error.toString()) if java_error is not None else str(error)
