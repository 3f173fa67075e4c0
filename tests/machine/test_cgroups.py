"""Limits by control groups of a real kernel: a job over its limit of memory is told so, and the others go on."""

from __future__ import annotations

import pytest

from tests.machine.conftest import Inside

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.timeout(1800)]

SCOPE = """
prepare("health_window: 300 ms\\nprepare_timeout: 20 min\\nmemory_max_bytes: 400 MB\\ncpu_max: 1.5\\ncpu_weight: 50\\n")
run("chown", "-R", "root:root", str(ROOT))
log = open("/srv/server.log", "w")
server = subprocess.Popen(["systemd-run", "--scope", "--unit=headrace", "--property=Delegate=yes", *HEADRACE, "serve", "--jobs", str(JOBS),
                           "--data", str(DATA), "--port", "0"], stdout=log, stderr=log)
job = running()
group = group_of(job)
assert group.parent.name == "headrace.scope", group
assert {name: (group / name).read_text().strip() for name in ("memory.max", "cpu.max", "cpu.weight", "memory.oom.group")} == {
    "memory.max": str(400 * 10**6 // 4096 * 4096), "cpu.max": "150000 100000", "cpu.weight": "50", "memory.oom.group": "1"}
assert group_of(json.loads((DATA / "server.json").read_text())["pid"]).name == "server"
add(0, 100)
wait_for_rows(100)
add(-1, 0)
problem = until("it is over its limit", lambda: ask("/v1/jobs/copy")["job"]["problem"])
print(problem)
assert "over its limit of 400 MB of memory (memory_max_bytes): the system has ended its process" in problem, problem
assert [each["outcome"] for each in ask("/v1/jobs/copy")["runs"]][-1] == "killed"
ask("/v1/actions", {"action": "stop", "select": "copy"})
until("no group is left", lambda: not list(group.parent.glob("job-*")))
print("all seen")
os.kill(json.loads((DATA / "server.json").read_text())["pid"], signal.SIGTERM)
assert server.wait() == 0
"""


def test_a_job_over_its_control_group_is_told_so(inside: Inside) -> None:
    assert "all seen" in inside(SCOPE)
