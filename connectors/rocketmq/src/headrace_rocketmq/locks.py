"""Locks of queues on their brokers, so that never two members of a group read one queue.

A broker gives a lock to the first member that asks, and drops it 60 s after the last renewal, or when it restarts.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from headrace_rocketmq import fastjson
from headrace_rocketmq.codes import RequestCode
from headrace_rocketmq.errors import ProtocolError, RocketMQError
from headrace_rocketmq.remoting import Remoting, check_answer
from headrace_rocketmq.routes import MessageQueue, RouteTable

logger = logging.getLogger("headrace_rocketmq")

RENEW_INTERVAL_S = 20.0
RETRY_INTERVAL_S = 1.0
"""How often to ask again for locks that another member still has."""
_LIFETIME_S = 55.0
"""How long a lock counts as held after the request: less than the broker's 60 s."""


class QueueLocks:
    """The locks that one member of a group has. Thread safe."""

    def __init__(self, remoting: Remoting, routes: RouteTable, group: str, client_id: str) -> None:
        self._remoting = remoting
        self._routes = routes
        self._group = group
        self._client_id = client_id
        self._lock = threading.Lock()
        self._relied_on_until: dict[MessageQueue, float] = {}

    def held(self) -> frozenset[MessageQueue]:
        """The queues whose locks this member certainly has now."""
        now = self._remoting.clock()
        with self._lock:
            return frozenset(queue for queue, until in self._relied_on_until.items() if now < until)

    def take(self, wanted: Collection[MessageQueue]) -> AbstractSet[MessageQueue]:
        """Ask for the locks of queues, or renew them; gives those that we have now.

        A broker that does not answer leaves its locks as they were.
        """
        granted: set[MessageQueue] = set()
        for address, queues in self._by_broker(wanted).items():
            asked_at = self._remoting.clock()
            try:
                body = self._ask(address, RequestCode.LOCK_QUEUES, queues)
                given = _parse(body)
            except RocketMQError as error:
                logger.warning("group %s: locks not renewed: %s", self._group, error)
                continue
            granted |= given
            with self._lock:
                for queue in queues:
                    if queue in given:
                        self._relied_on_until[queue] = asked_at + _LIFETIME_S
                    elif self._relied_on_until.pop(queue, None) is not None:
                        logger.warning("group %s: the lock of %s was lost", self._group, queue)
        return granted

    def release(self, queues: Collection[MessageQueue]) -> None:
        """Release the locks of queues, if this member has them. A failure is logged: the broker drops them in a minute."""
        with self._lock:
            released = [queue for queue in queues if self._relied_on_until.pop(queue, None) is not None]
        for address, part in self._by_broker(released).items():
            try:
                self._ask(address, RequestCode.UNLOCK_QUEUES, part)
            except RocketMQError as error:
                logger.warning("group %s: %s not unlocked: %s", self._group, ", ".join(map(str, part)), error)

    def _ask(self, address: str, code: RequestCode, queues: Iterable[MessageQueue]) -> bytes:
        entries = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues
        ]
        body = json.dumps({"consumerGroup": self._group, "clientId": self._client_id, "mqSet": entries}).encode()
        frame = self._remoting.pool.get(address).call(code, body=body, timeout_s=self._remoting.timeout_s)
        operation = f"{code.name.lower().replace('_', ' ')} of group {self._group}"
        return check_answer(frame, address=address, operation=operation).body

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            try:
                by_broker[self._routes.master_address(queue)].append(queue)
            except RocketMQError as error:
                logger.warning("group %s: lock of %s: %s", self._group, queue, error)
        return by_broker


def _parse(body: bytes) -> set[MessageQueue]:
    try:
        return {
            MessageQueue(entry["topic"], entry["brokerName"], int(entry["queueId"]))
            for entry in fastjson.loads(body)["lockOKMQSet"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the broker's answer to a lock cannot be read: {body[:200]!r}") from error
