"""Core and one connector, installed alone in an empty environment, do what they can and say what is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = [ROOT / "core", *sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))]

SCRIPT = """
import sys
import headrace as hr
from datetime import timedelta
from headrace.errors import MissingPluginError

stream = hr.stream("t", "alone").from_file(sys.argv[1], format="json", schema={"a": "int64"})
job = stream.to_file(sys.argv[2], format="json")
for what in (job.run, lambda: job.run(backend="light"), lambda: stream.where("a > 1"), lambda: stream.to_kafka("x")):
    try:
        what()
    except MissingPluginError as error:
        print(str(error).replace("\\n", " "))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    interpreter = place / "bin" / "python"
    command = [
        interpreter,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        ROOT / "constraints.txt",
    ]
    subprocess.run([*command, ROOT / "core", ROOT / "connectors" / "file"], check=True, cwd="/")
    return interpreter


def test_core_and_a_connector_alone_say_what_to_install(python: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n')
    command = [python, "-c", SCRIPT, tmp_path / "in.ndjson", tmp_path / "out"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.splitlines()
    assert [line.partition("pip install ")[2] for line in found] == [
        "headrace-spark", "headrace-light", "headrace-columnar", "headrace-kafka",
    ]  # fmt: skip


def test_core_and_a_connector_alone_read_a_file(python: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n{"a": 2}\n')
    code = """
import sys
from datetime import timedelta
from headrace import EARLIEST
from headrace.registry import default_registry
source_class = default_registry().find("source", "file")
source = source_class(source_class.Settings.of({"path": sys.argv[1]}))
[queue] = source.queues()
reader = source.open(queue, EARLIEST)
print([bytes(body) for body in reader.poll(10, timedelta(0)).bodies])
"""
    command = [python, "-c", code, tmp_path / "in.ndjson"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.strip() == """[b'{"a": 1}', b'{"a": 2}']"""


@pytest.mark.parametrize("directory", DISTRIBUTIONS, ids=lambda path: path.name)
def test_every_distribution_says_the_same_of_itself(directory: Path) -> None:
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["requires-python"] == ">=3.11"
    assert project["version"] == "0.1.0"
    module = project["name"].replace("-", "_")
    assert (directory / "src" / module / "py.typed").exists()
    assert (directory / project["readme"]).exists()
    entries = project.get("entry-points", {}).get("headrace", {})
    assert all(target.startswith(module) for target in entries.values())
