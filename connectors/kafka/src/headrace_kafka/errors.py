"""Kafka's errors as those of headrace: which can be retried, which a person must repair, which mean lost records."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.interfaces.topics import is_own_topic

from headrace_kafka.settings import KafkaSettings, KafkaSourceSettings

# Codes of the protocol: https://kafka.apache.org/protocol#protocol_error_codes. Negative ones are librdkafka's own.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
INCONSISTENT_PROTOCOL = 23
UNSUPPORTED_MECHANISM = 33
TOPIC_EXISTS = 36
FENCED_INSTANCE = 82
SASL_FAILED = 58
LOCAL_AUTHENTICATION = -169
LOCAL_SSL = -181
LOCAL_INVALID_ARGUMENT = -186

_DENIED = {29: "topic", 30: "group", 31: "cluster", 53: "transactional_id"}
_ACL_HINT = "grant it (see the ACLs of the brokers), or log in as a user who has it"
_CREDENTIALS = {SASL_FAILED, LOCAL_AUTHENTICATION}
_MECHANISM = {UNSUPPORTED_MECHANISM, 34}
_GONE = {OFFSET_OUT_OF_RANGE, -140, -139}  # auto.offset.reset=error says so, or the log was truncated
#: Message too large, record list too large, invalid record.
_REFUSED = {10, 18, 87}
#: Errors that retrying cannot repair: unsupported version or format, …
_WRONG = {17, 24, 26, 35, 38, 39, 40, 42, 43, 44, 76, -192, LOCAL_INVALID_ARGUMENT}


class NoSuchTopic(JobError):
    """A topic that was named does not exist."""


class StuckClient(RetriableError):
    """A client does not find back to a cluster that answers other clients: only a new one helps."""


def public_topics(names: Iterable[str]) -> list[str]:
    """Return the topics that a person may have meant: not those of Kafka itself, nor those of a runtime's shuffles."""
    return [name for name in names if not name.startswith("__") and not is_own_topic(name)]


def of_code(
    code: int, text: str, settings: KafkaSettings, *, queue: str | None = None, offset: int | None = None
) -> HeadraceError:
    """Return the exception for an error code of the protocol or of librdkafka."""
    if code in _DENIED:
        return _denied(code, settings, queue)
    text = _without_address(text, settings)
    cluster = f"Kafka at {settings.servers}"
    if code in _CREDENTIALS:
        hint = "check username, password and sasl_mechanism"
        failed = f"{cluster}: login of {settings.username!r} failed: {text}"
        return JobError(failed, plugin="kafka", option="password", hint=hint)
    if code in _MECHANISM:
        hint = "check sasl_mechanism, and whether security_protocol fits the port"
        return JobError(f"{cluster}: {text}", plugin="kafka", option="sasl_mechanism", hint=hint)
    if code == LOCAL_SSL:
        hint = "check ssl_ca, and whether security_protocol fits the port"
        return JobError(f"{cluster}: {text}", plugin="kafka", option="ssl_ca", hint=hint)
    where = f"{cluster}, topic {settings.topic!r}: {text}"
    if code == UNKNOWN_TOPIC:
        return NoSuchTopic(where, plugin="kafka", option="topic", queue=queue, hint="create it, or correct its name")
    if code in _GONE:
        return DataError(where, plugin="kafka", queue=queue, offset=offset)
    if code in _REFUSED:
        return DataError(where, plugin="kafka", queue=queue, offset=offset)
    if code == INCONSISTENT_PROTOCOL:
        hint = "another instance of the group uses another driver; all instances need the same one"
        return JobError(where, plugin="kafka", option="driver", hint=hint)
    if code == FENCED_INSTANCE:
        instance = settings.instance_id if isinstance(settings, KafkaSourceSettings) else None
        named = f"{where}: another instance has joined with the instance_id {instance!r}"
        hint = "each instance of a job needs an instance_id of its own, or none"
        return JobError(named, plugin="kafka", option="instance_id", hint=hint)
    if code in _WRONG:
        return JobError(where, plugin="kafka", queue=queue)
    return RetriableError(where, plugin="kafka", queue=queue)


def unreachable(settings: KafkaSettings, reason: str | None = None) -> RetriableError:
    """Return the error for a cluster that does not answer."""
    if reason is None:
        reason = f"no answer within {settings.connect_timeout.total_seconds():g} s"
    return RetriableError(
        f"Kafka at {settings.servers} cannot be reached: {_without_address(reason, settings)}",
        plugin="kafka",
        option="servers",
        hint="is the server up, is this its address, and does security_protocol "
        f"{settings.security_protocol} fit the port?",
    )


def not_writable(settings: KafkaSettings) -> JobError:
    """Return the error for a topic that the user may see but not write to."""
    return JobError(
        f"Kafka at {settings.servers}: {_user(settings)} may not write to topic {settings.topic!r}",
        plugin="kafka",
        option="topic",
        hint=_ACL_HINT,
    )


def _denied(code: int, settings: KafkaSettings, queue: str | None) -> JobError:
    option = _DENIED[code]
    group = settings.group if isinstance(settings, KafkaSourceSettings) else None
    names = {"topic": repr(settings.topic), "group": repr(group), "cluster": "as a whole"}
    what = f"{option.replace('_', ' ')} {names.get(option, '')}".strip()
    return JobError(
        f"Kafka at {settings.servers}: {_user(settings)} has no permission for {what}",
        plugin="kafka",
        option=option if hasattr(settings, option) else None,
        queue=queue,
        hint=_ACL_HINT,
    )


def _user(settings: KafkaSettings) -> str:
    return f"user {settings.username!r}" if settings.username else "an anonymous client"


def _without_address(text: str, settings: KafkaSettings) -> str:
    """Drop the address at the beginning of a text that names the only server anyway."""
    return text.removeprefix(f"{settings.servers}: ")
