"""A state store that all instances of a world reach, as a table of MySQL is: versions in parts, and one owner of each shard.

With it a shard that has moved begins before its state is there (quick start), and a request for a part may fail in the middle of a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from headrace.foundation.errors import RetriableError
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import StaleWriterError
from headrace.interfaces.state_store import KeyedStateStore, StoredVersion, versions_to_load, versions_to_remove

from tests.simulation.servers import Server
from tests.simulation.world.scheduler import World

NAME = "simulated"
_US = 400
#: A version: its parts, or one content that is not cut, and whether it is a snapshot.
_Version = tuple[list[bytes] | bytes, bool]


class StateServer(Server):
    """What is stored: the versions of each shard, and its owner."""

    #: That of the world that is entered.
    here: ClassVar[StateServer | None] = None

    def __init__(self, world: World) -> None:
        super().__init__(world, "state")
        self.shards: dict[str, dict[int, _Version]] = {}
        self.owners: dict[str, int] = {}
        self._stores = 0

    def new_store(self) -> int:
        """Return the number of a store that connects."""
        self._stores += 1
        return self._stores

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """While the body runs, stores are of this server."""
        StateServer.here = self
        try:
            yield
        finally:
            StateServer.here = None


class SimulatedStateStore(KeyedStateStore):
    """A connection to it. Owns a shard from its first ``load``, ``versions`` or ``save``, until another one does the same."""

    shared: ClassVar[bool] = True

    def __init__(self, settings: object = None) -> None:
        assert StateServer.here is not None, "no world has a server of state"
        self._server = StateServer.here
        self._number = self._server.new_store()
        self._claimed: set[str] = set()

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        self._store(shard, version, (delta, snapshot))

    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        self._store(shard, version, (list(parts), snapshot))

    def _store(self, shard: str, version: int, content: _Version) -> None:
        what = f"save {shard} {version}"
        self._server.request(what, _US)
        versions = self._server.shards.setdefault(shard, {})
        if shard in self._claimed and self._server.owners.get(shard) != self._number:
            _, snapshot = content
            if not snapshot or version < max(versions, default=version):
                raise StaleWriterError("the shard belongs to another instance", plugin=NAME, queue=shard)
        self._take(shard)
        for later in [number for number in versions if number >= version]:
            del versions[later]
        versions[version] = content
        self._server.answer(what)

    def _take(self, shard: str) -> None:
        self._server.owners[shard] = self._number
        self._claimed.add(shard)

    def _found(self, shard: str, version: int | None) -> list[tuple[int, list[bytes] | bytes, bool]]:
        self._server.request(f"load {shard}", _US)
        self._take(shard)
        versions = self._server.shards.get(shard, {})
        wanted, unfinished = versions_to_load([(number, whole) for number, (_, whole) in versions.items()], version)
        for number in unfinished:
            del versions[number]
        found = [(number, *versions[number]) for number in wanted]
        self._server.answer(f"load {shard}")
        return found

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        for number, content, whole in self._found(shard, version):
            yield number, content if isinstance(content, bytes) else b"".join(content), whole

    def versions(self, shard: str) -> Sequence[StoredVersion]:
        return [
            StoredVersion(number, whole, None if isinstance(content, bytes) else content[0])
            for number, content, whole in self._found(shard, None)
        ]

    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        what = f"parts of {shard}"
        self._server.request(what, _US)
        if self._server.owners.get(shard) != self._number:
            raise RetriableError("another instance has stored the shard", plugin=NAME, queue=shard)
        found = []
        for number, ranges in wanted.items():
            content = self._server.shards[shard][number][0]
            assert not isinstance(content, bytes)
            found += [(number, part, content[part]) for each in ranges for part in each]
        self._server.answer(what)
        yield from found

    def remove(self, shard: str, *, before: int) -> None:
        self._server.request(f"remove {shard} before {before}", _US)
        versions = self._server.shards.get(shard, {})
        for number in versions_to_remove([(number, whole) for number, (_, whole) in versions.items()], before):
            del versions[number]


class _Plugin:
    """Offers it to jobs of this process."""

    @staticmethod
    @hookimpl
    def headrace_state_stores() -> Mapping[str, type[SimulatedStateStore]]:
        return {NAME: SimulatedStateStore}


default_registry().register(_Plugin, "state-store-of-the-simulation")
