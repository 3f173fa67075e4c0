"""Membership in a consumer group: heartbeats, the list of members, and the queues of this member.

The broker knows the members by their heartbeats and informs all of them (request 40) when one joins or leaves, which it
notices at once when a connection ends, and after 120 s of silence otherwise. Each member then asks for the list and
computes its share (allocation). Since the members do so at slightly different moments, two may read one queue for a moment;
exclusive membership prevents this with the broker's queue locks.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from headrace.foundation.retrying import Backoff

from headrace_rocketmq import fastjson
from headrace_rocketmq.allocation import Allocation
from headrace_rocketmq.codes import RequestCode, ResponseCode
from headrace_rocketmq.connection import Connection
from headrace_rocketmq.errors import NotAMemberError, ProtocolError, RocketMQError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.locks import RENEW_INTERVAL_S, RETRY_INTERVAL_S, QueueLocks
from headrace_rocketmq.remoting import Remoting, check_answer
from headrace_rocketmq.routes import MessageQueue, Route, RouteTable, addresses_of

logger = logging.getLogger("headrace_rocketmq")

HEARTBEAT_INTERVAL_S = 30.0
REBALANCE_INTERVAL_S = 20.0
"""How often to check without a notification, in case one was lost or a route changed."""
_REGISTER_RETRY_INTERVAL_S = 2.0
_SETTLE_S = 5.0
"""After a broker restarted, how long to wait for the other members before a new assignment."""


class Membership:
    """One member of a group. Its thread sends the heartbeats and computes `target`; it takes and gives up no queues.

    The user compares `target` with its queues, gives up and takes queues, and reports that; see Consumer.
    """

    def __init__(
        self,
        remoting: Remoting,
        routes: RouteTable,
        *,
        group: str,
        client_id: str,
        filters: Mapping[str, Filter],
        allocation: Allocation,
        locks: QueueLocks | None,
    ) -> None:
        """`filters` by topic. With `locks`, a queue belongs to this member only while it has the lock."""
        self._remoting = remoting
        self._routes = routes
        self._group = group
        self.client_id = client_id
        """The id of this member for the broker and the other members."""
        self._filters = dict(filters)
        self._allocation = allocation
        self._locks = locks
        self._wake = threading.Event()
        self._closed = threading.Event()
        self.on_changed: Callable[[], None] = lambda: None
        """Called when `target` changed or would raise, in the thread of the membership; set by the user."""
        self._lock = threading.Lock()  # guards _target, _claimed and _error
        self._target: frozenset[MessageQueue] = frozenset()
        self._claimed: set[MessageQueue] = set()
        self._error: RocketMQError | None = None
        # The registration ends with its connection; so the connection counts, not the address.
        self._registered: dict[str, Connection] = {}
        self._backoff = Backoff(first_seconds=0.2, seconds_max=5.0, monotonic=remoting.clock, jitter=random.random)
        self._rebalance_wanted = True
        self._settled_at = float("-inf")
        self._heartbeat_at = self._rebalance_at = self._locks_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"rocketmq-group-{group}", daemon=True)

    def start(self) -> None:
        """Join: register at the brokers and compute the first target, within the client's timeout; then stay a member.

        Raises TopicNotFoundError, ConnectionFailedError, PermissionDeniedError, NotAMemberError and the like.
        """
        self._remoting.pool.on_request(self._on_request)
        self._remoting.pool.on_lost(self._on_lost)
        try:
            self._remoting.retrying(lambda _seconds: self._step())
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def target(self) -> frozenset[MessageQueue]:
        """The queues that this member should hold now.

        Raises the error that stops the thread's work, such as PermissionDeniedError; the thread tries again nevertheless.
        """
        with self._lock:
            error, self._error = self._error, None
            target = self._target
        if error is not None:
            raise error
        return target if self._locks is None else target & self._locks.held()

    def claim(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Claim queues; returns those that may be taken. Each of them must be released later."""
        with self._lock:
            granted = self._target if self._locks is None else self._target & self._locks.held()
            claimed = [queue for queue in queues if queue in granted]
            self._claimed.update(claimed)
        return claimed

    def release(self, queues: Collection[MessageQueue]) -> None:
        """Say that queues were given up, their offsets being committed, so that another member may take them."""
        with self._lock:
            self._claimed.difference_update(queues)
            unwanted = [queue for queue in queues if queue not in self._target]
        if self._locks is not None:
            self._locks.release(unwanted)

    def close(self) -> None:
        """Leave the group, so that the others take over at once. Failures are logged."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wake.set()
        self._remoting.pool.forget(self._on_request, self._on_lost)
        if self._thread.is_alive():
            self._thread.join(self._remoting.timeout_s)
        if self._locks is not None:
            self._locks.release(self._locks.held())
        self._unregister()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(self._pause_s())
            if self._closed.is_set():
                return
            self._wake.clear()
            try:
                self._step()
                self._backoff.succeeded()
            except RocketMQError as error:
                self._backoff.failed()
                logger.warning("group %s: %s", self._group, error)
                if not error.retriable:
                    with self._lock:
                        self._error = error
                    self.on_changed()
            except Exception:  # the thread must continue, or the group would count a member that does not read
                self._backoff.failed()
                logger.exception("group %s: internal error", self._group)

    def _pause_s(self) -> float:
        if (backoff_s := self._backoff.remaining_seconds()) > 0:
            return backoff_s
        due = [self._heartbeat_at, self._rebalance_at]
        if self._rebalance_wanted:
            due.append(self._settled_at)
        if self._locks is not None:
            due.append(self._locks_at)
        return max(0.0, min(due) - self._remoting.clock())

    def _step(self) -> None:
        clock = self._remoting.clock
        routes = [self._routes.get(topic) for topic in self._filters]
        self._register(routes)
        if clock() >= self._rebalance_at or (self._rebalance_wanted and clock() >= self._settled_at):
            self._rebalance_wanted = False
            try:
                self._rebalance()
            except RocketMQError:
                self._rebalance_wanted = True
                raise
            self._rebalance_at = clock() + REBALANCE_INTERVAL_S
        if self._locks is not None and clock() >= self._locks_at:
            self._take_locks(self._locks)

    def _register(self, routes: Sequence[Route]) -> None:
        """Heartbeat to all brokers when that is due, and always to those that do not know our present connection."""
        clock = self._remoting.clock
        is_due = clock() >= self._heartbeat_at
        failures: list[RocketMQError] = []
        addresses = addresses_of(routes)
        for address in addresses:
            try:
                connection = self._remoting.pool.get(address)
                before = self._registered.get(address)
                if is_due or before is not connection:
                    self._send_heartbeat(connection)
                    self._registered[address] = connection
                    if before is not connection:
                        self._rebalance_wanted = True
                        self._settled_at = clock() + (0.0 if before is None else _SETTLE_S)
            except RocketMQError as error:
                failures.append(error)
        if len(failures) == len(addresses) and failures:
            raise failures[0]
        for failure in failures:  # some brokers are down: continue with the others, try these again soon
            logger.warning("group %s: %s", self._group, failure)
        if is_due or failures:
            self._heartbeat_at = clock() + (_REGISTER_RETRY_INTERVAL_S if failures else HEARTBEAT_INTERVAL_S)

    def _send_heartbeat(self, connection: Connection) -> None:
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [each.subscription(topic) for topic, each in self._filters.items()],
        }
        body = json.dumps({"clientID": self.client_id, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
        frame = connection.call(RequestCode.HEART_BEAT, body=body, timeout_s=self._remoting.timeout_s)
        check_answer(frame, address=connection.address, operation=f"heartbeat of group {self._group}")

    def _unregister(self) -> None:
        fields = {"clientID": self.client_id, "consumerGroup": self._group}
        for connection in self._registered.values():
            if connection.is_open:
                try:
                    connection.call(RequestCode.UNREGISTER_CLIENT, fields, timeout_s=self._remoting.timeout_s)
                except RocketMQError as error:
                    logger.warning("group %s: not unregistered: %s", self._group, error)

    def _on_request(self, _connection: Connection, frame: Frame) -> None:
        if frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and frame.fields.get("consumerGroup") == self._group:
            self._rebalance_wanted = True
            self._wake.set()

    def _on_lost(self, address: str) -> None:
        if address in self._registered:
            self._wake.set()

    def _rebalance(self) -> None:
        target: set[MessageQueue] = set()
        for topic in self._filters:
            self._routes.refresh(topic)  # members that see different queues would compute different assignments
            route = self._routes.get(topic)
            members = self._members(route)
            if self.client_id not in members:
                self._registered.clear()
                raise NotAMemberError(self._group, self.client_id)
            target.update(self._allocation(self.client_id, route.readable_queues, members))
        with self._lock:
            changed = target != self._target
            self._target = frozenset(target)
        if changed:
            self._locks_at = float("-inf")
            self.on_changed()

    def _members(self, route: Route) -> list[str]:
        # All members must use the same list; so ask the first broker that answers, in the same order in all members.
        failure: RocketMQError | None = None
        for address in route.all_addresses():
            try:
                frame = self._remoting.pool.get(address).call(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                    {"consumerGroup": self._group},
                    timeout_s=self._remoting.timeout_s,
                )
            except RocketMQError as error:
                failure = error
                continue
            if frame.code == ResponseCode.SYSTEM_ERROR:
                return []  # so brokers say that there is no member at all
            check_answer(frame, address=address, operation=f"list the members of group {self._group}")
            return _parse_members(frame.body)
        if failure is not None:
            raise failure
        return []

    def _take_locks(self, locks: QueueLocks) -> None:
        before = locks.held()
        with self._lock:
            wanted = self._target
            # Locks from before the target changed, which were not claimed since.
            unwanted = before - wanted - self._claimed
        locks.release(unwanted)
        granted = locks.take(wanted)
        if locks.held() != before - unwanted:
            self.on_changed()
        self._locks_at = self._remoting.clock() + (RENEW_INTERVAL_S if granted >= wanted else RETRY_INTERVAL_S)


def _parse_members(body: bytes) -> list[str]:
    try:
        return sorted(fastjson.loads(body)["consumerIdList"])
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"the broker's list of members cannot be read: {body[:200]!r}") from error
