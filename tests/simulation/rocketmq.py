"""A simulated RocketMQ: a name server and a broker that speak the remoting protocol, behind connections of the world.

The broker acknowledges a message a moment before it can be read; commits of groups are written every five seconds, and a broker that goes
away has forgotten those since; it forgets members with their connections, and locks of queues.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace_rocketmq.codes import FrameFlag, PullFlag, RequestCode, ResponseCode
from headrace_rocketmq.deduplication import SeenRows
from headrace_rocketmq.frame import Frame, FrameReader, encode_frame
from headrace_rocketmq.message import decode_properties

from tests.simulation.world.network import Connected, Network, NetworkServer
from tests.simulation.world.scheduler import BEGIN_US, World

ADDRESS = ("mq", 10911)
NAME_SERVER = ("mq", 9876)
_BROKER = "b"
_COMMITS_US = 5_000_000
_LOCK_US = 60_000_000
#: A message can be read so long after it was acknowledged, at most.
_INDEXED_US = 20_000
_STORED = struct.Struct(">ii4x4xiq8xiq8xq8xi8xi")
_ENTRY = struct.Struct(">iIIii")
_MAGIC = -626843481
_SUCCESS = int(ResponseCode.SUCCESS)


@dataclass
class _Message:
    body: bytes
    properties: bytes
    stored_us: int
    readable_us: int


@dataclass
class _Queue:
    messages: list[_Message] = field(default_factory=list)
    #: Pulls that are held until something comes: the connection, the frame, and until when.
    held: list[tuple[Connected, Frame, int]] = field(default_factory=list)


@dataclass
class _Group:
    #: By client id: the connection whose heartbeat has said so.
    members: dict[str, Connected] = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    locks: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)


class RocketMQ(NetworkServer):
    """Name server and broker. ``tick`` must be called now and then, by a process beside the jobs."""

    def __init__(self, world: World, name: str, network: Network) -> None:
        super().__init__(world, name)
        self.topics: dict[str, list[_Queue]] = {}
        self._groups: dict[str, _Group] = {}
        self._readers: dict[Connected, FrameReader] = {}
        self._was_away = False
        self._written_us = 0
        network.servers[ADDRESS] = network.servers[NAME_SERVER] = self
        self._answers: Mapping[int, Callable[[Connected, Frame], None]] = {
            RequestCode.GET_ROUTE_BY_TOPIC: self._route, RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.CREATE_TOPIC: self._create, RequestCode.CREATE_SUBSCRIPTION_GROUP: self._nothing,
            RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER: self._names, RequestCode.SEND_MESSAGE_V2: self._sent,
            RequestCode.SEND_BATCH_MESSAGE: self._sent, RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed, RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_MAX_OFFSET: self._bound, RequestCode.GET_MIN_OFFSET: self._bound,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search, RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister, RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.LOCK_QUEUES: self._lock, RequestCode.UNLOCK_QUEUES: self._unlock,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------------- from outside

    def add_queue(self, topic: str) -> None:
        self.topics.setdefault(topic, []).append(_Queue())

    def put(self, topic: str, queue: int, body: bytes) -> None:
        """Store a message, as a producer beside the job whose calls do not fail."""
        self._store(topic, queue, body, b"")

    def tick(self) -> None:
        """Notice what has happened: processes that have ended, an outage, pulls that were held for too long."""
        self.notice()
        if self.is_away and not self._was_away:
            self._restart()
        self._was_away = self.is_away
        if not self.is_away and self.world.us - self._written_us > _COMMITS_US:
            self._written_us = self.world.us
            for group in self._groups.values():
                group.written = dict(group.commits)
        for topic, queues in self.topics.items():
            for number in range(len(queues)):
                self._serve_held(topic, number)

    def expel(self, chosen: Callable[[Connected], bool]) -> None:
        """Break connections of which a member is known, as a network between does that forgets them."""
        for group in self._groups.values():
            for connection in list(group.members.values()):
                if chosen(connection):
                    connection.end(ConnectionResetError(104, "Connection reset by peer"))

    def bodies(self, topic: str) -> list[bytes]:
        """Return what a reader that leaves out repetitions gets of a topic."""
        found: list[bytes] = []
        for queue in self.topics.get(topic, ()):
            seen = SeenRows()
            keys = [decode_properties(each.properties).get("KEYS") for each in queue.messages]
            if keys:
                fresh = seen.fresh(keys)
                found += [each.body for each, new in zip(queue.messages, fresh.tolist(), strict=True) if new]
        return found

    def _restart(self) -> None:
        self.world.trace.add(self.world.us, self.name, "restarts", "")
        for group in self._groups.values():
            group.members.clear()
            group.locks.clear()
            group.commits = dict(group.written)

    # ---------------------------------------------------------------------------------------------------- the wire

    def received(self, connection: Connected, data: bytes) -> None:
        for frame in self._readers.setdefault(connection, FrameReader()).feed(data):
            answer = self._answers.get(frame.code)
            assert answer is not None, f"not a request that the simulated broker knows: {frame.code}"
            self.world.trace.add(self.world.us, connection.process.name, "asks", _shown(frame))
            answer(connection, frame)

    def lost(self, connection: Connected) -> None:
        self._readers.pop(connection, None)
        for name, group in self._groups.items():
            gone = [member for member, at in group.members.items() if at is connection]
            for member in gone:
                del group.members[member]
            if gone:
                self._tell(name)
        for queues in self.topics.values():
            for queue in queues:
                queue.held = [each for each in queue.held if each[0] is not connection]

    def _reply(
        self, connection: Connected, frame: Frame, code: int = _SUCCESS, fields: Mapping[str, str] | None = None,
        body: bytes = b"", remark: str | None = None,
    ) -> None:  # fmt: skip
        if not frame.is_one_way:
            connection.send(
                encode_frame(code, frame.opaque, fields or {}, body, flag=int(FrameFlag.RESPONSE), remark=remark)
            )

    def _tell(self, group: str) -> None:
        """Tell all members of a group that it has changed."""
        told = encode_frame(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0, {"consumerGroup": group}, flag=int(FrameFlag.ONE_WAY)
        )
        for each in self._groups[group].members.values():
            each.send(told)

    def _nothing(self, connection: Connected, frame: Frame) -> None:
        self._reply(connection, frame)

    def _group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    # ------------------------------------------------------------------------------------------------------ topics

    def _route(self, connection: Connected, frame: Frame) -> None:
        topic = frame.fields["topic"]
        if topic not in self.topics:
            self._reply(connection, frame, ResponseCode.TOPIC_NOT_EXIST, remark=f"no topic {topic}")
            return
        count = len(self.topics[topic])
        body = {
            "queueDatas": [{"brokerName": _BROKER, "readQueueNums": count, "writeQueueNums": count, "perm": 6}],
            "brokerDatas": [{"brokerName": _BROKER, "cluster": "c", "brokerAddrs": {"0": "mq:10911"}}],
        }
        self._reply(connection, frame, body=json.dumps(body).encode())

    def _cluster(self, connection: Connected, frame: Frame) -> None:
        brokers = {_BROKER: {"brokerName": _BROKER, "brokerAddrs": {"0": "mq:10911"}}}
        body = {"clusterAddrTable": {"c": [_BROKER]}, "brokerAddrTable": brokers}
        self._reply(connection, frame, body=json.dumps(body).encode())

    def _names(self, connection: Connected, frame: Frame) -> None:
        self._reply(connection, frame, body=json.dumps({"topicList": sorted(self.topics)}).encode())

    def _create(self, connection: Connected, frame: Frame) -> None:
        queues = self.topics.setdefault(frame.fields["topic"], [])
        while len(queues) < int(frame.fields["readQueueNums"]):
            queues.append(_Queue())
        self._reply(connection, frame)

    # ---------------------------------------------------------------------------------------------------- messages

    def _store(self, topic: str, number: int, body: bytes, properties: bytes) -> int:
        queue, now = self.topics[topic][number], self.world.us
        last = queue.messages[-1].readable_us if queue.messages else 0
        readable = max(last, now + int(self.world.random.random() * _INDEXED_US))
        queue.messages.append(_Message(body, properties, now, readable))
        return len(queue.messages) - 1

    def _sent(self, connection: Connected, frame: Frame) -> None:
        topic, number = frame.fields["b"], int(frame.fields["e"])
        if topic not in self.topics:
            self._reply(connection, frame, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic {topic} not exist")
            return
        if frame.code == RequestCode.SEND_BATCH_MESSAGE:
            messages = list(_entries(frame.body))
        else:
            messages = [(frame.body, frame.fields["i"].encode())]
        offsets = [self._store(topic, number, body, properties) for body, properties in messages]
        self._reply(connection, frame, fields={"queueOffset": str(offsets[0]), "queueId": str(number), "msgId": "0"})

    def _readable(self, topic: str, number: int) -> int:
        """Return the end of what can be read of a queue."""
        messages, now = self.topics[topic][number].messages, self.world.us
        end = len(messages)
        while end and messages[end - 1].readable_us > now:
            end -= 1
        return end

    def _pull(self, connection: Connected, frame: Frame) -> None:
        topic, number, offset = frame.fields["topic"], int(frame.fields["queueId"]), int(frame.fields["queueOffset"])
        if topic not in self.topics:
            self._reply(connection, frame, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic {topic} not exist")
            return
        end = self._readable(topic, number)
        if offset == end and int(frame.fields["sysFlag"]) & PullFlag.SUSPEND:
            until = self.world.us + int(frame.fields["suspendTimeoutMillis"]) * 1000
            self.topics[topic][number].held.append((connection, frame, until))
            return
        self._answer_pull(connection, frame, topic, number, offset)

    def _answer_pull(self, connection: Connected, frame: Frame, topic: str, number: int, offset: int) -> None:
        messages, end = self.topics[topic][number].messages, self._readable(topic, number)
        fields = {"minOffset": "0", "maxOffset": str(end), "suggestWhichBrokerId": "0"}
        if offset > end:
            self._reply(
                connection,
                frame,
                ResponseCode.PULL_OFFSET_MOVED,
                {**fields, "nextBeginOffset": str(end)},
                remark="too far",
            )
            return
        wanted = min(int(frame.fields["maxMsgNums"]), end - offset, 1 + int(self.world.random.random() * 8))
        if wanted <= 0:
            self._reply(connection, frame, ResponseCode.PULL_NOT_FOUND, {**fields, "nextBeginOffset": str(offset)})
            return
        body = b"".join(_stored(at, topic, messages[at]) for at in range(offset, offset + wanted))
        self._reply(connection, frame, fields={**fields, "nextBeginOffset": str(offset + wanted)}, body=body)

    def _serve_held(self, topic: str, number: int) -> None:
        queue, end = self.topics[topic][number], self._readable(topic, number)
        held, queue.held = queue.held, []
        for connection, frame, until in held:
            if int(frame.fields["queueOffset"]) != end or self.world.us >= until:
                self._answer_pull(connection, frame, topic, number, int(frame.fields["queueOffset"]))
            else:
                queue.held.append((connection, frame, until))

    # ----------------------------------------------------------------------------------------------------- offsets

    def _bound(self, connection: Connected, frame: Frame) -> None:
        topic, number = frame.fields["topic"], int(frame.fields["queueId"])
        if topic not in self.topics:
            self._reply(connection, frame, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic {topic} not exist")
            return
        offset = self._readable(topic, number) if frame.code == RequestCode.GET_MAX_OFFSET else 0
        self._reply(connection, frame, fields={"offset": str(offset)})

    def _search(self, connection: Connected, frame: Frame) -> None:
        messages = self.topics[frame.fields["topic"]][int(frame.fields["queueId"])].messages
        wanted_us = int(frame.fields["timestamp"]) * 1000 - BEGIN_US
        at = next((at for at, each in enumerate(messages) if each.stored_us >= wanted_us), len(messages))
        self._reply(connection, frame, fields={"offset": str(at)})

    def _committed(self, connection: Connected, frame: Frame) -> None:
        group = self._group(frame.fields["consumerGroup"])
        found = group.commits.get((frame.fields["topic"], int(frame.fields["queueId"])))
        if found is None:
            self._reply(connection, frame, ResponseCode.QUERY_NOT_FOUND, remark="not found")
        else:
            self._reply(connection, frame, fields={"offset": str(found)})

    def _commit(self, connection: Connected, frame: Frame) -> None:
        group = self._group(frame.fields["consumerGroup"])
        group.commits[frame.fields["topic"], int(frame.fields["queueId"])] = int(frame.fields["commitOffset"])
        self._reply(connection, frame)

    # ------------------------------------------------------------------------------------------------------ groups

    def _heartbeat(self, connection: Connected, frame: Frame) -> None:
        told = json.loads(frame.body)
        for each in told["consumerDataSet"]:
            members = self._group(each["groupName"]).members
            changed = members.get(told["clientID"]) is not connection
            members[told["clientID"]] = connection
            if changed:
                self._tell(each["groupName"])
        self._reply(connection, frame)

    def _unregister(self, connection: Connected, frame: Frame) -> None:
        group = frame.fields["consumerGroup"]
        if self._group(group).members.pop(frame.fields["clientID"], None) is not None:
            self._tell(group)
        self._reply(connection, frame)

    def _members(self, connection: Connected, frame: Frame) -> None:
        members = sorted(self._group(frame.fields["consumerGroup"]).members)
        if not members:
            self._reply(connection, frame, ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
            return
        self._reply(connection, frame, body=json.dumps({"consumerIdList": members}).encode())

    def _lock(self, connection: Connected, frame: Frame) -> None:
        told = json.loads(frame.body)
        locks, granted = self._group(told["consumerGroup"]).locks, []
        for each in told["mqSet"]:
            place = each["topic"], int(each["queueId"])
            holder, until = locks.get(place, ("", 0))
            if holder in ("", told["clientId"]) or until < self.world.us:
                locks[place] = told["clientId"], self.world.us + _LOCK_US
                granted.append(each)
        self._reply(connection, frame, body=json.dumps({"lockOKMQSet": granted}).encode())

    def _unlock(self, connection: Connected, frame: Frame) -> None:
        told = json.loads(frame.body)
        locks = self._group(told["consumerGroup"]).locks
        for each in told["mqSet"]:
            place = each["topic"], int(each["queueId"])
            if locks.get(place, ("", 0))[0] == told["clientId"]:
                del locks[place]
        self._reply(connection, frame)


def _shown(frame: Frame) -> str:
    fields = frame.fields
    place = [
        fields[name]
        for name in ("topic", "b", "queueId", "e", "queueOffset", "commitOffset", "consumerGroup")
        if name in fields
    ]
    return f"{RequestCode(frame.code).name} {' '.join(place)}"


def _entries(body: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the bodies and properties of a batch."""
    found, at = [], 0
    while at < len(body):
        size, _, _, _, length = _ENTRY.unpack_from(body, at)
        start = at + _ENTRY.size
        (properties,) = struct.unpack_from(">H", body, start + length)
        begin = start + length + 2
        found.append((body[start : start + length], body[begin : begin + properties]))
        at += size
    return found


def _stored(offset: int, topic: str, message: _Message) -> bytes:
    """Return a message as a pull gives it."""
    name = topic.encode()
    size = _STORED.size + len(message.body) + 1 + len(name) + 2 + len(message.properties)
    now_ms = (BEGIN_US + message.stored_us) // 1000
    head = _STORED.pack(size, _MAGIC, 0, offset, 0, now_ms, now_ms, 0, len(message.body))
    rest = bytes([len(name)]) + name + len(message.properties).to_bytes(2) + message.properties
    return head + message.body + rest
