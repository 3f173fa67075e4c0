"""What consumers and producers of confluent-kafka (librdkafka) have in common: properties, errors, reaching the cluster."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import confluent_kafka as ck
from headrace.foundation.errors import HeadraceError, JobError, OptionError

from headrace_kafka.errors import (
    FENCED_INSTANCE,
    LOCAL_AUTHENTICATION,
    LOCAL_SSL,
    UNSUPPORTED_MECHANISM,
    of_code,
    unreachable,
)
from headrace_kafka.settings import KafkaSettings, check_files, milliseconds, with_conf

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Parts of librdkafka's texts that are not useful, or differ from run to run.
_CIRCUMSTANCES = re.compile(
    r" \(after \d+ms in state .*\)$|/(bootstrap|\d+)(?=: )|^\w+://"
    r"|Connect to \S+ failed: |Failed to resolve '\S+': "
    r"|SASL authentication error: |SSL handshake failed: error:\w+:SSL routines::"
    r"|(?<=certificate verify failed): broker certificate could not.*$"
    r"|^Failed to create (consumer|producer|admin client): |: broker's supported mechanisms: $"
)
_MENDABLE = (LOCAL_AUTHENTICATION, LOCAL_SSL)
_AWAY = (
    ck.KafkaError._TRANSPORT,
    ck.KafkaError._TIMED_OUT,
    ck.KafkaError._ALL_BROKERS_DOWN,
    ck.KafkaError._RESOLVE,
    ck.KafkaError._WAIT_COORD,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.LEADER_NOT_AVAILABLE,
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.CONCURRENT_TRANSACTIONS,
    ck.KafkaError.UNSTABLE_OFFSET_COMMIT,
)
#: How long the first try of a request waits before we check whether librdkafka has reported why no broker answers.
_LOOK_SECONDS = 0.25
_FILE_OPTIONS = {
    "ssl.ca": "ssl_ca",
    "ssl.certificate": "ssl_certificate",
    "ssl.key": "ssl_key",
    "ssl_ca": "ssl_ca",
}


class _DebugLog:
    """Takes the lines that librdkafka would print to stderr. Important errors also come through ``error_cb``."""

    def log(self, _: int, message: str, *arguments: Any) -> None:
        logger.debug(message, *arguments)


def confluent_properties(settings: KafkaSettings, reserved: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's properties, ``reserved`` among them. They hold revealed secrets: never log them."""
    security = settings.security_protocol
    names = {"https": True, "none": False}
    check = next(name for name, checked in names.items() if checked == settings.ssl_check_hostname)
    reached_by = {
        "bootstrap.servers": settings.servers,
        "security.protocol": security,
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.username,
        "sasl.password": settings.password.reveal() if settings.password else None,
        "ssl.ca.location": settings.ssl_ca,
        "ssl.certificate.location": settings.ssl_certificate,
        "ssl.key.location": settings.ssl_key,
        "ssl.key.password": settings.ssl_key_password.reveal() if settings.ssl_key_password else None,
        "ssl.endpoint.identification.algorithm": check if security.endswith("SSL") else None,
    }
    defaults = {
        "client.id": "headrace",
        "socket.connection.setup.timeout.ms": max(1000, milliseconds(settings.connect_timeout)),
        "reconnect.backoff.max.ms": 2000,
        "log_level": 3,
        "logger": _DebugLog(),
    }
    return with_conf(defaults, settings, {**reached_by, **reserved})


def made(kind: Callable[[dict[str, Any]], T], properties: dict[str, Any], settings: KafkaSettings) -> T:
    """Make a client. Raises OptionError when librdkafka does not accept a property."""
    check_files(settings)
    try:
        return kind(properties)
    except ck.KafkaException as error:
        text = _CIRCUMSTANCES.sub("", str(error.args[0].str()))
        option = next((name for start, name in _FILE_OPTIONS.items() if start in text), "conf")
        if option != "conf":
            text = f"{getattr(settings, option)!r} cannot be used: {text}"
        raise OptionError(text, plugin="kafka", option=option) from error
    except (TypeError, ValueError) as error:
        raise OptionError(str(error), plugin="kafka", option="conf") from error


def confluent_error(
    error: Any, settings: KafkaSettings, *, queue: str | None = None, offset: int | None = None
) -> HeadraceError:
    """Translate a KafkaError of confluent-kafka."""
    code, text = error.code(), _CIRCUMSTANCES.sub("", str(error.str()))
    if code == LOCAL_AUTHENTICATION and "handshake failed" in text:
        code = UNSUPPORTED_MECHANISM
    if code == ck.KafkaError._FATAL and "same group.instance.id" in text:  # a consumer gives the code only in the text
        code, text = FENCED_INSTANCE, "it is no longer a member"
    return of_code(code, text, settings, queue=queue, offset=offset)


def is_away(error: Any) -> bool:
    """Return whether an error says that no broker answers, or none that is responsible: later it may."""
    return error.code() in _AWAY


class Troubles:
    """The errors that librdkafka reports outside of calls, through ``error_cb``: they explain why a call gets no answer.

    librdkafka itself tries again and again, whatever is wrong.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reached = False
        #: Login or certificates do not fit. Brokers that start may say so for a while.
        self._mendable: JobError | None = None
        self._denied: JobError | None = None
        self._reason: str | None = None
        #: Whether all brokers seem unavailable.
        self.away = False

    def note(self, error: Any) -> None:
        """Take an error of librdkafka. Called by it, from ``poll``, ``consume`` and ``flush``."""
        code = error.code()
        found = confluent_error(error, self._settings)
        if code in _MENDABLE:
            assert isinstance(found, JobError)
            self._mendable = found
            self._reason = found.message
        elif isinstance(found, JobError):
            self._denied = found
        elif code == ck.KafkaError._ALL_BROKERS_DOWN:
            self.away = True
        elif code in _AWAY:
            self._reason = _CIRCUMSTANCES.sub("", str(error.str()))

    def clear(self) -> None:
        """A broker has answered."""
        self._reached = True
        self.away = False
        self._mendable = self._denied = self._reason = None

    @property
    def final(self) -> JobError | None:
        """The error that waiting will not repair, if there is one. A cluster that was reached before is expected to come back."""
        return self._denied or (None if self._reached else self._mendable)

    def error(self) -> HeadraceError:
        """Return why no broker answers."""
        return self.final or unreachable(self._settings, self._reason)

    def asked(self, request: Callable[[float], T], serve: Callable[[], object]) -> T:
        """Make a request until it is answered, at most for ``connect_timeout``; ``request`` takes seconds to wait.

        ``serve`` lets librdkafka call ``error_cb``.
        """
        deadline = time.monotonic() + self._settings.connect_timeout.total_seconds()
        look_seconds = _LOOK_SECONDS
        while True:
            left = deadline - time.monotonic()
            try:
                answer = request(max(0.01, min(look_seconds, left)))
            except ck.KafkaException as error:
                inner = error.args[0]
                if inner.code() not in _AWAY:
                    raise confluent_error(inner, self._settings) from error
                self._serve(serve)
                if time.monotonic() >= deadline or self.final is not None:
                    raise self.error() from error
                time.sleep(min(0.02, max(0.0, deadline - time.monotonic())))  # some of these come back at once
                look_seconds *= 2
            else:
                self.clear()
                return answer

    def _serve(self, serve: Callable[[], object]) -> None:
        try:
            serve()
        except ck.KafkaException as error:  # something fatal: error_cb is not called for that
            raise confluent_error(error.args[0], self._settings) from error
