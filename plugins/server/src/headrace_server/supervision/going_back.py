"""What a roll-out keeps while a new version is watched: the old checkpoint, and a note for the next server."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.durable_files import replace_durably, sync_directory, write_durably
from headrace.foundation.private_files import make_private_directory
from headrace.runtime.kept_versions import MARK, forget_versions, keep_versions

from headrace_server.runner.protocol import RefusedError
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.processes import RunnerProcess

#: Files that are never written again once they have their name. Others may be, through the name or a descriptor: they are copied.
_NEVER_CHANGED = (".delta", ".snapshot", ".sst", ".zip", ".parquet")
_DEAD_LETTERS = "dead-letters"
#: What a note keeps of the plan of a new version.
PLAN_PARTS = ("job", "definitions", "state_outside")
#: Neither belongs to the place of a job: dead letters stay where they are, a lock is that of a process.
_LEFT_OUT = frozenset({_DEAD_LETTERS, MARK, "lock", "LOCK"})


class RollOutNote(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out whose new versions are watched. It is on disk from before they run until they are accepted or taken back."""

    unit: str
    group: bool
    #: All that ran before, by job.
    before: Mapping[str, int]
    changes: Mapping[str, int]
    #: What the runner said of the plans of the changed jobs.
    plans: Mapping[str, Any]
    #: Where the old versions have stopped.
    places: Mapping[str, Any] = {}
    #: The interpreter of the process before, whose headrace may be another one.
    python: str | None = None
    #: The versions are the same: only the headrace that runs them is new.
    renews: bool = False
    #: Why new versions are taken back; empty: they are watched still.
    unhealthy: Mapping[str, str] = {}

    @property
    def python_there(self) -> str | None:
        """The interpreter of the process before, if it is there still."""
        return self.python if self.python is not None and os.access(self.python, os.X_OK) else None

    def write(self, data: DataDirectory) -> None:
        """Write the note, durably. Raises OSError."""
        file = data.roll_out_note(self.unit, group=self.group)
        make_private_directory(file.parent)
        replace_durably(file, msgspec.json.encode(self))

    def remove(self, data: DataDirectory) -> None:
        """Remove the note, durably. Raises OSError."""
        file = data.roll_out_note(self.unit, group=self.group)
        file.unlink(missing_ok=True)
        sync_directory(file.parent)


def read_note(data: DataDirectory, unit: str, *, group: bool) -> RollOutNote | None:
    """Return the note that a roll-out of a unit has left; None: there is none. Raises OSError, msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(data.roll_out_note(unit, group=group).read_bytes(), type=RollOutNote)
    except FileNotFoundError:
        return None


class KeptCheckpoint:
    """A copy of a stopped job's checkpoint, with hard links to what never changes."""

    def __init__(self, data: DataDirectory, job: str) -> None:
        #: The directory that the kept one is a copy of.
        self._checkpoint = data.checkpoint(job)
        self.path = self._checkpoint.with_name("checkpoint.kept")
        #: Where the checkpoint of a version is that was taken back, until the next one.
        self.aside = self._checkpoint.with_name("checkpoint.taken-back")

    def keep(self) -> None:
        """Make the copy, instead of an earlier one. A crash leaves all of it or none. Raises OSError."""
        new = self.path.with_name("checkpoint.kept.new")
        shutil.rmtree(new, ignore_errors=True)
        self.drop()
        copy_checkpoint(self._checkpoint, new)
        os.rename(new, self.path)
        sync_directory(self.path.parent)

    def guard(self) -> None:
        """Let the running version make no snapshot while its state is loaded ahead, and the new one forget no state that the copy needs,
        in a store outside of the directory. Raises OSError.
        """
        keep_versions(self._checkpoint)

    def unguard(self) -> None:
        """Let state be forgotten as ever. Raises OSError."""
        forget_versions(self._checkpoint)

    def is_changed(self) -> bool:
        """Return whether the checkpoint is another one by now. False also if there is no copy. Raises OSError."""
        return self.path.exists() and not same_content(self.path, self._checkpoint)

    def restore(self) -> None:
        """Put the copy in the place of the checkpoint, with the dead letters of now. May be called again after a crash. Raises OSError."""
        if not self.path.exists():
            return
        if self._checkpoint.exists():
            shutil.rmtree(self.aside, ignore_errors=True)
            os.rename(self._checkpoint, self.aside)
        letters = self.aside / _DEAD_LETTERS
        if letters.exists() and not (self.path / _DEAD_LETTERS).exists():
            os.rename(letters, self.path / _DEAD_LETTERS)
        os.rename(self.path, self._checkpoint)
        sync_directory(self._checkpoint)
        sync_directory(self._checkpoint.parent)

    def drop(self) -> None:
        """Remove the copy, if there is one: state is forgotten as ever from now on."""
        self.unguard()
        shutil.rmtree(self.path, ignore_errors=True)


def keep_way_back(note: RollOutNote, data: DataDirectory) -> None:
    """Keep the checkpoints of stopped versions, and the note of their roll-out. After an error nothing of it is left. Raises OSError."""
    kept = [KeptCheckpoint(data, job) for job in note.changes]
    try:
        for each in kept:
            each.keep()
        note.write(data)
        for each in kept:
            each.guard()
    except OSError:
        with contextlib.suppress(OSError):
            note.remove(data)
            for each in kept:
                each.drop()
        raise


def copy_checkpoint(source: Path, target: Path) -> None:
    """Make ``target`` a durable copy of a checkpoint, without its dead letters and locks; what never changes is linked. Raises OSError."""
    make_private_directory(target)
    for each in _walked(source):
        copy = target / each.relative_to(source)
        if each.is_dir():
            make_private_directory(copy)
        elif not (each.suffix in _NEVER_CHANGED and _linked(each, copy)):
            write_durably(copy, each.read_bytes())
    for each in (target, *(path for path in _walked(target) if path.is_dir())):
        sync_directory(each)


def same_content(one: Path, other: Path) -> bool:
    """Return whether two checkpoints are the same, without their dead letters and locks. Raises OSError."""
    kept, now = (
        {str(each.relative_to(root)): each for each in _walked(root) if each.is_file()} for root in (one, other)
    )
    return kept.keys() == now.keys() and all(
        each.samefile(now[name]) or each.read_bytes() == now[name].read_bytes() for name, each in kept.items()
    )


def why_no_way_back(job: str, old: RunnerProcess, running: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why the running version could not continue after a roll-back of a new one, whose plan is ``new``; None: it could.

    Where the state lies in topics and positions with groups of a broker, neither can be set back: other instances may use them, too.
    So the running version must be able to read the state that the new one stores, or nothing of it is begun. Raises RunnerAwayError.
    """
    if "state_outside" not in running:
        return None  # an older headrace runs it, which does not say
    before, after = running.get("state_outside"), new.get("state_outside")
    if before != after and running["definitions"]:
        places = [each or "in the directory of its checkpoint" for each in (before, after)]
        return (
            f"the running version has its state {places[0]}, and the new one would have it {places[1]}: state does not move between them. "
            "Leave it where it is, or give the job another name in hr.stream(namespace, pipeline): then it begins anew"
        )
    if after is None:
        return None
    try:
        must_be_empty = old.ask("compare", job=job, running=new, place="the new version")
    except RefusedError as error:
        why = error.message.partition("\n")[0]
    else:
        if not must_be_empty:
            return None
        why = f"not all of {', '.join(must_be_empty)} would be in it"
    return (
        f"there would be no way back from it: the state is {after} and cannot be set back there, and the running version could not read "
        f"what the new one stores ({why}). To do without: headrace stop {job}, headrace upgrade {job}, headrace start {job}"
    )


def place_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a job has stopped: the number of its checkpoint and the next offset of each queue."""
    figures = status.get("figures")
    if figures is None:
        return {}
    queues = {each["queue"]: each["offset"] for each in figures["queues"]}
    return {"checkpoint": figures["checkpoint_id"], "offsets": queues}


def rows_twice(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return which records were read by the version that was taken back, and are read again: by queue, from where to where."""
    begun, ended = before.get("offsets") or {}, after.get("offsets") or {}
    found = []
    for queue, offset in sorted({**dict.fromkeys(ended, 0), **begun}.items()):
        if ended.get(queue, offset + 1) <= offset:
            continue
        until = f"to {ended[queue] - 1:,}" if queue in ended else "on"
        found.append(f"{queue} from offset {offset:,} {until}")
    return ", ".join(found) or "what it has read"


def _walked(root: Path) -> Iterator[Path]:
    """Yield the entries below a directory, each directory before its files. Links are left out: headrace makes none."""
    for place, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in _LEFT_OUT)
        for name in (*folders, *sorted(set(files) - _LEFT_OUT)):
            path = Path(place, name)
            if not path.is_symlink():
                yield path


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links, or too many of one file: it is copied
        return False
    return True
