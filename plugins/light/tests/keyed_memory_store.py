"""A shared state store in memory that gives single parts, with failures to order: for instances in one process."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from headrace.foundation.errors import RetriableError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import StaleWriterError
from headrace.interfaces.state_store import KeyedStateStore, StoredVersion, versions_to_load, versions_to_remove

_tokens = itertools.count(1)


@dataclass
class Place:
    """What is stored: per shard the versions, (parts or one content, whether it is a snapshot), and the owner."""

    versions: dict[str, dict[int, tuple[list[bytes] | bytes, bool]]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: How many parts were given of each shard; how many of the next requests fail.
    given: Counter[str] = field(default_factory=Counter)
    failures: int = 0


places: dict[str, Place] = {}


class KeyedMemorySettings(Settings, frozen=True, kw_only=True):
    """Options of the store."""

    place: Annotated[str, option("name of what is stored")]


class KeyedMemoryStore(KeyedStateStore):
    """Owns a shard from its first ``load``, ``versions`` or ``save``, as the MySQL store does."""

    Settings: ClassVar[type[Settings]] = KeyedMemorySettings
    shared: ClassVar[bool] = True

    def __init__(self, settings: KeyedMemorySettings) -> None:
        self._place = places.setdefault(settings.place, Place())
        self._token = next(_tokens)
        self._claimed: set[str] = set()

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        self._store(shard, version, delta, snapshot)

    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        self._store(shard, version, list(parts), snapshot)

    def _store(self, shard: str, version: int, content: list[bytes] | bytes, snapshot: bool) -> None:
        with self._place.lock:
            versions = self._place.versions.setdefault(shard, {})
            lost = shard in self._claimed and self._place.owners.get(shard) != self._token
            if lost and (not snapshot or version < max(versions, default=version)):
                raise StaleWriterError("the shard belongs to another", plugin="memory", queue=shard)
            self._take(shard)
            for later in [number for number in versions if number >= version]:
                del versions[later]
            versions[version] = (content, snapshot)

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        with self._place.lock:
            self._take(shard)
            versions = self._place.versions.get(shard, {})
            wanted, _ = versions_to_load([(number, whole) for number, (_, whole) in versions.items()], version)
            found = [(number, *versions[number]) for number in wanted]
        for number, content, whole in found:
            yield number, content if isinstance(content, bytes) else b"".join(content), whole

    def versions(self, shard: str) -> Sequence[StoredVersion]:
        with self._place.lock:
            self._take(shard)
            versions = self._place.versions.get(shard, {})
            wanted, _ = versions_to_load([(number, whole) for number, (_, whole) in versions.items()], None)
            found = [(number, *versions[number]) for number in wanted]
        return [
            StoredVersion(number, whole, None if isinstance(content, bytes) else content[0])
            for number, content, whole in found
        ]

    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        with self._place.lock:
            if self._place.failures:
                self._place.failures -= 1
                raise RetriableError("the store is away", plugin="memory", queue=shard)
            if self._place.owners.get(shard) != self._token:
                raise RetriableError("another instance has stored the shard", plugin="memory", queue=shard)
            found = []
            for number, ranges in wanted.items():
                content = self._place.versions[shard][number][0]
                found += [(number, part, content[part]) for each in ranges for part in each]
            self._place.given[shard] += len(found)
        yield from found  # type: ignore[misc]

    def remove(self, shard: str, *, before: int) -> None:
        with self._place.lock:
            versions = self._place.versions.get(shard, {})
            for number in versions_to_remove([(number, whole) for number, (_, whole) in versions.items()], before):
                del versions[number]

    def _take(self, shard: str) -> None:
        self._place.owners[shard] = self._token
        self._claimed.add(shard)
