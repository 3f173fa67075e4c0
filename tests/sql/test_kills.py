"""``kill -9`` while a SQL text runs: started again from its checkpoint, it comes to the same tables as a run without kills."""

from __future__ import annotations

import collections
import json
import random
import signal
from collections.abc import Iterable
from pathlib import Path

import headrace as hr
import pytest

from tests.sql import golden
from tests.sql.killing import ORDERS_AND_PAYS, Killable, counted

#: Where the process is killed, and the how-manieth time it passes there.
FAULTS = [
    "reader.after_poll:4", "lane.after_process:3", "shard.after_process:5", "sink.before_insert:2", "sink.after_insert:2",
    "checkpoint.after_flush:2", "shard.after_save:2", "checkpoint.after_save:2",
]  # fmt: skip
#: On Spark a worker passes these.
SPARK_FAULTS = ["lane.after_process:1", "shard.after_process:1", "sink.after_insert:1"]
TABLES = f"""{ORDERS_AND_PAYS}\
CREATE TABLE windows (cur VARCHAR, w_end TIMESTAMP(3), n BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'blackhole');
CREATE TABLE paid (oid BIGINT, cur VARCHAR, n BIGINT, sum_paid DECIMAL(38, 2)) WITH ('connector' = 'blackhole');
CREATE TABLE best (cur VARCHAR, oid BIGINT, amount DECIMAL(12, 2), rn BIGINT) WITH ('connector' = 'blackhole');
"""
QUERIES = """
INSERT INTO windows SELECT cur, TUMBLE_END(otime, INTERVAL '10' SECOND), COUNT(*), SUM(amount)
  FROM orders GROUP BY cur, TUMBLE(otime, INTERVAL '10' SECOND);
INSERT INTO paid SELECT o.oid, o.cur, p.n, p.s FROM orders o
  LEFT JOIN (SELECT oid, COUNT(*) AS n, SUM(paid) AS s FROM pays GROUP BY oid) p ON o.oid = p.oid;
INSERT INTO best SELECT cur, oid, amount, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY amount DESC, oid) AS rn FROM orders) WHERE rn <= 3;
"""


def reference(data: Path) -> dict[str, collections.Counter[str]]:
    """Return the rows of each table of a run in one go, as JSON."""
    frames = hr.sql((TABLES + QUERIES).replace("${DATA}", data.as_uri())).collect()
    return {name: collections.Counter(_rows(frame)) for name, frame in frames.items()}


def _rows(frame: object) -> list[str]:
    rows = [{name: _shown(value) for name, value in row.items()} for row in frame.to_dicts()]  # type: ignore[attr-defined]
    return [json.dumps(row, sort_keys=True, default=str) for row in rows]


def _shown(value: object) -> object:
    return value.isoformat(timespec="microseconds") if hasattr(value, "isoformat") else value


def found(job: Killable, tables: Iterable[str]) -> dict[str, collections.Counter[str]]:
    return {name: counted(job.directory / "out" / name) for name in tables}


def test_windows_a_join_and_a_top_n_killed_at_named_places(data: Path, tmp_path: Path) -> None:
    job = Killable("three", tmp_path)
    job.lay_out(data, TABLES + QUERIES)
    for fault in ("checkpoint.after_save:3", "shard.after_save:3", "sink.after_insert:4"):
        assert job.run(fault=fault) == -signal.SIGKILL, job.log.read_text()[-3000:]
    job.finish()
    wanted = reference(data)
    assert found(job, wanted) == wanted


def test_what_is_read_again_is_cut_as_it_was(data: Path, tmp_path: Path) -> None:
    """A file gives other pieces when it is read again: the changes of an aggregation must be those of the first time."""
    job = Killable("s09", tmp_path)
    job.lay_out(data)
    assert job.run(fault="sink.before_insert:2") == -signal.SIGKILL, job.log.read_text()[-3000:]
    job.finish()
    job.check()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", golden.case_names())
def test_a_case_killed_at_a_named_place(name: str, fault: str, data: Path, tmp_path: Path) -> None:
    job = Killable(name, tmp_path)
    job.lay_out(data)
    killed = job.run(fault=fault)
    # Not every text has keyed state, or so many batches.
    assert killed in (0, -signal.SIGKILL), job.log.read_text()[-3000:]
    job.finish()
    job.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.case_names())
def test_a_case_killed_at_random(name: str, data: Path, tmp_path: Path) -> None:
    rng = random.Random(name)
    job = Killable(name, tmp_path)
    job.lay_out(data)
    for _ in range(6):
        job.run(kill_after_seconds=rng.uniform(0.7, 1.6))
    job.finish()
    job.check()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["s06", "s07", "s12", "s14"])
def test_a_case_killed_on_spark(name: str, data: Path, tmp_path: Path) -> None:
    job = Killable(name, tmp_path, "spark")
    job.lay_out(data)
    for fault in SPARK_FAULTS:
        # Spark starts the task of a worker that has died again, a few times: the run may fail or come to its end.
        job.run(fault=fault)
        place = fault.partition(":")[0]
        assert f"killed at {place}" in job.log.read_text(), f"{place} is never passed: the test proves nothing"
    # Not before: on a quick machine it may leave nothing for the places to be passed with.
    job.run(kill_after_seconds=12)
    job.finish()
    job.check()
