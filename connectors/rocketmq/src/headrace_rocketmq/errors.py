"""The errors between this client and a RocketMQ cluster.

    RocketMQError
    ├── ConfigurationError        a setting of the client cannot be used as it is
    ├── ClientClosedError         the client, reader or consumer was closed before or during the call
    ├── ConnectionFailedError     no connection could be opened                              (retriable)
    ├── ConnectionLostError       an open connection broke before the answer came            (retriable)
    ├── RequestTimeoutError       no answer in time                                          (retriable)
    ├── ProtocolError             the peer does not speak the remoting protocol, or sent nonsense
    ├── TopicNotFoundError        no name server or broker knows the topic
    ├── InvalidMessageError       a message cannot be sent as it is
    ├── OffsetOutOfRangeError     the queue no longer, or not yet, has the offset asked for
    ├── NotAMemberError           the broker does not list us as a member of our consumer group    (retriable)
    ├── QueueUnavailableError     a queue could not be read for too long                     (retriable)
    └── BrokerError               the broker refused; holds its code and remark
        ├── BrokerBusyError       flow control, shutting down or not yet up                  (retriable)
        ├── PermissionDeniedError wrong credentials, or no right to the topic or group
        ├── GroupNotFoundError    the consumer group does not exist and is not made automatically
        ├── FilterRejectedError   the broker cannot parse the filter or does not filter by properties
        └── MessageRejectedError  the broker takes no such message (too large, properties too long)

`retriable` says that the same call may succeed later without a repair.
"""

from __future__ import annotations

from typing import ClassVar

from headrace_rocketmq.codes import RequestCode, ResponseCode


class RocketMQError(Exception):
    """Base of all exceptions that this package raises intentionally."""

    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled between processes; the default would call __init__ with the message alone.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[RocketMQError], args: tuple[object, ...], attributes: dict[str, object]) -> RocketMQError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigurationError(RocketMQError, ValueError):
    """A setting of the client cannot be used: an address, a file, a combination of options."""


class ClientClosedError(RocketMQError):
    """The client, reader or consumer has been closed."""


class ConnectionFailedError(RocketMQError):
    """No connection to `address` could be opened.

    `retry_after_s` is how long the connection pool refuses to try that address again.
    """

    retriable = True

    def __init__(self, address: str, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason
        self.retry_after_s = retry_after_s


class ConnectionLostError(RocketMQError):
    """The connection to `address` was lost; the request may or may not have been executed."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"lost the connection to {address}: {reason}")
        self.address = address


class RequestTimeoutError(RocketMQError):
    """`address` did not answer in time; the request may or may not have been executed."""

    retriable = True

    def __init__(self, address: str, operation: str, timeout_s: float) -> None:
        super().__init__(f"{address} did not answer within {timeout_s:g} s: {operation}")
        self.address = address


class ProtocolError(RocketMQError):
    """Bytes that are not the remoting protocol, or larger than allowed."""


class TopicNotFoundError(RocketMQError):
    """No name server, or not the broker asked, knows the topic."""

    def __init__(self, topic: str, where: str, remark: str = "") -> None:
        detail = f" ({remark})" if remark else ""
        super().__init__(
            f"topic {topic!r} is unknown to {where}{detail}; create it (Client.create_topic), or correct its name"
        )
        self.topic = topic


class InvalidMessageError(RocketMQError, ValueError):
    """A message cannot be sent as it is; says which part and why."""


class OffsetOutOfRangeError(RocketMQError):
    """A queue does not hold `offset`: it was deleted by retention, reset by an operator, or never written.

    Raised instead of reading at another offset, because a jump forward loses messages silently, and a jump back repeats them.
    `suggested` is the offset at which the broker would continue.
    """

    def __init__(self, queue: object, offset: int, *, earliest: int, latest: int, suggested: int, remark: str) -> None:
        super().__init__(
            f"{queue} holds offsets {earliest} to {latest} (exclusive), not {offset} ({remark}); seek to another "
            f"offset, or read with out_of_range='follow' to continue at {suggested}"
        )
        self.queue = queue
        self.offset = offset
        self.earliest = earliest
        self.latest = latest
        self.suggested = suggested
        self.is_ahead = offset > latest and remark != "OFFSET_RESET"
        """Whether the offset is one that may still come, or that the broker has not yet entered into its index."""


class NotAMemberError(RocketMQError):
    """The broker does not list this client as a member of its group, although it registered.

    This is temporary after a reconnection; it is permanent if the group does not exist and the broker does not create groups by itself.
    """

    retriable = True

    def __init__(self, group: str, client_id: str) -> None:
        super().__init__(
            f"the broker does not list {client_id} as a member of group {group!r}; if its option "
            "autoCreateSubscriptionGroup is off, create the group first (Client.create_group)"
        )
        self.group = group


class QueueUnavailableError(RocketMQError):
    """A queue could not be read for longer than the reader's outage timeout; `__cause__` is the last failure."""

    retriable = True

    def __init__(self, queue: object, outage_s: float, cause: RocketMQError) -> None:
        super().__init__(f"{queue} could not be read for {outage_s:.0f} s: {cause}")
        self.queue = queue


class BrokerError(RocketMQError):
    """A name server or broker answered with an error code."""

    def __init__(self, code: int, remark: str | None, *, address: str, operation: str) -> None:
        reason, *_ = (remark or "").strip().splitlines() or ["no reason given"]
        super().__init__(f"{address} refused: {operation}: {response_name(code)}: {reason}")
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.operation = operation


class BrokerBusyError(BrokerError):
    """Flow control, shutting down, or not ready: try again a little later."""

    retriable = True


class PermissionDeniedError(BrokerError):
    """Unknown or wrong credentials, or no right to do this to that topic or group."""


class GroupNotFoundError(BrokerError):
    """The consumer group does not exist: create it (Client.create_group), or let the broker create it by joining it."""


class FilterRejectedError(BrokerError):
    """The filter does not parse, or the broker does not filter by properties (broker option enablePropertyFilter)."""


class MessageRejectedError(BrokerError):
    """The broker does not take such a message: body or properties too large, or not allowed on this topic."""


_BY_CODE: dict[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_BUSY: BrokerBusyError,
    ResponseCode.SERVICE_NOT_AVAILABLE: BrokerBusyError,
    ResponseCode.FLOW_CONTROL: BrokerBusyError,
    ResponseCode.GO_AWAY: BrokerBusyError,
    ResponseCode.NO_PERMISSION: PermissionDeniedError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: FilterRejectedError,
    ResponseCode.FILTER_DATA_NOT_EXIST: FilterRejectedError,
    ResponseCode.MESSAGE_ILLEGAL: MessageRejectedError,
}
# Code 1 has no special meaning; the remark names the Java exception or the reason. Brokers of 4.x report wrong
# credentials, and all brokers a filter by properties that is switched off, in this way.
_BY_REMARK: tuple[tuple[str, type[BrokerError]], ...] = (
    ("AclException", PermissionDeniedError),
    ("AuthenticationException", PermissionDeniedError),
    ("AuthorizationException", PermissionDeniedError),
    ("does not support consumer to filter message", FilterRejectedError),
)


def response_name(code: int) -> str:
    """`NAME (number)` of a response code, for messages."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"


def request_name(code: int) -> str:
    """The name of a request code in words, for messages."""
    try:
        return RequestCode(code).name.lower().replace("_", " ")
    except ValueError:
        return f"request {code}"


def broker_error(code: int, remark: str | None, *, address: str, operation: str) -> BrokerError:
    """The exception for a broker's error code.

    Called when an answer has a code that the caller does not expect. The caller handles unknown topics, because it knows their
    names (TopicNotFoundError).
    """
    kind = _BY_CODE.get(code, BrokerError)
    if code == ResponseCode.SYSTEM_ERROR:
        kind = next((found for text, found in _BY_REMARK if text in (remark or "")), BrokerError)
    return kind(code, remark, address=address, operation=operation)
