"""Kafka's errors as those of headrace: what can be retried, what a person must mend, what is gone."""

from __future__ import annotations

from headrace.errors import DataError, HeadraceError, JobError, RetriableError

from headrace_kafka.settings import KafkaSettings

# Codes of the protocol: https://kafka.apache.org/protocol#protocol_error_codes. Negative ones are librdkafka's own.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36
SASL_FAILED = 58
LOCAL_AUTHENTICATION = -169
LOCAL_SSL = -181
LOCAL_INVALID_ARGUMENT = -186
LOCAL_UNKNOWN_PARTITION = -190

_DENIED = {29: "topic", 30: "group", 31: "cluster", 53: "transactional_id"}
_CREDENTIALS = {SASL_FAILED, LOCAL_AUTHENTICATION}
_MECHANISM = {33, 34}
_GONE = {OFFSET_OUT_OF_RANGE, -140, -139}  # auto.offset.reset=error says so, or the log was truncated
#: Message too large, record list too large, invalid record, local: partition or size out of bounds.
_REFUSED = {10, 18, 87, LOCAL_UNKNOWN_PARTITION}
#: What retrying cannot mend: unsupported version or format, a group whose members do not understand each other, …
_WRONG = {17, 23, 24, 26, 35, 38, 39, 40, 42, 43, 44, 76, -192, LOCAL_INVALID_ARGUMENT}


class NoSuchTopic(JobError):
    """A topic that was named does not exist."""


def of_code(
    code: int, text: str, settings: KafkaSettings, *, queue: str | None = None, offset: int | None = None
) -> HeadraceError:
    """Return the exception for an error code of the protocol or of librdkafka."""
    where = f"Kafka at {settings.servers}, topic {settings.topic!r}: {text}"
    if code in _DENIED:
        option = _DENIED[code]
        user = f"user {settings.username!r}" if settings.username else "this client"
        return JobError(
            where,
            plugin="kafka",
            option=option if hasattr(settings, option) else None,
            queue=queue,
            hint=f"let {user} do it (see the servers' ACLs), or log in as somebody who may",
        )
    if code in _CREDENTIALS:
        hint = "check username, password and sasl_mechanism"
        return JobError(where, plugin="kafka", option="password", queue=queue, hint=hint)
    if code in _MECHANISM:
        hint = "check sasl_mechanism, and whether security_protocol fits the port"
        return JobError(where, plugin="kafka", option="sasl_mechanism", queue=queue, hint=hint)
    if code == LOCAL_SSL:
        hint = "check ssl_ca, and whether security_protocol fits the port"
        return JobError(where, plugin="kafka", option="ssl_ca", hint=hint)
    if code == UNKNOWN_TOPIC:
        return NoSuchTopic(where, plugin="kafka", option="topic", queue=queue, hint="create it, or correct its name")
    if code in _GONE:
        return DataError(where, plugin="kafka", queue=queue, offset=offset)
    if code in _REFUSED:
        return DataError(where, plugin="kafka", queue=queue, offset=offset)
    if code in _WRONG:
        return JobError(where, plugin="kafka", queue=queue)
    return RetriableError(where, plugin="kafka", queue=queue)


def unreachable(settings: KafkaSettings, reason: str) -> RetriableError:
    """Return the error for a cluster that does not answer."""
    return RetriableError(
        f"Kafka at {settings.servers} cannot be reached: {reason}",
        plugin="kafka",
        option="servers",
        hint="is the server up, is this its address, and does security_protocol "
        f"{settings.security_protocol} fit the port?",
    )


def not_writable(settings: KafkaSettings) -> JobError:
    """Return the error for a topic that may be seen but not written to."""
    user = f"user {settings.username!r}" if settings.username else "this client"
    return JobError(
        f"Kafka at {settings.servers}: {user} may not write to topic {settings.topic!r}",
        plugin="kafka",
        option="topic",
        hint="grant it (see the servers' ACLs), or log in as somebody who may",
    )
