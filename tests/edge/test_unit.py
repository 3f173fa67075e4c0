"""The unit of systemd on the page of the edge: systemd finds nothing wrong, and its command runs the job of the page."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import urllib3

from tests.edge.test_docs import PAGE, block
from tests.edge.test_store_and_forward import upstream
from tests.eventually import eventually
from tests.servers.ports import release_ports, reserve_ports


def unit() -> str:
    found = re.search(r"```ini unit\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found[1]


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "plant.service"
    path.write_text(
        unit().replace("/opt/headrace/bin/headrace", shutil.which("true") or "").replace("plant\nState", "root\nState")
    )
    done = subprocess.run([program, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "plant.service" in line]
    assert (done.returncode, said) == (0, [])


def test_its_command_takes_records_and_stops_at_a_checkpoint(tmp_path: Path) -> None:
    owner = f"unit-{uuid.uuid4().hex}"
    incoming = reserve_ports(2, owner)
    taken: list[int] = []
    job = tmp_path / "forward.py"
    job.write_text(block("forward").replace("8088", str(incoming)).replace("8089", str(incoming + 1)))
    [line] = re.findall(r"^ExecStart=(.*)$", unit(), re.MULTILINE)
    headrace, *words = shlex.split(line)
    assert headrace == "/opt/headrace/bin/headrace"
    words[words.index("/opt/plant/forward.py")] = str(job)
    command = [str(Path(sys.executable).with_name("headrace")), *words]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        with urllib3.PoolManager(retries=False) as pool, upstream(incoming + 1, taken):

            def answered() -> bool:
                try:
                    return pool.request("POST", f"http://127.0.0.1:{incoming}/", body=b'{"n": 1}\n').status == 200
                except urllib3.exceptions.HTTPError:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    return False

            eventually(answered, "the record is taken")
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0, (tmp_path / "log").read_text()
            assert (tmp_path / "state").is_dir()
            # What was answered and not forwarded yet is forwarded by the next start.
            command[command.index("never")] = "end"
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    finally:
        process.kill()
        process.wait()
        release_ports(owner)
    assert taken == [1]
