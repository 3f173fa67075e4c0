"""Attacks on the middleware: each must be refused, and the same request without the attack must pass."""

from __future__ import annotations

import hmac
import logging
from datetime import timedelta
from typing import Any

import pytest
from access_world import PASSWORD, World
from headrace_server.access import Limits, Origins, Role

JOB = "/v1/jobs/team/orders"


def test_each_role_may_do_what_it_may_and_nothing_above(world: World) -> None:
    requests = {"GET": JOB, "POST": f"{JOB}/start", "PUT": JOB, "DELETE": JOB}  # no route declares the last
    for role, allowed in (
        (Role.VIEWER, ["GET"]),
        (Role.OPERATOR, ["GET", "POST"]),
        (Role.AUTHOR, ["GET", "POST", "PUT", "DELETE"]),
    ):
        for by_token in (True, False):
            headers = (world.bearer(role),) if by_token else world.session(role)
            found = {method: world.ask(method, path, *headers).status for method, path in requests.items()}
            assert found == {method: 200 if method in allowed else 403 for method in requests}
    assert {entry[2].kind for entry in world.reached} == {"token", "session"}


def test_without_anything_only_public_routes_answer(world: World) -> None:
    assert world.ask("GET", "/health").status == 200
    answer = world.ask("GET", "/v1/jobs")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="headrace"')
    assert world.ask("GET", "/nowhere").status == 401
    assert [entry[1] for entry in world.reached] == ["/health"]
    assert world.states[0]["principal"] is None
    assert world.states[0]["shared"]


def test_forged_tokens_are_refused(world: World) -> None:
    good = world.bearer()[1].removeprefix("Bearer ")
    prefix, public, secret = good.split("_", 2)
    other = world.bearer()[1].removeprefix("Bearer ")
    forged = [
        "", "x", good[:-1], good + "a", f"{prefix}_{public}_{'A' * 43}", f"{prefix}_{'0' * 16}_{secret}",
        f"{prefix}_{public}_{other.split('_', 2)[2]}", good.upper(), f"{good}\x00", f"{prefix}_{public}' OR '1'='1_{secret}", "hrt__",
    ]  # fmt: skip
    for token in forged:
        assert world.ask("GET", "/v1/jobs", ("Authorization", f"Bearer {token}")).status == 401, token
    for scheme in ("Basic", "Token", ""):
        assert world.ask("GET", "/v1/jobs", ("Authorization", f"{scheme} {good}")).status == 401
    assert world.ask("GET", "/v1/jobs", ("Authorization", f"Bearer {good}")).status == 200
    assert world.ask("GET", "/v1/jobs", *[("Authorization", f"Bearer {good}")] * 2).status == 400
    # A wrong token is not made up for by a right cookie: it would hide an error, and mix two identities.
    assert world.ask("GET", "/v1/jobs", ("Authorization", "Bearer x"), *world.session()).status == 401


def test_revoked_and_expired_tokens_are_refused_at_once(world: World) -> None:
    token = world.authority.make_token("ci", Role.VIEWER, lifetime=timedelta(hours=1))
    header = ("Authorization", f"Bearer {token}")
    world.clock.advance(3599)
    assert world.ask("GET", "/v1/jobs", header).status == 200
    world.clock.advance(1)
    assert world.ask("GET", "/v1/jobs", header).status == 401
    token = world.authority.make_token("ci", Role.VIEWER)
    assert world.authority.revoke_token(token.split("_")[1])
    assert world.ask("GET", "/v1/jobs", ("Authorization", f"Bearer {token}")).status == 401


def test_secrets_are_compared_in_constant_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such a comparison the test finds no call; also for a token whose id is unknown."""
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def counted(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    header = world.bearer()
    world.ask("GET", "/v1/jobs", header)
    assert len(compared) == 1
    world.ask("GET", "/v1/jobs", ("Authorization", f"Bearer hrt_{'0' * 16}_{'A' * 43}"))
    assert len(compared) == 2
    world.ask("PUT", JOB, *world.session())
    assert len(compared) == 3
    assert all(len(one) == len(other) == 64 for one, other in compared)


@pytest.mark.parametrize(
    "query", ["token=x", "access_token=x", "api_key=x", "a=1&Password=x", "t%6Fken=x", "client_secret"]
)
def test_a_secret_in_the_address_is_refused(world: World, query: str) -> None:
    answer = world.ask("GET", "/v1/jobs", world.bearer(), query=query)
    assert answer.status == 400
    assert "address" in answer.detail
    assert b"revoke the secret" in answer.body
    assert world.reached == []


def test_a_token_under_any_name_in_the_address_is_refused(world: World) -> None:
    token = world.bearer()[1].removeprefix("Bearer ")
    for query in (f"q={token}", token, f"q=h%72t_{token[4:]}"):
        answer = world.ask("GET", "/v1/jobs", world.bearer(), query=query)
        assert answer.status == 400
        assert token.encode() not in answer.body
    assert world.ask("GET", "/v1/jobs", world.bearer(), query="label=a&page=2").status == 200


def test_a_session_changes_nothing_without_its_csrf_token(world: World) -> None:
    cookie, csrf, origin = world.session()
    other_csrf = world.authority.log_in("user-author", PASSWORD, address="x").csrf_token
    assert world.ask("GET", JOB, cookie).status == 200
    for headers in (
        (),
        (("X-CSRF-Token", ""),),
        (("X-CSRF-Token", other_csrf),),
        (csrf, csrf),
        (("X-CSRF-Token", csrf[1][:-1]),),
    ):
        answer = world.ask("PUT", JOB, cookie, origin, *headers)
        assert (answer.status, answer.detail) == (403, "the request has no valid X-CSRF-Token")
    assert world.ask("PUT", JOB, cookie, csrf, origin).status == 200
    assert world.states[-1]["csrf_token"] == csrf[1]
    # A program with a token has no cookie that a browser would add for it.
    assert world.ask("PUT", JOB, world.bearer()).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:9999",
        "https://localhost:8700",
        "http://localhost:8700.evil",
        "",
    ],
)
def test_pages_of_other_origins_are_refused(world: World, origin: str) -> None:
    cookie, csrf, right = world.session()
    for method in ("GET", "PUT"):
        for headers in ((cookie, csrf), (world.bearer(),)):
            assert world.ask(method, JOB, *headers, ("Origin", origin)).status == 403
            assert world.ask(method, JOB, *headers, right).status == 200
    # Nobody is logged in as somebody else by a foreign page.
    assert world.ask("POST", "/v1/login", ("Origin", origin)).status == 403
    assert world.ask("POST", "/v1/login", right).status == 200


def test_a_session_must_say_where_a_change_comes_from(world: World) -> None:
    cookie, csrf, _ = world.session()
    assert world.ask("PUT", JOB, cookie, csrf).status == 403
    assert world.ask("PUT", JOB, cookie, csrf, ("Sec-Fetch-Site", "same-origin")).status == 200
    for site in ("cross-site", "same-site", "odd"):
        assert world.ask("PUT", JOB, cookie, csrf, ("Sec-Fetch-Site", site)).status == 403
        assert world.ask("GET", JOB, cookie, ("Sec-Fetch-Site", site)).status == 403
    assert world.ask("PUT", JOB, cookie, csrf, ("Sec-Fetch-Site", "none")).status == 403


@pytest.mark.parametrize("host", [
    None, "", "evil.example", "evil.example:8700", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:8700@evil",
    "localhost:x", "localhost:8700/x", "[::2]:8700", "localhost\t",
])  # fmt: skip
def test_unknown_hosts_are_refused(world: World, host: str | None) -> None:
    assert world.ask("GET", "/health", host=host).status in (400, 421)
    assert world.reached == []


def test_known_hosts_are_served(world: World) -> None:
    for host in ("localhost", "LOCALHOST:8700", "127.0.0.1:1", "[::1]:8700", "[::1]"):
        assert world.ask("GET", "/health", host=host).status == 200
    assert world.ask("GET", "/health", ("Host", "localhost"), host="localhost").status == 400
    world.guard(origins=Origins(hosts=["headrace.example"], secure=True))
    assert world.ask("GET", "/health", ("Origin", "https://headrace.example"), host="headrace.example").status == 200
    assert world.ask("GET", "/health", ("Origin", "http://headrace.example"), host="headrace.example").status == 403


@pytest.mark.parametrize(
    ("server", "host", "status"),
    [
        (("10.1.2.3", 8700), "10.1.2.3:8700", 200),  # as probes of Kubernetes and Prometheus ask a pod
        (("fd00::7", 8700), "[fd00::7]:8700", 200),
        (("10.1.2.3", 8700), "10.1.2.4:8700", 421),  # an address of another machine
        (("10.1.2.3", 8700), "10.1.2.3.evil.example", 421),
        (("evil.example", 8700), "evil.example", 421),  # only an address counts, whatever the socket is called
        (("/run/socket", None), "/run/socket", 421),
        (None, "10.1.2.3", 421),
    ],
)
def test_the_address_at_which_a_connection_came_in_is_known(
    world: World, server: tuple[str, int | None] | None, host: str, status: int
) -> None:
    assert world.ask("GET", "/health", host=host, server=server).status == status


@pytest.mark.parametrize("path", [
    "/v1/jobs/../admin", "/v1/jobs/..", "/v1/jobs/./x", "/v1/jobs/a\\b", "/v1/jobs/a\nb", "/v1/jobs/a\x00", "/v1//jobs",
    "/v1/jobs/\x1b[31m", "/" + "a" * 3000,
])  # fmt: skip
def test_paths_that_leave_their_place_are_refused(world: World, path: str) -> None:
    assert world.ask("GET", path, world.bearer()).status == 400
    assert world.reached == []


@pytest.mark.parametrize(
    "raw",
    [
        b"/v1/jobs/%2e%2e/admin",
        b"/v1/jobs/..%2fadmin",
        b"/v1/jobs/a%5Cb",
        b"/v1/jobs/a%0d%0aX:1",
        b"/v1/jobs/a%00",
        b"/v1/jobs/%2E/x",
    ],
)
def test_encoded_paths_that_leave_their_place_are_refused(world: World, raw: bytes) -> None:
    """Servers decode the path, some once more: what the raw path says counts too."""
    assert world.ask("GET", "/v1/jobs/harmless", world.bearer(), raw_path=raw).status == 400
    assert world.ask("GET", "/v1/jobs/a b", world.bearer(), raw_path=b"/v1/jobs/a%20b").status == 200


def test_large_bodies_are_refused_declared_or_not(world: World) -> None:
    world.guard(limits=Limits(body_bytes_max=100))
    assert world.ask("PUT", JOB, world.bearer(), body=[b"x" * 50, b"x" * 50]).status == 200
    for headers in ((("Content-Length", "101"),), (("Content-Length", "9" * 30),), ()):
        for swallows in (False, True):
            world.swallows_errors = swallows
            answer = world.ask("PUT", JOB, world.bearer(), *headers, body=[b"x" * 60, b"x" * 60])
            assert answer.status in (400, 413)
            assert answer.body != b"failed"
    for wrong in ((("Content-Length", "-1"),), (("Content-Length", "1"), ("Content-Length", "2"))):
        assert world.ask("PUT", JOB, world.bearer(), *wrong).status == 400
    smuggled = (("Content-Length", "1"), ("Transfer-Encoding", "chunked"))
    assert world.ask("PUT", JOB, world.bearer(), *smuggled).status == 400
    assert len(world.reached) == 1


def test_slow_bodies_are_refused(world: World) -> None:
    world.guard(limits=Limits(body_time_max=timedelta(seconds=60)))
    assert world.ask("PUT", JOB, world.bearer(), body=[b"x"] * 60, seconds_per_part=1).status == 200
    assert world.ask("PUT", JOB, world.bearer(), body=[b"x"] * 62, seconds_per_part=1).status == 408
    world.swallows_errors = True
    assert world.ask("PUT", JOB, world.bearer(), body=[b"x"] * 62, seconds_per_part=1).status == 408


def test_a_client_that_sends_nothing_is_refused(world: World) -> None:
    world.guard(limits=Limits(body_time_max=timedelta(milliseconds=20)))
    answer = world.ask("PUT", JOB, world.bearer(), body=[])
    assert (answer.status, answer.headers["connection"]) == (408, "close")


def test_too_many_requests_of_an_address_are_refused(world: World) -> None:
    world.guard(limits=Limits(requests_per_second=1, requests_at_once=3))
    assert [world.ask("GET", "/health").status for _ in range(4)] == [200, 200, 200, 429]
    assert world.ask("GET", "/health", address="127.0.0.2").status == 200
    world.clock.advance(2)
    found = [world.ask("GET", "/health") for _ in range(3)]
    assert [each.status for each in found] == [200, 200, 429]
    assert found[2].headers["retry-after"] == "1"


def test_every_answer_has_the_headers_of_security(world: World) -> None:
    world.answer_headers = [(b"X-Frame-Options", b"ALLOW"), (b"cache-control", b"max-age=9")]
    passed, refused = world.ask("GET", "/health"), world.ask("GET", "/v1/jobs")
    for answer in (passed, refused):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "-src 'self'" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "strict-transport-security" not in answer.headers
    assert passed.headers["cache-control"] == "max-age=9"
    assert refused.headers["cache-control"] == "no-store"
    world.guard(origins=Origins(secure=True))
    assert "strict-transport-security" in world.ask("GET", "/health").headers


def test_a_page_has_a_policy_of_its_own(world: World) -> None:
    world.answer_headers = [(b"Content-Security-Policy", b"script-src 'self'"), (b"Referrer-Policy", b"same-origin")]
    found = world.ask("GET", "/health").headers
    assert (found["content-security-policy"], found["referrer-policy"]) == ("script-src 'self'", "same-origin")
    assert found["x-frame-options"] == "DENY"
    # A refusal is no page.
    assert "default-src 'none'" in world.ask("GET", "/v1/jobs").headers["content-security-policy"]


def test_somebody_with_a_session_may_log_in_as_somebody_else(world: World) -> None:
    cookie, _, origin = world.session()
    assert world.ask("POST", "/v1/login", cookie, origin).status == 200
    assert world.ask("POST", "/v1/login", cookie, ("Origin", "http://evil.example")).status == 403


@pytest.mark.parametrize("header", [(b"x-name", b"a\r\nset-cookie: b=c"), (b"x\nname", b"a"), (b"x", b"\x00")])
def test_an_answer_cannot_get_another_header_line(world: World, header: tuple[bytes, bytes]) -> None:
    world.answer_headers = [header]
    with pytest.raises(ValueError, match="line break"):
        world.ask("GET", "/health")


def test_what_is_logged_stays_on_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace_server.access"):
        world.ask("GET", "/v1/x\n2026-01-01 admin logged in\x1b[2J")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].isprintable()
    assert "\\n2026" in caplog.messages[0]


def test_a_session_cookie_of_another_port_does_no_harm(world: World) -> None:
    """Cookies of 127.0.0.1 are shared by all ports of it: another program may have set one of our name in front of ours."""
    cookie, csrf, origin = world.session()
    both = ("Cookie", f"headrace_session=planted; a=b; {cookie[1]}")
    assert world.ask("PUT", JOB, both, csrf, origin).status == 200
    assert world.ask("GET", JOB, ("Cookie", "headrace_session=planted")).status == 401


def test_websockets_are_closed(world: World) -> None:
    import asyncio

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    asyncio.run(world.app({"type": "websocket", "path": "/v1/jobs", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert world.reached == []
