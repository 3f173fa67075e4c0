"""Kafka's errors as those of headrace: what can be retried, what a person must mend, what is gone."""

from __future__ import annotations

from typing import Any

from headrace.errors import DataError, HeadraceError, JobError, RetriableError

from headrace_kafka.settings import KafkaSettings

#: Codes of the protocol (https://kafka.apache.org/protocol#protocol_error_codes) that a person must mend.
_PERMISSION = {29, 30, 31, 53, 58}  # topic, group, cluster, transactional id not authorised; SASL authentication failed
_WRONG = {33, 42, 43}  # unsupported SASL mechanism, invalid request, unsupported message format
_TOO_LARGE = {10, 18}
_UNKNOWN_TOPIC = 3
_OUT_OF_RANGE = 1
_LOCAL_AUTHENTICATION = -169
_LOCAL_AUTO_OFFSET_RESET = -140
_LOCAL_SSL = -181


class NoSuchTopic(JobError):
    """A topic that was named does not exist."""


def confluent_error(error: Any, settings: KafkaSettings, message: Any = None) -> HeadraceError:
    """Translate a KafkaException (or the error of a message) of confluent-kafka."""
    inner = error.args[0]
    queue = f"{message.topic()}-{message.partition()}" if message is not None and message.topic() else None
    offset = (
        message.offset() if message is not None and message.offset() is not None and message.offset() >= 0 else None
    )
    return of_code(inner.code(), str(inner.str()), settings, queue=queue, offset=offset)


def kafka_python_error(error: BaseException, settings: KafkaSettings) -> HeadraceError:
    """Translate an exception of kafka-python."""
    code = getattr(error, "errno", None)
    name = type(error).__name__
    if name in ("SaslAuthenticationFailedError", "AuthenticationFailedError"):
        code = 58
    if name == "OffsetOutOfRangeError":
        code = _OUT_OF_RANGE
    return of_code(code if isinstance(code, int) else -1, f"{name}: {error}", settings)


def of_code(
    code: int, text: str, settings: KafkaSettings, *, queue: str | None = None, offset: int | None = None
) -> HeadraceError:
    """Return the exception for an error code of the protocol or of librdkafka."""
    where = f"Kafka at {settings.servers}, topic {settings.topic!r}: {text}"
    if code in _PERMISSION or code == _LOCAL_AUTHENTICATION:
        return JobError(where, plugin="kafka", queue=queue, hint="check username, password, and what the user may do")
    if code == _LOCAL_SSL:
        return JobError(where, plugin="kafka", option="ssl_ca", hint="check security_protocol and the certificates")
    if code in _WRONG:
        return JobError(where, plugin="kafka", queue=queue)
    if code == _UNKNOWN_TOPIC:
        return NoSuchTopic(where, plugin="kafka", option="topic", queue=queue, hint="create it, or correct its name")
    if code in (_OUT_OF_RANGE, _LOCAL_AUTO_OFFSET_RESET):
        return DataError(
            f"{where} (the offset is no longer, or not yet, in the partition)",
            plugin="kafka",
            queue=queue,
            offset=offset,
        )
    if code in _TOO_LARGE:
        return DataError(where, plugin="kafka", queue=queue, offset=offset)
    return RetriableError(where, plugin="kafka", queue=queue)
