"""The client: one object for everything that a program does with a RocketMQ cluster."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta

from headrace_rocketmq.allocation import Allocation, averagely
from headrace_rocketmq.compression import Compression
from headrace_rocketmq.consumer import Consumer, QueuesListener, Start, StartPosition
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import ConfigurationError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.member import Member
from headrace_rocketmq.message import Message
from headrace_rocketmq.producer import Producer, SendResult
from headrace_rocketmq.reader import Reader, ReaderOptions
from headrace_rocketmq.remoting import parse_name_servers
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.session import Session, SessionSettings
from headrace_rocketmq.topics import Topics
from headrace_rocketmq.transport import Tls

_READER_GROUP = "headrace-reader"


class Client:
    """A client of a RocketMQ cluster, brokers 4.x and 5.x, over the remoting protocol. Thread safe.

        with Client("127.0.0.1:9876") as client:
            client.create_topic("greetings", queues=4)
            client.send("greetings", Message(b"hello", tag="polite"))
            with client.consumer("readers", "greetings") as consumer:
                for batch in consumer.poll(1000, timedelta(seconds=5)):
                    print(batch.queue, batch.offsets, batch.bodies)
                consumer.commit()

    Connects when first needed. Each call ends within the timeout (connecting may add to it) with a RocketMQError if it
    did not succeed; after temporary errors it tries again within that time. A client cannot be used after a fork: make one in each process.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        timeout: timedelta = timedelta(seconds=10),
        connect_timeout: timedelta = timedelta(seconds=5),
        client_id: str | None = None,
        address_map: Mapping[str, str] | None = None,
        compression: Compression | None = None,
        compress_over_bytes: int = 4096,
        batch_bytes_max: int = 1024 * 1024,
    ) -> None:
        """Connects to nothing yet.

        name_servers: "host:port", several separated by ";", or a list.
        timeout: for each call.
        client_id: identifies and sorts the members of a consumer group; default: a generated id.
        address_map: where to connect instead of to an address that a name server gives, for brokers in containers.
        compression: how `send` and `send_async` compress bodies of `compress_over_bytes` and more.
        batch_bytes_max: how much `send_many` puts into one request; must stay below the broker's maxMessageSize.

        Raises ConfigurationError.
        """
        for name, duration in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if duration <= timedelta(0):
                raise ConfigurationError(f"{name} is {duration}, but must be positive")
        self._client_id = client_id or f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(4)}"
        self._settings = SessionSettings(
            name_servers=parse_name_servers(name_servers),
            timeout_s=timeout.total_seconds(),
            connect_timeout_s=connect_timeout.total_seconds(),
            context=tls.context() if isinstance(tls, Tls) else tls,
            server_name=tls.server_name if isinstance(tls, Tls) else None,
            credentials=credentials,
            address_map=dict(address_map or {}),
        )
        self._session = Session(self._settings)
        self._routes, self._offsets = self._session.routes, self._session.offsets
        self._topics = Topics(self._session.remoting, self._routes)
        self._producer = Producer(
            self._session.remoting,
            self._routes,
            compression=compression,
            compress_over_bytes=compress_over_bytes,
            batch_bytes_max=batch_bytes_max,
        )
        self._lock = threading.Lock()  # guards _consumers_made
        self._consumers_made = 0

    # ------------------------------------------------------------------ sending

    def send(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Send one message and wait until it is stored; see Producer.send."""
        return self._producer.send(topic, message, queue=queue)

    def send_many(
        self, topic: str, messages: Iterable[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Send messages in batches, by far the fastest way; see Producer.send_many."""
        return self._producer.send_many(topic, messages, queue=queue)

    def send_to(self, messages: Mapping[MessageQueue, Sequence[Message]]) -> None:
        """Send messages to given queues, in parallel, and in order within each queue; see Producer.send_to."""
        self._producer.send_to(messages)

    def send_async(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> Future[SendResult]:
        """Send one message, wait later; see Producer.send_async."""
        return self._producer.send_async(topic, message, queue=queue)

    def send_one_way(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send one message that may be lost; see Producer.send_one_way."""
        self._producer.send_one_way(topic, message, queue=queue)

    def queue_for_key(self, topic: str, key: str) -> MessageQueue:
        """The queue of messages whose `queue_key` is `key`; see Producer.queue_for_key."""
        return self._producer.queue_for_key(topic, key)

    # ------------------------------------------------------------------ reading

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read now, sorted. Asks the name server each time."""
        return list(self._routes.get(topic, refresh=True).readable_queues)

    def reader(
        self,
        positions: Mapping[MessageQueue, int] | None = None,
        *,
        group: str = _READER_GROUP,
        message_filter: Filter | None = None,
        options: ReaderOptions | None = None,
    ) -> Reader:
        """A reader of given queues from given offsets on; more queues can be added later.

        Brokers keep statistics and rights by `group`; the reader neither joins it nor commits for it.
        """
        reader = Reader(
            self._session.remoting,
            self._routes,
            group,
            message_filter or Filter.everything(),
            options or ReaderOptions(),
        )
        for queue, offset in (positions or {}).items():
            reader.add(queue, offset)
        return reader

    def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        message_filter: Filter | None = None,
        start: StartPosition = Start.EARLIEST,
        exclusive: bool = False,
        allocation: Allocation = averagely,
        on_assigned: QueuesListener | None = None,
        on_revoked: QueuesListener | None = None,
        options: ReaderOptions | None = None,
    ) -> Consumer:
        """Join a consumer group, to read a share of the topics' queues; see Consumer.

        All members of a group must use the same topics, filter and allocation. `start` is where to begin in queues without
        committed offset of the group. `exclusive` takes the broker's lock for each queue: no two members ever read the same
        queue, but the queues of a member that dies without leaving stay unread for up to 60 s. Raises TopicNotFoundError,
        ConnectionFailedError, PermissionDeniedError, NotAMemberError and the like.
        """
        names = _topic_names(group, topics)
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ConfigurationError(f"group {group}: the start time needs a time zone")
        return Consumer.join(
            Session(self._settings),
            group=group,
            client_id=self._next_member_id(),
            topics=names,
            message_filter=message_filter or Filter.everything(),
            start=start,
            is_exclusive=exclusive,
            allocation=allocation,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            options=options or ReaderOptions(),
        )

    def member(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        message_filter: Filter | None = None,
        exclusive: bool = False,
        allocation: Allocation = averagely,
    ) -> Member:
        """Join a consumer group to learn which queues are assigned to this member, and read them in your own way; see Member.

        The group, `exclusive` and errors are as for `consumer`.
        """
        return Member.join(
            Session(self._settings),
            group=group,
            client_id=self._next_member_id(),
            topics=_topic_names(group, topics),
            message_filter=message_filter or Filter.everything(),
            is_exclusive=exclusive,
            allocation=allocation,
        )

    # ------------------------------------------------------------------ offsets

    def earliest_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The smallest offset that each queue still has."""
        return self._offsets.earliest(queues)

    def latest_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset of the next message of each queue."""
        return self._offsets.latest(queues)

    def offsets_at(self, queues: Iterable[MessageQueue], moment: datetime) -> dict[MessageQueue, int]:
        """The offset of each queue's first message stored at that moment or later; see Offsets.at_time."""
        return self._offsets.at_time(queues, moment)

    def committed_offsets(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """What a group has committed for each queue; None for nothing; see Offsets.committed."""
        return self._offsets.committed(group, queues)

    def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group, as a member or not; see Offsets.commit."""
        self._offsets.commit(group, offsets)

    # ------------------------------------------------------------------ topics

    def topics(self) -> list[str]:
        """The names of all topics that the name server knows; see Topics.names."""
        return self._topics.names()

    def create_topic(
        self,
        topic: str,
        queues: int,
        *,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> list[MessageQueue]:
        """Make a topic, or change its number of queues on each broker; see Topics.create."""
        return self._topics.create(topic, queues, brokers=brokers, cluster=cluster, attributes=attributes)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and its messages; see Topics.delete."""
        self._topics.delete(topic)

    def create_group(self, group: str, *, cluster: str | None = None) -> None:
        """Make a consumer group on brokers that do not make groups by themselves."""
        self._topics.create_group(group, cluster=cluster)

    def brokers(self, cluster: str | None = None) -> dict[str, str]:
        """The addresses of all master brokers, by name; see Topics.masters."""
        return self._topics.masters(cluster)

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Close the connections; calls in progress fail. Consumers have their own connections and must be closed separately."""
        self._session.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({';'.join(self._settings.name_servers)!r})"

    def _next_member_id(self) -> str:
        with self._lock:
            self._consumers_made += 1
            return f"{self._client_id}-{self._consumers_made}"


def _topic_names(group: str, topics: str | Sequence[str]) -> list[str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise ConfigurationError(f"group {group}: no topic to consume")
    return names
