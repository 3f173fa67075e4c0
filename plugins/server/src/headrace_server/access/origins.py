"""Under which addresses the server is reached, and which pages may ask it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace_server.access.errors import AccessDeniedError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Origins:
    """Refuses requests that another site makes a browser send.

    A site can let its own name point to 127.0.0.1 (DNS rebinding); the browser then sends that name as ``Host``. So only known names
    count. ``hosts`` are names without port, beside those of loopback; behind a proxy, the public ones.
    """

    hosts: Collection[str] = ()
    #: Whether browsers reach the server by https: by its own TLS or that of a proxy.
    secure: bool = False

    def check(
        self, method: str, headers: Mapping[bytes, list[bytes]], *, by_session: bool, address: str | None = None
    ) -> None:
        """Raise AccessDeniedError for an unknown Host, and for a request that comes from a page of another origin.

        ``address`` is that at which the connection came in: whoever names it knows the server by it (probes, Prometheus).
        A request of a session that changes something must say its origin; browsers do.
        """
        host = self._host(headers, address)
        origins = [value.decode("latin-1") for value in headers.get(b"origin", [])]
        site = [value.decode("latin-1") for value in headers.get(b"sec-fetch-site", [])]
        wanted = f"{'https' if self.secure else 'http'}://{host}"
        if any(origin.lower() != wanted for origin in origins):
            raise AccessDeniedError(403, "the request comes from a page of another origin")
        elsewhere = any(each not in ("same-origin", "none") for each in site)
        # A link on another page may lead here; it brings no cookie, which is SameSite=Strict.
        if elsewhere and (by_session or method not in _SAFE_METHODS):
            raise AccessDeniedError(403, "the request comes from a page of another site")
        if by_session and method not in _SAFE_METHODS and not origins and site != ["same-origin"]:
            raise AccessDeniedError(403, "the request has neither an Origin nor a Referer header")

    def _host(self, headers: Mapping[bytes, list[bytes]], address: str | None) -> str:
        given = headers.get(b"host", [])
        if len(given) != 1:
            raise AccessDeniedError(400, "the request has no Host header, or several")
        host = given[0].decode("latin-1").lower()
        name, separator, port = host.rpartition(":")
        if not separator or host.endswith("]"):
            name, port = host, "0"
        # An address of the network is no name that a site could let point elsewhere.
        own = set() if address is None else {f"[{address}]" if ":" in address else address}
        known = _LOOPBACK | own | {each.lower() for each in self.hosts}
        if name not in known or not (port.isascii() and port.isdigit()) or urlsplit(f"//{host}").netloc != host:
            raise AccessDeniedError(
                421,
                "the server does not accept requests for this host name",
                hint="add the name to the server's option hosts",
            )
        return host
