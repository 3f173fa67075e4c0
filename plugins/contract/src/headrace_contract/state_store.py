"""The contract of state stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from headrace.interfaces.state_store import StateStore

from headrace_contract.contract import Contract, expect, shortened
from headrace_contract.processes import Mends, run_and_kill

#: Names of shards as runtimes make them, and more difficult ones.
_SHARDS = ("key_by/0", "key_by/10", "key_by-2/0", "schlüssel/1", "a%2fb/0", "../escape/0")
Version = tuple[int, bytes, bool]


def _content(number: int, size: int = 50) -> bytes:
    return bytes((number * 31 + place * 7) % 256 for place in range(size))


class StorePerShuffle(StateStore):
    """Uses one store per shuffle, as backends do with stores that are made for a single shuffle.

    ``make`` is called with the shuffle's name in hexadecimal digits, when the shuffle is first used. ``close`` is called
    after the stores were closed.
    """

    def __init__(self, make: Callable[[str], StateStore], close: Callable[[], None] = lambda: None) -> None:
        self._make = make
        self._close = close
        self._stores: dict[str, StateStore] = {}

    def _of(self, shard: str) -> StateStore:
        shuffle = shard.rpartition("/")[0].encode().hex()
        if shuffle not in self._stores:
            self._stores[shuffle] = self._make(shuffle)
        return self._stores[shuffle]

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        self._of(shard).save(shard, version, delta, snapshot=snapshot)

    def load(self, shard: str, version: int | None = None) -> Iterator[Version]:
        return self._of(shard).load(shard, version)

    def remove(self, shard: str, *, before: int) -> None:
        self._of(shard).remove(shard, before=before)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._close()


class StateStoreContract(Contract):
    """What every state store must do. An author gives ``make_store``.

    class TestMyStore(StateStoreContract):
        def make_store(self):
            return MyStore(MySettings(path=str(self.tmp_path / "state")))
    """

    #: The size of a large version, in bytes.
    large_bytes: ClassVar[int] = 5_000_000

    def make_store(self) -> StateStore:
        """Return a new store over the same place each time within one check."""
        raise NotImplementedError

    def _saved(self, *versions: Version, shard: str = _SHARDS[0]) -> StateStore:
        store = self.make_store()
        for number, content, whole in versions:
            store.save(shard, number, content, snapshot=whole)
        return store

    def _expect(self, found: list[Version], wanted: list[Version], mend: str) -> None:
        __tracebackhide__ = True
        expect(found == wanted, expected=shortened(wanted), found=shortened(found), mend=mend)

    def test_versions_come_back_in_their_order(self) -> None:
        """Saved versions are loaded byte for byte, oldest first: a state is a snapshot and the deltas after it.

        Steps: save the versions 1 to 12, empty and binary ones among them, and load. Passes when all are given in order.
        """
        versions = [(n, _content(n, 0 if n == 4 else 10 * n), n == 1) for n in range(1, 13)]
        store = self._saved(*versions)
        self._expect(
            list(store.load(_SHARDS[0])), versions, "order versions by number, not as texts; keep contents as they are"
        )
        store.close()

    def test_load_begins_at_the_newest_snapshot(self) -> None:
        """Versions before a snapshot are not needed: loading them costs time, and applying them is wrong.

        Steps: save delta 1, snapshot 2, delta 3, and load. Passes when 2 and 3 are given.
        """
        versions = [(1, _content(1), False), (2, _content(2), True), (3, _content(3), False)]
        store = self._saved(*versions)
        self._expect(list(store.load(_SHARDS[0])), versions[1:], "begin at the newest snapshot")
        store.close()

    def test_load_of_a_version_knows_nothing_newer(self) -> None:
        """After a crash between saving state and writing the checkpoint there is a version that belongs to no checkpoint.

        Steps: save snapshot 1, delta 2, snapshot 3 and load version 2; save delta 3 and load version 3. Passes when 1 and 2
        are loaded at first, and then 1, 2 and the new 3.
        """
        store = self._saved((1, _content(1), True), (2, _content(2), False), (3, _content(3), True))
        mend = "give versions up to the requested one, from the newest snapshot among them on"
        self._expect(list(store.load(_SHARDS[0], 2)), [(1, _content(1), True), (2, _content(2), False)], mend)
        store.save(_SHARDS[0], 3, b"again")
        wanted = [(1, _content(1), True), (2, _content(2), False), (3, b"again", False)]
        self._expect(
            list(store.load(_SHARDS[0], 3)), wanted, "saving a version again must replace it, also if it was a snapshot"
        )
        store.close()

    def test_shards_are_kept_apart(self) -> None:
        """Shards have names of any characters, and their versions do not mix.

        Steps: save one version for each of several shards; load each shard, and one that was never saved. Passes when each
        gives its own version, and the last one none.
        """
        store = self.make_store()
        for number, shard in enumerate(_SHARDS):
            store.save(shard, 1, _content(number))
        for number, shard in enumerate(_SHARDS):
            self._expect(
                list(store.load(shard)), [(1, _content(number), False)], f"keep the shard {shard!r} under its own name"
            )
        self._expect(list(store.load("key_by/1")), [], "give nothing for a shard that was never saved")
        store.close()

    def test_what_was_saved_outlives_the_store(self) -> None:
        """When ``save`` returns, the version is stored: another process may load it.

        Steps: save, do not close, and load from a new store; close both twice. Passes when the versions are loaded.
        """
        store = self._saved((1, _content(1), True), (2, _content(2), False))
        self.before_another(store)
        other = self.make_store()
        wanted = [(1, _content(1), True), (2, _content(2), False)]
        self._expect(list(other.load(_SHARDS[0])), wanted, "write before save() returns")
        for each in (store, other, store, other):
            each.close()

    def before_another(self, store: StateStore) -> None:
        """Prepare for another store object over the same place. Override it (close ``store``) if only one may be open."""

    def test_remove_keeps_what_is_needed(self) -> None:
        """``remove(before=…)`` frees space, but never removes the snapshot that a later load needs.

        Steps: save 1 to 6 with snapshots 1 and 4, remove before 5, then before 99, and load after each. Passes when
        all versions from 4 on are loaded both times.
        """
        versions = [(n, _content(n), n in (1, 4)) for n in range(1, 7)]
        store = self._saved(*versions)
        store.remove(_SHARDS[0], before=5)
        mend = "remove only versions before the newest snapshot at or before the given version"
        self._expect(list(store.load(_SHARDS[0])), versions[3:], mend)
        store.remove(_SHARDS[0], before=99)
        self._expect(list(store.load(_SHARDS[0], 6)), versions[3:], mend)
        store.close()

    def test_a_large_version(self) -> None:
        """A snapshot may have many megabytes.

        Steps: save a snapshot of ``large_bytes`` bytes and load it. Passes when it is the same.
        """
        content = os.urandom(self.large_bytes)
        store = self._saved((1, content, True))
        found = list(store.load(_SHARDS[0]))
        expect(
            found == [(1, content, True)],
            expected=f"the {len(content)} bytes that were saved",
            found=f"{len(found)} versions of {[len(each) for _, each, _ in found]} bytes",
            mend="divide a version that is too large into pieces, and join them when it is loaded",
        )
        store.close()

    def test_a_kill_leaves_whole_versions(self) -> None:
        """If a process is killed while it saves, each version is complete or missing; if ``save`` has returned, it is there.

        Steps: a process saves versions and notes each in a file when ``save`` has returned; it is killed with SIGKILL.
        Passes when a new store gives every noted version unchanged, and at most one more complete version.
        """
        self._expect_whole_after_a_kill(
            _SHARDS[0],
            lambda store, number: store.save(_SHARDS[0], number, _content(number, 20_000), snapshot=number == 1),
            lambda number: _content(number, 20_000),
            method="save()",
            mend="write a version to a temporary file and rename it, or use a transaction; return when it is stored",
        )

    def _expect_whole_after_a_kill(
        self,
        shard: str,
        save: Callable[[Any, int], None],
        content: Callable[[int], bytes],
        *,
        method: str,
        mend: str,
    ) -> None:
        """Kill a process that saves versions of a shard, the first as a snapshot, and compare the stored versions.

        ``save`` gets the store and the number of a version; ``content`` returns the bytes that a load must give for it.
        ``method`` names the saving method in messages.
        """
        __tracebackhide__ = True
        notes, make = self.tmp_path / "notes", self.make_store

        def save_for_ever() -> None:
            store = make()
            with open(notes, "ab", buffering=0) as file:
                number = 0
                while True:
                    number += 1
                    save(store, number)
                    file.write(b"%d\n" % number)

        run_and_kill(
            self, save_for_ever, notes, what="the store's contract", does="saves versions",
            mend=Mends(
                slow=f"{method} must return when the version is stored",
                ended=f"{method} must not fail for an ordinary version",
            ),
        )  # fmt: skip
        noted = [int(line) for line in notes.read_bytes().split()]
        store = self.make_store()
        found = list(store.load(shard))
        wanted = [(number, content(number), number == 1) for number in range(1, len(found) + 1)]
        expect(
            found == wanted and len(noted) <= len(found) <= len(noted) + 1,
            expected=f"versions 1 to {len(noted)}, complete, and perhaps one more",
            found=f"{[number for number, _, _ in found]}, all unchanged: {found == wanted}",
            mend=mend,
        )
        store.close()
