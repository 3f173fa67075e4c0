"""A file that cannot be read as it is, among others: they are read on, the job says so, and a mended file is read on too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import BrokenQueueError, JobError, JobFailedError
from headrace.interfaces.backend import JobState

from tests.eventually import eventually

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: What others here show of Spark, too: that a queue is set aside, and that it may stop the job.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
SHARDS: dict[str, dict[str, Any]] = {"light": {}, "spark": {"shards": 1}}
WHOLE = 1_000
#: Minutes that no record of the damaged file comes to.
FAR = 1_200
#: What a file is damaged by: bytes that are no gzip member, where one should begin.
DAMAGE = b"\x1f\x8b no member"


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/b.ndjson").write_bytes(lines("b", 0, 50))


def lines(name: str, first: int, count: int) -> bytes:
    rows = [
        {"k": name, "n": n, "ts": f"2026-01-01T{n // 60:02}:{n % 60:02}:00Z", "text": "x" * 80}
        for n in range(first, first + count)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def lay_damaged(name: str = "a") -> Path:
    """Lay a file whose first member is whole, with garbage behind it."""
    path = Path("in", f"{name}.ndjson.gz")
    path.write_bytes(gzip.compress(lines(name, 0, WHOLE)) + DAMAGE)
    return path


def mend(path: Path, name: str = "a") -> None:
    """Put 100 records where the damage is."""
    path.write_bytes(path.read_bytes()[: -len(DAMAGE)] + gzip.compress(lines(name, WHOLE, 100)))


def stream() -> Any:
    schema = {"k": "string", "n": "int64", "ts": "timestamp"}
    return hr.stream("test", "broken").from_file("in", format="json", schema=schema, read_bytes=16_384, name="in")


def rows() -> list[tuple[str, int]]:
    found = [json.loads(line) for part in Path("out").glob("part-*") for line in part.read_text().splitlines()]
    return sorted((row["k"], row["n"]) for row in found)


def letters(place: str) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(Path(place).glob("part-*")) for line in part.read_text().splitlines()]


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_bounded_run_reads_what_it_can_and_a_later_one_the_rest(backend: str) -> None:
    path = lay_damaged()
    job = stream().select("k", "n").to_file("out")
    report = job.run(backend, checkpoint="state", max_batch_records=100)
    assert report.state is JobState.FINISHED
    [broken] = report.broken_queues
    assert broken.queue == "in/in/a.ndjson.gz"
    assert "is not valid gzip" in str(broken.broken)
    assert "set aside: in/in/a.ndjson.gz" in str(report)
    before = [n for k, n in rows() if k == "a"]
    assert [n for k, n in rows() if k == "b"] == list(range(50))
    assert before == list(range(broken.offset)), "what comes well before the damage is read"
    assert 0 < broken.offset < WHOLE
    [letter] = letters("state/dead-letters")
    assert (letter["queue"], letter["offset"], letter["error"]) == (broken.queue, broken.offset, "BrokenQueueError")
    assert (letter["origin"], letter["body"], letter["row"]) == ("in", None, None)

    mend(path)
    again = job.run(backend, checkpoint="state")
    assert again.broken_queues == ()
    assert rows() == [("a", n) for n in range(WHOLE + 100)] + [("b", n) for n in range(50)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_running_job_sets_it_aside_and_goes_on_with_it_when_it_is_mended(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = stream().select("k", "n").to_file("out", flush_interval="0 s")
    handle = job.start(backend, checkpoint="state", discovery_interval="200 ms")
    eventually(lambda: len(rows()) == 50, "the whole file is read")
    path = lay_damaged()
    eventually(lambda: any(q.broken for q in handle.status().queues), "the file is set aside")
    with open("in/b.ndjson", "ab") as file:
        file.write(lines("b", 50, 10))
    eventually(lambda: [n for k, n in rows() if k == "b"] == list(range(60)), "the other file is read on")
    mend(path)
    eventually(lambda: len(rows()) == 60 + WHOLE + 100, "the mended file is read")
    eventually(lambda: not any(q.broken for q in handle.status().queues), "nothing is set aside any more")
    handle.stop()
    assert rows() == [("a", n) for n in range(WHOLE + 100)] + [("b", n) for n in range(60)]
    told = [record.message for record in caplog.records if "a.ndjson.gz" in record.message]
    assert any("is set aside" in text and "the other queues are read on" in text for text in told)
    assert any("can be read again" in text for text in told)


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_are_not_held_back_for_it(backend: str) -> None:
    Path("in/b.ndjson").write_bytes(lines("b", FAR, 50))
    handle = (
        stream()
        .watermark("ts", delay="0 s")
        .key_by("k")
        .window(hr.tumbling("1 min", on="ts"))
        .agg(n="count(*)")
        .to_file("out", flush_interval="0 s")
        .start(backend, checkpoint="state", discovery_interval="200 ms", retry_timeout="2 s", **SHARDS[backend])
    )
    eventually(lambda: len(rows()) == 49, "windows of the whole file")
    lay_damaged()
    eventually(lambda: any(q.broken for q in handle.status().queues), "the file is set aside")
    with open("in/b.ndjson", "ab") as file:
        file.write(lines("b", FAR + 50, 10))
    # Its rows are of hours ago: it would hold the windows back for as long as it is waited for.
    eventually(lambda: [row for row in rows() if row[0] == "b"] == [("b", 1)] * 59, "windows go on after retry_timeout")
    handle.stop()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_may_be_stopped_by_it_instead(backend: str) -> None:
    lay_damaged()
    job = stream().select("k", "n").to_file("out")
    with pytest.raises(JobFailedError, match="is not valid gzip") as caught:
        job.run(backend, broken_queues="stop")
    assert isinstance(caught.value.__cause__, BrokenQueueError)
    assert "repair or remove the file" in str(caught.value)


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_run_that_can_read_nothing_fails(backend: str) -> None:
    Path("in/b.ndjson").unlink()
    Path("in/a.ndjson.gz").write_bytes(DAMAGE)
    with pytest.raises((JobError, JobFailedError), match="is not valid gzip"):
        stream().select("k", "n").to_file("out").run(backend)


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_compressed_file_that_was_cut_is_set_aside_at_its_end(backend: str) -> None:
    whole = gzip.compress(lines("a", 0, WHOLE), mtime=0)
    path = Path("in/a.ndjson.gz")
    path.write_bytes(whole[: len(whole) * 2 // 3])
    job = stream().select("k", "n").to_file("out")
    report = job.run(backend, checkpoint="state", max_batch_records=100)
    [broken] = report.broken_queues
    assert broken.queue == "in/in/a.ndjson.gz"
    assert "ends in the middle of its compressed data" in str(broken.broken)
    assert 0 < broken.offset < WHOLE
    assert rows() == [("a", n) for n in range(broken.offset)] + [("b", n) for n in range(50)]
    assert [letter["error"] for letter in letters("state/dead-letters")] == ["BrokenQueueError"], "no half of a record"
    path.write_bytes(whole)
    assert job.run(backend, checkpoint="state").broken_queues == ()
    assert rows() == [("a", n) for n in range(WHOLE)] + [("b", n) for n in range(50)]


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_a_compressed_file_that_was_cut_may_stop_the_job(backend: str) -> None:
    Path("in/a.ndjson.gz").write_bytes(gzip.compress(lines("a", 0, WHOLE))[:-9])
    with pytest.raises(JobFailedError, match="ends in the middle of its compressed data") as caught:
        stream().select("k", "n").to_file("out").run(backend, broken_queues="stop")
    assert isinstance(caught.value.__cause__, BrokenQueueError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_whose_records_are_gone_is_set_aside(backend: str) -> None:
    Path("in/b.ndjson").unlink()
    Path("in/a.ndjson").write_bytes(lines("a", 0, 1_440) * 140)
    job = stream().select("k", "n").to_file("out")
    small = {"spark": {"max_micro_batch_records": 100}, "light": {"max_batch_records": 100}}[backend]
    handle = job.start(backend, checkpoint="state", **small)
    eventually(lambda: handle.status().records_read >= 100, "some records are read")
    handle.stop()
    handle.wait()
    before = rows()
    Path("in/a.ndjson").unlink()
    Path("in/a.ndjson").write_bytes(lines("c", 0, 10))
    Path("in/b.ndjson").write_bytes(lines("b", 0, 50))
    with pytest.raises((JobError, JobFailedError), match="no longer there"):
        job.run(backend, checkpoint="state", broken_queues="stop")
    report = job.run(backend, checkpoint="state")
    [broken] = report.broken_queues
    assert (broken.queue, broken.offset) == ("in/in/a.ndjson", len(before))
    assert "no longer there" in str(broken.broken)
    assert rows() == sorted(before + [("b", n) for n in range(50)])
    [letter] = letters("state/dead-letters")
    assert (letter["queue"], letter["offset"], letter["error"]) == ("in/in/a.ndjson", len(before), "BrokenQueueError")
