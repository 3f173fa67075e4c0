"""The options of the sink."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret, option
from headrace.interfaces.sink import SinkSettings

_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
#: One address, without a display name. The server decides which texts before the @ are valid; characters that would
#: begin another header are refused here.
ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+")
PLACE = re.compile(r"\{(\w+)\}")


class MailSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_mail``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("to", "to_column")

    host: Annotated[str, option("SMTP server that takes the mails")]
    sender: Annotated[str, option("address that the mails come from")]
    to: Annotated[tuple[str, ...], option("addresses that get all rows")] = ()
    to_column: Annotated[
        str | None, option("text column with the address that gets the row, or several with commas between them")
    ] = None
    subject: Annotated[
        str, option("subject; {column} stands for the value in the first row of the mail, {rows} for their number")
    ] = "{rows} rows"
    line: Annotated[
        str | None, option("text of each row in the mail; {column} stands for its value; default: the row as JSON")
    ] = None
    rows_per_mail: Annotated[int, option("maximum number of rows in one mail", ge=1)] = 100
    security: Annotated[
        Literal["starttls", "tls", "none"],
        option("TLS after the greeting (port 587), TLS from the beginning (port 465), or none"),
    ] = "starttls"
    port: Annotated[int, option("TCP port; 0: 587, 465 for security='tls', 25 for 'none'", ge=0, le=65_535)] = 0
    user: Annotated[str | None, option("user of the login")] = None
    password: Annotated[Secret | None, option('password of the login; "${VARIABLE}" reads an environment variable')] = (
        None
    )
    ssl_ca: Annotated[
        str | None, option("file with certificates that the server's is checked by; default: those of this machine")
    ] = None
    timeout: Annotated[timedelta, option("how long to wait for the server")] = timedelta(seconds=30)
    batch_size: Annotated[int, option("maximum number of rows in one call of batch_insert", ge=1)] = 1_000
    flush_interval: Annotated[timedelta, option("longest time that a row waits in the cache")] = timedelta(seconds=10)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        return self.host, self.port or {"starttls": 587, "tls": 465, "none": 25}[self.security]

    def validate(self) -> None:
        if bool(self.to) == (self.to_column is not None):
            raise refused("to", "give either the option to or to_column")
        for name, addresses in (("sender", (self.sender,)), ("to", self.to)):
            for address in addresses:
                if not ADDRESS.fullmatch(address):
                    raise refused(name, f"{address!r} is not an address such as 'alerts@example.org'")
        if "\n" in self.subject or "\r" in self.subject:
            raise refused("subject", "it must be a single line")
        if (self.user is None) != (self.password is None):
            raise refused("password" if self.password is None else "user", "give both user and password, or neither")
        if self.ssl_ca and self.security == "none":
            raise refused("ssl_ca", "it has no effect with security='none'", "leave it out, or use starttls")
        if self.security == "none" and self.password is not None and not _LOOPBACK.fullmatch(self.host):
            raise refused("security", "without TLS the password would be sent unencrypted", "use starttls or tls")

    @property
    def columns(self) -> set[str]:
        """The columns that the options name."""
        named = set(PLACE.findall(self.subject)) - {"rows"} | set(PLACE.findall(self.line or ""))
        return named | ({self.to_column} if self.to_column is not None else set())


def refused(name: str, problem: str, hint: str | None = None) -> OptionError:
    """Return the error for an option that cannot be used."""
    return OptionError(problem, plugin="mail", option=name, hint=hint)
