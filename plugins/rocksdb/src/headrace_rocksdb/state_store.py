"""The state store: one RocksDB for all shards of a job, one entry per version of a shard."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from headrace.foundation.errors import CheckpointError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.state_store import StateStore, versions_to_load, versions_to_remove

_DELTA, _SNAPSHOT = b"\x00", b"\x01"
_VERSION_BYTES = 8


class RocksStateSettings(Settings, frozen=True, kw_only=True):
    """Options of the state store ``rocksdb``."""

    path: Annotated[str, option("directory of the database")]
    sync: Annotated[
        bool,
        option(
            "whether each save waits for the disk: then state survives a crash of the machine, otherwise only a crash of the "
            "process"
        ),
    ] = True


class RocksStateStore(StateStore):
    """Keeps versions under (shard, version). Only one process at a time can have the database open.

    A small delta costs one write to RocksDB's log. One file per delta would cost several file system operations. The first
    use opens the database; it raises CheckpointError if this fails.
    """

    Settings: ClassVar[type[Settings]] = RocksStateSettings
    forgets: ClassVar[bool] = True

    @classmethod
    def defaults(cls, job: str, directory: str) -> Mapping[str, Any]:
        return {"path": os.path.join(directory, "state")}

    def __init__(self, settings: RocksStateSettings) -> None:
        self._settings = settings
        self._opened: Any = None

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        self._database()[_key(shard, version)] = (_SNAPSHOT if snapshot else _DELTA) + delta

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        wanted, unfinished = versions_to_load(self._versions(shard), version)
        database = self._database()
        for number in wanted:
            value = database[_key(shard, number)]
            yield number, bytes(value[1:]), value[:1] == _SNAPSHOT
        for number in unfinished:
            del database[_key(shard, number)]

    def remove(self, shard: str, *, before: int) -> None:
        for number in versions_to_remove(self._versions(shard), before):
            del self._database()[_key(shard, number)]

    def forget_before(self, shard: str, version: int) -> None:
        for number, _ in self._versions(shard):
            if number < version:
                del self._database()[_key(shard, number)]

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _versions(self, shard: str) -> list[tuple[int, bool]]:
        """Return (number, whether it is a snapshot) of each version of a shard, in the order of the numbers."""
        found = []
        prefix = _key(shard, 0)[:-_VERSION_BYTES]
        for key, value in self._database().items(from_key=prefix):
            if not key.startswith(prefix):
                break
            found.append((int.from_bytes(key[len(prefix) :], "big"), value[:1] == _SNAPSHOT))
        return found

    def _database(self) -> Any:
        if self._opened is None:
            from rocksdict import Options, Rdict, WriteOptions

            try:
                self._opened = Rdict(self._settings.path, Options(raw_mode=True))
            except Exception as error:  # rocksdict raises plain exceptions with RocksDB's text
                raise CheckpointError(
                    f"the state in {self._settings.path!r} cannot be opened: {error}",
                    plugin="rocksdb",
                    option="path",
                    hint="check whether another process has opened it; if not, restore it from a backup",
                ) from error
            writing = WriteOptions()
            writing.sync = self._settings.sync
            self._opened.set_write_options(writing)
        return self._opened


def _key(shard: str, version: int) -> bytes:
    name = shard.encode()
    return len(name).to_bytes(4, "big") + name + version.to_bytes(_VERSION_BYTES, "big")
