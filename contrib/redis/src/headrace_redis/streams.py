"""The state of a stream, and the check whether a reader at a position has lost entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import DataError

from headrace_redis.entry_ids import id_of, offset_of
from headrace_redis.settings import PLUGIN


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream at one moment, with ids as offsets."""

    name: str
    #: The greatest id that was ever added; 0 when there was none.
    last_added: int
    #: The first and the last entry of the stream; None if it is empty.
    first: int | None
    last: int | None
    #: How many entries are there.
    length: int
    #: How many entries were ever added; None if the server does not count them (before Redis 7).
    added: int | None
    #: The greatest id that was removed by XDEL, and not by trimming; 0 if there was none.
    last_deleted: int

    @classmethod
    def of(cls, name: str, info: Mapping[str, Any]) -> StreamState:
        """Return what XINFO STREAM says. Raises DataError for ids that cannot be offsets."""

        def place(entry: Any) -> int | None:
            return None if not entry else offset_of(entry[0], name)

        return cls(
            name, offset_of(info["last-generated-id"], name), place(info["first-entry"]), place(info["last-entry"]),
            int(info["length"]), info.get("entries-added"), offset_of(info.get("max-deleted-entry-id", b"0-0"), name),
        )  # fmt: skip

    @property
    def earliest(self) -> int:
        """The smallest offset in the stream, or ``latest`` if it is empty."""
        return self.latest if self.first is None else self.first

    @property
    def latest(self) -> int:
        """The offset after the last entry that was added."""
        return self.last_added + 1

    @property
    def added_before_first(self) -> int | None:
        """How many entries were added before the first one in the stream; None if that is not known."""
        if self.added is None or (self.first is not None and self.last_deleted > self.first):
            return None
        return self.added - self.length

    def check(self, next_offset: int, read: int | None) -> None:
        """Raise DataError if a reader that continues at ``next_offset`` would miss entries. Called when the entry that
        it read last is gone.

        ``read``: how many entries had been added when that entry was added; None if that is not known.
        """
        if next_offset > self.latest:
            raise self._lost(next_offset, "it has lost entries, or the key was deleted and made anew")
        if next_offset == self.latest or (self.first is not None and self.first <= next_offset):
            return
        removed = None if self.added is None or read is None else self.added - self.length - read
        if removed is None:
            raise self._lost(next_offset, "entries from there on may have been removed before they were read")
        if removed < 0:
            raise self._lost(next_offset, "the key was deleted and made anew")
        if removed:
            raise self._lost(
                next_offset, f"{removed} entries from there on were removed (by XTRIM or MAXLEN) before they were read"
            )

    def _lost(self, next_offset: int, happened: str) -> DataError:
        held = (
            "is empty"
            if self.first is None or self.last is None
            else f"holds {id_of(self.first)} to {id_of(self.last)} (offsets {self.first} to {self.last})"
        )
        return DataError(
            f"stream {self.name!r} was read up to entry {id_of(max(0, next_offset - 1))} (next offset {next_offset}), and {held}; the "
            f"earliest offset is {self.earliest}: {happened}",
            plugin=PLUGIN,
            queue=self.name,
            offset=next_offset,
            hint="to continue with the entries that are left, start with a new checkpoint directory; and keep so many entries in the "
            "stream that a slow job does not miss any",
        )
