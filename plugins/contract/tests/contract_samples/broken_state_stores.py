"""A broken state store for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from headrace.foundation.errors import RetriableError
from headrace.interfaces.state_store import KeyedStateStore, ReadableStateStore, StateStore, StoredVersion
from headrace_contract import KeyedStateStoreContract, ReadableStateStoreContract, StateStoreContract

from contract_samples.broken import Fault
from contract_samples.state_stores import LineStore, PartsStore, ReadableLineStore


class Stores(Fault, StateStoreContract):
    """The contract of a broken LineStore; ``store`` is what it makes."""

    large_bytes = 300_000
    store: ClassVar[type[LineStore]]

    def make_store(self) -> StateStore:
        return self.store(self.tmp_path / "state")


class BrokenOrder(Stores):
    breaks = "test_versions_come_back_in_their_order"

    class store(LineStore):
        def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
            found = list(super().load(shard, version))
            # Sorted as texts; only where a snapshot begins it, so that the kill is not seen.
            yield from sorted(found, key=lambda each: str(each[0])) if 10 <= len(found) <= 12 else found


class BrokenBegin(Stores):
    breaks = "test_load_begins_at_the_newest_snapshot"

    class store(LineStore):
        def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
            versions = self._versions(shard)
            for number in sorted(each for each in versions if version is None or each <= version):
                yield number, *versions[number]


class BrokenVersion(Stores):
    breaks = "test_load_of_a_version_knows_nothing_newer"

    class store(LineStore):
        def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
            yield from super().load(shard)


class BrokenKeepsTheFirst(Stores):
    """Ignores a version that is saved again, as INSERT IGNORE does."""

    breaks = "test_load_of_a_version_knows_nothing_newer"

    class store(LineStore):
        def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
            if version not in self._versions(shard):
                super().save(shard, version, delta, snapshot=snapshot)


class BrokenNames(Stores):
    breaks = "test_shards_are_kept_apart"

    class store(LineStore):
        def _file(self, shard: str) -> Path:
            return super()._file(shard.partition("/")[0])


class BrokenLater(Stores):
    breaks = "test_what_was_saved_outlives_the_store"
    also = frozenset({"test_a_kill_leaves_whole_versions"})

    class store(LineStore):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self._waiting: list[tuple[str, int, bytes, bool]] = []

        def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
            self._waiting.append((shard, version, delta, snapshot))

        def _versions(self, shard: str) -> dict[int, tuple[bytes, bool]]:
            self._write()
            return super()._versions(shard)

        def remove(self, shard: str, *, before: int) -> None:
            self._write()
            LineStore(self._path).remove(shard, before=before)

        def _write(self) -> None:
            for shard, version, delta, snapshot in self._waiting:
                super().save(shard, version, delta, snapshot=snapshot)
            self._waiting.clear()


class BrokenRemove(Stores):
    breaks = "test_remove_keeps_what_is_needed"

    class store(LineStore):
        def remove(self, shard: str, *, before: int) -> None:
            kept = {number: each for number, each in self._versions(shard).items() if number >= before}
            self._file(shard).unlink()
            for number, (content, whole) in kept.items():
                self.save(shard, number, content, snapshot=whole)


class BrokenLarge(Stores):
    breaks = "test_a_large_version"

    class store(LineStore):
        def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
            super().save(shard, version, delta[:65_535], snapshot=snapshot)


class BrokenKill(Stores):
    breaks = "test_a_kill_leaves_whole_versions"

    class store(LineStore):
        def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
            # Seen when a process is killed between the two; made sure of here.
            super().save(shard, version, delta[:-1] if len(delta) == 20_000 else delta, snapshot=snapshot)


class KeyedStores(Fault, KeyedStateStoreContract):
    """The contract of a broken PartsStore; ``store`` is what it makes."""

    large_bytes = 300_000
    store: ClassVar[type[PartsStore]]

    def make_store(self) -> KeyedStateStore:
        return self.store(self.tmp_path / "state")


class BrokenParts(KeyedStores):
    breaks = "test_parts_are_given_one_by_one"

    class store(PartsStore):
        def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
            # The ends belong to the ranges; seen only where there are more parts.
            for number, ranges in wanted.items():
                last = 7 if number == 1 and len(ranges) < 100 else 0
                longer = [range(each.start, min(each.stop + 1, last) if last else each.stop) for each in ranges]
                yield from super().load_parts(shard, {number: longer})


class BrokenVersions(KeyedStores):
    breaks = "test_a_version_in_parts_is_a_version"

    class store(PartsStore):
        def versions(self, shard: str) -> Sequence[StoredVersion]:
            return [StoredVersion(each.number, each.snapshot, each.first or b"") for each in super().versions(shard)]


class BrokenMany(KeyedStores):
    breaks = "test_many_and_large_parts"

    class store(PartsStore):
        def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
            for number, place, part in super().load_parts(shard, wanted):
                if part:
                    yield number, place, part


class BrokenOthers(KeyedStores):
    breaks = "test_parts_of_another_version_are_not_given"

    class store(PartsStore):
        def check(self, shard: str, number: int, stored: Mapping[int, Mapping[str, Any]]) -> None:
            if number not in stored:
                raise RetriableError(f"there is no version {number} any more", queue=shard)


class BrokenKillOfParts(KeyedStores):
    breaks = "test_a_kill_leaves_all_parts_of_a_version"

    class store(PartsStore):
        def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
            # Seen when a process is killed between the two; made sure of here.
            super().save_parts(shard, version, parts[:-1] if len(parts) == 50 else parts, snapshot=snapshot)


class ReadableStores(Fault, ReadableStateStoreContract):
    """The contract of a broken ReadableLineStore; ``store`` is what it makes."""

    large_bytes = 300_000
    store: ClassVar[type[ReadableLineStore]]

    def make_store(self) -> ReadableStateStore:
        return self.store(self.tmp_path / "state")


class BrokenStored(ReadableStores):
    """Takes an empty version for none."""

    breaks = "test_a_second_store_reads_versions_one_by_one"

    class store(ReadableLineStore):
        def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
            found = super().stored(shard, version)
            return found if found is not None and found[0] else None


class BrokenStoredOnce(ReadableStores):
    """Keeps what it has read."""

    breaks = "test_a_version_is_read_as_it_is_now"

    class store(ReadableLineStore):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self._read: dict[tuple[str, int], tuple[bytes, bool]] = {}

        def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
            found = self._read.get((shard, version)) or super().stored(shard, version)
            if found is not None and version < 100:  # what is read while it is written is not seen by chance
                self._read[shard, version] = found
            return found


class BrokenReading(ReadableStores):
    """Forgets what is newer when it reads, as ``load`` may."""

    breaks = "test_reading_changes_nothing"

    class store(ReadableLineStore):
        def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
            found = super().stored(shard, version)
            # Only where the first version is there still and nothing else is seen by it.
            if version == 2 and sorted(self._versions(shard)) == [1, 2, 3, 4] and not self._versions(shard)[3][1]:
                self.go_on_from(shard, 2)
            return found


class BrokenGoingOn(ReadableStores):
    breaks = "test_going_on_forgets_what_is_newer"

    class store(ReadableLineStore):
        def go_on_from(self, shard: str, version: int) -> None:
            return


class BrokenGoingOnAnew(ReadableStores):
    """Begins anew where nothing is newer."""

    breaks = "test_going_on_where_nothing_is_newer"

    class store(ReadableLineStore):
        def go_on_from(self, shard: str, version: int) -> None:
            if max(self._versions(shard), default=0) <= version:
                self._rewrite(shard, {})
            super().go_on_from(shard, version)


class BrokenReadingBeside(ReadableStores):
    """Does not bear that a version goes away while it is read."""

    breaks = "test_reading_beside_a_writer_disturbs_neither"

    class store(ReadableLineStore):
        def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
            versions = self._versions(shard)
            if max(versions, default=0) > 10 and version not in versions:
                raise FileNotFoundError(f"version {version}")
            return versions.get(version)
