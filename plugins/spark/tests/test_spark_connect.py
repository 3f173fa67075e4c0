"""What docs/dataframes.md says of Spark Connect, with a server on this machine: what works, and what is refused with which text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "dataframes.md"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_jobs_between_dataframes_of_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio and grpcio-status")
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio and grpcio-status")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-m", "connect_program", str(tmp_path)],
        cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("where") == found.pop("where of a stream") == 20
    sums = {key: sum(range(key, 120, 3)) for key in range(3)}
    assert found.pop("counted") == [[key, 40, sums[key], "insert"] for key in range(3)]
    assert found.pop("windows") == [0, 1, 2]  # those of the first minute; the second one is open
    text = PAGE.read_text(encoding="utf-8")
    for refused in found.values():
        assert refused != "it was not refused"
    for name in ("source", "sink"):
        assert found[name].partition(";")[0] in text
    assert "is not a SparkSession, or it is one of Spark Connect" in found["session"]
    assert "the server decides the Python of its workers" in found["archive"]
