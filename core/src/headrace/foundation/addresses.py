"""Which addresses only this machine reaches."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its spelling alone: ``localhost``, 127.0.0.0/8 or ::1.

    Called when options are checked: a password may go to such a host without encryption, and a listener there is reached by
    this machine only. No name is looked up: another name is no loopback address, even if it leads to one.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
