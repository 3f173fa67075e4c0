"""A member of a consumer group that only learns which queues are assigned to it, and reads them in its own way."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from headrace_rocketmq.allocation import Allocation
from headrace_rocketmq.filters import Filter, check_filter
from headrace_rocketmq.locks import QueueLocks
from headrace_rocketmq.membership import Membership
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.session import Session


def make_membership(
    session: Session,
    *,
    group: str,
    client_id: str,
    topics: Sequence[str],
    message_filter: Filter,
    is_exclusive: bool,
    allocation: Allocation,
) -> Membership:
    """A membership that is still to be started. All brokers have said that they can apply the filter.

    Raises FilterRejectedError, TopicNotFoundError, ConnectionFailedError and the like.
    """
    remoting, routes = session.remoting, session.routes
    if message_filter.needs_check:
        for topic in topics:
            for address in routes.get(topic).masters():
                check_filter(remoting, address, group, topic, message_filter)
    return Membership(
        remoting,
        routes,
        group=group,
        client_id=client_id,
        filters=dict.fromkeys(topics, message_filter),
        allocation=allocation,
        locks=QueueLocks(remoting, routes, group, client_id) if is_exclusive else None,
    )


class Member:
    """Takes part in the assignment of a group's queues, without reading them. Made by Client.member, which joins the group.

    Used by one thread: it waits for `changed`, compares `target` with its queues, finishes and releases those that are no
    longer its own, and claims the others before it reads them. See Consumer for one that does all this.
    """

    def __init__(self, session: Session, membership: Membership) -> None:
        self._session = session
        self._membership = membership
        self._is_changed = True
        self._woken = threading.Event()

    @classmethod
    def join(
        cls,
        session: Session,
        *,
        group: str,
        client_id: str,
        topics: Sequence[str],
        message_filter: Filter,
        is_exclusive: bool,
        allocation: Allocation,
    ) -> Member:
        """Join a group with its own connections, which are closed with the member; see Client.member."""
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
            member = cls(session, membership)
            membership.on_changed = member.look_again
            membership.start()
        except BaseException:
            session.close()
            raise
        return member

    @property
    def member_id(self) -> str:
        """The id of this member in the group; queues are assigned by the ids of all members."""
        return self._membership.client_id

    def changed(self, timeout_s: float = 0.0) -> bool:
        """Whether `target` may have changed since this last said so; waits for it at most so long. True at first.

        `wake` ends the waiting; a call that does not wait leaves that to the next one that does.
        """
        if timeout_s > 0:
            if not self._is_changed:
                self._woken.wait(timeout_s)
            # In this order: a change that comes between the two is told now, and wakes the next call for nothing.
            self._woken.clear()
        changed, self._is_changed = self._is_changed, False
        return changed

    def look_again(self) -> None:
        """Make `changed` true once more, because queues could not be taken. Any thread may call it."""
        self._is_changed = True
        self._woken.set()

    def wake(self) -> None:
        """Wake a waiting `changed`, or else the next one. Any thread may call it."""
        self._woken.set()

    def target(self) -> frozenset[MessageQueue]:
        """The queues that this member should hold now. Raises PermissionDeniedError, TopicNotFoundError and the like."""
        return self._membership.target()

    def claim(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Claim queues; returns those that may be taken. Each of them must be released later."""
        return self._membership.claim(queues)

    def release(self, queues: Collection[MessageQueue]) -> None:
        """Release queues, so that another member may take them."""
        self._membership.release(queues)

    def close(self) -> None:
        """Leave the group, so that the others take over at once. May be called twice."""
        try:
            self._membership.close()
        finally:
            self._session.close()
