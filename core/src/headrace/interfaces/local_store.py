"""The interface of a local store: a database on this machine's disk for state that does not fit in memory.

It is a cache. The state store has the state. A local store may be lost; then it is filled again from the state store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

#: A chain of versions is known by its entries: (version, checksum).
Epoch = tuple[int, str]
_PREFIX_BYTES = 8
#: The maximum number of rows that one checkpoint writes. The job reads nothing while it does so, so it must not take
#: long.
CHANGED_MAX = 60_000
#: Greater than all hashes that may follow a prefix.
_END = b"\xff" * 9
_ROWS = b"r"
_ABOUT = b"a"


class LocalStore(ABC):
    """Keeps values by key on the local disk, both bytes, in the order of the keys. A backend makes it; one thread uses
    it.

    A write survives a crash of the process, not necessarily a crash of the machine. A read of damaged data must raise
    CheckpointError.
    """

    #: Whether a read or a write has failed. Then the next process begins with an empty store.
    damaged: bool = False

    @abstractmethod
    def __init__(self, directory: str, memory_bytes: int) -> None:
        """Open the database in a directory, or create it. ``memory_bytes``: how much memory it may use, caches
        included.

        Raises CheckpointError when it cannot be opened. The caller then removes the directory, and opens the store once
        more.
        """

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the value of each key; None where there is none."""

    @abstractmethod
    def write(self, keys: Sequence[bytes], values: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        """Remove keys, then set values. Both are done completely or not at all, also if the process ends during the
        call.
        """

    @abstractmethod
    def scan(self, begin: bytes, end: bytes, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values from ``begin`` to before ``end``, in order, at most ``rows`` at a time. Do not write
        before the end.
        """

    @abstractmethod
    def clear(self, begin: bytes, end: bytes) -> None:
        """Remove everything from ``begin`` to before ``end``, as fast as possible."""

    @abstractmethod
    def close(self) -> None:
        """Close the database. May be called twice."""


class LocalTable:
    """The part of a local store that belongs to one operator of one shard.

    It knows to which version of the stored state its rows belong. Rows are written only with values of a version that
    has been stored, so they fit every later checkpoint of the same chain of versions. ``base``: the table has all rows
    of this version; newer rows are in the versions after it. ``newest``: no row belongs to a later version. A
    checkpoint whose chain lacks one of these two has other rows.

    ``memory_bytes``: how much memory the operator may use for its own rows. ``rolls``: its deltas must also contain a
    part of the unchanged rows, so that no snapshot is needed. ``changed_max``: when this number of rows has changed,
    the operator requests a checkpoint.
    """

    def __init__(
        self, store: LocalStore, name: str, *, memory_bytes: int, rolls: bool, changed_max: int = CHANGED_MAX
    ) -> None:
        self._store = store
        self._prefix = blake2b(name.encode(), digest_size=_PREFIX_BYTES).digest()
        self.memory_bytes = memory_bytes
        self.rolls = rolls
        self.changed_max = changed_max
        #: Set by the shard: the next delta must contain such a part even if nothing has changed.
        self.must_roll = False
        self.base: Epoch | None = None
        self._newest: Epoch | None = None
        self._epoch: Epoch | None = None
        stored = store.get([self._about_key])[0]
        self._about: dict[str, Any] = {} if stored is None else msgspec.msgpack.decode(stored)

    def fits(self, definition: str, chain: Sequence[Epoch]) -> Epoch | None:
        """Return the version after which the versions of a chain must be applied to the stored rows; None if the stored
        rows cannot be used.
        """
        base, newest = self._about.get("base"), self._about.get("newest")
        if self._about.get("definition") != definition or base is None or newest is None:
            return None
        known = {(number, checksum) for number, checksum in chain}
        if tuple(base) not in known or tuple(newest) not in known:
            return None
        return int(base[0]), str(base[1])

    def begin(self, definition: str) -> None:
        """Remove all stored rows and begin with none."""
        self._store.clear(self._prefix, self._prefix + _END)
        self._about = {"definition": definition}
        self.base = self._newest = None

    def go_on(self, newest: Epoch) -> None:
        """Begin with the stored rows, for which ``fits`` returned a version. Rows of versions up to ``newest`` will be
        written.
        """
        base = self._about["base"]
        self.base = int(base[0]), str(base[1])
        self._epoch = newest
        self._write_about([], [], [])

    def settle(self, epoch: Epoch | None) -> None:
        """Called when a checkpoint is stored. From now on rows of its version may be written."""
        self._epoch = epoch

    def has_all(self, epoch: Epoch | None) -> None:
        """Note that each row was written as it was in this version or later, except rows that later versions
        contain.
        """
        self.base = epoch
        self._write_about([], [], [])

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the values of keys, which begin with ``row_prefix``."""
        return self._store.get(keys)

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        """Write rows as they are in the version of ``settle``, and remove others."""
        if self._newest != self._epoch or self._epoch is None:
            self._write_about(keys, values, removed)
        else:
            self._store.write(keys, values, removed)

    def scan(self, begin: int, end: int | None, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the rows whose hashes are from ``begin`` to before ``end`` (None: to the last), at most ``rows`` at a
        time.
        """
        last = self.row_prefix + (_END if end is None else end.to_bytes(8, "big"))
        return self._store.scan(self.row_prefix + begin.to_bytes(8, "big"), last, rows)

    @property
    def row_prefix(self) -> bytes:
        """The prefix of the keys of rows. The hash of the row's key follows, most significant byte first."""
        return self._prefix + _ROWS

    @property
    def _about_key(self) -> bytes:
        return self._prefix + _ABOUT

    def _write_about(self, keys: Sequence[bytes], values: Sequence[bytes], removed: Sequence[bytes]) -> None:
        self._newest = self._epoch
        self._about |= {"base": self.base, "newest": self._newest}
        about = msgspec.msgpack.encode(self._about)
        self._store.write([*keys, self._about_key], [*values, about], removed)
