"""An archive of the classes that a local Spark's Java loads: with it Java starts in a third of the time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pyspark
from headrace.foundation.clock import Clock, SystemClock

from headrace_spark.processes.java import JavaRuntime

logger = logging.getLogger(__name__)
#: A file that Java has written to a moment ago may not be whole.
_SETTLED_SECONDS = 30
#: A Java that runs for longer than this may be that of a job without an end. Others then write the archive too.
_LONG_RUN_SECONDS = 600
#: The mark of a job that has run is removed after this time if its Java, which was killed, has written nothing.
_FORGOTTEN_SECONDS = 86_400


class ClassArchive:
    """The archive of one installation of pyspark, one Java and its flags, in a directory that is kept between runs.

    Java writes it when it ends, which takes more work than a short job. So one that starts while another has just begun to run and
    will write it has no archive and writes none. When Java starts it checks that the archive fits and is whole, else ignores it. An
    archive that was written by a process whose job did not run to its end lacks classes and is not used.
    """

    def __init__(self, kept: Path, java: JavaRuntime, flags: Sequence[str], clock: Clock | None = None) -> None:
        installed = Path(pyspark.__file__).parent / "jars"
        identity = f"{installed} {installed.stat().st_mtime_ns} {java.home} {java.version} {tuple(flags)}"
        name = f"classes-{pyspark.__version__}-{short_hash(identity)}"
        self._archive = kept / f"{name}.jsa"
        self._lock = kept / f"{name}.lock"
        self._new = kept / f"{name}.{os.getpid()}.new"
        self._good = self._new.with_suffix(".good")
        self._clock = clock or SystemClock()
        self._held: int | None = None
        self._writes = False

    @property
    def is_written(self) -> bool:
        """Whether this process's Java writes it."""
        return self._writes

    def flags(self) -> list[str]:
        """Return the options with which Java uses the archive, or writes it. Called once before Java starts. Never raises."""
        try:
            self._take_new()
            if self._archive.exists():
                return [f"-XX:SharedArchiveFile={self._archive}"]
            self._writes = self._begin_to_write()
        except OSError as error:  # such as a full disk
            logger.debug("no archive of classes: %s", error)
            return []
        return [f"-XX:ArchiveClassesAtExit={self._new}"] if self._writes else []

    def kept_open(self) -> tuple[int, ...]:
        """Return the open files that Java is to inherit: they say that it has not ended."""
        return () if self._held is None else (self._held,)

    def close(self) -> None:
        """Close the files of ``kept_open``. Called when Java has inherited them, or did not start."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def job_has_run(self) -> None:
        """Let the archive that this process's Java will write be used."""
        if self._writes:
            with contextlib.suppress(OSError):  # the job has run, whatever becomes of the archive
                self._good.touch()

    def _begin_to_write(self) -> bool:
        """Return whether this process's Java is to write: nobody else's does, or it has run for so long that it may run for days."""
        held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process's Java has it
            if self._age_seconds(self._lock) < _LONG_RUN_SECONDS:
                os.close(held)
                return False
        self._held = held
        now = self._clock.now()
        os.utime(held, (now, now))
        self._good.unlink(missing_ok=True)  # of an earlier process with this number
        return True

    def _take_new(self) -> None:
        """Use what an earlier Java wrote."""
        for written in self._archive.parent.glob(f"{self._archive.stem}.*.new"):
            if self._age_seconds(written) < _SETTLED_SECONDS:
                continue  # it may still be written
            good = written.with_suffix(".good")
            if good.exists() and not self._archive.exists():
                with contextlib.suppress(FileNotFoundError):  # another process has just taken it
                    written.replace(self._archive)
            else:
                written.unlink(missing_ok=True)
            good.unlink(missing_ok=True)
        for good in self._archive.parent.glob(f"{self._archive.stem}.*.good"):
            if self._age_seconds(good) > _FORGOTTEN_SECONDS:
                good.unlink(missing_ok=True)

    def _age_seconds(self, file: Path) -> float:
        try:
            return self._clock.now() - file.stat().st_mtime
        except FileNotFoundError:  # another process has just taken it
            return 0.0


def short_hash(text: str) -> str:
    """Return what tells kept files of one installation, or Java, from those of another, for their names."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
