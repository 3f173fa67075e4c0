"""One output directory, a job that is run again, and a job that was edited: nothing is doubled, and nothing vanishes."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobError

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: Jobs with a checkpoint go on with Spark in tests/conformance/test_changed_jobs.py in every run.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    lay(1, 20)


def lay(number: int, count: int) -> None:
    rows = [{"k": "ab"[n % 2], "v": n, "ts": f"2026-01-01T00:0{number}:{n:02}Z"} for n in range(count)]
    Path("in", f"{number}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows) + "no json\n")


def stream() -> Any:
    schema = {"k": "string", "v": "int64", "ts": "timestamp"}
    return hr.stream("shop", "sales").from_file("in/*.ndjson", format="json", schema=schema, name="in")


def stateless(least: int, **options: Any) -> Any:
    return stream().where(f"v >= {least}").to_file("out", **options)


def keyed(result: str, **options: Any) -> Any:
    return stream().key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n=result).to_file("out", **options)


def rows(directory: str = "out") -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in sorted(Path(directory).glob("part-*")) for line in path.read_text().splitlines()
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_stateless_job_again_adds_nothing_and_another_one_is_refused(backend: str) -> None:
    stateless(10).run(backend)
    stateless(10).run(backend)
    assert len(rows()) == 10

    with pytest.raises(JobError, match="out holds the output of another job with the same name") as failure:
        stateless(5).run(backend)
    for text in ('"v" >= 10', '"v" >= 5', "--replace-output", "writer="):
        assert text in str(failure.value)
    assert len(rows()) == 10
    stateless(5, writer="second").run(backend)
    assert len(rows()) == 25
    assert len(rows("dead-letters/shop.sales")) == 2  # of each definition: none of them was taken for another's


def test_what_is_there_can_be_replaced() -> None:
    stateless(10).run("light")
    stateless(5).run("light", replace_output=True)
    assert len(rows()) == 15
    stateless(5).run("light")
    assert len(rows()) == 15
    stateless(5).run("light", checkpoint="state", replace_output=True)
    with pytest.raises(JobError, match="continues from its checkpoint"):
        stateless(5).run("light", checkpoint="state", replace_output=True)
    assert len(rows()) == 15
    # Where another job writes too nothing is removed.
    stateless(7, writer="second").run("light")
    with pytest.raises(JobError, match="rows of other jobs too"):
        stateless(5).run("light", replace_output=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_keyed_job_again_adds_nothing_and_over_more_input_it_is_refused(backend: str) -> None:
    """Its results come again under other numbers: they are known to be the same only where the input is the same."""
    report = keyed("sum(v)").run(backend, shards=2)
    before = rows()
    assert (len(before), report.rows_written["to_file"]) == (2, 2)

    report = keyed("sum(v)").run(backend, shards=2)
    assert rows() == before
    assert (report.rows_written["to_file"], report.rows_skipped) == (0, 2)
    with pytest.raises(JobError, match="reads as many of others"):
        keyed("sum(v)").run(backend, shards=3)
    lay(2, 10)
    with pytest.raises(JobError, match="be stored twice") as failure:
        keyed("sum(v)").run(backend, shards=2)
    assert "21 records of 1 queue" in str(failure.value)
    assert "32 records of 2 queues" in str(failure.value)
    assert rows() == before
    keyed("sum(v)").run(backend, shards=2, replace_output=True)
    assert sorted(row["n"] for row in rows()) == [20, 25, 90, 100]


def test_a_new_checkpoint_over_the_output_of_before_doubles_nothing() -> None:
    keyed("sum(v)").run("light", checkpoint="first")
    keyed("sum(v)").run("light", checkpoint="second")
    assert len(rows()) == 2
    lay(2, 10)
    keyed("sum(v)").run("light", checkpoint="second")
    assert sorted(row["n"] for row in rows()) == [20, 25, 90, 100]
    # What is there is of two runs now, which closed the windows at other places than one would.
    with pytest.raises(JobError, match="or from several"):
        keyed("sum(v)").run("light", checkpoint="third")
    assert len(rows()) == 4


def test_results_of_a_run_that_did_not_come_to_its_end_are_not_taken_for_all() -> None:
    handle = keyed("sum(v)").start("light", max_batch_records=5, checkpoint_interval="1 ms", discovery_interval="10 ms")
    while handle.status().records_read < 21:
        with contextlib.suppress(TimeoutError):
            handle.wait(timedelta(milliseconds=10))
    with Path("in/1.ndjson").open("a") as file:
        file.write('{"k": "a", "v": 100, "ts": "2026-01-01T00:03:00Z"}\n')
    while not rows():
        with contextlib.suppress(TimeoutError):
            handle.wait(timedelta(milliseconds=10))
    handle.stop()
    before = rows()
    with pytest.raises(JobError, match="did not reach the end of its input"):
        keyed("sum(v)").run("light")
    assert rows() == before


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_keyed_job_with_a_checkpoint_goes_on(backend: str) -> None:
    keyed("sum(v)").run(backend, checkpoint="state")
    keyed("sum(v)").run(backend, checkpoint="state")
    assert len(rows()) == 2
    lay(2, 10)
    keyed("sum(v)").run(backend, checkpoint="state")
    assert sorted(row["n"] for row in rows()) == [20, 25, 90, 100]
    with pytest.raises(JobError, match="another job"):
        keyed("max(v)").run(backend, checkpoint="other")


def test_an_edited_stateless_job_goes_on_from_its_checkpoint() -> None:
    stateless(10).run("light", checkpoint="state")
    lay(2, 20)
    stateless(5).run("light", checkpoint="state")
    assert len(rows()) == 10 + 15
    stateless(5).run("light", checkpoint="state")
    assert len(rows()) == 10 + 15
    with pytest.raises(JobError, match="another job"):
        stateless(10).run("light")


def test_a_start_that_failed_does_not_keep_the_job_of_before_from_going_on() -> None:
    stateless(10).run("light", checkpoint="state")
    lay(2, 20)

    class Failing(Exception):
        pass

    edited = stateless(5)
    for source in edited.plan().sources.values():
        source.source.queues = _raising(Failing)
    with pytest.raises(Failing):
        edited.run("light", checkpoint="state")
    stateless(10).run("light", checkpoint="state")
    assert len(rows()) == 20


def _raising(kind: type[Exception]) -> Any:
    def queues() -> Any:
        raise kind

    return queues


def test_no_dead_letter_vanishes_when_the_job_was_edited() -> None:
    stateless(10).run("light")
    edited = stream().where("v >= 10").with_columns(x="10 / (v - 15)").to_file("elsewhere")

    report = edited.run("light")

    found = rows("dead-letters/shop.sales")
    assert report.dead_letters == 2  # the line that is no JSON, and the division by zero
    assert len(found) == 1 + report.dead_letters
    edited = stream().where("v >= 10").with_columns(x="10 / (v - 15)").to_file("elsewhere")
    edited.run("light")
    assert len(rows("dead-letters/shop.sales")) == 1 + report.dead_letters


def test_dead_letters_with_a_way_of_their_own_are_refused_as_rows_are() -> None:
    def job(least: int, out: str) -> Any:
        made = stream()
        bad = made.dead_letters().to_file("bad", format="json")
        return made.where(f"v >= {least}").to_file(out).also(bad)

    job(10, "out").run("light")
    job(10, "out").run("light")
    assert len(rows("bad")) == 1
    with pytest.raises(JobError, match="bad holds the output of another job"):
        job(5, "elsewhere").run("light")


def test_a_directory_that_was_emptied_or_never_written_is_anybodys() -> None:
    stateless(100).run("light")  # writes nothing
    stateless(10).run("light")
    assert len(rows()) == 10
    keyed("sum(v)", writer="k").run("light")
    for path in Path("out").glob("part-*"):
        path.unlink()
    keyed("sum(v)", writer="k").run("light")
    assert len(rows()) == 2


def test_a_damaged_record_is_told() -> None:
    stateless(10).run("light")
    (record,) = Path("out/_headrace/jobs").iterdir()
    record.write_bytes(record.read_bytes().replace(b'"v', b'"w'))
    with pytest.raises(JobError, match=r"jobs/\w+ is damaged"):
        stateless(10).run("light")
