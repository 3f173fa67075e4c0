"""A simulated broker: topics, consumer groups, and members that it takes for dead when it has not heard of them.

It is the broker in memory of the contract suite, which the contracts of topics and group sources hold, behind a network: calls take time,
fail before or after they were done, and a process that was killed does nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace_contract.memory_topics import MemoryBroker

from tests.simulation.servers import Server
from tests.simulation.world.scheduler import Crashed, World

_US = 300


class Broker(MemoryBroker):
    """The broker of a world. Make it inside of the world, so that its lock is one of it.

    ``session_us``: a member that has not polled for so long is expelled by ``expel_silent``.
    """

    def __init__(self, world: World, *, session_us: int = 3_000_000) -> None:
        super().__init__()
        self.server = Server(world, "broker")
        self._world = world
        self._session_us = session_us
        self._heard: dict[str, int] = {}

    def need(self) -> None:
        """What is called within another call: the broker may be away."""
        self._alive()
        self.server.check("call", "it is not there")

    def _alive(self) -> None:
        if self._world.current.process.dead:
            raise Crashed

    def expel_silent(self) -> None:
        """Remove the members that were silent for too long. Called by the broker's own process."""
        with self.changed:
            for (topic, group), found in self._groups.items():
                for member in list(found.members):
                    if self._world.us - self._heard[member] > self._session_us:
                        # Not its name, which counts the members of all worlds.
                        place = found.members.index(member)
                        self._world.trace.add(self._world.us, "broker", "expels", f"member {place} of {group}")
                        self._remove(topic, group, member)
            self.changed.notify_all()

    def put(self, topic: str, queue: int, body: bytes) -> None:
        """Append a record, as a producer beside the job whose calls do not fail."""
        with self.changed:
            log = self._log(topic, queue)
            log.bodies.append(body)
            log.times_us.append(self._world.us)
            self.changed.notify_all()

    # ---------------------------------------------------------------------------------------------- calls

    def create(self, topic: str, queues: int) -> None:
        self.server.request(f"create {topic}", _US)
        super().create(topic, queues)
        self.server.answer(f"create {topic}")

    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        what = f"append {topic} {queue} ({len(bodies)})"
        self.server.request(what, _US)
        # As of a real broker, records of one call are stored one after the other: who is killed may have stored some of them.
        for place, body in enumerate(bodies):
            if place:
                self._world.step("broker", f"append {topic} {queue} (+{place})", us=1)
            super().append(topic, queue, [body])
        self.server.answer(what)

    def trim(self, topic: str, queue: int, before: int) -> None:
        self.server.request(f"trim {topic} {queue} before {before}", _US)
        super().trim(topic, queue, before)

    def read(self, topic: str, queue: int, offset: int, count: int) -> tuple[list[bytes], list[int]]:
        self._world.step("broker", f"read {topic} {queue} at {offset}")
        # It gives what it has at hand, not as much as was asked for.
        return super().read(topic, queue, offset, min(count, 1 + int(self._world.random.random() * 8)))

    def committed(self, topic: str, group: str, queue: int) -> int | None:
        self.server.request(f"committed {group} {queue}", _US)
        return super().committed(topic, group, queue)

    def commit(self, topic: str, group: str, member: str | None, offsets: Mapping[int, int]) -> None:
        what = f"commit {group} {dict(sorted(offsets.items()))}"
        self.server.request(what, _US)
        super().commit(topic, group, member, offsets)
        self.server.answer(what)

    # --------------------------------------------------------------------------------------------- groups

    def join(self, topic: str, group: str, member: str) -> None:
        self.server.request(f"join {group}", _US)
        self._heard[member] = self._world.us
        super().join(topic, group, member)

    def leave(self, topic: str, group: str, member: str) -> None:
        self._world.step("broker", f"leave {group}")
        super().leave(topic, group, member)

    def share(self, topic: str, group: str, member: str) -> tuple[set[int], set[int]] | None:
        self._alive()
        self._heard[member] = self._world.us
        return super().share(topic, group, member)

    def take(self, topic: str, group: str, member: str, queues: Iterable[int]) -> list[int]:
        self._alive()
        taken = super().take(topic, group, member, queues)
        if taken:
            self._world.step("broker", f"gives {group} {taken}")
        return taken

    def release(self, topic: str, group: str, member: str, queues: Iterable[int]) -> None:
        self._world.step("broker", f"takes back {group} {sorted(queues)}")
        super().release(topic, group, member, queues)
