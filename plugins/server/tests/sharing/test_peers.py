"""Requests between servers are believed only as they were signed."""

from __future__ import annotations

import pytest
from headrace.foundation.clock import ManualClock
from headrace_server.access.roles import Principal, Role
from headrace_server.sharing.peers import SCHEME, PeerKey

ANN = Principal("ann", Role.OPERATOR, "session")


def signed(key: PeerKey, principal: Principal = ANN) -> str:
    scheme, _, text = key.signed(principal, "csrf", "GET", "/v1/jobs/a").partition(" ")
    assert scheme == SCHEME
    return text


def test_a_signed_request_says_on_whose_behalf_it_is_made() -> None:
    key = PeerKey("secret")
    assert key.principal_of(signed(key), "GET", "/v1/jobs/a") == (ANN, "csrf")


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs/a"), ("GET", "/v1/jobs/b"), ("GET", "/v1/jobs/a/")])
def test_it_holds_for_no_other_request(method: str, path: str) -> None:
    key = PeerKey("secret")
    assert key.principal_of(signed(key), method, path) is None


@pytest.mark.parametrize(("later", "found"), [(59.0, True), (61.0, False), (-61.0, False)])
def test_it_holds_for_a_minute(later: float, found: bool) -> None:
    clock = ManualClock(1_800_000_000.0)
    key = PeerKey("secret", clock)
    text = signed(key)
    clock.advance(later)
    assert (key.principal_of(text, "GET", "/v1/jobs/a") is not None) == found


def test_what_was_changed_or_signed_with_another_secret_is_refused() -> None:
    key = PeerKey("secret")
    text = signed(key)
    higher = signed(PeerKey("guess"), Principal("eve", Role.AUTHOR, "token"))
    mixed = f"{higher.partition('.')[0]}.{text.partition('.')[2]}"
    for wrong in (higher, mixed, text[:-1], text[1:], "", ".", "é.é", text + "0"):
        assert key.principal_of(wrong, "GET", "/v1/jobs/a") is None
