"""The options of the source."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, ClassVar

from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import option
from headrace_buffer import BufferedSourceSettings

#: Bytes that an append needs beside the largest message: heads of blocks, and the headers with the peer.
_APPEND_SPARE_BYTES = 8 * 1024
#: One append may be as large as the buffer's quota divided by this.
_APPENDS_OF_QUOTA = 8


class SyslogSourceSettings(BufferedSourceSettings, frozen=True, kw_only=True):
    """Options of ``from_syslog``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("udp_port", "tcp_port", "tls_port")

    udp_port: Annotated[
        int | None, option("UDP port to listen on; 0: a free one, which the log names; default: no UDP")
    ] = None
    tcp_port: Annotated[
        int | None, option("TCP port to listen on; 0: a free one, which the log names; default: no TCP without TLS")
    ] = None
    tls_port: Annotated[
        int | None, option("TCP port to listen on for TLS; 0: a free one, which the log names; default: no TLS")
    ] = None
    host: Annotated[str, option("address to listen on; 0.0.0.0 or ::: all of this machine")] = "127.0.0.1"
    allow: Annotated[
        tuple[str, ...],
        option("addresses and networks (10.0.0.0/8) that may send; default: all that reach the port"),
    ] = ()
    anonymous: Annotated[
        bool, option("whether anybody who reaches the port may send, on an address beside loopback")
    ] = False
    ssl_certificate: Annotated[str | None, option("file with the certificate of this server, and those between")] = None
    ssl_key: Annotated[str | None, option("file with its key, if that is not in ssl_certificate")] = None
    ssl_client_ca: Annotated[
        str | None, option("file with certificates; senders over TLS must have one of their own that these have signed")
    ] = None
    message_bytes: Annotated[
        int, option("largest message; longer ones are left out, counted and logged", ge=480, le=8 * 1024**2)
    ] = 64 * 1024
    udp_receive_bytes: Annotated[
        int, option("room in the kernel for datagrams that are not read yet; the system may give less", ge=1)
    ] = 8 * 1024**2
    max_connections: Annotated[int, option("connections at the same time; more are refused", ge=1)] = 1_000

    def validate(self) -> None:
        ports = {name: getattr(self, name) for name in self.in_pictures}
        if all(port is None for port in ports.values()):
            raise refused("udp_port", "there is no port to listen on", "name udp_port, tcp_port or tls_port")
        for name, port in ports.items():
            if port is not None and not 0 <= port <= 65_535:
                raise refused(name, f"{port} is not a port from 0 to 65535")
        if self.tcp_port and self.tcp_port == self.tls_port:
            raise refused("tls_port", f"port {self.tls_port} is already the port without TLS", "name another one")
        for network in self.allow:
            try:
                ip_network(network)
            except ValueError as error:
                raise refused("allow", f"{error}", "such as 192.0.2.0/24 or 2001:db8::1") from None
        self._validate_tls()
        largest = self.buffer_max_bytes // _APPENDS_OF_QUOTA - _APPEND_SPARE_BYTES
        if self.message_bytes > largest:
            raise refused(
                "message_bytes", f"the buffer is too small for a message of {self.message_bytes} bytes",
                f"raise buffer_max_bytes to {_APPENDS_OF_QUOTA * (self.message_bytes + _APPEND_SPARE_BYTES)}",
            )  # fmt: skip
        if is_loopback(self.host) or self.allow or self.anonymous:
            return
        if self.ssl_client_ca and self.udp_port is None and self.tcp_port is None:
            return
        raise refused(
            "allow", f"anybody who reaches {self.host} could send messages",
            "name the networks of the senders, or use only TLS with ssl_client_ca; anonymous=True allows it",
        )  # fmt: skip

    def _validate_tls(self) -> None:
        if self.tls_port is not None and not self.ssl_certificate:
            raise refused("ssl_certificate", "TLS needs this option", "name a file with the certificate of this server")
        for name in ("ssl_certificate", "ssl_key", "ssl_client_ca"):
            if getattr(self, name) and self.tls_port is None:
                raise refused(name, "it can be used only together with tls_port", "name tls_port, or leave it out")


def refused(name: str, problem: str, hint: str | None = None) -> OptionError:
    """Return the error for an option that cannot be used."""
    return OptionError(problem, plugin="syslog", option=name, hint=hint)
