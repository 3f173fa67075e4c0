"""The options of the sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from headrace.interfaces.connection_options import SslCa, SslCertificate, SslKey, check_client_key
from headrace.interfaces.settings import option
from headrace.interfaces.sink import SinkSettings

from headrace_syslog.priorities import FACILITIES, SEVERITIES
from headrace_syslog.source_settings import refused

#: The largest payload of a datagram over IPv4.
DATAGRAM_BYTES_MAX = 65_507
_PORTS = {"udp": 514, "tcp": 514, "tls": 6514}


class SyslogSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_syslog``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("host", "protocol")

    host: Annotated[str, option("name or address of the receiver")]
    port: Annotated[int | None, option("port of the receiver; default: 514, with TLS 6514")] = None
    protocol: Annotated[
        Literal["udp", "tcp", "tls"],
        option("how messages are sent; over tcp and tls they are framed by counted octets"),
    ] = "tcp"
    facility: Annotated[str, option("facility of rows without the column facility")] = "user"
    severity: Annotated[str, option("severity of rows without the column severity")] = "info"
    app: Annotated[str, option("app of rows without the column app")] = "headrace"
    from_host: Annotated[
        str | None, option("host of rows without the column host; default: the name of this machine")
    ] = None
    message: Annotated[
        str | None,
        option("column whose text is the message; default: the column message if there is one, else the row as JSON"),
    ] = None
    message_bytes: Annotated[int, option("largest message; a row that is longer goes to the dead letters", ge=480)] = (
        60 * 1024
    )
    timeout: Annotated[timedelta, option("longest wait for a connection, and for the receiver to take messages")] = (
        timedelta(seconds=30)
    )
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    ssl_verify: Annotated[
        bool,
        option(
            "whether the receiver's certificate and host name are checked; with False, anybody on the way can read and "
            "change the messages"
        ),
    ] = True

    @property
    def to_port(self) -> int:
        """The port of the receiver."""
        return _PORTS[self.protocol] if self.port is None else self.port

    def validate(self) -> None:
        if not self.host or any(character in self.host for character in "/ "):
            raise refused("host", f"{self.host!r} is not a name or address of a machine")
        if not 1 <= self.to_port <= 65_535:
            raise refused("port", f"{self.port} is not a port from 1 to 65535")
        for name, known in (("facility", FACILITIES), ("severity", SEVERITIES)):
            if getattr(self, name) not in known:
                raise refused(name, f"{getattr(self, name)!r} is not one of {', '.join(known)}")
        for name in ("app", "from_host"):
            given = getattr(self, name)
            if given is not None and not (given.isascii() and given.isprintable() and given and " " not in given):
                raise refused(name, f"{given!r} is not printable ASCII without blanks")
        if self.protocol == "udp" and self.message_bytes > DATAGRAM_BYTES_MAX:
            raise refused("message_bytes", f"a datagram can have at most {DATAGRAM_BYTES_MAX} bytes")
        for name in ("ssl_ca", "ssl_certificate", "ssl_key"):
            if getattr(self, name) and self.protocol != "tls":
                raise refused(name, "it can be used only with TLS", "set protocol='tls'")
        check_client_key(self, plugin="syslog")
