"""The options of ``avro-confluent``: where the schema registry is, and what of it a source or sink uses."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.settings import Secret, option

from headrace_avro.settings import check_record_name

FORMAT = "avro-confluent"


class ConfluentSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``avro-confluent``."""

    registry_url: Annotated[str, option("Address of the schema registry.")]
    subject: Annotated[
        str | None,
        option(
            "Subject in the registry. For the values of a Kafka topic it is usually the topic's name and '-value'. A sink needs it; a "
            "source takes its columns from the latest version of it, where the job declares none."
        ),
    ] = None
    avro_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that a sink writes. Default: a record of the columns, each of which may be null; with "
            "register_schema=False the latest version of the subject."
        ),
    ] = None
    avro_schema_file: Annotated[
        str | None, option("File with this schema, in place of avro_schema. It is read when the job is built.")
    ] = None
    reader_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that a source reads all bodies as, by Avro's rules of schema resolution. Default: fields become "
            "columns by their names, and a column that a body's schema does not have is NULL."
        ),
    ] = None
    reader_schema_file: Annotated[
        str | None, option("File with this schema, in place of reader_schema. It is read when the job is built.")
    ] = None
    register_schema: Annotated[
        bool, option("Whether a sink registers its schema. False: the schema must be there, or the sink fails.")
    ] = True
    record_name: Annotated[str, option("Full name of the record that is made of the columns.")] = "record"
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
    max_body_bytes: Annotated[
        int, option("The largest size of a body, in bytes. A larger body is a bad record and is not parsed.", ge=1)
    ] = 16 * 1024 * 1024

    def validate(self) -> None:
        """Check the address, and that options do not contradict each other. Errors never quote what may be a password."""
        for name in ("avro_schema", "reader_schema"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise _refused(f"{name}_file", f"it takes the place of {name}", "give one")
        check_record_name(self.record_name, FORMAT)
        if (self.registry_user is None) != (self.registry_password is None):
            missing = "registry_password" if self.registry_password is None else "registry_user"
            raise _refused(missing, "user and password go together")
        if self.registry_token is not None and self.registry_user is not None:
            raise _refused("registry_token", "a token takes the place of user and password", "give one of them")
        if self.registry_ssl_key and not self.registry_ssl_certificate:
            raise _refused("registry_ssl_key", "it goes together with registry_ssl_certificate")
        _check_address(self)


def _refused(name: str, problem: str, hint: str | None = None) -> OptionError:
    return OptionError(problem, plugin=FORMAT, option=name, hint=hint)


def _check_address(settings: ConfluentSettings) -> None:
    parts = urlsplit(settings.registry_url)
    if parts.username is not None or parts.password is not None:
        raise _refused(
            "registry_url",
            "user and password must not be in the address, where they would be shown",
            "give them as registry_user='...', registry_password='${VARIABLE}'",
        )
    try:
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        port_is_good = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good or parts.query or parts.fragment:
        raise _refused("registry_url", "it is no address such as 'https://registry.example.org:8081'")
    if parts.scheme == "https":
        return
    for name in ("registry_ssl_ca", "registry_ssl_certificate"):
        if getattr(settings, name):
            raise _refused(name, "the address has no TLS", "write https://")
    secret = settings.registry_password or settings.registry_token
    if secret and not settings.registry_plaintext_login and not is_loopback(parts.hostname):
        raise _refused(
            "registry_url",
            "the address has no TLS: the secret would be sent unencrypted, to a server whose identity is not checked",
            "write https://; registry_plaintext_login=True allows it in a network that you trust",
        )
