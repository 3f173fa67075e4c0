"""Topics that a runtime of several instances creates on the source's cluster: for shuffles and state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from headrace.flow.messages import Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace.interfaces.topics import Topics

from headrace_rocketmq.client import Client
from headrace_rocketmq.errors import PermissionDeniedError, RocketMQError, TopicNotFoundError
from headrace_rocketmq.job_errors import as_job_error, explained
from headrace_rocketmq.message import Message
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.settings import PLUGIN, RocketMQSourceSettings, make_client

if TYPE_CHECKING:
    from headrace_rocketmq.source import RocketMQSource

logger = logging.getLogger(__name__)


class RocketMQTopics(Topics):
    """Topics on one master broker of a source's cluster, with the source's connection options.

    A record is durable as the broker is configured: ``flushDiskType=SYNC_FLUSH`` waits for the disk, and a replica for
    another machine. The broker forgets records by its own retention (``fileReservedTime``, 72 hours unless it says
    otherwise), read or not. When an answer was lost, everything since the last successful ``flush`` is sent again; a late
    request may even be stored after that.
    """

    #: Brokers refuse bodies of more than maxMessageSize, 4 MiB by default.
    max_record_bytes = 3_500_000

    def __init__(self, settings: RocketMQSourceSettings) -> None:
        self._settings = settings
        self._client: Client | None = None
        #: The broker of each topic that was created or looked up.
        self._brokers: dict[str, str] = {}
        #: The records that are not known to be stored, in order.
        self._waiting: dict[tuple[str, int], list[Message]] = {}

    def create(self, topic: str, queues: int) -> None:
        client, settings = self._connected(), self._about(topic)
        with explained(settings, client):
            try:
                found = client.queues(topic)
            except TopicNotFoundError:
                client.create_topic(topic, queues, brokers=[self._broker(client)])
                found = client.queues(topic)
        brokers = sorted({queue.broker_name for queue in found})
        if len(found) != queues or len(brokers) != 1:
            raise JobError(
                f"topic {topic!r} has {len(found)} queues on {', '.join(brokers) or 'no broker'}, not {queues} on one",
                plugin=PLUGIN,
                hint="the number of shards of a job is fixed: use the previous number, or give the job another name",
            )
        self._brokers[topic] = brokers[0]

    def append(self, topic: str, queue: int, bodies: Sequence[bytes]) -> None:
        largest = max(map(len, bodies), default=0)
        if largest > self.max_record_bytes:
            raise JobError(
                f"a record of {largest} bytes is larger than max_record_bytes ({self.max_record_bytes})",
                plugin=PLUGIN,
                queue=f"{topic}/{queue}",
            )
        self._waiting.setdefault((topic, queue), []).extend(map(Message, bodies))

    def flush(self) -> None:
        waiting = {place: messages for place, messages in self._waiting.items() if messages}
        if not waiting:
            return
        topic = ", ".join(sorted({topic for topic, _ in waiting}))
        try:
            self._connected().send_to(
                {
                    MessageQueue(topic, self._broker_of(topic), number): messages
                    for (topic, number), messages in waiting.items()
                }
            )
        except TopicNotFoundError as error:
            # It existed after its creation. A name server forgets a topic while its only broker is down.
            raise RetriableError(f"{error} (name servers {self._settings.name_servers})", plugin=PLUGIN) from error
        except RocketMQError as error:
            found = as_job_error(error, self._about(topic))
            if isinstance(found, DataError):
                raise JobError(
                    f"the broker refuses a record: {found.message}",
                    plugin=PLUGIN,
                    hint="the broker's maxMessageSize has to be its default, 4 MiB, or more; bodies must not be empty",
                ) from error
            raise found from error
        self._waiting = {}

    def source(self, topic: str, group: str) -> RocketMQSource:
        """See Topics. The group is created, too, because some brokers do not create groups by themselves. Raises RetriableError."""
        from headrace_rocketmq.source import RocketMQSource

        with explained(self._about(topic)):
            try:
                self._connected().create_group(group)
            except PermissionDeniedError as error:  # it may exist, or the broker creates it
                logger.info("group %s could not be created in advance: %s", group, error)
        source = RocketMQSource(
            msgspec.structs.replace(
                self._about(topic), group=group, offsets=None, tags=None, sql=None, deduplicate=False, time="stored"
            )
        )
        source.start = EARLIEST
        return source

    def number_of(self, queue: Queue) -> int:
        return int(queue.name.rpartition("/")[2])

    def close(self) -> None:
        try:
            self.flush()
        except HeadraceError as error:
            count = sum(map(len, self._waiting.values()))
            logger.warning("%d records may be lost: %s", count, error.message)
        self._waiting = {}
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        if self._client is None:
            with explained(self._settings):
                self._client = make_client(self._settings)
        return self._client

    def _about(self, topic: str) -> RocketMQSourceSettings:
        """Return the settings as an error about a topic shows them."""
        return msgspec.structs.replace(self._settings, topic=topic)

    def _broker(self, client: Client) -> str:
        """Return the broker of new topics: always the same one, whichever of the others are running."""
        masters, wanted = sorted(client.brokers()), self._settings.topics_broker
        if wanted is None:
            if len(masters) == 1:
                return masters[0]
            raise JobError(
                "shuffles and state are kept on one broker, and the cluster has several: name one",
                plugin=PLUGIN,
                option="topics_broker",
                hint=f"topics_broker={masters[0]!r} (there are {', '.join(masters)}); do not change it later",
            )
        if wanted not in masters:
            raise RetriableError(
                f"there is no master broker {wanted!r} now, but {', '.join(masters)}",
                plugin=PLUGIN,
                option="topics_broker",
            )
        return wanted

    def _broker_of(self, topic: str) -> str:
        """Return the broker of a topic, which this object need not have created."""
        if topic not in self._brokers:
            self._brokers[topic] = self._connected().queues(topic)[0].broker_name
        return self._brokers[topic]
