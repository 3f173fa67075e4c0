"""The device of rows that left memory (``state_memory``) fills up: the job ends and says why, and goes on when there is room."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.errors import JobFailedError

from tests.small_device import mounted

KEYS, RECORDS = 40_000, 60_000


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB at the place of the local rows."""
    with mounted(tmp_path / "state" / "light" / "local", size="3m") as place:
        yield place


def _totals(place: Path) -> hr.Job:
    stream = hr.stream("test", "local").from_file(
        str(place / "in.ndjson"), format="json", schema={"k": "string", "v": "int64"}
    )
    made: hr.Job = (
        stream.key_by("k").agg(n="count(*)", s="sum(v)")
        .to_sqlite("totals", str(place / "out.db"), create_table=True, mode="upsert", key=["k"])
    )  # fmt: skip
    return made


def test_a_full_device_below_the_local_rows(local: Path, tmp_path: Path) -> None:
    chosen, counts, sums = random.Random(1), Counter[str](), Counter[str]()
    with (tmp_path / "in.ndjson").open("w") as file:
        for number in range(RECORDS):
            key = f"a user with a long name {chosen.randrange(KEYS)}"
            counts[key] += 1
            sums[key] += number
            file.write(json.dumps({"k": key, "v": number}) + "\n")
    options = {"state_memory": "1 MB", "checkpoint": tmp_path / "state", "max_batch_records": 2_000}
    with pytest.raises(JobFailedError) as caught:
        _totals(tmp_path).run("light", show_progress=False, **options)
    said = str(caught.value)
    assert str(local) in said
    assert "No space left on device" in said
    assert "make room on the device" in said
    assert "state_memory" in said
    subprocess.run(["mount", "-o", "remount,size=200m", str(local)], check=True)
    _totals(tmp_path).run("light", show_progress=False, **options)
    with sqlite3.connect(tmp_path / "out.db") as database:
        found = {k: (n, s) for k, n, s in database.execute("SELECT k, n, s FROM totals")}
    assert found == {key: (counts[key], sums[key]) for key in counts}
