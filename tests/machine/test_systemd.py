"""A server as a service of a real systemd: its jobs go on while it is restarted, killed and stopped."""

from __future__ import annotations

import pytest

from tests.machine.conftest import Inside

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.timeout(1800)]

SERVICE = """
prepare("health_window: 300 ms\\nprepare_timeout: 20 min\\n")
run(*HEADRACE, "service", "install", "--system", "--run-as", "streams", "--jobs", str(JOBS), "--data", str(DATA), "--writable", str(OUT),
    "--start")
job = running()
first = main_pid()
add(0, 100)
wait_for_rows(100)
status = pathlib.Path(f"/proc/{job}/status").read_text()
assert "NoNewPrivs:\\t1" in status, status
assert "Uid:\\t990\\t990" in status, status

run("systemctl", "restart", "headrace")
assert running() == job
assert main_pid() not in (0, first)
add(100, 200)
wait_for_rows(200)

second = main_pid()
os.kill(second, signal.SIGKILL)
until("systemd has started it again", lambda: main_pid() not in (0, second))
assert running() == job
add(200, 300)
wait_for_rows(300)

run("systemctl", "stop", "headrace")
assert alive(job)
add(300, 400)
wait_for_rows(400)

run("systemctl", "start", "headrace")
assert running() == job
ask("/v1/actions", {"action": "stop", "select": "copy"})
until("the job has stopped", lambda: not alive(job))
wait_for_rows(400)
run(*HEADRACE, "service", "uninstall", "--system")
assert not pathlib.Path("/etc/systemd/system/headrace.service").exists()
print("all seen")
"""


def test_jobs_go_on_while_their_service_is_restarted_killed_and_stopped(inside: Inside) -> None:
    assert "all seen" in inside(SERVICE)
