"""This instance as a member of the consumer group of one source: it polls, commits, and informs the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobFailedError, PlanError, RetriableError
from headrace.foundation.retrying import Outages
from headrace.interfaces.source import LATEST, GroupListener, GroupSource
from headrace.plan.graph import Plan

logger = logging.getLogger(__name__)


class Assignments(GroupListener):
    """Hands a group's changes to an engine, on the thread that polls.

    The queues get the id of their source in the job that runs. The source object knows the one of the job that was planned last.
    """

    def __init__(
        self, source_id: str, assigned: Callable[[Iterable[Queue]], None], revoked: Callable[..., None]
    ) -> None:
        self._source_id = source_id
        self._assigned = assigned
        self._revoked = revoked

    def assigned(self, queues: Iterable[Queue]) -> None:
        self._assigned(self._own(queues))

    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        self._revoked(self._own(queues), lost=lost)

    def _own(self, queues: Iterable[Queue]) -> list[Queue]:
        return [replace(queue, source=self._source_id) for queue in queues]


def check_memberships(plan: Plan) -> None:
    """Raise PlanError when two sources of a job would share the queues of a group: each would get a part of the records."""
    members: dict[str, str] = {}
    for source_id, node in plan.sources.items():
        for name in node.source.memberships() if isinstance(node.source, GroupSource) else ():
            other = members.setdefault(name, source_id)
            if other != source_id:
                raise PlanError(
                    f"the sources {other!r} and {source_id!r} are members of the same {name}: each of them would get only a part of the "
                    "records",
                    job=plan.job_name,
                    plugin=source_id,
                    option="group",
                    hint="leave out the group of one source, or give it another group; or read the source once, and use the stream twice",
                )


class Membership:
    """One source's group. Used by the engine's thread.

    It waits up to ``retry_seconds`` for a broker that is not available: until then only commits fail, and they are repeated later.
    """

    def __init__(self, source_id: str, source: GroupSource, clock: Clock, retry_seconds: float) -> None:
        self._source_id = source_id
        self._source = source
        self._retry_seconds = retry_seconds
        self._outages = Outages(clock)
        #: The names of the queues that existed when the instance started: all others are new.
        self.known_names = frozenset(queue.name for queue in source.queues())
        self._uncommitted: dict[Queue, ReadPosition] = {}
        self._begun = source.start is not LATEST

    @property
    def behind(self) -> bool:
        """Whether positions of processed records could not be committed yet."""
        return bool(self._uncommitted)

    def begin_at(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Commit the positions of a savepoint before the group is joined. Raises RetriableError when the broker does not accept them."""
        self._source.commit({queue: at for queue, at in positions.items() if queue.source == self._source_id})

    def join(self, listener: GroupListener) -> None:
        """Become a member. Raises RetriableError when the broker is away: call it again then."""
        self._source.join(listener)

    def begin(self, stored: Mapping[Queue, ReadPosition]) -> None:
        """If the group is new, commit where its queues begin, for all instances, before the first record is read.

        "Latest" is then one moment for all of them. Without this commit, records would be skipped that come before the first
        instance opens their queue. ``stored`` holds the positions of this instance's checkpoint. Called before a queue is begun; raises
        RetriableError when the broker is away, and is then called again.
        """
        if self._begun:
            return
        queues = [replace(queue, source=self._source_id) for queue in self._source.queues()]
        together: dict[str, list[Queue]] = {}
        for queue in queues:
            name = self._source.begins_with(queue)
            if name is not None:
                together.setdefault(name, []).append(queue)
        positions: dict[Queue, ReadPosition] = {}
        for some in together.values():
            if not self._any_committed(some):
                positions |= {queue: stored.get(queue) or self._latest(queue) for queue in some}
        if positions:
            self._source.commit(positions)
        self._begun = True

    def appeared(self, queue: Queue) -> bool:
        """Whether a queue without committed offset was created after the group had begun."""
        name = self._source.begins_with(queue)
        if queue.name not in self.known_names or name is None or self._source.start is not LATEST:
            return queue.name not in self.known_names
        return self._any_committed(other for other in self._source.queues() if self._source.begins_with(other) == name)

    def poll(self, wait: timedelta) -> None:
        """Let the membership do its work."""
        try:
            self._source.poll_group(wait)
        except RetriableError as error:
            self._is_away("does not answer", error)
        else:
            self._is_there("does not answer")

    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Commit the positions of queues to the broker; commits that fail are repeated with the next checkpoint."""
        self._uncommitted.update(positions)
        try:
            self._source.commit(self._uncommitted)
        except RetriableError as error:
            self._is_away("does not accept commits", error)
        else:
            self._is_there("does not accept commits")
            self._uncommitted.clear()

    def forget(self, queue: Queue) -> None:
        """The queue belongs to another instance: its uncommitted positions are dropped."""
        self._uncommitted.pop(queue, None)

    def leave(self) -> None:
        """Leave the group; if its broker is not available, the broker notices later that the member has gone."""
        try:
            self._source.leave()
        except RetriableError as error:
            logger.warning("source %s: while leaving the group: %s", self._source_id, error.message)

    def _any_committed(self, queues: Iterable[Queue]) -> bool:
        return any(self._source.committed(queue) is not None for queue in queues)

    def _latest(self, queue: Queue) -> ReadPosition:
        reader = self._source.open(queue, LATEST)
        try:
            return reader.position
        finally:
            reader.close()

    def _is_away(self, what: str, error: RetriableError) -> None:
        away = self._outages.goes_on(what)
        if away is None:
            away = 0.0
            logger.warning("source %s: %s; trying again", self._source_id, error.message)
        if away >= self._retry_seconds:
            raise JobFailedError(
                f"the broker {what} for {away:.0f} s: {error.message}",
                plugin=self._source_id,
                hint="repair the server and start the job again: it continues from the committed offsets",
            ) from error

    def _is_there(self, what: str) -> None:
        if self._outages.is_over(what):
            logger.info("source %s: the broker is available again", self._source_id)


def goes_on_in_groups(plan: Plan) -> bool:
    """Return whether consumer groups store the positions of everything that a job reads. Raises RetriableError when a broker is away."""
    for source_id, node in plan.sources.items():
        source = node.source
        if not isinstance(source, GroupSource):
            return False
        if not any(source.committed(replace(queue, source=source_id)) for queue in source.queues()):
            return False
    return True
