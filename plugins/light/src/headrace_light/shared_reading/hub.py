"""The source that is read for several jobs, and which jobs of this process read with it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, Literal

import cloudpickle
import msgspec
from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.meter import NO_NODE_METER
from headrace.interfaces.source import GroupSource, Reader
from headrace.plan.graph import SourceNode

from headrace_light.shared_reading.decoding import Decoders
from headrace_light.shared_reading.feed import Feed

#: Bodies that wait for jobs that are behind, of all queues of a source together; the least for a queue.
_BYTES_MAX, _QUEUE_BYTES_MIN = 128 * 1024**2, 4 * 1024**2
_lock = threading.Lock()
_hubs: list[Hub] = []


class Member:
    """What one job wants of a hub: the columns to which its bodies are decoded, None if it decodes only some bodies."""

    def __init__(self, node: SourceNode, columns: Collection[str]) -> None:
        self.columns = None if node.body_filter is not None else frozenset(columns)
        self.format = None
        if node.codec is not None and node.body_schema is not None and node.changes is None:
            schema = node.body_schema
            self.format = (
                type(node.codec),
                node.codec.settings,
                node.format,
                list(schema.items()),
                schema.json_columns,
            )


class Hub:
    """A source object that no job owns, and the feeds of its queues. Thread-safe. ``enter`` gives it to a job."""

    def __init__(self, key: tuple[Any, ...], source: GroupSource) -> None:
        self._key = key
        self._source = source
        #: Only readers of a source are thread-safe.
        self._one_at_a_time = threading.RLock()
        self._feeds: dict[str, Feed] = {}
        self._members: list[Member] = []
        self._decoders: list[tuple[Any, Decoders]] = []

    @classmethod
    def enter(cls, node: SourceNode, member: Member) -> Hub:
        """Let a job read with the hub of its source, which is made for the first one."""
        assert isinstance(node.source, GroupSource)
        key = _key_of(node.source)
        with _lock:
            found = next((hub for hub in _hubs if hub._key == key), None)
            if found is None:
                found = cls(key, copied(node.source))
                _hubs.append(found)
            found._members.append(member)
            return found

    def leave(self, member: Member) -> None:
        """The job has ended. The last one closes the source. May be called twice."""
        with _lock:
            if member not in self._members:
                return
            self._members.remove(member)
            if self._members:
                return
            _hubs.remove(self)
        for feed in self._feeds.values():
            feed.close()
        with self._one_at_a_time:
            self._source.close()

    def decoders_of(self, node: SourceNode, member: Member) -> Decoders | None:
        """Return what decodes bodies for all jobs that declare the same format and columns; None: the job decodes them."""
        if member.format is None or member.columns is None:
            return None
        with _lock:
            found = next((decoders for form, decoders in self._decoders if form == member.format), None)
            if found is None:
                assert node.codec is not None
                assert node.body_schema is not None
                form = member.format
                found = Decoders(node.codec, node.body_schema, lambda: self._wanted(form))
                self._decoders.append((form, found))
            return found

    def _wanted(self, form: Any) -> Collection[str]:
        with _lock:
            return {name for each in self._members if each.format == form for name in each.columns or ()}

    def use_run(self, until: Literal["end"] | None) -> None:
        with self._one_at_a_time:
            self._source.use_run(until=until)

    def queues(self) -> Collection[Queue]:
        """Return the queues of the source. Raises as it does."""
        with self._one_at_a_time:
            return self._source.queues()

    def feed(self, queue: Queue) -> Feed:
        """Return the feed of a queue."""
        with _lock:
            found = self._feeds.get(queue.name)
            if found is None:
                found = self._feeds[queue.name] = Feed(Queue(queue.name), self._open, bytes_max=_BYTES_MAX)
                share = max(_QUEUE_BYTES_MIN, _BYTES_MAX // len(self._feeds))
                for each in self._feeds.values():
                    each.bytes_max = share
            return found

    def _open(self, queue: Queue, start: ReadPosition) -> Reader:
        with self._one_at_a_time:
            return self._source.open(queue, start)

    def figures(self) -> tuple[int, int]:
        """Return how many times records were read, and how many batches were decoded, for all jobs together."""
        with _lock:
            return sum(feed.polls for feed in self._feeds.values()), sum(each.batches for _, each in self._decoders)


def hubs() -> list[Hub]:
    """Return the hubs of this process, to inspect them."""
    with _lock:
        return list(_hubs)


def is_shared(node: SourceNode) -> bool:
    """Return whether a source of a job can be read together with other jobs: topics of a broker, which copies can read."""
    return isinstance(node.source, GroupSource) and node.source.read_by_copies and node.source.settings is not None


def copied(source: GroupSource) -> GroupSource:
    """Return a copy of a source that nobody has opened yet."""
    meter, source.meter = source.meter, NO_NODE_METER
    try:
        made: GroupSource = cloudpickle.loads(cloudpickle.dumps(source))
    finally:
        source.meter = meter
    return made


def _key_of(source: GroupSource) -> tuple[Any, ...]:
    """Return what two sources must have in common to be read as one."""
    given = msgspec.structs.asdict(source.settings)
    options = {name: value for name, value in given.items() if name not in source.group_options}
    return type(source), options, source.header_fields
