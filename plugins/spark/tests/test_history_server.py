"""Spark's history server shows a job that has ended, with the names of its nodes."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from headrace_spark.processes.java import find_or_install_java
from test_spark_processes import NODES, get_json, prepared, start

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ADDRESS = re.compile(r"started at (http://\S+:\d+)")


@contextmanager
def history_server(events: Path) -> Iterator[str]:
    """Start the history server of the installed Spark on a free port of the loopback address; give its address."""
    home = Path(pyspark.__file__).parent
    options = {
        "spark.history.fs.logDirectory": events.as_uri(),
        "spark.history.ui.port": "0",
        "spark.history.fs.update.interval": "1s",
    }
    java = find_or_install_java(install=False).home / "bin" / "java"
    command = [str(java), "-Xmx512m", *(f"-D{name}={value}" for name, value in options.items())]
    command += ["-cp", f"{home}/jars/*", "org.apache.spark.deploy.history.HistoryServer"]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)},
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    output = server.stdout
    assert output is not None

    def read() -> None:
        for line in output:
            lines.put(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        said: list[str] = []
        while (found := ADDRESS.search(said[-1] if said else "")) is None:
            assert server.poll() is None, "".join(said)
            said.append(lines.get(timeout=120))
        yield found[1]
    finally:
        server.kill()
        server.wait()
        reader.join()
        output.close()


def test_a_job_that_has_ended_is_shown_with_the_names_of_its_nodes(tmp_path: Path) -> None:
    prepared(tmp_path)
    program = start(tmp_path, "ui")
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    with history_server(tmp_path / "events") as address:
        applications: list[dict[str, Any]] = []
        pause = threading.Event()
        while not applications:
            applications = get_json(f"{address}/api/v1/applications")
            pause.wait(0.2)
        (application,) = applications
        stages = get_json(f"{address}/api/v1/applications/{application['id']}/stages")
    assert stages
    assert all(NODES.search(stage["description"]) for stage in stages), stages[0]
