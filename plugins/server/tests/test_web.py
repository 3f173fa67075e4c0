"""The pages without a browser: who gets in, what is refused, what is escaped."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError
from headrace_server.access import Role
from headrace_server.web.differences import differences
from headrace_server.web.letters import Replay, ReplayLock, chosen_letters, note_replay, read_letters
from headrace_server.web.rates import Rates
from server_world import World
from starlette.types import ASGIApp

PASSWORD = "correct horse battery"
SITE = "http://127.0.0.1:8731"
PAGES = [
    "/",
    "/sql",
    "/audit",
    "/jobs/clicks",
    "/jobs/clicks/versions",
    "/jobs/clicks/logs",
    "/jobs/clicks/dead-letters",
]
EVIL = "<script>alert(1)</script>"


class Browser:
    """Asks the application without a network, and keeps its cookies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.cookies = httpx.Cookies()

    def send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=SITE, cookies=self.cookies) as client:
                return await client.request(method, path, **arguments)

        answer = asyncio.run(ask())
        self.cookies.update(answer.cookies)
        return answer

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.send("GET", path, **arguments)

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        return self.send("POST", path, **arguments)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.write("clicks")
    made.pass_time()
    yield made
    made.close()


@pytest.fixture
def browser(world: World) -> Browser:
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)
    return Browser(world.app())


#: What browsers send with each request of a page's script.
OWN = {"Origin": SITE, "Sec-Fetch-Site": "same-origin"}


def log_in(browser: Browser) -> str:
    """Log in and return the CSRF token of the pages."""
    assert browser.post("/login", data={"name": "ann", "secret": PASSWORD}).status_code == 303
    text = browser.get("/").text
    return text.split('name="csrf-token" content="')[1].split('"')[0]


def letter(**values: Any) -> bytes:
    found = {"queue": "file/a", "offset": 1, "origin": "file", "error": "DecodeError", "reason": "bad", "preview": "p",
             "row": None, "body": base64.b64encode(EVIL.encode()).decode(), **values}  # fmt: skip
    return json.dumps(found).encode() + b"\n"


@pytest.mark.parametrize("path", [*PAGES, "/jobs/clicks/rules"])
def test_without_a_session_every_page_leads_to_the_log_in(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert browser.get("/live/jobs").status_code == 401


@pytest.mark.parametrize("path", PAGES)
def test_pages_have_a_strict_policy_and_nothing_inline(browser: Browser, path: str) -> None:
    log_in(browser)
    answer = browser.get(path)
    assert answer.status_code == 200
    assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    for inline in ("<style", " style=", " onclick", "<script>"):
        assert inline not in answer.text


def test_the_cookie_is_for_this_site_only_and_not_for_scripts(browser: Browser) -> None:
    cookie = browser.post("/login", data={"name": "ann", "secret": PASSWORD}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_wrong_secrets_are_refused_and_too_many_stop_the_right_one(browser: Browser, world: World) -> None:
    token = world.authority.make_token("ci", Role.VIEWER)
    for wrong in ({"name": "ann", "secret": "wrong"}, {"name": "bob", "secret": PASSWORD}, {"secret": "wrong"}, {}):
        answer = browser.post("/login", data=wrong)
        assert (answer.status_code, 'role="alert"' in answer.text) == (401, True)
    assert browser.post("/login", data={"secret": token[:-1]}).status_code == 401
    answer = browser.post("/login", data={"secret": token})
    assert (answer.status_code, answer.headers["retry-after"], "Wait" in answer.text) == (429, "2", True)
    world.clock.advance(61)
    assert browser.post("/login", data={"secret": token}).status_code == 303


def test_a_token_logs_in_with_its_role_and_its_session_ends_with_it(browser: Browser, world: World) -> None:
    token = world.authority.make_token("screen", Role.VIEWER)
    assert browser.post("/login", data={"secret": f" {token}\n"}).status_code == 303
    assert "screen (viewer)" in browser.get("/").text
    for path in ("/sql", "/audit", "/jobs/clicks/logs"):
        assert browser.get(path).status_code == 403
    assert "/sql" not in browser.get("/").text
    world.authority.revoke_token(token.split("_")[1])
    assert browser.get("/").status_code == 303


def test_somebody_with_a_session_can_log_in_as_somebody_else(browser: Browser, world: World) -> None:
    log_in(browser)
    first = browser.cookies["headrace_session"]
    token = world.authority.make_token("screen", Role.VIEWER)
    assert browser.post("/login", data={"secret": token}, headers=OWN).status_code == 303
    assert "screen (viewer)" in browser.get("/").text
    assert world.authority.session_of(first) is None
    evil = {"Origin": "http://evil.example"}
    assert browser.post("/login", data={"secret": token}, headers=evil).status_code == 403


def test_the_audit_page_shows_changes_and_escapes_them(browser: Browser) -> None:
    csrf = log_in(browser)
    headers = {"X-CSRF-Token": csrf, **OWN}
    for number in range(60):
        body = {"suffix": ".py", "text": f"{EVIL} {number}"}
        assert browser.send("PUT", "/v1/jobs/clicks/file", json=body, headers=headers).status_code == 202
    text = browser.get("/audit?target=clicks").text
    assert (text.count("<td>submit</td>"), "ann (author)" in text, "Older changes" in text) == (50, True, True)
    assert EVIL not in text
    before = text.split("before=")[1].split('"')[0]
    assert browser.get(f"/audit?target=clicks&before={before}").text.count("<td>submit</td>") == 10


def test_a_session_changes_nothing_without_the_csrf_token(browser: Browser) -> None:
    csrf = log_in(browser)
    body = {"action": "stop", "select": "clicks"}
    assert browser.post("/v1/actions", json=body, headers=OWN).status_code == 403
    assert browser.post("/v1/actions", json=body, headers={**OWN, "X-CSRF-Token": "x" + csrf}).status_code == 403
    elsewhere = {"X-CSRF-Token": csrf, "Origin": "http://evil.example"}
    assert browser.post("/v1/actions", json=body, headers=elsewhere).status_code == 403
    assert browser.post("/v1/actions", json=body, headers={**OWN, "X-CSRF-Token": csrf}).status_code == 202


def test_a_session_of_another_host_name_is_refused(browser: Browser) -> None:
    log_in(browser)
    assert browser.get("/v1/jobs", headers={"Host": "evil.example"}).status_code == 421
    assert browser.get("/v1/jobs").status_code == 200


def test_a_log_out_and_time_end_a_session(browser: Browser, world: World) -> None:
    csrf = log_in(browser)
    cookie = browser.cookies["headrace_session"]
    assert browser.post("/logout", headers={**OWN, "X-CSRF-Token": csrf}).status_code == 204
    assert browser.get("/", headers={"Cookie": f"headrace_session={cookie}"}).status_code == 303
    log_in(browser)
    world.clock.advance(12 * 3600 + 1)
    assert browser.get("/").status_code == 303


def test_what_records_say_is_escaped(browser: Browser, world: World) -> None:
    log_in(browser)
    place = world.services.data.checkpoint("clicks") / "dead-letters"
    place.mkdir(parents=True)
    (place / "part-1.json").write_bytes(letter(reason=EVIL, preview=EVIL, queue=EVIL))
    world.registry.change_job("clicks", problem=EVIL)
    for path in ("/", "/jobs/clicks", "/jobs/clicks/dead-letters", f"/jobs/clicks/dead-letters?search={EVIL}"):
        text = browser.get(path).text
        assert EVIL not in text
        assert "&lt;script&gt;alert(1)" in text


def test_an_unknown_job_is_not_found(browser: Browser) -> None:
    log_in(browser)
    assert browser.get("/jobs/nothing").status_code == 404


@pytest.mark.parametrize(
    "body", [{"text": "x" * 200_001}, {"text": "SELECT 1", "rows": 0}, {"text": "SELECT 1", "records": 10**9}]
)
def test_trials_are_limited_in_size(browser: Browser, body: dict[str, Any]) -> None:
    csrf = log_in(browser)
    assert browser.post("/v1/sql/sample", json=body, headers={**OWN, "X-CSRF-Token": csrf}).status_code == 409


def test_letters_are_searched_the_newest_first_and_remember_replays(tmp_path: Path) -> None:
    (tmp_path / "part-1.json").write_bytes(
        letter(offset=1) + letter(offset=2, reason="Other") + b"no letter\n" + b'{"cut'
    )
    journal = tmp_path / "journal"
    found = read_letters(tmp_path, journal).letters
    assert [each.offset for each in found] == [2, 1]
    assert read_letters(tmp_path, journal, limit=1).more
    [other] = read_letters(tmp_path, journal, search="oTHER").letters
    note_replay(tmp_path, journal, Replay(letters=[other.id], time_seconds=5.0, who="eve"))
    assert [each.replayed_seconds for each in read_letters(tmp_path, journal).letters] == [5.0, None]
    assert chosen_letters(tmp_path, journal, [other.id]) == [read_letters(tmp_path, journal).letters[0]]
    with pytest.raises(JobError, match="not exist any more"):
        chosen_letters(tmp_path, journal, ["x-1"])


def test_the_journal_of_replays_forgets_letters_whose_files_are_gone(tmp_path: Path) -> None:
    letters, journal = tmp_path / "letters", tmp_path / "replays" / "journal.ndjson"
    letters.mkdir()
    (letters / "part-1.json").write_bytes(letter(offset=1))
    (letters / "part-2.json").write_bytes(letter(offset=2))
    ids = {each.offset: each.id for each in read_letters(letters, journal).letters}
    for round in range(50):
        for offset in (1, 2):
            note_replay(letters, journal, Replay(letters=[ids[offset]], time_seconds=10.0 * round + offset, who="eve"))
    assert len(journal.read_bytes().splitlines()) == 2
    assert {each.offset: each.replayed_seconds for each in read_letters(letters, journal).letters} == {1: 491, 2: 492}
    (letters / "part-1.json").unlink()
    (letters / "part-3.json").write_bytes(letter(offset=3))
    [third] = [each.id for each in read_letters(letters, journal).letters if each.offset == 3]
    note_replay(letters, journal, Replay(letters=[third], time_seconds=900.0, who="eve"))
    assert ids[1] not in journal.read_text()
    assert {each.offset: each.replayed_seconds for each in read_letters(letters, journal).letters} == {2: 492, 3: 900}


def test_half_a_line_at_the_end_of_the_journal_hides_no_letters(tmp_path: Path) -> None:
    (tmp_path / "part-1.json").write_bytes(letter(offset=1))
    journal = tmp_path / "replays" / "journal.ndjson"
    [there] = read_letters(tmp_path, journal).letters
    note_replay(tmp_path, journal, Replay(letters=[there.id], time_seconds=5.0, who="eve"))
    with open(journal, "ab") as file:
        file.write(b'{"letters": ["x-')
    assert [each.replayed_seconds for each in read_letters(tmp_path, journal).letters] == [5.0]


def test_one_replay_of_a_job_holds_off_others_until_all_that_have_its_lock_have_ended(tmp_path: Path) -> None:
    journal = tmp_path / "replays" / "journal.ndjson"
    first, second = ReplayLock(journal), ReplayLock(journal)
    first.take("orders")
    with pytest.raises(JobError, match="being replayed at the moment"):
        second.take("orders")
    assert first.descriptor is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[first.descriptor]) as sending:
        first.release()
        with pytest.raises(JobError, match="being replayed at the moment"):
            second.take("orders")
        assert sending.stdin is not None
        sending.stdin.close()
    second.take("orders")
    second.release()


def test_rates_are_those_of_the_last_seconds_and_begin_anew_with_a_process() -> None:
    clock = ManualClock(0.0)
    rates = Rates(clock)
    assert rates.rate("a", 0) is None
    clock.advance(2)
    assert rates.rate("a", 200) == 100
    clock.advance(2)
    assert rates.rate("a", 10) is None
    assert rates.rate("a", None) is None


def test_versions_differ_by_lines() -> None:
    found = differences({"a": "1\n2", "b": "x"}, {"a": "1\n3", "c": "y"})
    assert [(each.kind, each.text) for each in found if each.kind in ("added", "removed", "file")] == [
        ("file", "a"), ("removed", "-2"), ("added", "+3"), ("file", "b (removed)"), ("removed", "-x"), ("file", "c (new)"), ("added", "+y"),
    ]  # fmt: skip


def test_the_page_of_a_job_with_a_schedule_shows_its_times(browser: Browser, world: World) -> None:
    log_in(browser)
    (world.jobs / "job.yaml").write_text("until: end\nschedule: {every: 1 min}\n")
    world.pass_time(20)
    finished = world.runner
    finished.phases["clicks"], finished.alive = "finished", False
    world.pass_time(70)
    text = browser.get("/jobs/clicks").text
    assert "every 0:01:00; next run 2027-" in text
    assert "<td>started</td>" in text
