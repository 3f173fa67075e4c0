"""The contract of state stores that can load single parts of a version."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headrace.foundation.errors import RetriableError
from headrace.interfaces.state_store import KeyedStateStore

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.state_store import StateStoreContract

_SHARD = "key_by/0"
_MANY = 3_000


def _part(version: int, number: int, size: int = 40) -> bytes:
    return bytes((version * 31 + number * 17 + place * 7) % 256 for place in range(size))


def _parts(version: int, count: int) -> list[bytes]:
    return [_part(version, number) for number in range(count)]


class KeyedStateStoreContract(StateStoreContract):
    """What a KeyedStateStore must do in addition to every state store. An author gives ``make_store``.

    class TestMyStore(KeyedStateStoreContract):
        def make_store(self):
            return MyKeyedStore(MySettings(path=str(self.tmp_path / "state")))
    """

    def make_store(self) -> KeyedStateStore:
        """Return a new store over the same place each time within one check."""
        raise NotImplementedError

    def _expect_parts(
        self, store: KeyedStateStore, asked: dict[int, Sequence[range]], wanted: dict[tuple[int, int], bytes]
    ) -> None:
        __tracebackhide__ = True
        given = list(store.load_parts(_SHARD, asked))
        found = {(version, number): part for version, number, part in given}
        expect(
            found == wanted and len(given) == len(wanted),
            expected=shortened(sorted(wanted.items())),
            found=shortened(sorted(given)),
            mend="give each requested part once, with its version and its number (from 0), and no other part",
        )

    def test_parts_are_given_one_by_one(self) -> None:
        """A key's state is in one part of each version, so the other parts need not be read for it.

        Steps: save a snapshot of 8 parts and deltas of 2 and 3 parts; call ``versions``; load some parts, all parts of one
        version, and none. Passes when exactly those are given.
        """
        store = self.make_store()
        for version, count in ((1, 8), (2, 2), (3, 3)):
            store.save_parts(_SHARD, version, _parts(version, count), snapshot=version == 1)
        store.versions(_SHARD)
        asked: dict[int, Sequence[range]] = {1: [range(1, 2), range(4, 7)], 3: [range(2, 3)]}
        wanted = {(1, number): _part(1, number) for number in (1, 4, 5, 6)} | {(3, 2): _part(3, 2)}
        self._expect_parts(store, asked, wanted)
        self._expect_parts(store, {2: [range(2)]}, {(2, number): _part(2, number) for number in range(2)})
        self._expect_parts(store, {}, {})
        store.close()

    def test_a_version_in_parts_is_a_version(self) -> None:
        """``load`` gives the parts of a version joined; versions in parts and versions without parts can follow each other.

        Steps: save snapshot 1 in parts and delta 2 without parts, and load; save snapshot 3 in parts, delta 4 without and
        delta 5 in parts; load, and call ``versions``. Passes when ``load`` gives whole contents from the newest snapshot on,
        and ``versions`` the same numbers with the first part, or None for a version without parts.
        """
        store = self.make_store()
        store.save_parts(_SHARD, 1, _parts(1, 4), snapshot=True)
        store.save(_SHARD, 2, b"whole")
        found = list(store.load(_SHARD))
        first = [(1, b"".join(_parts(1, 4)), True), (2, b"whole", False)]
        mend = "load() must give the parts of a version joined, in the order of their numbers"
        expect(found == first, expected=shortened(first), found=shortened(found), mend=mend)
        store.save_parts(_SHARD, 3, _parts(3, 2), snapshot=True)
        store.save(_SHARD, 4, b"four")
        store.save_parts(_SHARD, 5, _parts(5, 1))
        found = list(store.load(_SHARD))
        second = [(3, b"".join(_parts(3, 2)), True), (4, b"four", False), (5, _part(5, 0), False)]
        expect(found == second, expected=shortened(second), found=shortened(found), mend=mend)
        versions = [(each.number, each.snapshot, each.first) for each in store.versions(_SHARD)]
        wanted = [(3, True, _part(3, 0)), (4, False, None), (5, False, _part(5, 0))]
        expect(
            versions == wanted,
            expected=shortened(wanted),
            found=shortened(versions),
            mend="versions() must list the versions that load() gives, with the first part of those that were saved in parts",
        )
        none = list(store.versions("key_by/1"))
        expect(none == [], expected="no version of a shard that was never saved", found=repr(none), mend="return []")
        store.close()

    def test_many_and_large_parts(self) -> None:
        """There are thousands of parts, also empty ones, and a single key may have megabytes.

        Steps: save a snapshot of 3,000 parts; one has ``large_bytes`` bytes, some are empty; load it, and every third part,
        from another store. Passes when all are unchanged.
        """
        large = os.urandom(self.large_bytes)
        parts = [large if number == 7 else _part(1, number, number % 50) for number in range(_MANY)]
        store = self.make_store()
        store.save_parts(_SHARD, 1, parts, snapshot=True)
        self.before_another(store)
        other = self.make_store()
        found = list(other.load(_SHARD))
        expect(
            found == [(1, b"".join(parts), True)],
            expected=f"{sum(map(len, parts))} unchanged bytes",
            found=f"{len(found)} versions of {[len(each) for _, each, _ in found]} bytes",
            mend="keep every part, and divide a part that is too large into pieces",
        )
        other.versions(_SHARD)
        numbers = range(1, _MANY, 3)
        asked = {1: [range(number, number + 1) for number in numbers]}
        given = {number: part for _, number, part in other.load_parts(_SHARD, asked)}
        wrong = [number for number in numbers if given.get(number) != parts[number]]
        expect(
            not wrong and len(given) == len(numbers),
            expected=f"{len(numbers)} unchanged parts",
            found=f"{len(given)} parts; changed or missing: {wrong[:5]}",
            mend="give parts that are requested one by one, also if there are many, and empty ones too",
        )
        for each in (store, other):
            each.close()

    def test_parts_of_another_version_are_not_given(self) -> None:
        """Another instance may have taken the shard and stored a version again under the same number, with other parts.

        Steps: one store saves snapshot 1 and delta 2 and calls ``versions``; another one loads and saves snapshot 2 in more
        parts; the first one loads a part of 2. Then the same with snapshot 3, after which the other one removes older
        versions. Passes when the first store raises RetriableError both times.
        """
        for number in (2, 3):
            shard = f"{_SHARD}/{number}"
            store = self.make_store()
            store.save_parts(shard, 1, _parts(1, 4), snapshot=True)
            store.save_parts(shard, 2, _parts(2, 2))
            store.versions(shard)
            self.before_another(store)
            other = self.make_store()
            list(other.load(shard))
            other.save_parts(shard, number, _parts(77, 8), snapshot=True)
            if number == 3:
                other.remove(shard, before=3)
            self.before_another(other)
            self._expect_refused(store, shard, {2: [range(1, 2)]})
            store.close()
            other.close()

    def _expect_refused(self, store: KeyedStateStore, shard: str, asked: dict[int, Sequence[range]]) -> None:
        __tracebackhide__ = True
        mend = "when reading, check atomically that the versions are still those that versions() gave; if not, raise RetriableError"
        try:
            found = list(store.load_parts(shard, asked))
        except RetriableError:
            return
        except Exception as error:  # after any other error the shard would not start again
            violated(expected="RetriableError", found=repr(error), mend=mend)
        violated(expected="RetriableError", found=shortened(found), mend=mend)

    def test_a_kill_leaves_all_parts_of_a_version(self) -> None:
        """If a process is killed while it saves parts, all parts of a version are there or none; after ``save_parts``, all.

        Steps: a process saves versions of 50 parts and notes each in a file when ``save_parts`` has returned; it is killed
        with SIGKILL. Passes when a new store gives every noted version unchanged, and at most one more complete version.
        """
        self._expect_whole_after_a_kill(
            _SHARD,
            lambda store, number: store.save_parts(_SHARD, number, _parts(number, 50), snapshot=number == 1),
            lambda number: b"".join(_parts(number, 50)),
            method="save_parts()",
            mend="store all parts of a version atomically; return when it is stored",
        )
