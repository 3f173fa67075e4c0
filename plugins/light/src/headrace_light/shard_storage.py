"""Which versions of a shard's state are stored: what has changed, and everything anew once the changes have become many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headrace.shard import Shard
from headrace.state_store import KeyedStateStore, StateStore, StoredVersion

#: Deltas of a shard are replaced by a snapshot when there are so many, or when they are larger than it.
_DELTAS_MAX = 100
_DELTA_BYTES_MIN = 1_000_000


@dataclass
class _Stored:
    """What the newest snapshot of a shard takes, and the deltas behind it."""

    snapshot_bytes: int = 0
    deltas: int = 0
    delta_bytes: int = 0

    def add(self, size: int, *, whole: bool) -> None:
        """A version of so many bytes has been stored."""
        if whole:
            self.snapshot_bytes, self.deltas, self.delta_bytes = size, 0, 0
        else:
            self.deltas += 1
            self.delta_bytes += size


class ShardStorage:
    """Stores and restores the shards of one process in a state store. Used by one thread.

    ``header``: some bytes that the caller keeps with every version, always of the same length. ``quick_start``: where store and
    operators can, versions are stored in parts, and a shard that is loaded begins before its state is here.
    """

    def __init__(self, store: StateStore, *, header_bytes: int = 0, quick_start: bool = False) -> None:
        self._store = store
        self._keyed = store if quick_start and isinstance(store, KeyedStateStore) else None
        self._header_bytes = header_bytes
        self._stored: dict[str, _Stored] = {}

    def load(self, shard: Shard, version: int | None = None) -> tuple[int, bytes] | None:
        """Give a new shard the state of a version, or the newest; return that version and its header. None: there is none.

        Raises CheckpointError when it is damaged or of another job.
        """
        name = shard.queue.id
        if self._keyed is not None and version is None and shard.has_parts:
            versions = self._keyed.versions(name)
            if not versions:
                self._stored[name] = _Stored()
                return None
            if all(each.first is not None for each in versions):
                return self._begin_restore(self._keyed, shard, versions)
        found: tuple[int, bytes] | None = None
        stored = _Stored()
        for number, content, whole in self._store.load(name, version):
            header, state = content[: self._header_bytes], content[self._header_bytes :]
            shard.apply(state)
            found = number, header
            stored.add(len(content), whole=whole)
        self._stored[name] = stored
        return found

    def _begin_restore(
        self, store: KeyedStateStore, shard: Shard, versions: Sequence[StoredVersion]
    ) -> tuple[int, bytes]:
        name, cut = shard.queue.id, self._header_bytes
        firsts = [(each.number, each.first or b"") for each in versions]
        sizes = shard.begin_restore(
            [(number, first[cut:]) for number, first in firsts], partial(store.load_parts, name)
        )
        stored = _Stored()
        for version, size in zip(versions, sizes, strict=True):
            stored.add(size, whole=version.snapshot)
        self._stored[name] = stored
        number, first = firsts[-1]
        return number, first[:cut]

    def save(self, shard: Shard, version: int, header: bytes = b"", *, whole: bool = False) -> bool:
        """Store what has changed in a shard as a version, if anything has; return whether it is a snapshot.

        ``whole``: it must be one, since what is stored before is of no use. Then all of the shard is restored first, if it was not.
        """
        name = shard.queue.id
        stored = self._stored.setdefault(name, _Stored())
        many = stored.deltas >= _DELTAS_MAX or stored.delta_bytes > max(stored.snapshot_bytes, _DELTA_BYTES_MIN)
        whole = whole or (many and not shard.restoring)
        if self._keyed is not None and shard.has_parts:
            size = self._save_parts(self._keyed, shard, version, header, whole=whole)
        else:
            state = shard.snapshot() if whole else shard.delta()
            if state:
                self._store.save(name, version, header + state, snapshot=whole)
            size = len(state)
        if size:
            stored.add(size, whole=whole)
        return whole

    @staticmethod
    def _save_parts(store: KeyedStateStore, shard: Shard, version: int, header: bytes, *, whole: bool) -> int:
        parts = shard.parts(whole=whole)
        if parts:
            store.save_parts(shard.queue.id, version, [header + parts[0], *parts[1:]], snapshot=whole)
        return sum(len(part) for part in parts)

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
