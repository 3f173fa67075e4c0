"""What the client's errors mean for a job: the error of headrace, and a hint how to repair it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError, did_you_mean
from headrace.interfaces.topics import is_own_topic

from headrace_rocketmq.client import Client
from headrace_rocketmq.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionFailedError,
    ConnectionLostError,
    FilterRejectedError,
    GroupNotFoundError,
    InvalidMessageError,
    MessageRejectedError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RocketMQError,
    TopicNotFoundError,
)
from headrace_rocketmq.native_consumer import NativeClientMissingError
from headrace_rocketmq.settings import PLUGIN, RocketMQSettings, RocketMQSinkSettings

#: The text of Python's ssl module for a certificate that is not trusted.
_CERTIFICATE_REFUSED = "certificate verify failed"
_SYSTEM_TOPICS = ("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC", "wheel_timer")
_SYSTEM_NAMES = frozenset(
    {"TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC"}
)


@contextmanager
def explained(settings: RocketMQSettings, client: Client | None = None, *, queue: str | None = None) -> Iterator[None]:
    """Raise the headrace error for a client's error within the block. `client` is asked for topic names."""
    try:
        yield
    except RocketMQError as error:
        raise as_job_error(error, settings, client, queue=queue) from error


def as_job_error(
    error: RocketMQError, settings: RocketMQSettings, client: Client | None = None, *, queue: str | None = None
) -> HeadraceError:
    """Return the headrace error for a client's error, with servers, topic and option."""
    where = f" (name servers {settings.name_servers}, topic {settings.topic})"
    match error:
        case TopicNotFoundError():
            return _unknown_topic(error, settings, client)
        case OffsetOutOfRangeError():
            return lost_offset(queue or str(error.queue), error.offset, error.earliest, error.latest)
        case InvalidMessageError() | MessageRejectedError():
            return DataError(f"{error}{where}", plugin=PLUGIN, queue=queue)
        case PermissionDeniedError():
            hint = (
                "the topic needs the right to publish"
                if isinstance(settings, RocketMQSinkSettings)
                else f"topic and consumer group{'' if settings.group is None else f' {settings.group!r}'} need the right to subscribe"
            )
            name = "access_key" if settings.access_key is not None else None
            hint += "" if name else "; access_key and secret_key say who you are"
            return JobError(f"no permission: {error}{where}", plugin=PLUGIN, option=name, queue=queue, hint=hint)
        case FilterRejectedError():
            hint = "correct the condition; brokers apply one only with enablePropertyFilter=true"
            return OptionError(f"{error}{where}", plugin=PLUGIN, option="sql", hint=hint)
        case GroupNotFoundError():
            hint = "create the group first (mqadmin updateSubGroup): these brokers do not create groups by themselves"
            return OptionError(f"{error}{where}", plugin=PLUGIN, option="group", queue=queue, hint=hint)
        case ConfigurationError():
            return OptionError(str(error), plugin=PLUGIN)
        case NativeClientMissingError():
            hint = "pip install headrace-rocketmq[native], and name librocketmq's directory: native_library='/opt/rocketmq'"
            return OptionError(str(error), plugin=PLUGIN, option="driver", hint=hint)
        case ConnectionFailedError() if _CERTIFICATE_REFUSED in error.reason:
            hint = "name the authority that signed the servers' certificates; the certificates must contain the host name of the address"
            return OptionError(f"{error}{where}", plugin=PLUGIN, option="tls_ca", queue=queue, hint=hint)
    # A broker that starts or stops reports many different errors: an error without a clear code may be temporary.
    if error.retriable or isinstance(error, BrokerError):
        return RetriableError(f"{error}{where}", plugin=PLUGIN, queue=queue, hint=_connection_hint(error, settings))
    return JobError(f"{error}{where}", plugin=PLUGIN, queue=queue)


def _connection_hint(error: RocketMQError, settings: RocketMQSettings) -> str | None:
    if isinstance(error, ConnectionFailedError):
        return "start RocketMQ, or correct the option name_servers; brokers in containers may need address_map" + (
            "; do these servers offer TLS? (tls=True)" if settings.tls else ""
        )
    if isinstance(error, ConnectionLostError) and not settings.tls:
        return "wait if the servers are restarting; servers that require TLS need tls=True"
    return None


def lost_offset(queue: str, offset: int, earliest: int, latest: int) -> DataError:
    """Return the error for a position that a queue no longer has, or does not have yet."""
    happened = (
        "messages were removed (by retention, or by hand) before they were read"
        if offset < earliest
        else "the topic was created again, or the broker has lost messages"
    )
    return DataError(
        f"offset {offset} is not in the queue, which holds {earliest} to {latest}: {happened}",
        plugin=PLUGIN,
        queue=queue,
        offset=offset,
        hint="to continue with the records that are left, start with another group, and with a new checkpoint directory if the job has one",
    )


def _unknown_topic(error: TopicNotFoundError, settings: RocketMQSettings, client: Client | None) -> HeadraceError:
    """A name server also forgets the topics of a broker that is down: without any broker, this cannot be distinguished."""
    names: list[str] = []
    if client is not None:
        try:
            client.brokers()
            names = [name for name in client.topics() if not is_system_topic(name) and not is_own_topic(name)]
        except RocketMQError as failure:
            if failure.retriable:
                return as_job_error(failure, settings)
    hint = did_you_mean(error.topic, names, known="topics")
    if isinstance(settings, RocketMQSinkSettings):
        hint += " (to create it: create_topic=True)"
    return JobError(
        f"there is no topic {error.topic!r} at {settings.name_servers}", plugin=PLUGIN, option="topic", hint=hint
    )


def is_system_topic(name: str) -> bool:
    """Whether brokers made the topic for themselves."""
    return name.startswith(_SYSTEM_TOPICS) or name in _SYSTEM_NAMES
