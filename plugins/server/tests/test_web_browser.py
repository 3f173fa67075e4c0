"""The pages in a real browser: live figures, keyboard, policy, what leaves the machine, and the pictures of the documentation."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from server_processes import ServerProcess

from tests.eventually import eventually

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; apt-get install chromium"),
]
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
JOB = """
import headrace as hr
job = (hr.stream("shop", "orders")
       .from_file({events!r}, format="json", schema={{"n": "int64", "customer": "string", "amount": "float64"}})
       .where("amount > 0")
       .rules([{{"id": "large", "expression": "amount > 900"}}, {{"id": "vip", "expression": "customer IN ('ada', 'eve')"}}])
       .select("n", "customer", "amount", "rule_ids")
       .to_file({out!r}, format="json"))
"""


@dataclass
class Seen:
    """What the browser has told."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@dataclass
class Site:
    """A server with one job, and a browser that is logged in."""

    server: ServerProcess
    url: str
    page: Any
    seen: Seen

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def picture(self, name: str, *, height: int = 800) -> None:
        """Write the pictures of the present page, light and dark."""
        PICTURES.mkdir(exist_ok=True)
        self.page.set_viewport_size({"width": 1180, "height": height})
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.page.wait_for_timeout(150)
            self.page.screenshot(path=PICTURES / f"server-{name}-{scheme}.png", animations="disabled")


def write_events(server: ServerProcess, first: int, last: int) -> None:
    with open(server.events, "a") as file:
        for number in range(first, last):
            customer = ("ada", "ben", "cem")[number % 3]
            file.write(json.dumps({"n": number, "customer": customer, "amount": number % 1000 + 0.5}) + "\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    from playwright.sync_api import sync_playwright

    server = ServerProcess(tmp_path_factory.mktemp("site"))
    (server.jobs / "shop").mkdir()
    text = JOB.format(events=str(server.events), out=str(server.out))
    (server.jobs / "shop" / "orders.py").write_text(text)
    (server.jobs / "shop" / "job.yaml").write_text("health_window: 300 ms\n")
    write_events(server, 0, 3000)
    with open(server.events, "a") as file:
        file.write(json.dumps({"n": EVIL, "customer": "eve", "amount": 1}) + "\n" + EVIL + "\n")
    server.start()
    try:
        eventually(
            lambda: server.client.ask("GET", "/v1/jobs") and server.job("shop:orders")["job"]["state"] == "running",
            "it runs",
            shown=server.log,
            seconds=60,
        )
        eventually(
            lambda: server.job("shop:orders")["job"]["dead_letters"] == 2, "dead letters", shown=server.log, seconds=60
        )
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            seen = Seen()
            page.set_default_timeout(60_000)
            page.on("request", lambda request: seen.requests.append(request.url))
            page.on(
                "console", lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else None
            )
            page.on("pageerror", lambda error: seen.complaints.append(str(error)))
            page.on("dialog", lambda dialog: dialog.accept())
            found = Site(server, json.loads((server.data / "server.json").read_text())["url"], page, seen)
            found.go("/")
            page.get_by_label("Password or token").fill((server.data / "token").read_text().strip())
            page.get_by_role("button", name="Log in").click()
            page.wait_for_selector("#jobs")
            yield found
            browser.close()
        server.stop()
    finally:
        server.clean_up()


def test_the_list_of_jobs_is_live(site: Site) -> None:
    site.go("/")
    written = site.page.locator("[data-field=rows_written]")
    before = written.inner_text()
    write_events(site.server, 3000, 5000)
    site.page.wait_for_function(
        "before => document.querySelector('[data-field=rows_written]').textContent !== before", arg=before
    )
    site.page.wait_for_function(
        "() => /s$/.test(document.querySelector('[data-field=checkpoint_age_seconds]').textContent)"
    )
    site.picture("jobs", height=320)


def test_a_jobs_page_has_a_live_picture_and_buttons(site: Site) -> None:
    site.go("/jobs/shop:orders")
    write_events(site.server, 5000, 5500)
    address = "/v1/jobs/shop:orders/picture"
    eventually(
        lambda: re.search(r"lag [\d,]+", site.page.request.get(site.url + address).text()), "a picture with rates",
        shown=lambda: site.page.request.get(site.url + address).text()[-3000:],
    )  # fmt: skip
    site.page.wait_for_function("() => document.getElementById('picture').naturalWidth > 100")
    site.page.wait_for_timeout(3000)  # pictures are drawn anew every 2.5 s, rates need two of them
    site.picture("job", height=900)
    site.page.get_by_role("button", name="Savepoint").click()
    site.page.wait_for_function("() => document.getElementById('said').textContent.startsWith('savepoint: /')")
    assert list((site.server.data / "jobs/shop/orders/savepoints").iterdir())


def test_dead_letters_are_text_and_are_replayed_after_a_fix(site: Site) -> None:
    site.go("/jobs/shop:orders/dead-letters?search=expected")
    assert site.page.locator("tbody tr").count() == 1
    site.go("/jobs/shop:orders/dead-letters")
    assert site.page.locator("tbody tr").count() == 2
    assert site.page.locator("main img, main script").count() == 0
    site.page.locator("summary").first.click()
    assert "onerror" in site.page.locator("td details pre").first.inner_text()
    site.picture("dead-letters", height=560)
    job = site.server.jobs / "shop" / "orders.py"
    job.write_text(job.read_text().replace('"n": "int64"', '"n": "string"'))
    eventually(lambda: site.server.job("shop:orders")["job"]["version"] == 2, "version 2", shown=site.server.log)
    site.go("/jobs/shop:orders/dead-letters?search=%22eve%22")
    site.page.get_by_label("Choose all").check()
    site.page.get_by_role("button", name="Replay chosen").click()
    # Until it does not tell a step of the work any more: what comes then is the result, or the reason why there is none.
    site.page.wait_for_function(
        "() => !/^(replay: (?!.*bodies sent).*)?$/.test(document.getElementById('said').textContent)"
    )
    assert "1 rows to to_file, 0 bad again" in site.page.locator("#said").inner_text()
    rows = [line for part in site.server.out.glob("*.json") for line in part.read_text().splitlines()]
    assert len([line for line in rows if json.loads(line)["customer"] == "eve"]) == 1
    site.page.get_by_role("button", name="Replay chosen").click()
    site.page.wait_for_function("() => /already replayed/.test(document.getElementById('said').textContent)")


def test_versions_are_compared(site: Site) -> None:
    site.go("/jobs/shop:orders/versions")
    added = site.page.locator(".diff .added").inner_text()
    assert '"n": "string"' in added
    assert site.page.get_by_role("button", name="Roll back to 1").is_visible()
    site.picture("versions", height=620)


def test_rules_have_hits_and_explain_themselves(site: Site) -> None:
    site.go("/jobs/shop:orders/rules")
    assert site.page.get_by_role("row", name=re.compile("vip")).is_visible()
    site.page.get_by_label("Rule", exact=True).select_option("large")
    site.page.get_by_label("A message, as JSON").fill('{"n": "7", "customer": "ada", "amount": 5}')
    site.page.get_by_role("button", name="Explain").click()
    site.page.wait_for_selector("#explanation:not([hidden])")
    assert "does not match" in site.page.locator("#explanation").inner_text()
    site.picture("rules", height=680)


def test_the_audit_log_shows_who_has_changed_what(site: Site) -> None:
    site.go("/")
    site.page.get_by_role("link", name="Audit").click()
    row = site.page.locator("#audit tr", has_text="version").last
    assert "jobs directory (author)" in row.inner_text()
    row.get_by_text("show").click()
    assert "orders.py" in row.locator("pre").inner_text()
    site.picture("audit", height=520)


def test_a_sql_text_is_checked_while_it_is_written_and_sampled(site: Site) -> None:
    site.go("/sql")
    table = f"'connector' = 'filesystem', 'path' = '{site.server.events}', 'format' = 'json'"
    text = f"CREATE TABLE orders (n STRING, customer STRING, amount DOUBLE)\n  WITH ({table});\n"
    text += "SELECT customer, amount FROM orders WHER amount > 100;"
    site.page.get_by_label("Text").fill(text)
    site.page.wait_for_selector("#lint.wrong")
    assert "line 3" in site.page.locator("#lint").inner_text()
    site.page.get_by_label("Text").fill(text.replace("WHER ", "WHERE ").replace(str(site.server.root), "/srv/shop"))
    site.page.wait_for_selector("#lint.right")
    site.page.get_by_label("Text").fill(text.replace("WHER ", "WHERE "))
    site.page.wait_for_selector("#lint.right")
    site.page.get_by_label("Last records").fill("20")
    site.page.get_by_role("button", name="Show a sample").click()
    site.page.wait_for_selector("#sample table")
    assert site.page.locator("#sample table").first.locator("tbody tr").count() == 20
    site.picture("sql", height=900)


def test_the_log_is_followed(site: Site) -> None:
    site.go("/jobs/shop:orders/logs")
    site.page.wait_for_function(
        "() => document.getElementById('log').textContent.includes('runner of shop/orders begins')"
    )
    site.picture("logs", height=420)


def test_all_buttons_and_links_are_reached_by_the_keyboard(site: Site) -> None:
    site.go("/jobs/shop:orders")
    wanted = {"Skip to the content", "headrace", "Jobs", "SQL", "Log out", "Overview", "Versions", "Logs", "Dead letters", "Rules",
              "Start", "Stop", "Pause", "Resume", "Restart", "Savepoint"}  # fmt: skip
    reached = set()
    for _ in range(30):
        site.page.keyboard.press("Tab")
        reached.add(site.page.evaluate("document.activeElement.textContent.trim()"))
    assert wanted <= reached


def test_pages_are_read_without_javascript(site: Site) -> None:
    context = site.page.context.browser.new_context(java_script_enabled=False)
    context.add_cookies(site.page.context.cookies())
    page = context.new_page()
    for path, text in (
        ("/", "shop/orders"),
        ("/jobs/shop:orders", "Plan as text"),
        ("/jobs/shop:orders/logs", "begins"),
    ):
        page.goto(site.url + path)
        assert text in page.locator("main").inner_text()
    context.close()


def test_buttons_stop_and_start_the_job(site: Site) -> None:
    site.go("/jobs/shop:orders")
    for button, state in (("Stop", "stopped"), ("Start", "running")):
        site.page.get_by_role("button", name=button, exact=True).click()
        site.page.wait_for_function(
            "state => document.querySelector('.heading .state').textContent === state", arg=state
        )


def test_no_request_has_left_the_machine_and_nothing_broke_the_policy(site: Site) -> None:
    assert len(site.seen.requests) > 20
    assert [url for url in site.seen.requests if not url.startswith((site.url + "/", f"blob:{site.url}/"))] == []
    # A refused replay, a wrong text, and the picture of a job that is between two runners are answers with a status that the browser
    # notes as an error.
    wrong = [text for text in site.seen.complaints if not re.search("status of (409|401|503)", text)]
    assert wrong == []
