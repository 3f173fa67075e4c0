"""Rules of a running job: tried on its last records before they are put."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace.testing import MemorySink
from headrace_rules.fetching import ServerRules
from server_processes import ServerProcess

from tests.eventually import eventually

JOB = """
import headrace as hr
job = (hr.stream("shop", "rules").from_file({events!r}, format="json", schema={{"n": "int64"}})
       .rules([{{"id": "even", "expression": "n % 2 = 0"}}, {{"id": "large", "expression": "n >= 90"}}])
       .to_file({out!r}, format="json"))
"""


def serve(place: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(place)
    (made.jobs / "rules.py").write_text(JOB.format(events=str(made.events), out=str(made.out)))
    (made.jobs / "job.yaml").write_text("health_window: 300 ms\n")
    made.add_events(0, 100)
    made.start()
    made.wait_for_state("running", name="rules")
    yield made
    made.clean_up()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    yield from serve(tmp_path)


@pytest.fixture(scope="module")
def any_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Give a server for tests that do not care which rules its job has."""
    yield from serve(tmp_path_factory.mktemp("any-rules"))


def test_rules_are_tried_on_the_last_records_and_then_put(server: ServerProcess) -> None:
    new = "- {id: large, expression: n >= 95}\n- {id: odd, expression: n % 2 = 1}\n"
    found = server.client.ask("POST", "/v1/jobs/rules/rules/test", {"text": new, "records": 20})
    assert found["records"] == 20
    assert (found["before"], found["after"]) == ({"even": 10, "large": 10}, {"large": 5, "odd": 10})
    rows = sum(len(part.read_text().splitlines()) for part in server.out.glob("*.json"))
    server.client.ask("PUT", "/v1/jobs/rules/rules", {"text": new})
    # From now on these are the present ones.
    again = server.client.ask("POST", "/v1/jobs/rules/rules/test", {"text": "- {id: all, expression: n >= 0}"})
    assert (again["before"], again["after"]) == ({"large": 5, "odd": 50}, {"all": 100})
    assert sum(len(part.read_text().splitlines()) for part in server.out.glob("*.json")) == rows


def test_wrong_rules_are_refused_with_the_reason(any_rules: ServerProcess) -> None:
    for body, message in (
        ({"text": "- {id: a, expression: n >}"}, "a"),
        ({"text": "- {id: a, expression: m > 1}"}, "unknown column 'm'"),
        ({"text": "- {id: a, expression: n > 1}", "node": "where"}, "must name a verb rules"),
        ({"text": "- {id: a, expression: n > 1}", "records": 0}, "expected a number"),
    ):
        with pytest.raises(JobError) as caught:
            any_rules.client.ask("POST", "/v1/jobs/rules/rules/test", json.loads(json.dumps(body)))
        assert message in str(caught.value)


def put(server: ServerProcess, text: str) -> None:
    server.client.ask("PUT", "/v1/jobs/rules/rules", {"text": text})


def test_a_box_gets_its_rules_from_the_server_and_keeps_them(server: ServerProcess, tmp_path: Path) -> None:
    """A job elsewhere follows the rules that are put; wrong ones and an outage leave it those that it has, over a restart, too."""
    box = tmp_path / "box"
    box.mkdir()
    events = box / "in"
    events.mkdir()
    sink = MemorySink()
    number = 0

    def job() -> hr.JobHandle:
        stream = hr.stream("box", "test").from_file(events, format="json", schema={"n": "int64"}, list_interval="50 ms")
        tested = stream.rules(str(box / "rules.yaml"), output="first", reload_interval="50 ms")
        handle: hr.JobHandle = tested.to(sink).start(
            "light", checkpoint=str(box / "state"), checkpoint_interval="50 ms"
        )
        return handle

    def matches(rule: str | None) -> None:
        """Send records until one was tested by the rules that are meant."""
        first = len(sink.rows)

        def is_tested() -> bool:
            nonlocal number
            number += 1
            (events / f"{number}.json").write_text('{"n": 100}\n')
            return any(row["rule_id"] == rule for row in sink.rows[first:])

        eventually(is_tested, f"records are tested by {rule}", pause_seconds=0.1)

    rules = ServerRules(server.url, "rules", box / "rules.yaml", token=server.token, interval="50 ms")
    with pytest.raises(JobError, match="answered 404"):  # nothing was put yet, and there is no file
        rules.start()
    put(server, "- {id: first, expression: n = 100}\n")
    with rules:
        handle = job()
        matches("first")
        put(server, "- {id: second, expression: n = 100}\n")
        matches("second")
        with pytest.raises(JobError):
            put(server, "- {id: wrong, expression: n >\n")
        assert not rules.fetch()  # what was refused is not handed out
        server.clean_up()
        with pytest.raises(RetriableError):
            rules.fetch()
        handle.stop()
    with ServerRules(server.url, "rules", box / "rules.yaml", token=server.token, interval="50 ms"):
        handle = job()
        matches("second")
        handle.stop()


def test_what_a_box_refuses(any_rules: ServerProcess, tmp_path: Path) -> None:
    server = any_rules
    put(server, "- {id: first, expression: n = 100}\n")
    file = tmp_path / "box" / "rules.yaml"
    for token, job, name, said in (
        ("wrong", "rules", file, "answered 401"),
        (server.token, "other", file, "answered 404"),
        (server.token, "rules", file.with_suffix(".sql"), "rules are in .yaml format"),
    ):
        with pytest.raises(HeadraceError, match=said) as caught:
            ServerRules(server.url, job, name, token=token).fetch()
        assert server.token not in str(caught.value)
        assert not name.exists()
    for address, said in (
        ("http://192.0.2.1", "sent unencrypted"), ("ftp://a", "expected an address"), ("https://u:p@a", "expected an address"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=said):
            ServerRules(address, "rules", file, token="x")
    with pytest.raises(OptionError, match="must end in"):
        ServerRules(server.url, "rules", file.with_suffix(".txt"), token="x")
