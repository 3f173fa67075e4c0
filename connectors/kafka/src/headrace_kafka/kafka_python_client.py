"""What consumers and producers of kafka-python have in common: properties, errors, and why a cluster cannot be reached."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from kafka.errors import KafkaConfigurationError, KafkaError, UnsupportedCodecError
from kafka.net.sasl import get_sasl_mechanism

from headrace_kafka.errors import LOCAL_SSL, SASL_FAILED, of_code, unreachable
from headrace_kafka.settings import KafkaSettings, check_files, milliseconds, with_conf

T = TypeVar("T")
#: Which requests a broker knows, and an answer to a login, are short; a server that sends them byte by byte is not a Kafka broker.
_ANSWER_BYTES_MAX = 1024**2
_ANSWER_SECONDS_MAX = 60.0
#: How a TLS server begins its answer to what is not TLS: content type 21 and major version 3 (RFC 8446, 5.1).
_TLS_ALERT = 0x1503
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36


def kafka_python_properties(settings: KafkaSettings, reserved: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's arguments, ``reserved`` among them. They hold revealed secrets: never log them."""
    reached_by = {
        "bootstrap_servers": [server.strip() for server in settings.servers.split(",")],
        "security_protocol": settings.security_protocol,
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.username,
        "sasl_plain_password": settings.password.reveal() if settings.password else None,
        "ssl_cafile": settings.ssl_ca,
        "ssl_certfile": settings.ssl_certificate,
        "ssl_keyfile": settings.ssl_key,
        "ssl_password": settings.ssl_key_password.reveal() if settings.ssl_key_password else None,
        "ssl_check_hostname": settings.ssl_check_hostname,
    }
    defaults = {
        "client_id": "headrace",
        "bootstrap_timeout_ms": milliseconds(settings.connect_timeout),
        "reconnect_backoff_max_ms": 2000,
    }
    return with_conf(defaults, settings, {**reached_by, **reserved})


def made(kind: Callable[..., T], properties: dict[str, Any], settings: KafkaSettings) -> T:
    """Make a client. Raises the error that keeps it from reaching the cluster.

    kafka-python itself only reports a time-out, so we check first.
    """
    look(settings)
    try:
        return kind(**properties)
    except (KafkaConfigurationError, AssertionError, TypeError, ValueError) as error:
        text = str(error).removeprefix("KafkaConfigurationError: ")
        raise OptionError(text, plugin="kafka", option="conf") from error
    except (KafkaError, OSError) as error:
        if isinstance(error, KafkaError) and not getattr(error, "retriable", False):
            raise kafka_python_error(error, settings) from error
        raise unreachable(settings) from error


def kafka_python_error(
    error: BaseException, settings: KafkaSettings, *, queue: str | None = None, offset: int | None = None
) -> HeadraceError:
    """Translate an exception of kafka-python."""
    code = getattr(error, "errno", None)
    text = str(error) or repr(error)
    if isinstance(error, UnsupportedCodecError):
        return JobError(
            f"Kafka at {settings.servers}, topic {settings.topic!r}: {text}",
            plugin="kafka",
            queue=queue,
            hint="install what the driver needs for this compression, or driver='confluent'",
        )
    return of_code(
        code if isinstance(code, int) and isinstance(error, KafkaError) else -1,
        text,
        settings,
        queue=queue,
        offset=offset,
    )


def look(settings: KafkaSettings) -> None:
    """Connect to one of the servers, see that it is a broker, log in, and disconnect.

    Raises the error that prevents this, as precisely as possible. kafka-python reads what a server sends for as long as it
    comes, and keeps all of it: a server that is not a Kafka broker must not get that far. It does not protect from a broker that
    begins to send without end later.

    Follows https://kafka.apache.org/protocol: requests ApiVersions v0, SaslHandshake v1 and SaslAuthenticate v0.
    """
    context = _tls_context(settings) if settings.security_protocol.endswith("SSL") else None
    deadline = time.monotonic() + settings.connect_timeout.total_seconds()
    errors: list[HeadraceError] = []
    for server in settings.servers.split(","):
        try:
            _look_at(server.strip(), settings, context, max(0.1, deadline - time.monotonic()))
        except (JobError, RetriableError) as error:
            errors.append(error)
        else:
            return
    raise next((error for error in errors if isinstance(error, JobError)), errors[0])


def _look_at(server: str, settings: KafkaSettings, context: ssl.SSLContext | None, seconds: float) -> None:
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal():
        host, port = server, "9092"
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
    except OSError as error:
        raise unreachable(settings, f"{server}: {error.strerror or error}") from error
    with plain:
        stream: socket.socket = plain
        if context is not None:
            try:
                stream = context.wrap_socket(plain, server_hostname=host.strip("[]"))
            except ssl.SSLCertVerificationError as error:
                text = f"{server}: certificate verify failed: {error.verify_message}"
                raise of_code(LOCAL_SSL, text, settings) from error
            except (ssl.SSLError, ConnectionError) as error:
                reason = getattr(error, "reason", None) or str(error)
                raise of_code(LOCAL_SSL, f"{server}: TLS handshake failed: {reason}", settings) from error
        with stream:
            try:
                _see_that_it_is_a_broker(stream)
            except (OSError, ValueError, struct.error) as error:
                raise unreachable(settings, f"{server}: {error or type(error).__name__}") from error
            if settings.security_protocol.startswith("SASL"):
                try:
                    _log_in(stream, host, server, settings)
                except OSError as error:
                    raise unreachable(
                        settings, f"{server}: {error or type(error).__name__} while logging in"
                    ) from error
                except (ValueError, KeyError, IndexError, struct.error) as error:
                    # What the mechanism or the protocol does not allow: a server that does not know the password, or is none.
                    reason = str(error) or type(error).__name__
                    raise of_code(SASL_FAILED, f"{server}: {reason}", settings) from error


def _see_that_it_is_a_broker(stream: socket.socket) -> None:
    """Ask which requests the server knows: every broker answers this at once, before a login too."""
    answer = _request(stream, _API_VERSIONS, 0, b"")
    code, count = struct.unpack_from(">hi", answer)
    if code or len(answer) != 6 + 6 * count:
        raise ValueError("the answer is not a Kafka broker's")


def _log_in(stream: socket.socket, host: str, server: str, settings: KafkaSettings) -> None:
    """Speak SASL as kafka-python will: it loses the server's reason when the server closes the connection at once."""
    mechanism, user, password = settings.sasl_mechanism, settings.username, settings.password
    assert mechanism is not None
    assert user is not None
    assert password is not None
    answer = _request(stream, _SASL_HANDSHAKE, 1, _text(mechanism))
    [code] = struct.unpack_from(">h", answer)
    if code:
        offered = ", ".join(_texts(answer[2:])) or "nothing"
        raise of_code(code, f"{server}: {mechanism} is not offered, but {offered}", settings)
    exchange = get_sasl_mechanism(mechanism)(
        host=host,
        security_protocol=settings.security_protocol,
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password.reveal(),
    )
    while not exchange.is_done():
        token = exchange.auth_bytes()
        answer = _request(stream, _SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        code, length = struct.unpack_from(">hh", answer)
        said = answer[4 : 4 + max(0, length)].decode(errors="replace")
        if code:
            raise of_code(SASL_FAILED, f"{server}: {said or code}", settings)
        begin = 4 + max(0, length)
        [size] = struct.unpack_from(">i", answer, begin)
        exchange.receive(answer[begin + 4 : begin + 4 + max(0, size)])
    if not exchange.is_authenticated():
        raise of_code(SASL_FAILED, f"{server}: the server could not prove that it knows {user!r}", settings)


def _request(stream: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """Send a request (header version 1) and return the answer without its header."""
    content = struct.pack(">hhi", api, version, 1) + _text("headrace") + body
    stream.sendall(struct.pack(">i", len(content)) + content)
    until = time.monotonic() + (stream.gettimeout() or _ANSWER_SECONDS_MAX)
    [size] = struct.unpack(">i", _received(stream, 4, until))
    if size >> 16 == _TLS_ALERT:
        raise ValueError("this port expects TLS")
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size:,} bytes: this is not a Kafka broker")
    answer = _received(stream, size, until)
    if answer[:4] != struct.pack(">i", 1):
        raise ValueError("an answer to another request: this is not a Kafka broker")
    return answer[4:]


def _received(stream: socket.socket, size: int, until: float) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = stream.recv(size - len(found))
        if not part:
            raise ConnectionError("the server closed the connection")
        if time.monotonic() > until:
            raise TimeoutError("the server's answer was not complete in time")
        found += part
    return bytes(found)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _texts(data: bytes) -> list[str]:
    [count] = struct.unpack_from(">i", data)
    at, found = 4, []
    for _ in range(count):
        [length] = struct.unpack_from(">h", data, at)
        found.append(data[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return found


def _tls_context(settings: KafkaSettings) -> ssl.SSLContext:
    """Return the context for TLS connections. Raises OptionError naming a file that cannot be used."""
    check_files(settings)
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca)
    except (ssl.SSLError, OSError) as error:
        raise OptionError(f"{settings.ssl_ca!r} cannot be used: {error}", plugin="kafka", option="ssl_ca") from error
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_certificate is not None:
        password = settings.ssl_key_password.reveal() if settings.ssl_key_password else None
        try:
            context.load_cert_chain(settings.ssl_certificate, settings.ssl_key, password)
        except (ssl.SSLError, OSError) as error:
            raise OptionError(
                f"{settings.ssl_certificate!r} cannot be used: {error}", plugin="kafka", option="ssl_certificate"
            ) from error
    return context
