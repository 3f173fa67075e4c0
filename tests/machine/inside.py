"""Runs inside of the machine, with the system's Python: a jobs directory, and the API of the server that a test starts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path("/srv")
JOBS, DATA, EVENTS, OUT = ROOT / "jobs", ROOT / "data", ROOT / "events.ndjson", ROOT / "out"
COPY = f"""
import headrace as hr

def grow(row):
    kept = []
    while row["n"] == -1:
        kept.append(b"x" * (16 << 20))
    return row

job = (hr.stream("test", "NAME").from_file("{EVENTS}", format="json", schema={{"n": "int64"}})
       .map(grow).to_file("{OUT}/NAME", format="json"))
"""


def prepare(settings: str, names: Sequence[str] = ("copy",)) -> None:
    """Make a user, and a directory of jobs that copy the events."""
    for file, line in (("passwd", "streams:x:990:990::/srv:/bin/sh\n"), ("group", "streams:x:990:\n")):
        with open(f"/etc/{file}", "a") as opened:
            opened.write(line)
    os.chmod("/root", 0o755)  # Python may be there
    for place in (JOBS, OUT):
        place.mkdir(parents=True)
    for name in names:
        (JOBS / f"{name}.py").write_text(COPY.replace("NAME", name))
    (JOBS / "job.yaml").write_text(settings)
    EVENTS.touch()
    run("chown", "-R", "streams:streams", str(ROOT))


def run(*command: str) -> str:
    """Run a command, which must succeed; return what it prints."""
    print("+", *command, flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def until(what: str, found: Callable[[], Any], seconds: float = 600) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            value = found()
        except (OSError, ValueError, KeyError):
            value = None
        if value:
            print("seen:", what, flush=True)
            return value
        time.sleep(0.5)
    raise SystemExit(f"not seen: {what}; {jobs_or_error()}")


def jobs_or_error() -> Any:
    try:
        return ask("/v1/jobs")
    except (OSError, ValueError, KeyError) as error:
        return repr(error)


def ask(path: str, body: Any = None) -> Any:
    """Ask the API of the server, whose address and token are in its data directory."""
    url = json.loads((DATA / "server.json").read_text())["url"]
    token = (DATA / "token").read_text().strip()
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=60) as answer:
        return json.load(answer)


def running(name: str = "copy") -> int:
    """Return the pid of a job's process, once the server says that it runs."""
    [pid] = until(f"{name} runs", lambda: [each["pid"] for each in ask("/v1/jobs") if each["name"] == name and each["state"] == "running"
                                          and each["pid"]])  # fmt: skip
    return int(pid)


def add(first: int, last: int) -> None:
    with open(EVENTS, "a") as file:
        file.writelines(f'{{"n": {number}}}\n' for number in range(first, last))


def rows(name: str = "copy") -> list[int]:
    found: list[int] = []
    for part in (OUT / name).glob("*.json"):
        found += [json.loads(line)["n"] for line in part.read_text().splitlines() if line.endswith("}")]
    return sorted(found)


def wait_for_rows(count: int, name: str = "copy") -> None:
    until(f"{count} rows of {name}", lambda: len(rows(name)) >= count)
    assert rows(name) == list(range(count)), rows(name)


def alive(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}/status").exists()


def main_pid() -> int:
    return int(run("systemctl", "show", "--property=MainPID", "--value", "headrace.service"))


def group_of(pid: int) -> pathlib.Path:
    """Return the control group of a process, as a directory."""
    return pathlib.Path("/sys/fs/cgroup" + pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::"))
