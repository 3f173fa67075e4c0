"""Servers as processes, and jobs whose output tests can count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections import Counter
from pathlib import Path
from typing import Any

from headrace_console.app import app
from headrace_server.commands.client import Client
from typer.testing import CliRunner

from tests.eventually import eventually

COPY = """
import headrace as hr
job = (hr.stream("test", "copy")
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .where({where!r}).to_file({out!r}, format="json"))
"""


def make_environment(place: Path, code: str = "") -> str:
    """Make another environment with what this one has, as a new version of headrace would be installed; return its interpreter.

    ``code`` runs when an interpreter of it starts.
    """
    venv.EnvBuilder(symlinks=True).create(place)
    [packages] = place.glob("lib/python*/site-packages")
    own = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in sorted(own))
    (packages / "own.pth").write_text(lines)
    if code:
        (packages / "of_test.py").write_text(code)
        (packages / "zz_of_test.pth").write_text("import of_test\n")
    return str(place / "bin" / "python")


class ServerProcess:
    """``headrace serve`` as a process, on a free port."""

    def __init__(self, root: Path) -> None:
        #: The interpreter of the next start.
        self.python = sys.executable
        self.root = root
        self.jobs, self.data = root / "jobs", root / "data"
        self.events, self.out = root / "events.ndjson", root / "out"
        self.jobs.mkdir(exist_ok=True)
        self.events.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Client

    def start(self, *options: str) -> None:
        """Start the server and wait until it answers."""
        (self.data / "server.json").unlink(missing_ok=True)
        log = open(self.root / "server.log", "ab")  # noqa: SIM115
        command = [self.python, "-m", "headrace_console.command", "serve", "--jobs", str(self.jobs)]
        self._process = subprocess.Popen(
            [*command, "--data", str(self.data), "--port", "0", *options], stdout=log, stderr=log, cwd=self.root
        )
        log.close()
        eventually(self._listens, "the server listens", shown=self.log)
        found = json.loads((self.data / "server.json").read_text())
        self.url: str = found["url"]
        self.token = (self.data / "token").read_text().strip()
        self.client = Client(self.url, self.token)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server has ended: {self.log()}"
        return (self.data / "server.json").exists()

    def command(self, *words: str, token: str | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of ``headrace`` beside the server, in this process, with ``given`` on its standard input."""
        own = {"HEADRACE_DATA": str(self.data), **({"HEADRACE_TOKEN": token} if token else {})}
        found = CliRunner().invoke(app, list(words), env=own, input=given)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return subprocess.CompletedProcess(words, found.exit_code, found.stdout, found.stderr)

    def log(self) -> str:
        return (self.root / "server.log").read_text()

    def kill(self) -> None:
        """End the server with kill -9; its runners go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.client.close()

    def stop(self) -> int:
        """End the server with SIGTERM and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until the server has ended; return its exit code."""
        assert self._process is not None
        code = self._process.wait(120)
        self.client.close()
        return code

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def clean_up(self) -> None:
        """End what a failed test has left: the server and its runners."""
        if self._process is not None:
            if self._process.poll() is None:
                self.stop()
            self.client.close()
        for specification in self.data.rglob("run/*.json"):
            address = json.loads(specification.read_text())["socket"]
            if Path(address).exists():
                from headrace_server.runner.protocol import RunnerAwayError, ask

                try:
                    os.killpg(ask(address, "status")["pid"], signal.SIGKILL)
                except RunnerAwayError:
                    continue

    # ------------------------------------------------------------------------------------------------------- jobs

    def write_copy(self, where: str = "n >= 0", extra: str = "") -> None:
        """Write the file of a job that copies the events."""
        text = COPY.format(events=str(self.events), out=str(self.out), where=where) + extra
        (self.jobs / "copy.py").write_text(text)
        # Rows of files are seen when a checkpoint is made.
        (self.jobs / "job.yaml").write_text("health_window: 300 ms\noptions: {checkpoint_interval: 500 ms}\n")

    def add_events(self, first: int, last: int) -> None:
        with open(self.events, "a") as file:
            file.writelines(f'{{"n": {number}}}\n' for number in range(first, last))

    def rows(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for part in self.out.glob("*.json"):
            found.update(json.loads(line)["n"] for line in part.read_text().splitlines())
        return found

    def job(self, name: str = "copy") -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("GET", f"/v1/jobs/{name}")
        return found

    def wait_for_state(self, state: str, *, version: int | None = None, name: str = "copy") -> dict[str, Any]:
        """Wait until a job is in a state, and in a version."""

        def there() -> dict[str, Any]:
            if not any(each["name"] == name for each in self.client.ask("GET", "/v1/jobs")):
                return {}
            found = self.job(name)
            right = found["job"]["state"] == state and version in (None, found["job"]["version"])
            return found if right and (state != "running" or found["figures"]) else {}

        return eventually(there, f"{name} is {state}", shown=lambda: (self.log(), self.client.ask("GET", "/v1/jobs")))

    def wait_for_rows(self, count: int) -> None:
        """Wait until so many rows are in the output, and check that each event from 0 is there exactly once."""
        eventually(lambda: sum(self.rows().values()) >= count, f"{count} rows", shown=lambda: (self.rows(), self.log()))
        assert self.rows() == Counter(range(count))
