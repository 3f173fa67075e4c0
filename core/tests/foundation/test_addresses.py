"""Which hosts are this machine by their spelling."""

from __future__ import annotations

import pytest
from headrace.foundation.addresses import is_loopback


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost", "127.0.0.1", "127.255.3.4", "::1", "0:0:0:0:0:0:0:1", "::1%lo", "::ffff:127.0.0.1"],
)
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::2", "::ffff:10.0.0.1", "localhost.example.org", "127.0.0.1.org", "127.1", "db"],
)  # fmt: skip
def test_other_machines_and_all_addresses(host: str) -> None:
    assert not is_loopback(host)
