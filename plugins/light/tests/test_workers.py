"""Jobs with worker processes give what the same jobs give in one process, also when workers or the engine are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import psutil
import pytest
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, JobFailedError, RetriableError
from headrace.foundation.faults import VARIABLE
from headrace.interfaces.source import StartPosition
from headrace.testing import MemorySink, MemorySource
from headrace_file import FileSource
from headrace_file.settings import FileSourceSettings
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers, Work
from workers_job import workers_job

from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

SCHEMA = {"k": "string", "n": "int64", "ts": "timestamp"}


@pytest.fixture(autouse=True)
def _small_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers have batches: the inputs of these tests are small."""
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)


# ------------------------------------------------------------------------------------------------- whole jobs


def _input(directory: Path, files: int, records: int) -> None:
    directory.mkdir()
    for number in range(files):
        lines = []
        for n in range(records):
            second = n // 3 + number  # in order: what is late depends on how far the other queues are
            lines.append(
                b"broken"
                if n % 97 == 13
                else json.dumps(
                    {"k": f"k{n % 7}", "n": n, "ts": f"2026-01-01 00:{second // 60:02d}:{second % 60:02d}"}
                ).encode()
            )
        (directory / f"{number}.ndjson").write_bytes(b"\n".join(lines) + b"\n")


Build = Callable[[Any], Any]


def _window(stream: Any) -> Any:
    return stream.key_by("k").window(hr.tumbling("5 s", on="ts")).agg(n="count(*)", total="sum(n)")


def _branches(stream: Any) -> Any:
    small, large = stream.where("n < 200").select("k", "n"), stream.where("n >= 150").select("k", "n")
    return small.union(large)


def _python(stream: Any) -> Any:
    offset = 1000  # a closure, and a function that no module has

    def moved(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 77:
            raise ValueError("not this one")
        return {"k": row["k"], "n": row["n"] + offset}

    return stream.map(moved, schema={"k": "string", "n": "int64"})


def _rules(stream: Any) -> Any:
    return stream.rules({"seven": "n % 7 = 0", "k3": "k = 'k3' AND n > 50"}).select("k", "n", "rule_ids")


BUILDS: dict[str, Build] = {"window": _window, "branches": _branches, "python": _python, "rules": _rules}


def _run(build: Build, source: Path, workers: int) -> tuple[list[Any], list[Any], hr.JobReport]:
    sink, bad = MemorySink(), MemorySink()
    stream = hr.stream("test", "same").from_file(str(source / "*.ndjson"), format="json", schema=SCHEMA)
    stream = stream.dead_letters(lambda letters: letters.to(bad))
    report = build(stream).to(sink).run("light", workers=workers, max_batch_records=40, show_progress=False)
    order: Callable[[Any], str] = lambda row: json.dumps(row, sort_keys=True, default=str)  # noqa: E731
    dead = [{name: row[name] for name in ("queue", "offset", "reason", "origin")} for row in bad.rows]
    return sorted(sink.rows, key=order), sorted(dead, key=order), report


#: In every run each kind of work, and both numbers of files; each case starts two processes.
OFTEN = {("window", 3), ("branches", 1), ("python", 3), ("rules", 1)}


@pytest.mark.parametrize(
    ("build", "files"),
    [
        pytest.param(build, files, marks=() if (build, files) in OFTEN else pytest.mark.slow)
        for build in BUILDS
        for files in (1, 3)
    ],
)
def test_rows_and_dead_letters_are_those_of_one_process(build: str, files: int, tmp_path: Path) -> None:
    _input(tmp_path / "in", files, 400)
    rows, dead, report = _run(BUILDS[build], tmp_path / "in", 2)
    expected = _run(BUILDS[build], tmp_path / "in", 1)
    assert rows == expected[0]
    assert len(rows) > 20
    assert dead == expected[1]
    assert len(dead) >= 4 * files
    assert report.records_read == 400 * files == expected[2].records_read
    assert report.dead_letters == expected[2].dead_letters


def test_rows_of_a_queue_come_in_their_order() -> None:
    """One queue, and batches that take different times."""
    sink = MemorySink()
    stream = hr.stream("test", "order").from_(
        MemorySource({"q": [json.dumps({"n": n}).encode() for n in range(500)]}), format="json", schema={"n": "int64"}
    )

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        import time

        time.sleep(0.0005 if row["n"] // 20 % 2 else 0.0)
        return row

    report = stream.map(slow, schema={"n": "int64"}).to(sink).run("light", workers=2, max_batch_records=20)
    assert [row["n"] for row in sink.rows] == list(range(500))
    assert report.queues[0].offset == 500


# ------------------------------------------------------------------------------------------ ranges that workers read


@pytest.fixture
def given_ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that workers were given to read."""
    given, give = list[tuple[int, int]](), LaneWorkers.give

    def noted(workers: LaneWorkers, work: Work) -> None:
        if work.raw is None:
            given.append((work.start.offset, work.end.offset))
        give(workers, work)

    monkeypatch.setattr(LaneWorkers, "give", noted)
    return given


def _numbered_file(path: Path, count: int) -> str:
    path.write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(count)))
    return str(path)


def test_workers_read_files_themselves(tmp_path: Path, given_ranges: list[tuple[int, int]]) -> None:
    sink = MemorySink()
    stream = hr.stream("test", "reads").from_file(
        _numbered_file(tmp_path / "in.ndjson", 1000), format="json", schema={"n": "int64"}
    )
    report = stream.where("n >= 0").to(sink).run("light", workers=2, max_batch_records=30)
    assert [row["n"] for row in sink.rows] == list(range(1000))
    assert report.records_read == 1000
    assert len(given_ranges) > 5
    assert all(end - begin == 30 for begin, end in given_ranges)


class _UnreadableCopy(FileSource):
    """A source whose copies in other processes cannot read."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.copied = True

    def open(self, queue: Queue, start: StartPosition) -> Any:
        if hasattr(self, "copied"):
            raise OSError("not for me")
        return super().open(queue, start)


def test_what_a_worker_cannot_read_is_read_by_the_engine(
    tmp_path: Path, given_ranges: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    sink = MemorySink()
    path = _numbered_file(tmp_path / "in.ndjson", 400)
    source = _UnreadableCopy(FileSourceSettings.of({"path": path}, plugin="file"))
    stream = hr.stream("test", "unread").from_(source, format="json", schema={"n": "int64"})
    report = stream.where("n >= 0").to(sink).run("light", workers=2, max_batch_records=30)
    assert [row["n"] for row in sink.rows] == list(range(400))
    assert report.records_read == 400
    assert given_ranges
    assert "a worker could not read: OSError: not for me" in caplog.text


def test_a_range_whose_operator_has_no_server_comes_again(tmp_path: Path, given_ranges: list[tuple[int, int]]) -> None:
    sink, away = MemorySink(), tmp_path / "away"
    away.touch()
    place = str(away)

    def asked(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 100 and os.path.exists(place):
            os.unlink(place)
            raise RetriableError("the server of this function is away")
        return row

    stream = hr.stream("test", "away").from_file(
        _numbered_file(tmp_path / "in.ndjson", 400), format="json", schema={"n": "int64"}
    )
    stream.map(asked, schema={"n": "int64"}).to(sink).run("light", workers=2, max_batch_records=30)
    assert [row["n"] for row in sink.rows] == list(range(400))
    assert not away.exists()
    assert given_ranges


def test_a_function_that_hangs_in_a_worker_does_not_keep_a_stop_waiting(
    tmp_path: Path,
    given_ranges: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reading_ahead, "DRAIN_SECONDS_MAX", 0.2)
    sink, engine = MemorySink(), os.getpid()

    def hangs(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] >= 30 and os.getpid() != engine:  # one range may be enough for the engine itself, not all
            threading.Event().wait()
        return row

    def job(into: MemorySink) -> hr.Job:
        stream = hr.stream("test", "hangs").from_file(
            _numbered_file(tmp_path / "in.ndjson", 400), format="json", schema={"n": "int64"}
        )
        return stream.map(hangs, schema={"n": "int64"}).to(into)

    with job(sink).start("light", workers=2, max_batch_records=30, checkpoint=tmp_path / "state") as handle:
        eventually(lambda: "a worker process has been working on the records" in caplog.text, "a warning")
        handle.stop(timeout=timedelta(seconds=60))
    assert handle.status().state is hr.JobState.STOPPED
    assert [row["n"] for row in sink.rows] == list(range(len(sink.rows)))
    assert len(sink.rows) < 400
    rest = MemorySink()
    job(rest).run("light", workers=1, checkpoint=tmp_path / "state")
    assert [row["n"] for row in rest.rows] == list(range(len(sink.rows), 400))


class _NotedSource(MemorySource):
    """A source that notes from which queue records were read."""

    def __init__(self, queues: dict[str, list[bytes]]) -> None:
        super().__init__(queues)
        self.read: list[str] = []

    def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
        reader, read = super().open(queue, start), self.read
        poll = reader.poll

        def noted(max_records: int, timeout: timedelta) -> RawBatch | None:
            found = poll(max_records, timeout)
            if found is not None:
                read.append(queue.name)
            return found

        reader.poll = noted  # type: ignore[method-assign]
        return reader


def test_queues_are_read_in_turn_though_workers_have_no_room_for_all_of_them() -> None:
    """A queue that is read only when others have no more records would hold event time back, and be late."""
    source = _NotedSource({f"q{number:02d}": [b'{"n": 1}'] * 30 for number in range(20)})
    stream = hr.stream("test", "turns").from_(source, format="json", schema={"n": "int64"})
    stream.map(lambda row: row, schema={"n": "int64"}).to(MemorySink()).run("light", workers=2, max_batch_records=10)
    assert sorted(source.read) == sorted([f"q{number:02d}" for number in range(20)] * 3)
    turns = [source.read[begin : begin + 20] for begin in (0, 20, 40)]
    assert all(len(set(turn)) == 20 for turn in turns), "each once before any comes again"


def test_bad_records_stop_a_job_that_wants_it() -> None:
    source = MemorySource({"q": [b'{"n": 1}', b'{"n": 2}', b"broken", b'{"n": 3}']})
    sink = MemorySink()
    job = hr.stream("test", "stops", bad_records="stop").from_(source, format="json", schema={"n": "int64"}).to(sink)
    with pytest.raises(JobFailedError, match="bad record") as caught:
        job.run("light", workers=2, max_batch_records=2)
    assert caught.value.offset == 2
    assert isinstance(caught.value.__cause__, DataError)


class Away:
    """A function whose server is away for its first calls. Processes share the count by a file."""

    def __init__(self, place: Path, failures: int) -> None:
        self._place = place
        self._failures = failures

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 55:
            with self._place.open("a+") as file:
                file.write("x")
                file.flush()
                file.seek(0)
                if len(file.read()) <= self._failures:
                    raise RetriableError("the server is away")
        return row


def test_records_wait_while_a_server_of_an_operator_is_away(tmp_path: Path) -> None:
    sink = MemorySink()
    source = MemorySource({"q": [json.dumps({"n": n}).encode() for n in range(200)]})
    stream = hr.stream("test", "away").from_(source, format="json", schema={"n": "int64"})
    job = stream.map(Away(tmp_path / "calls", 3), schema={"n": "int64"}).to(sink)
    job.run("light", workers=2, max_batch_records=10)
    assert [row["n"] for row in sink.rows] == list(range(200))
    assert len((tmp_path / "calls").read_text()) == 4


# ---------------------------------------------------------------------------------------------------- processes


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> Iterator[LaneWorkers]:
    source = MemorySource({"q": []})
    stream = hr.stream("test", "pool").from_(source, format="json", schema={"n": "int64"}, name="in")
    made = LaneWorkers(stream.map(request.param, schema={"n": "int64"}).to(MemorySink(), name="out").plan(), 2)
    made.start()
    yield made
    made.close()
    assert made.process_ids == []


def _work(first: int, count: int) -> Work:
    bodies = [json.dumps({"n": n}).encode() for n in range(first, first + count)]
    raw = RawBatch(np.arange(first, first + count), ReadPosition(first + count), bodies=Bodies.of(bodies))
    return Work(Queue("q", "in"), ReadPosition(first), raw.next_position, raw)


def _made(work: Work) -> list[int]:
    assert work.outcome is not None
    assert work.outcome.error is None, work.outcome.error
    return [n for each in work.outcome.deliveries for n in each.batch.frame["n"].to_list()]


def _all(workers: LaneWorkers, works: list[Work]) -> None:
    """Let workers do all of the work, and none of it here."""
    waiting = list(works)
    while any(work.outcome is None for work in works):
        while waiting and workers.have_room:
            workers.give(waiting.pop(0))
        workers.collect(timedelta(seconds=1))


@pytest.mark.parametrize("workers", [lambda row: {"n": row["n"] * 2}], indirect=True)
def test_a_worker_that_is_killed_is_replaced_and_its_batches_are_made_again(
    workers: LaneWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    first = [_work(n * 10, 10) for n in range(6)]
    _all(workers, first)
    before = workers.process_ids
    assert len(before) == 2
    for number in before:
        os.kill(number, signal.SIGKILL)
    second = [_work(100 + n * 10, 10) for n in range(6)]
    _all(workers, second)
    made = [n for work in first + second for n in _made(work)]
    assert made == [2 * n for n in (*range(60), *range(100, 160))]
    assert not set(before) & set(workers.process_ids)
    assert "ended by signal 9" in caplog.text


def test_a_worker_that_is_killed_before_it_is_told_its_job_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, begun = subprocess.Popen, list[int]()

    def killed_at_first(*arguments: Any, **options: Any) -> Any:
        process = begin(*arguments, **options)
        begun.append(process.pid)
        if len(begun) == 1:
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", killed_at_first)
    stream = hr.stream("test", "workers").from_(MemorySource({"q": []}), format="json", schema={"n": "int64"})
    made = LaneWorkers(stream.where("n > 1").to(MemorySink(), name="out").plan(), 1)
    try:
        made.start()
        assert len(begun) == 2
        assert "ended by signal 9; another one replaces it" in caplog.text
    finally:
        made.close()


def test_a_worker_that_is_still_starting_does_not_keep_a_short_job_waiting() -> None:
    stream = hr.stream("test", "workers").from_(MemorySource({"q": []}), format="json", schema={"n": "int64"})
    made = LaneWorkers(stream.where("n > 1").to(MemorySink(), name="out").plan(), 1)
    [worker] = made._workers
    worker.start(made._beginning)
    process = worker.process
    assert process is not None
    made.close()
    assert process.returncode == -signal.SIGKILL


def _deadly(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] == 15:
        os.kill(os.getpid(), signal.SIGKILL)
    return row


@pytest.mark.parametrize("workers", [_deadly], indirect=True)
def test_a_batch_that_ends_every_process_ends_the_job_with_its_place(workers: LaneWorkers) -> None:
    works = [_work(10 * number, 10) for number in range(6)]
    _all(workers, works)
    others = [n for number, work in enumerate(works) if number != 1 for n in _made(work)]
    assert others == [n for n in range(60) if not 10 <= n < 20], "what waited behind the batch is not to blame"
    assert works[1].outcome is not None
    error = works[1].outcome.error
    assert isinstance(error, JobFailedError)
    assert (error.queue, error.offset) == ("in/q", 10)
    assert "signal 9" in error.message


# -------------------------------------------------------------------------------------------------- rules are replaced


def _rule(number: int) -> dict[str, str]:
    return {f"v{number}": "n >= 0"}


def test_rules_are_replaced_at_one_place_of_a_queue_whoever_does_its_batches(tmp_path: Path) -> None:
    """Every record matches the rule of its version, so rows tell which version was used for them."""
    source = MemorySource({"a": [], "b": []})
    sink = MemorySink()
    stream = hr.stream("test", "replaced").from_(
        source, format="json", schema={"n": "int64"}, metadata={"queue": "queue"}, name="in"
    )
    job = stream.rules(_rule(1)).to(sink)
    count = 0
    with job.start("light", workers=3, checkpoint=tmp_path, max_batch_records=10, show_progress=False) as handle:
        for version in range(2, 7):
            handle.update_rules(_rule(version), who="test")
            places = tmp_path / "rules" / "rules" / "switches"

            def switched(version: int = version, places: Path = places) -> bool:
                nonlocal count
                for queue in ("a", "b"):
                    for n in range(count, count + 100):
                        source.append(queue, b'{"n": %d}' % n)
                count += 100
                return len(list(places.glob(f"*-{version:06}"))) == 2 if places.exists() else False

            eventually(switched, f"both queues have switched to version {version}", pause_seconds=0.005)
        eventually(lambda: handle.status().records_read == 2 * count, "everything is read")
    for queue in ("a", "b"):
        rows = sorted((row["n"], row["rule_ids"]) for row in sink.rows if row["queue"] == queue)
        assert [n for n, _ in rows] == list(range(count))
        used = [int(ids[0][1:]) for _, ids in rows]
        switches = [(json.loads(path.read_text()), int(path.name[-6:])) for path in sorted(places.iterdir())]
        begins = sorted((each["offset"], version) for each, version in switches if each["queue"] == f"in/{queue}")
        expected = [max((version for begin, version in begins if begin <= n), default=1) for n in range(count)]
        assert used == expected, (queue, begins)
        assert expected == sorted(expected)


# ----------------------------------------------------------------------------------------------------- the engine dies


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("fault", ["lane.after_process:5", "checkpoint.after_flush:2", "checkpoint.after_save:2"])
def test_after_a_kill_files_have_each_row_once(fault: str, tmp_path: Path) -> None:
    _input(tmp_path / "input", 2, 300)
    command = [sys.executable, str(Path(__file__).with_name("workers_job.py")), str(tmp_path)]
    environment = {**os.environ, VARIABLE: f"{fault}:kill", "PYTHONPATH": str(Path(__file__).parents[3])}  # for tests
    killed = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    seen: set[psutil.Process] = set()

    def ended() -> bool:
        seen.update(_children(killed))
        return killed.poll() is not None

    eventually(ended, "the engine is killed")
    assert killed.returncode == -signal.SIGKILL
    assert seen, "it had workers"
    eventually(lambda: not any(each.is_running() for each in seen), "its workers end, too")
    report = workers_job(tmp_path).run(
        "light", checkpoint=tmp_path / "state", workers=2, max_batch_records=20, show_progress=False
    )
    assert report.dead_letters >= 0
    rows = [json.loads(line) for path in (tmp_path / "output").glob("*.json") for line in path.read_text().splitlines()]
    found = sorted((row["file"], row["n"]) for row in rows)
    assert found == [(f"{name}.ndjson", n) for name in range(2) for n in range(300) if n % 97 != 13 and n % 3]
