"""Which brokers have a topic's queues: read from name servers, cached and refreshed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace_rocketmq import fastjson
from headrace_rocketmq.codes import MASTER_BROKER_ID, RequestCode, ResponseCode, TopicPermission
from headrace_rocketmq.errors import ConnectionFailedError, ProtocolError, RocketMQError
from headrace_rocketmq.remoting import Remoting

logger = logging.getLogger("headrace_rocketmq")

_REFRESH_INTERVAL_MIN_S = 0.5
_REFRESH_TIMEOUT_S = 1.0


#: The largest number of queues of one topic that is accepted: each of them takes memory here.
_QUEUES_MAX = 200_000


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic: an ordered sequence of messages with growing offsets, on one broker.

    Sorted by topic, broker name and number, because all clients of a group must use the same order to compute the same assignment.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many queues of a topic one broker has."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True, slots=True)
class Route:
    """The brokers of a topic. Routes with the same content are equal."""

    topic: str
    counts: tuple[QueueCounts, ...]
    """Sorted by broker name."""
    addresses: Mapping[str, Mapping[int, str]]
    """By broker name, then by broker id; id 0 is the master. Sorted by both."""
    readable_queues: tuple[MessageQueue, ...] = field(init=False)
    """The queues that can be read, sorted."""
    writable_queues: tuple[MessageQueue, ...] = field(init=False)
    """The queues that can be written, sorted: those whose broker has a master."""

    def __post_init__(self) -> None:
        readable, writable = [], []
        for entry in self.counts:
            present = self.addresses.get(entry.broker_name, {})
            if entry.permission & TopicPermission.READ and present:
                readable += [MessageQueue(self.topic, entry.broker_name, number) for number in range(entry.read_queues)]
            if entry.permission & TopicPermission.WRITE and MASTER_BROKER_ID in present:
                writable += [
                    MessageQueue(self.topic, entry.broker_name, number) for number in range(entry.write_queues)
                ]
        object.__setattr__(self, "readable_queues", tuple(readable))
        object.__setattr__(self, "writable_queues", tuple(writable))

    @classmethod
    def parse(cls, topic: str, body: bytes) -> Route:
        """The route in a name server's answer. Raises ProtocolError."""
        try:
            data = fastjson.loads(body)
            counts = [
                QueueCounts(
                    broker_name=entry["brokerName"],
                    read_queues=int(entry["readQueueNums"]),
                    write_queues=int(entry["writeQueueNums"]),
                    permission=int(entry["perm"]),
                )
                for entry in data.get("queueDatas") or ()
            ]
            addresses = {
                entry["brokerName"]: {int(id_): address for id_, address in sorted(entry["brokerAddrs"].items())}
                for entry in data.get("brokerDatas") or ()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the route of topic {topic!r} cannot be read: {error!r}") from error
        total = sum(max(0, each.read_queues) + max(0, each.write_queues) for each in counts)
        if total > _QUEUES_MAX:
            raise ProtocolError(f"the route of topic {topic!r} names {total:,} queues, more than {_QUEUES_MAX:,}")
        counts.sort(key=lambda entry: entry.broker_name)
        return cls(topic, tuple(counts), dict(sorted(addresses.items())))

    def masters(self) -> list[str]:
        """The addresses of the topic's masters, sorted by broker name."""
        return [present[MASTER_BROKER_ID] for present in self.addresses.values() if MASTER_BROKER_ID in present]

    def all_addresses(self) -> list[str]:
        """The addresses of all brokers, slaves too, sorted by broker name and id."""
        return [address for present in self.addresses.values() for address in present.values()]


class RouteTable:
    """Routes of the topics that a client deals with. Thread safe."""

    def __init__(self, remoting: Remoting) -> None:
        self._remoting = remoting
        self._lock = threading.Lock()
        self._routes: dict[str, Route] = {}
        self._refresh_at: dict[str, float] = {}

    def get(self, topic: str, *, refresh: bool = False, timeout_s: float | None = None) -> Route:
        """The route of a topic, from the cache unless `refresh`.

        A name server forgets a topic while its only broker is down. So a known topic stays known here, until its broker itself
        says that it does not exist (`forget`). Raises TopicNotFoundError, ConnectionFailedError, RequestTimeoutError.
        """
        with self._lock:
            route = self._routes.get(topic)
        if route is not None and not refresh:
            return route
        # Name servers from 4.9.4 on then answer in standard JSON; older ones do not know the field.
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        accept = (ResponseCode.SUCCESS,) if route is None else (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        frame = self._remoting.call_name_server(
            RequestCode.GET_ROUTE_BY_TOPIC, fields, timeout_s=timeout_s, accept=accept, topic=topic
        )
        if frame.code == ResponseCode.SUCCESS:
            route = Route.parse(topic, frame.body)
        assert route is not None  # else the answer was not accepted
        with self._lock:
            if self._routes.get(topic) != route:
                logger.info("route of %s: %s on %s", topic, route.counts, route.addresses)
            self._routes[topic] = route
        return route

    def forget(self, topic: str) -> None:
        """Drop a topic; called when it was deleted, or when its broker says that it has no such topic."""
        with self._lock:
            self._routes.pop(topic, None)
            self._refresh_at.pop(topic, None)

    def refresh_all(self) -> None:
        """Refresh the cached routes; called every 30 s by the client's housekeeping. Failures leave the old routes."""
        with self._lock:
            topics = list(self._routes)
        for topic in topics:
            self.refresh(topic)

    def master_address(self, queue: MessageQueue) -> str:
        """The address of the master that holds a queue. Raises ConnectionFailedError if there is none now."""
        return self.address(queue, MASTER_BROKER_ID, allow_others=False)

    def address(self, queue: MessageQueue, broker_id: int, *, allow_others: bool = True) -> str:
        """The address of a queue's broker with that id, else, where allowed, of the master or any slave.

        Asks the name servers first if there is no connection to the queue's last address: another machine may have it now.
        Raises ConnectionFailedError if there is no such broker, and what `get` raises.
        """
        address = _pick(self.get(queue.topic).addresses.get(queue.broker_name, {}), broker_id, allow_others)
        if address is None or self._remoting.pool.is_troubled(address):
            self._refresh_if_due(queue.topic)
            address = _pick(self.get(queue.topic).addresses.get(queue.broker_name, {}), broker_id, allow_others)
        if address is None:
            raise ConnectionFailedError(
                f"broker {queue.broker_name}",
                f"no name server knows it for topic {queue.topic!r}: check that the broker is running",
            )
        return address

    def _refresh_if_due(self, topic: str) -> None:
        now = self._remoting.clock()
        with self._lock:
            if now < self._refresh_at.get(topic, float("-inf")):
                return
            self._refresh_at[topic] = now + _REFRESH_INTERVAL_MIN_S
        self.refresh(topic)

    def refresh(self, topic: str) -> None:
        """Ask for a topic's route. A failure leaves the old route and is logged."""
        try:
            self.get(topic, refresh=True, timeout_s=_REFRESH_TIMEOUT_S)
        except RocketMQError as error:
            logger.warning("the route of topic %s was not refreshed: %s", topic, error)


def _pick(addresses: Mapping[int, str], broker_id: int, allow_others: bool) -> str | None:
    if broker_id in addresses or not allow_others:
        return addresses.get(broker_id)
    return addresses.get(MASTER_BROKER_ID) or next(iter(addresses.values()), None)


def addresses_of(routes: Collection[Route]) -> list[str]:
    """All broker addresses in some routes, each once, sorted."""
    return sorted({address for route in routes for address in route.all_addresses()})
