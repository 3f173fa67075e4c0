"""Numbers of the remoting protocol that this client uses.

Source: Apache RocketMQ, packages `remoting.protocol` and `common.sysflag` (RequestCode, ResponseCode, MessageSysFlag,
PullSysFlag), and answers of real brokers.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

PROTOCOL_VERSION = 401
"""MQVersion that requests carry: from 4.9.4 (401) on, name servers answer routes in standard JSON."""


class RequestCode(IntEnum):
    """The kind of a request."""

    PULL_MESSAGE = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    CREATE_TOPIC = 17
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_QUEUES = 41
    UNLOCK_QUEUES = 42
    CHECK_CLIENT_CONFIG = 46
    GET_ROUTE_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    CREATE_SUBSCRIPTION_GROUP = 200
    GET_ALL_TOPICS_FROM_NAME_SERVER = 206
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAME_SERVER = 216
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320


class ResponseCode(IntEnum):
    """The result of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    GO_AWAY = 1500


class FrameFlag(IntFlag):
    """Bits of a frame's `flag`."""

    RESPONSE = 1
    ONE_WAY = 2


class PullFlag(IntFlag):
    """Bits of a pull request's `sysFlag`."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4


class MessageFlag(IntFlag):
    """Bits of a message's `sysFlag`. Bits 8 to 10 hold the kind of compression."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    BORN_HOST_IPV6 = 16
    STORE_HOST_IPV6 = 32
    NEEDS_UNWRAP = 64
    INNER_BATCH = 128


class TopicPermission(IntFlag):
    """Bits of a topic's or queue's `perm`."""

    WRITE = 2
    READ = 4


MASTER_BROKER_ID = 0
