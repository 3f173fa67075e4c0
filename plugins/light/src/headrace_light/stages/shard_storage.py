"""Which versions of a shard's state are stored: changes, and a new snapshot when there are many changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from headrace.foundation.errors import CheckpointError
from headrace.interfaces.state_store import KeyedStateStore, ReadableStateStore, StateStore, StoredVersion
from headrace.runtime.shard import Shard

from headrace_light.state_directory import NoStateStore

logger = logging.getLogger(__name__)
#: Deltas of a shard are replaced by a snapshot when there are so many, or when they are larger than the snapshot.
_DELTAS_MAX = 100
_DELTA_BYTES_MIN = 1_000_000
#: A snapshot that is put off is made after so many times as many: a job may be stopped again and again before one is due.
_PUT_OFF_MAX = 5
#: The range of hashes.
_ROUND = 2**64
#: So many versions may roll without a round being completed: then operators without changes roll too.
_ROLLING_MAX = 300


@dataclass
class StoredVersions:
    """The versions that a shard's state consists of: the size of the newest snapshot, and of the deltas after it."""

    snapshot_bytes: int = 0
    deltas: int = 0
    delta_bytes: int = 0
    #: The versions from the newest snapshot on, each with its checksum.
    chain: list[tuple[int, str]] = field(default_factory=list)
    #: Where versions roll: how far each operator was before a version, see ``Shard.rolled``. Versions before the first are not in it.
    rolled: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    #: Whether the store has versions before the first one of the chain.
    has_older: bool = False

    def note(self, version: int, checksum: str, *, whole: bool) -> None:
        """A version with this checksum has been stored, over one of that number that may be there."""
        kept = [] if whole else [each for each in self.chain if each[0] != version]
        self.chain = [*kept, (version, checksum)]

    def roll(self, version: int, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        """A version has been stored in which operators rolled from ``before`` to ``now``: remove versions that are not needed any more."""
        self.rolled.append((version, before))
        full = [
            place for place, (_, past) in enumerate(self.rolled)
            if all(end - begin >= _ROUND for begin, end in zip(past, now, strict=True))
        ]  # fmt: skip
        if (full and full[-1] > 0) or (full and self.chain[0][0] < self.rolled[full[-1]][0]):
            del self.rolled[: full[-1]]
            first = self.rolled[0][0]
            self.chain = [each for each in self.chain if each[0] >= first]
            self.has_older = True

    def add(self, size: int, *, whole: bool) -> None:
        """A version of so many bytes has been stored."""
        if whole:
            self.snapshot_bytes, self.deltas, self.delta_bytes = size, 0, 0
            self.rolled.clear()
        else:
            self.deltas += 1
            self.delta_bytes += size


@dataclass(frozen=True)
class ShardSaving:
    """What stores a version of a shard, of about so many rows. ``whole``: it is a snapshot."""

    store: Callable[[], None]
    rows: int
    whole: bool


def _once(action: Callable[[], None]) -> None:
    action()


def headed(header: bytes) -> bytes:
    """Return the bytes that are stored before a state: a header with its checksum; nothing without a header."""
    return header + crc32(header).to_bytes(4, "big") if header else b""


def checksum_of_version(content: bytes) -> str:
    """Return the checksum of a version as checkpoints note it."""
    return f"{crc32(content):08x}"


class ShardStorage:
    """Stores and restores the shards of one process in a state store. Used by one thread.

    ``header``: some bytes that the caller keeps with every version, always of the same length. ``quick_start``: where store and
    operators can, versions are stored in parts, and a shard begins before its state is loaded.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        header_bytes: int = 0,
        quick_start: bool = False,
        until_stored: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._store = store
        self._until_stored = until_stored or _once
        #: Whether anything is stored.
        self.keeps = not isinstance(store, NoStateStore)
        self._keyed = store if quick_start and isinstance(store, KeyedStateStore) else None
        self._header_bytes = header_bytes
        self._stored: dict[str, StoredVersions] = {}
        #: Bytes of state that were written since the caller set this to 0.
        self.bytes_written = 0

    @property
    def forgets(self) -> bool:
        """Whether the store can forget versions though no snapshot follows."""
        return self._store.forgets

    def begin_without(self, shard: Shard) -> None:
        """Let a new shard begin without any stored state."""
        if shard.spills:
            shard.begin_local(())
            shard.restored(None)

    def stored_bytes(self) -> int:
        """Return the size of the versions that a restart reads."""
        return sum(each.snapshot_bytes + each.delta_bytes for each in self._stored.values())

    def load(
        self, shard: Shard, version: int | None = None, expected: Sequence[tuple[int, str]] | None = None
    ) -> tuple[int, bytes] | None:
        """Give a new shard the state of a version, or the newest; return that version and its header. None: there is none.

        ``expected``: the versions that must be there, each with its checksum (``chain``); None: not known. Raises CheckpointError when
        something is missing, damaged or of another job.
        """
        name = shard.queue.id
        if self._keyed is not None and version is None and shard.has_parts:
            versions = self._keyed.versions(name)
            if not versions:
                self._stored[name] = StoredVersions()
                return None
            if all(each.first is not None for each in versions):
                begun = self._begin_restore(self._keyed, shard, versions)
                if begun is not None:
                    return begun
        chain = [] if expected is None else list(expected)
        if shard.spills:
            base = shard.begin_local(chain)
            if base is not None and version is not None and isinstance(self._store, ReadableStateStore):
                # The local store has everything of that version, and perhaps of later ones; that one is taken for what the shard knows.
                at = chain.index(base)
                logger.info(
                    "shard %s: %d of %d versions of its state are on the local disk already", name, at, len(chain)
                )
                self.go_on(shard, StoredVersions(chain=chain[:at], has_older=True), version, chain)
                shard.restored(chain[-1])
                return None
        found: tuple[int, bytes] | None = None
        stored = StoredVersions()
        waiting = None if expected is None else list(expected)
        for number, content, whole in self._store.load(name, version):
            if shard.rolls and waiting and number < waiting[0][0]:
                stored.has_older = True
                continue  # a process that ended before it could remove it has left it
            checksum = checksum_of_version(content)  # of all of it: once, for both uses
            if waiting is not None:
                self._check(name, waiting, number, checksum)
            header, state = self._divided(content)
            shard.apply(state)
            found = number, header
            stored.add(len(content), whole=whole)
            stored.note(number, checksum, whole=whole)
        if waiting:
            raise self._missing(name, waiting[0][0])
        shard.restored(stored.chain[-1] if stored.chain else None)
        shard.end_restore()
        self._stored[name] = stored
        return found

    def _divided(self, content: bytes) -> tuple[bytes, bytes]:
        """Return header and state of a version, or of its first part."""
        size = self._header_bytes
        header = content[:size]
        # If the checksum does not match, an older version of headrace wrote it without one; or it is damaged, and so is the rest.
        whole = headed(header)
        return header, content[len(whole) :] if content.startswith(whole) else content[size:]

    def chain(self, shard: Shard) -> list[tuple[int, str]]:
        """Return the versions of which the stored state of a shard consists, from its newest snapshot on, each with its checksum."""
        stored = self._stored.get(shard.queue.id)
        return [] if stored is None else list(stored.chain)

    def _check(self, name: str, waiting: list[tuple[int, str]], number: int, checksum: str) -> None:
        while waiting and waiting[0][0] < number:
            raise self._missing(name, waiting[0][0])
        if not waiting or waiting[0] != (number, checksum):
            raise CheckpointError(
                f"{self._store.place(name, number)} is damaged, or does not belong to the checkpoint: its checksum does not match",
                hint="restore a copy of the checkpoint with its state, or start from the beginning with another checkpoint directory",
            )
        del waiting[0]

    def _missing(self, name: str, number: int) -> CheckpointError:
        return CheckpointError(
            f"{self._store.place(name, number)} is missing, and the checkpoint refers to it",
            hint="restore a copy of the checkpoint with its state, or start from the beginning with another checkpoint directory",
        )

    def _begin_restore(
        self, store: KeyedStateStore, shard: Shard, versions: Sequence[StoredVersion]
    ) -> tuple[int, bytes] | None:
        name = shard.queue.id
        firsts = [(each.number, each.first or b"") for each in versions]
        sizes = shard.begin_restore(
            [(number, self._divided(first)[1]) for number, first in firsts], partial(store.load_parts, name)
        )
        if sizes is None:
            return None
        stored = StoredVersions()
        for version, size in zip(versions, sizes, strict=True):
            stored.add(size, whole=version.snapshot)
        self._stored[name] = stored
        number, first = firsts[-1]
        return number, self._divided(first)[0]

    def go_on(
        self, shard: Shard, stored: StoredVersions, version: int, expected: Sequence[tuple[int, str]]
    ) -> None:  # fmt: skip
        """Take a shard that has the first ones of the ``expected`` versions already (``stored``), and give it the others.

        ``version``: that of the checkpoint. Raises CheckpointError, RetriableError.
        """
        store, name = self._store, shard.queue.id
        assert isinstance(store, ReadableStateStore)
        waiting = list(expected[len(stored.chain) :])
        while waiting:
            number = waiting[0][0]
            found = store.stored(name, number)
            if found is None:
                raise self._missing(name, number)
            content, whole = found
            checksum = checksum_of_version(content)
            self._check(name, waiting, number, checksum)
            shard.apply(self._divided(content)[1])
            stored.add(len(content), whole=whole)
            stored.note(number, checksum, whole=whole)
        store.go_on_from(name, version)
        shard.end_restore()
        self._stored[name] = stored

    def save(
        self, shard: Shard, version: int, header: bytes = b"", *, whole: bool = False, last: bool = False
    ) -> bool:  # fmt: skip
        """Do what ``begin_save`` begins; return whether it is a snapshot."""
        saving = self.begin_save(shard, version, header, whole=whole, last=last)
        saving.store()
        return saving.whole

    def begin_save(
        self,
        shard: Shard,
        version: int,
        header: bytes = b"",
        *,
        whole: bool = False,
        last: bool = False,
        may_wait: bool = False,
    ) -> ShardSaving:
        """Return what stores the changes of a shard up to now as a version, if there are any, perhaps in another thread.

        ``whole``: it must be a snapshot, because the versions stored before cannot be used. Then all of the shard is restored first,
        if it was not. ``last``: the job stops, and who goes on with it may have the versions before already, so this one is
        as small as it can be; the next process makes a snapshot where one is due. It is not put off for ever. ``may_wait``: a snapshot
        that is due is made by one of the next checkpoints, unless it was put off too often.
        """
        if not self.keeps and not shard.spills:  # rows that are on the disk are told by their versions, stored or not
            shard.forget_changes()
            return ShardSaving(lambda: None, 0, whole=False)
        name = shard.queue.id
        stored = self._stored.setdefault(name, StoredVersions())
        times = _PUT_OFF_MAX if last or may_wait else 1
        delta_bytes_max = max(stored.snapshot_bytes, _DELTA_BYTES_MIN)
        many = stored.deltas >= times * _DELTAS_MAX or stored.delta_bytes > times * delta_bytes_max
        whole = whole or (many and not shard.restoring and not shard.rolls)
        if self._keyed is not None and shard.has_parts:
            size = self._save_parts(self._keyed, shard, version, header, whole=whole)
            self._count(stored, size, whole=whole)
            return ShardSaving(lambda: None, 0, whole)
        before = shard.rolled()
        if shard.rolls and len(stored.rolled) >= _ROLLING_MAX:
            shard.must_roll()
        frozen = shard.frozen(whole=whole)
        if frozen is None:
            return ShardSaving(lambda: None, 0, whole)
        now = shard.rolled()

        def store() -> None:
            content = headed(header) + frozen.make()
            # A shard gives its changes only once: storing them is repeated, asking for them is not.
            self._until_stored(partial(self._store.save, name, version, content, snapshot=whole))
            stored.note(version, checksum_of_version(content), whole=whole)
            if shard.rolls and not whole:
                stored.roll(version, before, now)
            self._count(stored, len(content), whole=whole)

        return ShardSaving(store, frozen.rows, whole)

    def _count(self, stored: StoredVersions, size: int, *, whole: bool) -> None:
        if size:
            stored.add(size, whole=whole)
            self.bytes_written += size

    def save_whole(self, shard: Shard, version: int) -> bytes:
        """Store all of a shard as a version, uncut, and return it: what ``Shard.snapshot`` gives."""
        name, state = shard.queue.id, shard.snapshot()
        content = headed(bytes(self._header_bytes)) + state
        self._until_stored(partial(self._store.save, name, version, content, snapshot=True))
        stored = self._stored.setdefault(name, StoredVersions())
        stored.add(len(state), whole=True)
        self.bytes_written += len(state)
        stored.note(version, checksum_of_version(content), whole=True)
        return state

    def forget_stored(self, shard: Shard) -> None:
        """Remove every stored version: none belongs to a finished checkpoint."""
        for _ in self._store.load(shard.queue.id, 0):
            pass

    def _save_parts(self, store: KeyedStateStore, shard: Shard, version: int, header: bytes, *, whole: bool) -> int:
        parts = shard.parts(whole=whole)
        if parts:
            content = [headed(header) + parts[0], *parts[1:]]
            self._until_stored(partial(store.save_parts, shard.queue.id, version, content, snapshot=whole))
        return sum(len(part) for part in parts)

    def settle(self, shard: Shard) -> None:
        """The checkpoint with the newest version is stored: rows that have not changed since may leave memory."""
        if shard.spills:
            chain = self.chain(shard)
            shard.settle(chain[-1] if chain else None)

    def remove_old(self, shard: Shard, version: int) -> None:
        """If this version is a snapshot and has become durable, remove older versions, also those that have left the chain by rolling."""
        stored = self._stored.get(shard.queue.id)
        if stored is not None and stored.has_older and stored.chain:
            self._store.forget_before(shard.queue.id, stored.chain[0][0])
            stored.has_older = False
        if stored is not None and stored.deltas == 0:
            self._store.remove(shard.queue.id, before=version)

    def forget(self, shard: Shard) -> None:
        """The shard belongs to another process from now on."""
        self._stored.pop(shard.queue.id, None)

    def close(self) -> None:
        """Close the store. May be called twice."""
        self._store.close()
