"""Wheels of plug-ins for single jobs: two versions of one plug-in beside each other, and what is refused."""

from __future__ import annotations

import hashlib
import json
import zipfile
from base64 import urlsafe_b64encode
from functools import partial
from pathlib import Path

import pytest
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import JobError
from headrace_server.jobs_directory.plugin_wheels import PluginWheels
from headrace_server.jobs_directory.scanning import Scanner
from headrace_server.supervision.environments import Environments
from server_processes import ServerProcess

from tests.eventually import eventually

#: A sink that writes its version beside each row, offered by entry point.
PLUGIN = """
import json
from pathlib import Path
import headrace as hr

VERSION = {version!r}

class MarkedSettings(hr.SinkSettings, frozen=True, kw_only=True):
    path: str

class MarkedSink(hr.Sink):
    Settings = MarkedSettings

    def __init__(self, settings):
        self.settings = settings

    def batch_insert(self, batch):
        with open(self.settings.path, "a") as file:
            for row in batch.rows():
                file.write(json.dumps({{**row, "version": VERSION}}) + "\\n")

@hr.hookimpl
def headrace_sinks():
    return {{"marked": MarkedSink}}
"""
JOB = """
import headrace as hr
job = (hr.stream("test", {name!r}).from_file({events!r}, format="json", schema={{"n": "int64"}})
       .to_marked(path={out!r}))
"""


def make_wheel(directory: Path, version: str, *, requires: str = "", text: str = PLUGIN) -> str:
    """Write a wheel by hand, since building one would fetch what builds it; return its name."""
    directory.mkdir(exist_ok=True)
    name = f"acme_marked-{version}-py3-none-any.whl"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        "acme_marked.py": text.format(version=version),
        f"acme_marked-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: acme-marked\nVersion: {version}\n{needs}",
        f"acme_marked-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"acme_marked-{version}.dist-info/entry_points.txt": "[headrace]\nmarked = acme_marked\n",
    }
    record = "".join(
        f"{path},sha256={urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b'=').decode()},{len(content)}\n"
        for path, content in files.items()
    )
    with zipfile.ZipFile(directory / name, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"acme_marked-{version}.dist-info/RECORD", record)
    return name


def test_two_jobs_have_two_versions_of_one_plugin(server: ServerProcess) -> None:
    server.add_events(0, 10)
    settings = {}
    for version in ("1.0", "2.0"):
        job = f"job{version[0]}"
        text = JOB.format(name=job, events=str(server.events), out=str(server.root / f"{job}.ndjson"))
        (server.jobs / f"{job}.py").write_text(text)
        settings[job] = {"plugins": [make_wheel(server.root / "ext", version)]}
    (server.jobs / "job.yaml").write_text(json.dumps({"health_window": "300 ms", "jobs": settings}))
    server.start("--log-format", "json")
    for job, version in (("job1", "1.0"), ("job2", "2.0")):
        server.wait_for_state("running", name=job)
        file = server.root / f"{job}.ndjson"
        eventually(partial(has_lines, file, 10), "rows", shown=server.log)
        assert {json.loads(line)["version"] for line in file.read_text().splitlines()} == {version}
        logged = server.client.ask("GET", f"/v1/jobs/{job}/logs")["lines"]
        assert any("runner of" in json.loads(line)["message"] for line in logged if line.startswith("{"))
    # The server itself has neither; another wheel of the same name is a new version of the job.
    make_wheel(server.root / "ext", "2.0", text=PLUGIN.replace("{version!r}", "'2.0 again'"))
    server.wait_for_state("running", version=2, name="job2")
    server.add_events(10, 20)
    out = server.root / "job2.ndjson"
    eventually(partial(has_lines, out, 20), "more rows", shown=server.log)
    assert json.loads(out.read_text().splitlines()[-1])["version"] == "2.0 again"
    lock = server.client.ask("GET", "/v1/jobs/job2/versions/2")["files"][".plugins.lock"]
    assert "acme_marked-2.0-py3-none-any.whl" in lock
    assert server.job("job1")["job"]["version"] == 1


def has_lines(file: Path, count: int) -> bool:
    return file.exists() and len(file.read_text().splitlines()) == count


def scanned(jobs: Path, settings: str) -> dict[str, str]:
    jobs.mkdir(exist_ok=True)
    (jobs / "a.py").write_text("job = None")
    (jobs / "job.yaml").write_text(settings)
    return {each.name: each.reason for each in Scanner(jobs, SystemClock()).scan()[1]}


@pytest.mark.parametrize(
    "name", ["../x-1-py3-none-any.whl", "x.whl", "/tmp/x-1-py3-none-any.whl", "acme", "-r-1-py3-none-any.whl/x"]
)
def test_a_plugin_is_named_by_its_file_alone(tmp_path: Path, name: str) -> None:
    assert "is not the name of a wheel" in scanned(tmp_path / "jobs", json.dumps({"plugins": [name]}))["a"]


def test_a_wheel_that_is_not_there_is_named_until_it_is(tmp_path: Path) -> None:
    settings = "plugins: [acme_marked-1.0-py3-none-any.whl]"
    reason = scanned(tmp_path / "jobs", settings)["a"]
    assert f"there is no acme_marked-1.0-py3-none-any.whl in {tmp_path / 'ext'}" in reason
    make_wheel(tmp_path / "ext", "1.0")
    assert scanned(tmp_path / "jobs", settings) == {}


def test_what_cannot_be_installed_says_why(tmp_path: Path) -> None:
    name = make_wheel(tmp_path / "ext", "1.0", requires="there-is-no-such-thing>=7")
    environments = Environments(tmp_path / "environments", tmp_path / "ext")
    lock = PluginWheels(tmp_path / "ext").lock([name])
    with pytest.raises(JobError, match="there-is-no-such-thing"):
        environments.python_of(lock)
    make_wheel(tmp_path / "ext", "1.0")  # another content than the lock says
    with pytest.raises(JobError, match="is not the wheel that this version was made with"):
        environments.python_of(lock)
    (tmp_path / "ext" / name).unlink()
    with pytest.raises(JobError, match="there is no acme_marked"):
        environments.python_of(lock)


def test_an_environment_is_made_once_and_outlives_its_wheel(tmp_path: Path) -> None:
    name = make_wheel(tmp_path / "ext", "1.0")
    environments = Environments(tmp_path / "environments", tmp_path / "ext")
    lock = PluginWheels(tmp_path / "ext").lock([name])
    python = environments.python_of(lock)
    (tmp_path / "ext" / name).unlink()
    assert environments.python_of(lock) == python
    assert Environments(tmp_path / "environments", tmp_path / "ext").python_of(lock) == python
