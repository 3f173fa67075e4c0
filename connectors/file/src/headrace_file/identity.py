"""How a file is recognised after it was renamed, copied or compressed, and places in it that stay valid after restarts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import CheckpointError

if TYPE_CHECKING:
    from headrace_file.streams import ByteStream

#: Bytes at the beginning of a file, after decompression, that distinguish it from others.
HEAD_BYTES = 1024
#: Bytes before a place that are compared when reading continues there.
TAIL_BYTES = 64


def digest(data: bytes) -> str:
    """Return a short hash that distinguishes files; it does not protect against files that are made to deceive."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many bytes were hashed, and their hash."""

    length: int = 0
    hash: str = ""

    @classmethod
    def of(cls, data: bytes) -> Fingerprint:
        return cls(len(data), digest(data)) if data else cls()

    def matches(self, data: bytes) -> bool:
        """Return whether ``data`` begins with the hashed bytes."""
        return len(data) >= self.length and (not self.length or digest(data[: self.length]) == self.hash)


_NOTHING_SEEN = Fingerprint()


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """One file. Device and inode find it again after a rename, the head after a copy or compression."""

    #: Device and inode.
    key: tuple[int, int]
    head: Fingerprint = _NOTHING_SEEN
    #: When it was last seen to change, nanoseconds since the epoch: orders rotated files.
    modified_ns: int = 0
    #: The number of this file among the files of its queue.
    generation: int = 0

    @property
    def inode(self) -> int:
        return self.key[1]

    @classmethod
    def of(cls, stream: ByteStream, generation: int = 0) -> tuple[FileIdentity, bytes]:
        """Identify the file that a fresh stream reads; return also its first bytes."""
        status = stream.file.stat()
        head = stream.read_at(0, HEAD_BYTES)
        return cls((status.st_dev, status.st_ino), Fingerprint.of(head), status.st_mtime_ns, generation), head

    def to_json(self) -> list[Any]:
        return [*self.key, self.head.length, self.head.hash, self.modified_ns, self.generation]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> FileIdentity:
        device, inode, length, hashed, modified_ns, generation = value
        head = Fingerprint(int(length), str(hashed))
        return cls((int(device), int(inode)), head, int(modified_ns), int(generation))


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a queue: one of the files that had its name, and the byte in it. ``byte`` starts a record.

    ``taken`` is not 0 when the unfinished record at ``byte`` was given as far as it went, ``taken`` bytes, under the
    number before ``offset``.
    """

    offset: int
    #: Numbers the files of a queue: 0 is the first that was read, each rotation, replacement or truncation adds one.
    generation: int
    #: Number of the first record of this generation.
    first: int
    byte: int
    file: FileIdentity | None = None
    tail: Fingerprint = _NOTHING_SEEN
    taken: int = 0
    #: Whether bytes after this place are known to have existed.
    more: bool = False

    def to_position(self, past: Sequence[FileIdentity] = ()) -> ReadPosition:
        """Return the position that checkpoints store. ``past`` are files read before that may be found again."""
        hint: dict[str, Any] = {"generation": self.generation, "first": self.first, "byte": self.byte}
        if self.file is not None:
            hint["file"] = self.file.to_json()
        if self.tail.length:
            hint["tail"] = [self.tail.length, self.tail.hash]
        if self.taken:
            hint["taken"] = self.taken
        if self.more:
            hint["more"] = True
        if past:
            hint["past"] = [identity.to_json() for identity in past]
        return ReadPosition(self.offset, hint)

    @classmethod
    def from_position(cls, position: ReadPosition) -> Place:
        """Read a position that ``to_position`` made. Raises CheckpointError when the hint is something else."""
        hint = position.hint
        try:
            file = FileIdentity.from_json(hint["file"]) if "file" in hint else None
            length, hashed = hint.get("tail", (0, ""))
            return cls(
                position.offset,
                int(hint["generation"]),
                int(hint["first"]),
                int(hint["byte"]),
                file,
                Fingerprint(int(length), str(hashed)),
                int(hint.get("taken", 0)),
                bool(hint.get("more", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the stored position of a file is damaged or was not written by this connector: {dict(hint)!r:.200}",
                plugin="file",
                offset=position.offset,
            ) from error


def past_of(hint: Mapping[str, Any]) -> list[FileIdentity]:
    """Return the files that a position's hint names as read before."""
    try:
        return [FileIdentity.from_json(value) for value in hint.get("past", ())]
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the list of earlier files in a stored position is damaged: {hint!r:.200}", plugin="file"
        ) from error
