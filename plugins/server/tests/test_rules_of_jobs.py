"""Rules of a running job: tried on its last records before they are put."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.foundation.errors import JobError
from server_processes import ServerProcess

JOB = """
import headrace as hr
job = (hr.stream("shop", "rules").from_file({events!r}, format="json", schema={{"n": "int64"}})
       .rules([{{"id": "even", "expression": "n % 2 = 0"}}, {{"id": "large", "expression": "n >= 90"}}])
       .to_file({out!r}, format="json"))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path)
    (made.jobs / "rules.py").write_text(JOB.format(events=str(made.events), out=str(made.out)))
    (made.jobs / "job.yaml").write_text("health_window: 300 ms\n")
    made.add_events(0, 100)
    made.start()
    made.wait_for_state("running", name="rules")
    yield made
    made.clean_up()


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


def test_wrong_rules_are_refused_with_the_reason(server: ServerProcess) -> None:
    for body, message in (
        ({"text": "- {id: a, expression: n >}"}, "a"),
        ({"text": "- {id: a, expression: m > 1}"}, "unknown column 'm'"),
        ({"text": "- {id: a, expression: n > 1}", "node": "where"}, "which rules are meant; the job has rules"),
        ({"text": "- {id: a, expression: n > 1}", "records": 0}, "expected a number"),
    ):
        with pytest.raises(JobError) as caught:
            server.client.ask("POST", "/v1/jobs/rules/rules/test", json.loads(json.dumps(body)))
        assert message in str(caught.value)
