"""Which versions of a shard's state are stored: what has changed, and everything anew once the changes have become many."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.shard import Shard
from headrace.state_store import StateStore

#: Deltas of a shard are replaced by a snapshot when there are so many, or when they are larger than it.
_DELTAS_MAX = 100
_DELTA_BYTES_MIN = 1_000_000


@dataclass
class _Stored:
    """What the newest snapshot of a shard takes, and the deltas behind it."""

    snapshot_bytes: int = 0
    deltas: int = 0
    delta_bytes: int = 0


class ShardStorage:
    """Stores and restores the shards of one process in a state store. Used by one thread.

    ``header``: some bytes that the caller keeps with every version, always of the same length.
    """

    def __init__(self, store: StateStore, *, header_bytes: int = 0) -> None:
        self._store = store
        self._header_bytes = header_bytes
        self._stored: dict[str, _Stored] = {}

    def load(self, shard: Shard, version: int | None = None) -> tuple[int, bytes] | None:
        """Give a new shard the state of a version, or the newest; return that version and its header. None: there is none.

        Raises CheckpointError when it is damaged or of another job.
        """
        name = shard.queue.id
        found: tuple[int, bytes] | None = None
        stored = _Stored()
        for number, content, whole in self._store.load(name, version):
            header, state = content[: self._header_bytes], content[self._header_bytes :]
            shard.apply(state)
            found = number, header
            if whole:
                stored = _Stored(snapshot_bytes=len(content))
            else:
                stored.deltas += 1
                stored.delta_bytes += len(content)
        self._stored[name] = stored
        return found

    def save(self, shard: Shard, version: int, header: bytes = b"", *, whole: bool = False) -> bool:
        """Store what has changed in a shard as a version, if anything has; return whether it is a snapshot.

        ``whole``: it must be one, since what is stored before is of no use.
        """
        name = shard.queue.id
        stored = self._stored.setdefault(name, _Stored())
        many = stored.deltas >= _DELTAS_MAX or stored.delta_bytes > max(stored.snapshot_bytes, _DELTA_BYTES_MIN)
        if whole or many:
            content = header + shard.snapshot()
            self._store.save(name, version, content, snapshot=True)
            self._stored[name] = _Stored(snapshot_bytes=len(content))
            return True
        if state := shard.delta():
            content = header + state
            self._store.save(name, version, content)
            stored.deltas += 1
            stored.delta_bytes += len(content)
        return False

    def remove_old(self, shard: Shard, version: int) -> None:
        """If a snapshot was stored as this version, which has become durable, forget what is older."""
        stored = self._stored.get(shard.queue.id)
        if stored is not None and stored.deltas == 0:
            self._store.remove(shard.queue.id, before=version)

    def forget(self, shard: Shard) -> None:
        """The shard is another process's from now on."""
        self._stored.pop(shard.queue.id, None)

    def close(self) -> None:
        """Close the store. May be called twice."""
        self._store.close()
