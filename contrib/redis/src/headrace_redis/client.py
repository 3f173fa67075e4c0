"""Makes connections to a server, and turns its errors into those of headrace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.connection_options import uses_tls
from redis.backoff import NoBackoff
from redis.retry import Retry

from headrace_redis.settings import PLUGIN, RedisSettings, refused

#: Prefixes of error replies after which the same command may succeed later.
_LATER = ("OOM", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
_LATER_EXCEPTIONS = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
)


def make_client(settings: RedisSettings) -> redis.Redis:
    """Return a client with a pool of connections, which any thread may use. It connects when it is used.

    Raises OptionError for files of TLS that cannot be read. Commands are not repeated by the client: only the callers
    know which commands may be repeated.
    """
    secured: dict[str, Any] = {}
    if uses_tls(settings):
        for name in ("ssl_ca", "ssl_certificate", "ssl_key"):
            path = getattr(settings, name)
            if path is not None and not os.access(path, os.R_OK):
                raise refused(name, f"{path!r} cannot be read", "name a file that the job's user may read")
        secured = {
            "ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": settings.ssl_ca,
            "ssl_certfile": settings.ssl_certificate, "ssl_keyfile": settings.ssl_key or settings.ssl_certificate,
        }  # fmt: skip
    return redis.Redis(
        host=settings.host, port=settings.port, db=settings.database, username=settings.user,
        password=None if settings.password is None else settings.password.reveal(),
        socket_connect_timeout=settings.connect_timeout.total_seconds(),
        socket_timeout=settings.read_timeout.total_seconds(),
        retry=Retry(NoBackoff(), 0), protocol=2, client_name="headrace", **secured,
    )  # fmt: skip


@contextmanager
def translating(settings: RedisSettings, *, queue: str | None = None) -> Iterator[None]:
    """Turn the library's errors into those of headrace: RetriableError, or JobError if a person must fix something."""
    try:
        yield
    except redis.exceptions.RedisError as error:
        text, place = str(error), f"Redis at {settings.host}:{settings.port}"
        found = _for_person(error)
        if found is not None:
            option, hint = found
            raise JobError(f"{place}: {text}", plugin=PLUGIN, queue=queue, option=option, hint=hint) from error
        if isinstance(error, _LATER_EXCEPTIONS) or text.startswith(_LATER):
            raise RetriableError(f"{place}: {text}", plugin=PLUGIN, queue=queue) from error
        raise JobError(
            f"{place}: {text}", plugin=PLUGIN, queue=queue, hint="correct what the server's message says"
        ) from error


def _for_person(error: redis.exceptions.RedisError) -> tuple[str, str] | None:
    """Return the option that causes an error, and a hint; None if no option causes it."""
    text = str(error)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return "password", "check user and password"
    if isinstance(error, redis.exceptions.NoPermissionError):
        return "user", "let the user run the command and reach the key: ACL SETUSER"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            "ssl_ca",
            "name the file with the authority of the server's certificate, and the server as the certificate does",
        )
    if text.startswith("WRONGTYPE"):
        return "stream", "the key holds something else: name another one"
    if "DB index is out of range" in text:
        return "database", "the server has fewer databases"
    return None
