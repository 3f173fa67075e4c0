"""Stands in the plan of a job in the place of a source that several jobs read together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Literal

from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.source import GroupListener, GroupSource, Reader, StartPosition
from headrace.plan.graph import METADATA_FIELDS, Node, Plan, SourceNode, rebuilt

from headrace_light.shared_reading.hub import Hub, Member, copied, is_shared
from headrace_light.shared_reading.reader import SharedReader


class SharedSource(GroupSource):
    """Reads with the hub of all jobs, and with a copy of the job's own source what the others do not read.

    The job is no member of its consumer group: it reads all queues. It commits its positions to the group.
    """

    joins_group: ClassVar[bool] = False

    def __init__(self, node: SourceNode, columns: Collection[str]) -> None:
        own = node.source
        assert isinstance(own, GroupSource)
        self._node = node
        self._own = copied(own)
        self._own.meter = own.meter
        self._member = Member(node, [name for name in columns if name not in node.metadata])
        self._has_own_metadata = any(
            what not in METADATA_FIELDS for name, what in node.metadata.items() if name in columns
        )
        self._hub: Hub | None = None
        self.settings = own.settings
        self.bounded, self.begins_anew = own.bounded, own.begins_anew
        self.time_delay, self.start, self.header_fields = own.time_delay, own.start, own.header_fields
        self.node_name, self.reader_name = own.node_name, own.reader_name

    @property
    def _entered(self) -> Hub:
        if self._hub is None:
            self._hub = Hub.enter(self._node, self._member)
        return self._hub

    def use_run(self, *, until: Literal["end"] | None) -> None:
        self._own.use_run(until=until)
        self._entered.use_run(until)

    def identity(self) -> Mapping[str, Any]:
        return self._own.identity()

    def schema(self) -> Schema | None:
        return self._own.schema()

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        self._own.restore(positions)

    def queues(self) -> Collection[Queue]:
        return self._entered.queues()

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        hub = self._entered
        decoders = None if self._has_own_metadata else hub.decoders_of(self._node, self._member)
        return SharedReader(hub.feed(queue), decoders, partial(self._own.open, queue), start)

    def join(self, listener: GroupListener) -> None:
        raise NotImplementedError("a job that shares what it reads is no member of a group")

    def poll_group(self, timeout: timedelta) -> None:
        raise NotImplementedError("a job that shares what it reads is no member of a group")

    def leave(self) -> None:
        raise NotImplementedError("a job that shares what it reads is no member of a group")

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        self._own.commit(positions)

    def committed(self, queue: Queue) -> ReadPosition | None:
        return self._own.committed(queue)

    def begins_with(self, queue: Queue) -> str | None:
        return self._own.begins_with(queue)

    def close(self) -> None:
        hub, self._hub = self._hub, None
        try:
            if hub is not None:
                hub.leave(self._member)
        finally:
            self._own.close()


def with_shared_sources(plan: Plan) -> Plan:
    """Return the plan with sources that read together with other jobs of this process, where that is possible."""
    columns = plan.decode_columns()
    changes: dict[Node, Node] = {}
    for source_id, node in plan.sources.items():
        if is_shared(node):
            source = SharedSource(node, columns[source_id])
            # Savepoints name the class of a source.
            source.__class__ = type(type(node.source).__name__, (SharedSource,), {})
            changes[node] = replace(node, source=source)
    return rebuilt(plan, changes) if changes else plan
