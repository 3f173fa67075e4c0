"""Options that formats with a schema registry share: its address, the login, and the subject that a source or sink
uses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.format_parts import MaxBodyBytes
from headrace.interfaces.settings import Secret, option


class RegistrySettings(declared.Settings, frozen=True, kw_only=True):
    """Options of a registry. A format derives its own class from it, and names itself in ``format_name``."""

    #: The name of the format, for errors.
    format_name: ClassVar[str] = "schema registry"

    registry_url: Annotated[str, option("Address of the schema registry.")]
    subject: Annotated[
        str | None,
        option(
            "Subject in the registry. For the values of a Kafka topic it is usually the topic's name and '-value'. A sink needs it; a "
            "source takes its columns from the latest version of it, where the job declares none."
        ),
    ] = None
    register_schema: Annotated[
        bool, option("Whether a sink registers its schema. False: the schema must be there, or the sink fails.")
    ] = True
    registry_user: Annotated[str | None, option("User name for the registry.")] = None
    registry_password: Annotated[
        Secret | None, option('Password for the registry; "${VARIABLE}" reads an environment variable.')
    ] = None
    registry_token: Annotated[
        Secret | None, option("Bearer token for the registry, in place of user and password.")
    ] = None
    registry_plaintext_login: Annotated[
        bool, option("Allow secrets in requests without TLS; anybody on the network can then read them.")
    ] = False
    registry_ssl_ca: Annotated[
        str | None, option("File with the trusted certificates. Default: those of the system.")
    ] = None
    registry_ssl_certificate: Annotated[str | None, option("File with the client's certificate.")] = None
    registry_ssl_key: Annotated[
        str | None, option("File with the client's key, if it is not in registry_ssl_certificate.")
    ] = None
    registry_timeout: Annotated[timedelta, option("How long to wait for an answer of the registry.")] = timedelta(
        seconds=10
    )
    unknown_id_wait: Annotated[
        timedelta,
        option(
            "How long a source waits for an id that the registry does not know, before bodies with this id are bad records. Meanwhile "
            "it reads nothing more of the queue."
        ),
    ] = timedelta(0)
    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024

    def validate(self) -> None:
        """Check the address, and that options do not contradict each other. Errors never quote what may be a password."""
        if (self.registry_user is None) != (self.registry_password is None):
            missing = "registry_password" if self.registry_password is None else "registry_user"
            raise self.refused(missing, "give both user and password, or neither")
        if self.registry_token is not None and self.registry_user is not None:
            raise self.refused(
                "registry_token", "a token cannot be combined with user and password", "give one of them"
            )
        if self.registry_ssl_key and not self.registry_ssl_certificate:
            raise self.refused("registry_ssl_key", "it can be used only together with registry_ssl_certificate")
        if self.unknown_id_wait < timedelta(0):
            raise self.refused("unknown_id_wait", "it must not be negative")
        _check_address(self)

    def refused(self, name: str, problem: str, hint: str | None = None) -> OptionError:
        """Return the error for a wrong option."""
        return OptionError(problem, plugin=self.format_name, option=name, hint=hint)


def _check_address(settings: RegistrySettings) -> None:
    parts = urlsplit(settings.registry_url)
    if parts.username is not None or parts.password is not None:
        raise settings.refused(
            "registry_url",
            "user and password must not be in the address, where they would be shown",
            "give them as registry_user='...', registry_password='${VARIABLE}'",
        )
    try:
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        port_is_good = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good or parts.query or parts.fragment:
        raise settings.refused("registry_url", "it is not an address such as 'https://registry.example.org:8081'")
    if parts.scheme == "https":
        return
    for name in ("registry_ssl_ca", "registry_ssl_certificate"):
        if getattr(settings, name):
            raise settings.refused(name, "the address has no TLS", "write https://")
    secret = settings.registry_password or settings.registry_token
    if secret and not settings.registry_plaintext_login and not is_loopback(parts.hostname):
        raise settings.refused(
            "registry_url",
            "the address has no TLS: the secret would be sent unencrypted, to a server whose identity is not checked",
            "write https://; registry_plaintext_login=True allows it in a network that you trust",
        )
