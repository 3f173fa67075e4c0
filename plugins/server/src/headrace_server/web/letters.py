"""Dead letters of a job, as its default sink has written them beside the checkpoint."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import FILE_MODE, make_private_directory

#: The newest files are read up to this size together; letters before them are not shown.
_READ_MAX_BYTES = 16 * 1024 * 1024
_TEXT_LENGTH_MAX = 20_000


class _Line(msgspec.Struct, frozen=True):
    """A letter as the sink has written it."""

    queue: str
    offset: int
    origin: str
    error: str
    reason: str
    preview: str = ""
    index: int = 0
    row: str | None = None
    body: str | None = None


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter. ``body`` is Base64, as in the file; None: the record was decoded already, ``row`` has it as JSON."""

    id: str
    queue: str
    offset: int
    origin: str
    error: str
    reason: str
    preview: str
    text: str
    body: str | None
    row: str | None
    #: When it was last sent through the job again; None: never.
    replayed_seconds: float | None = None

    @property
    def source(self) -> str:
        """Return the id of the source that it came from."""
        return self.queue.split("/", 1)[0]


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Letters that fit a search, the newest first. ``more``: there are others that are not shown."""

    letters: list[Letter]
    more: bool


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A line in the journal of replays."""

    letters: list[str]
    time_seconds: float
    who: str


def read_letters(directory: Path, journal: Path, *, search: str = "", limit: int = 100) -> LetterPage:
    """Return the newest letters whose reason, body or place has the searched text. Raises OSError."""
    replayed = _replayed(journal)
    wanted = search.casefold()
    found: list[Letter] = []
    lines = _lines(directory)
    for id, line in lines:
        letter = _letter(id, line, replayed.get(id))
        if letter is None:
            continue
        if (
            wanted
            and wanted
            not in "\n".join([letter.reason, letter.text, letter.queue, letter.origin, letter.error]).casefold()
        ):
            continue
        if len(found) == limit:
            return LetterPage(letters=found, more=True)
        found.append(letter)
    return LetterPage(letters=found, more=False)


def chosen_letters(directory: Path, journal: Path, ids: Sequence[str]) -> list[Letter]:
    """Return letters by their ids. Raises JobError if one is not there any more."""
    replayed, wanted, found = _replayed(journal), set(ids), {}
    for id, line in _lines(directory):
        if id in wanted:
            letter = _letter(id, line, replayed.get(id))
            if letter is not None:
                found[id] = letter
    missing = [id for id in ids if id not in found]
    if missing:
        raise JobError(f"{len(missing)} of the dead letters do not exist any more", hint="reload the page")
    return [found[id] for id in dict.fromkeys(ids)]


class ReplayLock:
    """One replay of a job at a time, in whichever process. It holds while a process has ``descriptor`` open.

    So the process that sends the letters is given the descriptor: it may outlive the server that started it.
    """

    def __init__(self, journal: Path) -> None:
        self._file = journal.with_name("lock")
        self.descriptor: int | None = None

    def take(self, job: str) -> None:
        """Take the lock. Raises JobError if another replay of the job is under way, OSError."""
        make_private_directory(self._file.parent)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JobError(
                "dead letters of this job are being replayed at the moment: the same ones could be sent twice",
                job=job, hint="wait until that replay has ended, and reload the page",
            ) from None  # fmt: skip
        self.descriptor = descriptor

    def release(self) -> None:
        """Give the lock back, unless the process that sends has it still. May be called twice."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def note_replay(directory: Path, journal: Path, replay: Replay) -> None:
    """Add a replay to the journal, durably: before the letters are sent. Called with the ReplayLock of the job. Raises OSError.

    The journal drops entries of letters whose files are gone, and keeps only the last replay of each letter. So it has
    at most one entry for each existing letter.
    """
    make_private_directory(journal.parent)
    there = {_file_id(each.name) for each in _files(directory)}
    known = set(replay.letters)
    kept = [replay]
    for each in reversed(_replays(journal)):
        letters = [id for id in each.letters if id not in known and id.partition("-")[0] in there]
        known.update(letters)
        if letters:
            kept.append(Replay(letters=letters, time_seconds=each.time_seconds, who=each.who))
    replace_durably(journal, b"".join(msgspec.json.encode(each) + b"\n" for each in reversed(kept)))


def _replays(journal: Path) -> list[Replay]:
    try:
        content = journal.read_bytes()
    except FileNotFoundError:
        return []
    # A server of before may have been killed while it added a line: letters are sent only after their line is whole.
    return [msgspec.json.decode(line, type=Replay) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def _replayed(journal: Path) -> dict[str, float]:
    return {id: each.time_seconds for each in _replays(journal) for id in each.letters}


def _files(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return [each for each in found if each.is_file(follow_symlinks=False) and each.name.startswith("part-")]
    except FileNotFoundError:
        return []


def _lines(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of the newest files with their ids, the newest first."""
    left = _READ_MAX_BYTES
    for file in sorted(_files(directory), key=lambda each: (each.stat().st_mtime_ns, each.name), reverse=True):
        if left <= 0:
            return
        with open(file.path, "rb") as opened:
            start = max(0, os.fstat(opened.fileno()).st_size - left)
            opened.seek(start)
            content = opened.read(left)
        left -= len(content)
        # The last part is an unfinished line, or empty. The first one, after a start within the file, lacks its beginning.
        end = content.rfind(b"\n")
        while end >= 0:
            begin = content.rfind(b"\n", 0, end) + 1
            if begin or not start:
                yield _id(file.name, start + begin), content[begin:end]
            end = begin - 1


def _id(file: str, place: int) -> str:
    """Return the id of the line that begins at this byte of the file."""
    return f"{_file_id(file)}-{place}"


def _file_id(file: str) -> str:
    return hashlib.sha256(file.encode()).hexdigest()[:16]


def _letter(id: str, line: bytes, replayed_seconds: float | None) -> Letter | None:
    try:
        found = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError:
        return None  # a job may write files of its own there; a file that is no letter is not shown
    return Letter(
        id=id, queue=found.queue, offset=found.offset, origin=found.origin, error=found.error, reason=found.reason,
        preview=found.preview, text=_text(found), body=found.body, row=found.row, replayed_seconds=replayed_seconds,
    )  # fmt: skip


def _text(found: _Line) -> str:
    if found.row is not None:
        return found.row[:_TEXT_LENGTH_MAX]
    try:
        text = base64.b64decode(found.body or "", validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return found.preview
    return text[:_TEXT_LENGTH_MAX]


def journal_of(job_directory: Path) -> Path:
    """Return where the replays of a job are noted."""
    return job_directory / "replays" / "journal.ndjson"


def as_view(value: Any) -> Any:
    """Return a letter or a page of them as JSON values, without what only a replay needs."""
    found = msgspec.to_builtins(value)
    for each in found["letters"]:
        each["replayable"] = each.pop("body") is not None
        del each["row"]
    return found
