"""Senders: the text of their addresses, and which of them are allowed to send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

#: Addresses of datagrams can be forged, so the number of cached addresses is limited.
_KNOWN_MAX = 10_000


class Peers:
    """Gives the headers of records by the sender's address, and decides whether it may send. Used by one thread."""

    def __init__(self, allow: Sequence[str], protocol: str) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(network) for network in allow]
        self._protocol = protocol.encode()
        self._known: dict[str, Mapping[str, bytes] | None] = {}

    def headers(self, text: str) -> Mapping[str, bytes] | None:
        """Return the headers for records of a sender; None if it may not send.

        Equal addresses give the same object, which a buffer stores once.
        """
        try:
            return self._known[text]
        except KeyError:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = self._known[text] = self._headers(text)
            return found

    def _headers(self, text: str) -> Mapping[str, bytes] | None:
        found = ip_address(text.partition("%")[0])
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if self._networks and not any(found in network for network in self._networks):
            return None
        return {"peer": str(found).encode(), "protocol": self._protocol}
