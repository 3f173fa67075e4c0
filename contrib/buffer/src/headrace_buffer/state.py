"""The state of a log besides its records: how far it was trimmed, and what it has dropped. It is a small file that is
replaced atomically.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import DataError, JobError

_FORMAT = 1
NAME = "state.json"
#: The number of gaps that are stored; of older gaps only the count is stored.
GAPS_MAX = 100


class Gap(NamedTuple):
    """Offsets ``first`` to ``end`` - 1 were dropped before a checkpoint covered them, because the log was full."""

    first: int
    end: int


class LogState(msgspec.Struct, kw_only=True):
    """The content of the file."""

    format: int = _FORMAT
    #: Random. A log that is created again has another id, so a checkpoint of the old log is refused.
    id: str = msgspec.field(default_factory=lambda: os.urandom(16).hex())
    #: A checkpoint covers the records before this offset.
    trimmed: int = 0
    #: Records before this offset were dropped, unless they had been trimmed already.
    dropped_before: int = 0
    dropped_oldest: int = 0
    dropped_newest: int = 0
    gaps: list[Gap] = msgspec.field(default_factory=list)

    @property
    def earliest(self) -> int:
        return max(self.trimmed, self.dropped_before)

    @property
    def salt(self) -> int:
        """The initial value of this log's checksums."""
        return crc32(bytes.fromhex(self.id))

    def drop(self, end: int) -> int:
        """Record that the oldest records up to ``end`` are dropped. Return how many of them no checkpoint covers."""
        first = self.earliest
        if end <= first:
            return 0
        self.dropped_before = end
        self.dropped_oldest += end - first
        if self.gaps and self.gaps[-1].end == first:
            first = self.gaps.pop().first
        self.gaps = [*self.gaps[-GAPS_MAX + 1 :], Gap(first, end)]
        return end - first

    def save(self, directory: Path) -> None:
        """Write the file durably. Raises OSError."""
        values = msgspec.to_builtins(self)
        text = json.dumps({**values, "checksum": _checksum(values)}, indent=1)
        replace_durably(directory / NAME, text.encode())


def load_state(directory: Path) -> LogState | None:
    """Return the stored state, or None if there is no file. Raises DataError if the file is damaged, JobError if it
    has a newer version.
    """
    path = directory / NAME
    try:
        values = json.loads(path.read_bytes())
        checksum = values.pop("checksum")
        if checksum == _checksum(values) and values["format"] > _FORMAT:
            raise JobError(f"{path} was written by a newer headrace-buffer", hint="install that version")
        if checksum == _checksum(values):
            return msgspec.convert(values, LogState)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError, TypeError, msgspec.ValidationError):
        pass
    raise DataError(
        f"{path} is damaged", hint="restore it from a backup; the records of the buffer cannot be read without it"
    )


def _checksum(values: object) -> str:
    return f"{crc32(json.dumps(values, sort_keys=True).encode()):08x}"
