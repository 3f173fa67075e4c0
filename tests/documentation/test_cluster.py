"""docs/cluster.md, followed to the letter: on this machine always, and on the trial cluster that it starts as a slow test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.main import get_command

from tests.documentation.test_first_steps import ROOT, blocks_of, rows_in, shell, write_files
from tests.eventually import eventually
from tests.guarded_shell import guarded_shell
from tests.servers.ports import release_ports, reserve_ports

PAGE = "docs/cluster.md"
ROWS = [
    '{"host":"web-1","window_start":"2026-05-06T10:00:00.000000Z","window_end":"2026-05-06T10:01:00.000000Z","n":2}'
]


def shell_blocks() -> dict[str, str]:
    return {name: text for kind, name, text in blocks_of(PAGE) if kind == "shell"}


def test_the_job_runs_on_this_machine_as_printed(tmp_path: Path) -> None:
    write_files(blocks_of(PAGE), tmp_path)
    assert "1 to to_file" in shell(shell_blocks()["laptop"], tmp_path)
    assert rows_in(tmp_path / "downloads") == ROWS


def test_the_page_names_options_and_files_that_exist() -> None:
    from headrace_spark.commands import app

    text = (ROOT / PAGE).read_text(encoding="utf-8")
    options = {option for each in get_command(app).params for option in each.opts}
    assert set(re.findall(r"`(--(?:include|whole-environment|with-python|allow-literals))\b", text)) <= options
    assert {"--include", "--whole-environment", "--with-python"} <= options
    packages = re.search(r"^pip install (.*)$", text, re.MULTILINE)
    assert packages is not None
    for path in [*packages[1].split(), *re.findall(r"\((\.\./deploy/[\w.-]+)\)", text)]:
        assert (ROOT / "docs" / path).exists() if path.startswith("..") else (ROOT / path / "pyproject.toml").exists()
    assert f"hadoop-aws:{hadoop_version()}" in text


def hadoop_version() -> str:
    import pyspark

    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


@pytest.mark.parametrize("ends", [False, True], ids=["while it runs", "when it has ended"])
def test_a_script_leaves_no_process_when_the_tests_are_killed(ends: bool, tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $!; {'exit 0' if ends else 'wait'}"
    tests = subprocess.Popen(
        [sys.executable, "-m", "tests.guarded_shell", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    with tests.stdout:
        left = psutil.Process(int(tests.stdout.readline()))
        tests.kill()
        tests.wait()
    eventually(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, "the end of the script")


def test_a_script_that_was_read_to_its_end_leaves_nothing(tmp_path: Path) -> None:
    script = "sleep 1000 >/dev/null 2>&1 &\necho $!\n"
    with guarded_shell(script, tmp_path, os.environ) as process:
        left = psutil.Process(int(process.communicate()[0]))
        assert process.returncode == 0
    eventually(
        lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, "the end of what the script left"
    )


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(1200)
def test_the_trial_cluster_runs_the_job_as_printed(tmp_path: Path) -> None:
    write_files(blocks_of(PAGE), tmp_path)
    blocks = shell_blocks()
    steps = ["package", "packed", "submitted", "installed", "supervised"]
    script = "".join([blocks["laptop"], "rm -r trial-state\n", blocks["trial"]])
    for step in steps:
        script += f"{blocks[step]}if [ -d downloads ]; then cp -r downloads of-{step}; fi\n"
    first = reserve_ports(3, str(tmp_path))
    for offset, port in enumerate(("7077", "8080", "8081")):
        script = script.replace(port, str(first + offset))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        with guarded_shell(script, tmp_path, environment) as process:
            printed = process.communicate()[0]
            assert process.returncode == 0, printed[-4000:]
    finally:
        release_ports(str(tmp_path))
    for step in steps[1:]:
        assert rows_in(tmp_path / f"of-{step}") == ROWS, step
    # The workers of three of them used the package.
    unpacked = list((tmp_path / "workers").glob("*/*/environment/headrace-package.json"))
    assert len(unpacked) == 3
