"""The packages of contrib/ on Spark: each format, pipelines in YAML, detection and SQLite give what they give on light."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import headrace as hr
import pytest

from tests.conformance.case import differences
from tests.conformance.contributed_jobs import detection, formats, lay_out, pipeline

pytestmark = pytest.mark.spark


def written(place: Path) -> dict[str, Counter[str]]:
    """Return the rows that a job has written, by sink."""
    found = {
        directory.name: Counter(
            line.replace(str(place), "") for part in directory.glob("*.json") for line in part.read_text().splitlines()
        )
        for directory in (place / "out").iterdir()
        if directory.is_dir()
    }
    for database in (place / "out").glob("*.db"):
        with closing(sqlite3.connect(database)) as connection:
            for table, query in (("alerts", "SELECT * FROM alerts"), ("counts", "SELECT * FROM counts")):
                found[table] = Counter(map(str, connection.execute(query)))
    return found


def on_both(build: Callable[[Path], hr.Job], tmp_path: Path) -> dict[str, Counter[str]]:
    """Run a job on both backends; return what both have written."""
    for backend in ("light", "spark"):
        place = tmp_path / backend
        lay_out(place)
        (place / "out").mkdir()
        build(place).run(backend, show_progress=False)
    light, spark = (written(tmp_path / backend) for backend in ("light", "spark"))
    assert differences(spark, light) == []
    return light


def test_formats(tmp_path: Path) -> None:
    rows = {name: found.total() for name, found in on_both(formats, tmp_path).items()}
    bad = {"dead": 1 + 1 + 1 + 1 + 1 + 8 + 8 + 45 + 88}
    assert rows == {
        "avro": 59, "msgpack": 119, "cbor": 119, "protobuf": 119, "otlp": 59, "journal": 500, "nginx": 392, "grok": 392,
        "syslog": 355, "cri": rows["cri"], **bad,
    }  # fmt: skip
    assert rows["cri"] > 30_000


def test_pipelines(tmp_path: Path) -> None:
    rows = on_both(pipeline, tmp_path)
    assert (rows["yaml"].total() > 50, rows["yaml-dead"].total()) == (True, 8)


def test_detection_and_sqlite(tmp_path: Path) -> None:
    rows = on_both(detection, tmp_path)
    assert rows["alerts"].total() > 3
    assert rows["counts"].total() > 100
