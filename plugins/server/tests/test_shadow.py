"""Two versions over the same records: what is compared, and that nothing of it reaches a sink."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headrace_server.trials.comparison import compared
from server_processes import ServerProcess

from tests.eventually import eventually

JOB = """
import headrace as hr
job = (hr.stream("shop", "totals")
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .where("n % {modulo} = 0").select("n", k="n % 10")
       .key_by("k").agg(total="sum(n)", first="min(n)")
       .to_file({out!r}, format="json", changes="column"))
"""


@pytest.mark.slow
def test_versions_are_compared_row_by_row_and_only_equal_ones_are_rolled_out(server: ServerProcess) -> None:
    server.write_copy()
    (server.jobs / "job.yaml").write_text("roll_out: manual\nhealth_window: 300 ms\n")
    server.add_events(0, 1000)
    server.start()
    eventually(lambda: server.client.ask("GET", "/v1/jobs"), "the job is there", shown=server.log)
    eventually(lambda: server.job()["versions"], "version 1", shown=server.log)
    assert server.job()["job"]["state"] == "waiting"
    server.command("upgrade", "copy")
    server.wait_for_state("running", version=1)
    server.wait_for_rows(1000)
    server.write_copy(where="n <> 7 AND n <> 995")
    (server.jobs / "job.yaml").write_text("roll_out: manual\nhealth_window: 300 ms\n")
    eventually(lambda: len(server.job()["versions"]) == 2, "version 2", shown=server.log)
    shown = server.command("shadow", "copy", "--records", "100")
    assert shown.returncode == 1, shown.stderr
    assert "versions 1 and 2 over the same 100 records" in shown.stdout
    assert "99 rows are the same, 1 only of 1, 0 only of 2" in shown.stdout
    assert '    - {"n": 995}' in shown.stdout
    refused = server.command("upgrade", "copy", "--shadow")
    assert (refused.returncode, "the new one was not rolled out" in refused.stderr) == (2, True), refused.stderr
    assert server.job()["job"]["version"] == 1
    server.write_copy(where="n > -1")
    (server.jobs / "job.yaml").write_text("roll_out: manual\nhealth_window: 300 ms\n")
    eventually(lambda: len(server.job()["versions"]) == 3, "version 3", shown=server.log)
    done = server.command("upgrade", "copy", "--shadow")
    assert done.returncode == 0, done.stderr
    server.wait_for_state("running", version=3)
    server.add_events(1000, 1100)
    server.wait_for_rows(1100)
    wrong = server.command("shadow", "copy")
    assert "is the current version" in wrong.stderr


def test_jobs_with_state_are_compared_by_what_is_there_after_all_changes(server: ServerProcess, tmp_path: Path) -> None:
    def write(modulo: int) -> None:
        text = JOB.format(events=str(server.events), out=str(server.out), modulo=modulo)
        (server.jobs / "totals.py").write_text(text)

    (server.jobs / "job.yaml").write_text("health_window: 300 ms\n")
    write(1)
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1, name="totals")
    write(2)
    # Its state is of other input, so it is refused; what it would write can be compared all the same.
    eventually(lambda: server.job("totals")["versions"][0]["state"] == "refused", "version 2", shown=server.log)
    begun = server.client.ask("POST", "/v1/jobs/totals/shadow", {})
    found = eventually(
        lambda: (each := server.client.ask("GET", f"/v1/operations/{begun['id']}"))["state"] != "running" and each,
        "it ends",
    )
    assert found["state"] == "done", found
    report = json.loads(found["result"])
    difference = report["sinks"]["to_file"]
    assert (difference["same"], difference["only_before"], difference["only_after"]) == (5, 5, 0)
    assert json.loads(difference["examples_before"][0])["k"] % 2 == 1


def test_rows_are_compared_as_a_bag(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text('2 {"a": 1}\n1 {"a": 2}\n')
    after.write_text('1 {"a": 2}\n1 {"a": 1}\n3 {"a": 4}\n')
    found = compared({"x": before, "gone": before}, {"x": after})
    assert (found["x"].same, found["x"].only_before, found["x"].only_after) == (2, 1, 3)
    assert (found["x"].examples_before, found["x"].examples_after) == (['{"a": 1}'], ['{"a": 4}'])
    assert (found["gone"].same, found["gone"].only_before, found["gone"].equal) == (0, 3, False)
