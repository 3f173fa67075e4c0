"""Shared options of connectors to servers: login and TLS, with their checks and the TLS context that they describe.

A connector lists the options that it supports in its own settings, as ``password: Password = None``. So they have the
same names and descriptions in all connectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import JobError, OptionError
from headrace.interfaces.settings import Secret, option

if TYPE_CHECKING:
    import ssl

User = Annotated[str | None, option("user name")]
Password = Annotated[Secret | None, option('password; "${VARIABLE}" reads an environment variable')]
PlaintextLogin = Annotated[
    bool, option("allow a password without TLS on an address beside loopback; anybody on the network can then read it")
]
#: For servers that are reached by host and port. Connectors with a URL do not have these options.
Ssl = Annotated[
    bool,
    option(
        "whether TLS is used, with a check of the server's certificate and host name; ssl_ca and ssl_certificate imply it"
    ),
]
SslCa = Annotated[str | None, option("file with the trusted certificates; default: those of the system")]
SslCertificate = Annotated[str | None, option("file with the client's certificate")]
SslKey = Annotated[str | None, option("file with the client's key, if it is not in ssl_certificate")]
SslVerify = Annotated[
    bool,
    option(
        "whether the server's certificate and host name are checked; with False, anybody on the way can read and change "
        "the data"
    ),
]


class HasTls(Protocol):
    """Settings of a client that may use TLS."""

    @property
    def ssl_ca(self) -> str | None: ...
    @property
    def ssl_certificate(self) -> str | None: ...
    @property
    def ssl_key(self) -> str | None: ...


class HasHost(HasTls, Protocol):
    """Settings of a client that reaches a server by host and port."""

    @property
    def host(self) -> str: ...
    @property
    def ssl(self) -> bool: ...


class HasLogin(HasHost, Protocol):
    """Settings of a client that sends a password, if it has one."""

    @property
    def password(self) -> Secret | None: ...
    @property
    def plaintext_login(self) -> bool: ...


def uses_tls(settings: HasHost) -> bool:
    """Return whether connections use TLS: the option ``ssl`` is set, or an option names a file for TLS."""
    return settings.ssl or settings.ssl_ca is not None or settings.ssl_certificate is not None


def check_client_key(settings: HasTls, *, plugin: str) -> None:
    """Raise OptionError for a key without the certificate that it belongs to. Called by ``Settings.validate``."""
    if settings.ssl_key and not settings.ssl_certificate:
        raise OptionError(
            "it can be used only together with ssl_certificate", plugin=plugin, option="ssl_key",
            hint="give the file with the client's certificate too",
        )  # fmt: skip


def check_login(settings: HasLogin, *, plugin: str) -> None:
    """Raise OptionError when the password would travel unencrypted to another machine. Called by
    ``Settings.validate``.
    """
    if settings.password is None or uses_tls(settings) or settings.plaintext_login or is_loopback(settings.host):
        return
    raise OptionError(
        "without TLS the password would be sent unencrypted", plugin=plugin, option="ssl",
        hint="set ssl=True; plaintext_login=True allows it in a network that you trust",
    )  # fmt: skip


def client_tls_context(settings: Any, *, plugin: str, prefix: str = "", verify: bool = True) -> ssl.SSLContext:
    """Return the context of connections with TLS, by the options ``ssl_ca``, ``ssl_certificate`` and ``ssl_key``.

    A connector calls it when it makes its client, in the process that connects. The files must exist on that machine.

    Args:
        settings: Has the three options.
        plugin: Named in errors.
        prefix: The prefix of the names of the three options.
        verify: Whether the server's certificate and host name are checked.

    Raises:
        JobError: A file is missing or unusable. The error names the option.
    """
    import ssl  # not at the top: plans are made without it

    ca, certificate, key = (getattr(settings, f"{prefix}{name}") for name in ("ssl_ca", "ssl_certificate", "ssl_key"))
    naming, path = f"{prefix}ssl_ca", ca
    try:
        context = ssl.create_default_context(cafile=ca)
        naming, path = f"{prefix}ssl_certificate", certificate
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # TLS errors are OSErrors, too
        raise JobError(
            f"cannot use {path!r}: {error.strerror or error}", plugin=plugin, option=naming, hint="name a PEM file"
        ) from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
