"""A member of a consumer group that reads its share of the queues."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

from headrace_rocketmq.allocation import Allocation
from headrace_rocketmq.batch import MessageBatch
from headrace_rocketmq.errors import ClientClosedError, ConfigurationError, RocketMQError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.member import make_membership
from headrace_rocketmq.membership import Membership
from headrace_rocketmq.reader import Reader, ReaderOptions
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.session import Session

logger = logging.getLogger("headrace_rocketmq")


class Start(Enum):
    """Where to begin in a queue without committed offset of the group."""

    EARLIEST = "earliest"
    LATEST = "latest"


StartPosition = Start | datetime
"""…, or at the first message that the broker stored at that moment or later."""

QueuesListener = Callable[[Collection[MessageQueue]], None]


class Consumer:
    """Reads the queues that are assigned to this member of the group. Made by Client.consumer, which joins the group.

    One thread uses it. The listeners are called in that thread, within `poll` and `close`: `on_revoked` before queues are given
    up: then finish and commit what was polled from them; `on_assigned` after queues were taken: then `seek` is possible.
    Without exclusive membership another member may already read a revoked queue by then, and messages that were polled but not
    committed are read twice.
    """

    def __init__(
        self,
        session: Session,
        membership: Membership,
        reader: Reader,
        *,
        group: str,
        start: StartPosition,
        on_assigned: QueuesListener | None = None,
        on_revoked: QueuesListener | None = None,
    ) -> None:
        self._session = session
        self._membership = membership
        self._reader = reader
        self._offsets = session.offsets
        self._group = group
        self._start = start
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._polled: dict[MessageQueue, int] = {}
        self._is_closed = False
        self._group_changed = threading.Event()
        self._group_changed.set()
        membership.on_changed = self._note_change

    @classmethod
    def join(
        cls,
        session: Session,
        *,
        group: str,
        client_id: str,
        topics: Sequence[str],
        message_filter: Filter,
        start: StartPosition,
        is_exclusive: bool,
        allocation: Allocation,
        options: ReaderOptions,
        on_assigned: QueuesListener | None = None,
        on_revoked: QueuesListener | None = None,
    ) -> Consumer:
        """Join a group with its own connections, which are closed with the consumer; see Client.consumer."""
        remoting, routes = session.remoting, session.routes
        try:
            membership = make_membership(
                session,
                group=group,
                client_id=client_id,
                topics=topics,
                message_filter=message_filter,
                is_exclusive=is_exclusive,
                allocation=allocation,
            )
            reader = Reader(remoting, routes, group, message_filter, options)
            consumer = cls(
                session, membership, reader, group=group, start=start, on_assigned=on_assigned, on_revoked=on_revoked
            )
            membership.start()
        except BaseException:
            session.close()
            raise
        return consumer

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues of this member now; there may be none if there are more members than queues."""
        return self._reader.queues

    @property
    def member_id(self) -> str:
        """The id of this member in the group; queues are assigned by the ids of all members."""
        return self._membership.client_id

    def poll(self, max_messages: int, timeout: timedelta) -> list[MessageBatch]:
        """Take and give up queues as the group requires, then give the messages that have come; see Reader.poll.

        Must be called regularly, even if no messages are expected: queues are taken and given up only here. Taking a queue asks
        its broker for the committed offset, which may take up to the client's timeout. Raises what Reader.poll raises,
        PermissionDeniedError, and the errors of the listeners.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            if self._is_closed:
                raise ClientClosedError("the consumer is closed")
            self._follow_group()
            remaining_s = max(0.0, deadline - time.monotonic())
            if self._reader.queues:
                batches = self._reader.poll(max_messages, timedelta(seconds=remaining_s))
            else:
                self._group_changed.wait(remaining_s)
                batches = []
            for batch in batches:
                self._polled[batch.queue] = batch.next_offset
            if batches or time.monotonic() >= deadline:
                return batches

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of one of this member's queues. KeyError for other queues."""
        self._reader.seek(queue, offset)
        self._polled.pop(queue, None)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets of the group to the brokers: the given ones, or those after everything that was polled.

        Raises ConfigurationError for queues of other members, and what Offsets.commit raises.
        """
        chosen = dict(self._polled if offsets is None else offsets)
        held = set(self._reader.queues)
        foreign = [str(queue) for queue in chosen if queue not in held]
        if foreign:
            raise ConfigurationError(
                f"group {self._group}: offsets of queues that this consumer does not own cannot be committed: {', '.join(foreign)}"
            )
        if chosen:
            self._offsets.commit(self._group, chosen)
        if offsets is None:
            self._polled.clear()

    def close(self) -> None:
        """Give up all queues (calling `on_revoked`) and leave the group. What was not committed will be read again."""
        if self._is_closed:
            return
        try:
            self._revoke(self.queues)
        finally:
            self._is_closed = True
            self._reader.close()
            try:
                self._membership.close()
            finally:
                self._session.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_change(self) -> None:
        self._group_changed.set()
        self._reader.interrupt()

    def _follow_group(self) -> None:
        if not self._group_changed.is_set():
            return
        self._group_changed.clear()
        target = self._membership.target()
        held = self._reader.queues
        self._revoke([queue for queue in held if queue not in target])
        try:
            self._assign(self._membership.claim(sorted(target.difference(held))))
        except RocketMQError as error:
            if not error.retriable:
                raise
            logger.warning("group %s: queues cannot be assigned yet: %s", self._group, error)
            self._group_changed.set()  # so that the next poll tries again

    def _revoke(self, queues: list[MessageQueue]) -> None:
        if not queues:
            return
        logger.info("group %s: giving up %s", self._group, ", ".join(map(str, queues)))
        try:
            if self._on_revoked is not None:
                self._on_revoked(queues)
        finally:  # they belong to another member now, also if the listener has failed
            for queue in queues:
                self._reader.remove(queue)
                self._polled.pop(queue, None)
            self._membership.release(queues)

    def _assign(self, queues: list[MessageQueue]) -> None:
        if not queues:
            return
        try:
            offsets = self._start_offsets(queues)
        except BaseException:
            self._membership.release(queues)
            raise
        logger.info("group %s: taking %s", self._group, ", ".join(f"{queue}@{offsets[queue]}" for queue in queues))
        for queue in queues:
            self._reader.add(queue, offsets[queue])
        if self._on_assigned is not None:
            self._on_assigned(queues)

    def _start_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        committed = self._offsets.committed(self._group, queues)
        offsets = {queue: offset for queue, offset in committed.items() if offset is not None}
        fresh = [queue for queue in queues if queue not in offsets]
        if not fresh:
            return offsets
        if self._start is Start.EARLIEST:
            return offsets | self._offsets.earliest(fresh)
        if self._start is Start.LATEST:
            return offsets | self._offsets.latest(fresh)
        return offsets | self._offsets.at_time(fresh, self._start)
