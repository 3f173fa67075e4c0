"""A table that is read once beside a source without an end: event time does not wait for more rows of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest

from tests.eventually import eventually

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: The windows are those of both backends in every run.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


def append(first: int, count: int) -> None:
    with Path("in/a.ndjson").open("a", encoding="utf-8") as file:
        for n in range(first, first + count):
            at = (BEGIN + timedelta(minutes=n)).isoformat()
            file.write(json.dumps({"k": "a", "n": n, "ts": at}) + "\n")


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(Path("out").glob("part-*")) for line in part.read_text().splitlines()]


def given() -> pl.DataFrame:
    times = [BEGIN + timedelta(minutes=m) for m in (0, 10)]
    return pl.DataFrame({"k": ["a", "a"], "rate": [1, 2], "at": times})


def windows() -> hr.Job:
    hr.register("given", given())
    pipe = hr.stream("test", "bounded")
    orders = pipe.from_file("in/*.ndjson", format="json", schema={"k": "string", "ts": "timestamp"}).watermark("ts")
    table = hr.table("given").select("k", ts="at").watermark("ts")
    counts = orders.union(table).key_by("k").window(hr.tumbling("10 min", on="ts")).agg(n="count(*)")
    made: hr.Job = counts.to_file("out", format="json", flush_interval="0 s")
    return made


def joined() -> hr.Job:
    """Orders with rates of at most five minutes before; without one, once none can come."""
    hr.register("given", given())
    pipe = hr.stream("test", "bounded")
    orders = pipe.from_file("in/*.ndjson", format="json", schema={"k": "string", "n": "int64", "ts": "timestamp"})
    table = hr.table("given").watermark("at")
    found = orders.watermark("ts").join(table, on="k", how="left", within=("-5 min", "0 s"), time=("ts", "at"))
    made: hr.Job = found.to_file("out", format="json", flush_interval="0 s")
    return made


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_rows_without_a_partner_are_given(backend: str) -> None:
    append(0, 35)
    with joined().start(backend, checkpoint="state", discovery_interval="200 ms", shards=1):
        # Orders of the last moment may still have a partner.
        eventually(lambda: {row["n"] for row in rows()} >= set(range(34)), "the orders without a rate")
    assert {row["n"]: row["rate"] for row in rows()} == {
        n: 1 if n <= 5 else 2 if 10 <= n <= 15 else None for n in range(len(rows()))
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_over_both_are_given(backend: str) -> None:
    append(0, 35)
    with windows().start(backend, checkpoint="state", discovery_interval="200 ms", shards=1):
        eventually(lambda: [row["n"] for row in rows()] == [11, 11, 10], "the windows that both have passed")
        append(35, 10)
        eventually(lambda: [row["n"] for row in rows()] == [11, 11, 10, 10], "the next one")
    # Started again, the table is read to its end already.
    append(45, 10)
    with windows().start(backend, checkpoint="state", discovery_interval="200 ms", shards=1):
        eventually(lambda: [row["n"] for row in rows()] == [11, 11, 10, 10, 10], "one more")
