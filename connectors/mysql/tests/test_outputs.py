"""One table, a job that is run again, and a job that was edited: nothing is doubled, and nothing vanishes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError, JobError
from headrace.interfaces import output_notes
from headrace.testing import MemorySource
from mysql_world import Database

SCHEMA = {"k": "string", "v": "int64"}


def bodies(count: int) -> dict[str, list[bytes]]:
    return {"q": [json.dumps({"k": "ab"[n % 2], "v": n}).encode() for n in range(count)]}


def stream(count: int) -> Any:
    return hr.stream("shop", "sales").from_(MemorySource(bodies(count)), format="json", schema=SCHEMA, name="in")


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE t (k VARCHAR(10), v BIGINT)")
    return database


def test_the_same_stateless_job_adds_nothing_and_another_one_is_refused(table: Database) -> None:
    def job(least: int) -> Any:
        return stream(20).where(f"v >= {least}").to_mysql(**table.options())

    job(10).run("light")
    job(10).run("light")
    assert len(table.rows("t")) == 10
    with pytest.raises(JobError, match="the output of another job with the same name") as failure:
        job(5).run("light")
    assert f"table {table.name}.t" in str(failure.value)
    shown = [line for line in str(failure.value).splitlines() if '"v" >= 10' in line]
    assert any('"v" >= 5' in line for line in shown), f"both definitions are shown: {failure.value}"
    with pytest.raises(JobError, match="rows of a table cannot be removed"):
        job(5).run("light", replace_output=True)
    assert len(table.rows("t")) == 10
    table.execute("TRUNCATE t")  # and then nothing is there that could be taken for its rows
    job(5).run("light")
    assert len(table.rows("t")) == 15


def keyed(count: int, table: Database, **options: Any) -> Any:
    return stream(count).key_by("k").distinct().to_mysql(**table.options(**options))


def test_the_same_keyed_job_adds_nothing_and_over_more_input_it_is_refused(table: Database) -> None:
    keyed(20, table).run("light")
    assert len(table.rows("t")) == 2
    keyed(20, table).run("light")
    assert len(table.rows("t")) == 2
    with pytest.raises(JobError, match="be stored twice"):
        keyed(22, table).run("light")
    assert len(table.rows("t")) == 2
    table.execute("TRUNCATE t")
    keyed(22, table).run("light")
    assert len(table.rows("t")) == 2


def test_results_that_come_over_their_own_key_may_come_again(database: Database) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(10) PRIMARY KEY, s BIGINT)")

    def sums(count: int) -> Any:
        return stream(count).key_by("k").agg(s="sum(v)").to_mysql(**database.options(mode="upsert"))

    sums(10).run("light")
    sums(20).run("light")
    assert {row["k"]: row["s"] for row in database.rows("t")} == {"a": 90, "b": 100}


def test_an_edited_job_goes_on_from_its_checkpoint(table: Database, tmp_path: Path) -> None:
    def job(count: int, least: int) -> Any:
        return stream(count).where(f"v >= {least}").to_mysql(**table.options())

    job(20, 10).run("light", checkpoint=tmp_path)
    job(30, 25).run("light", checkpoint=tmp_path)
    job(40, 35).run("light", checkpoint=tmp_path)
    assert len(table.rows("t")) == 10 + 5 + 5
    with pytest.raises(JobError, match="the output of another job with the same name"):
        job(40, 10).run("light")


def test_a_table_that_is_ahead_of_the_checkpoint_is_noticed(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(10) PRIMARY KEY, s BIGINT)")

    def sums(count: int) -> Any:
        return stream(count).key_by("k").agg(s="sum(v)").to_mysql(**database.options(mode="upsert"))

    sums(10).run("light", checkpoint=tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / "older")
    (tmp_path / "state").mkdir()
    for path in (tmp_path / "older").rglob("*"):
        to = tmp_path / "state" / path.relative_to(tmp_path / "older")
        to.mkdir(parents=True, exist_ok=True) if path.is_dir() else to.write_bytes(path.read_bytes())
    sums(20).run("light", checkpoint=tmp_path / "state")
    with pytest.raises(CheckpointError, match="new results would be dropped as already stored"):
        sums(30).run("light", checkpoint=tmp_path / "older")
    sums(30).run("light", checkpoint=tmp_path / "older", sinks_ahead="write")
    assert {row["k"]: row["s"] for row in database.rows("t")} == {"a": 210, "b": 225}


def test_a_damaged_note_is_told(table: Database) -> None:
    stream(20).to_mysql(**table.options()).run("light")
    table.execute("UPDATE headrace_offsets SET queue = REPLACE(queue, 'digest', 'digits') WHERE queue LIKE '#job%'")
    with pytest.raises(JobError, match="is damaged"):
        stream(20).to_mysql(**table.options()).run("light")


def test_a_definition_of_an_older_version_or_that_is_damaged_is_left_out_of_the_refusal(table: Database) -> None:
    def job(least: int) -> Any:
        return stream(20).where(f"v >= {least}").to_mysql(**table.options())

    for damage in (
        "DELETE FROM headrace_offsets WHERE last_offset = -1",
        "UPDATE headrace_offsets SET queue = CONCAT(queue, '!') WHERE last_offset = -1",
    ):
        job(10).run("light")
        table.execute(damage)
        with pytest.raises(JobError, match="the output of another job with the same name") as failure:
            job(5).run("light")
        assert '"v" >= 10' not in str(failure.value)
        table.execute("TRUNCATE t")
        table.execute("TRUNCATE headrace_offsets")


@pytest.mark.parametrize("pieces_max", [64, 0])
def test_a_long_definition_is_kept_in_pieces_or_left_out(
    pieces_max: int, table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_notes, "_PIECES_MAX", pieces_max)

    def job(least: int) -> Any:
        texts = (hashlib.sha256(str(n).encode()).hexdigest() for n in range(40))
        long = " OR ".join(f"k = '{text}'" for text in texts)
        return stream(20).where(f"v >= {least} OR {long}").to_mysql(**table.options())

    job(10).run("light")
    job(10).run("light")
    assert len(table.rows("t")) == 10
    with pytest.raises(JobError, match="the output of another job with the same name") as failure:
        job(5).run("light")
    assert ('"v" >= 5' in str(failure.value)) is (pieces_max > 0)
