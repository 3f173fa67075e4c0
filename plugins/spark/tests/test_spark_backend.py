"""Jobs on Spark in this process: bounded and unbounded runs, checkpoints, queues that come and go, errors."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import psutil
import pytest
from headrace.foundation.errors import CheckpointError, DataError, JobError, JobFailedError, OptionError
from headrace.interfaces.backend import JobState
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import default_registry
from headrace_spark.processes import session
from headrace_spark.processes.settings import SparkSettings
from headrace_spark.queries.handle import SparkHandle, _says_that_java_has_ended
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from spark_parts import CountingSource, DatabaseSink, Failing, LineSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
SCHEMA = {"n": "int64", "queue": "string"}


def stream_of(source: CountingSource, name: str = "spark", **options: Any) -> hr.Stream:
    return hr.stream("test", name, **options).from_(source, format="json", schema=SCHEMA)


def expected(**queues: range) -> list[tuple[str, int]]:
    return [(f"counting/{queue}", n) for queue, numbers in sorted(queues.items()) for n in numbers]


class Observer:
    """Notes what the life-cycle hooks are told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    @hookimpl
    def headrace_job_started(self, job: str, backend: str) -> None:
        self.seen.append(("started", job, backend))

    @hookimpl
    def headrace_checkpoint_completed(self, job: str, checkpoint_id: int, seconds: float) -> None:
        self.seen.append(("checkpoint", checkpoint_id))

    @hookimpl
    def headrace_queue_added(self, job: str, queue: hr.Queue) -> None:
        self.seen.append(("added", queue.id))

    @hookimpl
    def headrace_queue_removed(self, job: str, queue: hr.Queue) -> None:
        self.seen.append(("removed", queue.id))

    @hookimpl
    def headrace_job_stopped(self, job: str, report: hr.JobReport) -> None:
        self.seen.append(("stopped", report.state))


@pytest.fixture
def observer() -> Any:
    made = Observer()
    default_registry().register(made, "observer")
    yield made
    default_registry()._manager.unregister(made)


def test_a_bounded_run_and_its_restart(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path, observer: Observer
) -> None:
    source.set_count("a", 1000)
    source.set_count("b", 500)
    job = stream_of(source).where("n % 2 = 0").to(sink)
    report = job.run("spark", checkpoint=tmp_path / "state", max_micro_batch_records=600, max_batch_records=100)
    assert sink.stored() == expected(a=range(0, 1000, 2), b=range(0, 500, 2))
    assert (report.state, report.records_read, dict(report.rows_written)) == (
        JobState.FINISHED, 1500, {"to_database": 750},
    )  # fmt: skip
    assert [(q.queue, q.offset, q.lag, q.records) for q in report.queues] == [
        ("counting/a", 1000, 0, 1000), ("counting/b", 500, 0, 500),
    ]  # fmt: skip
    assert observer.seen == [
        ("started", "test.spark", "spark"), ("added", "counting/a"), ("added", "counting/b"),
        *(("checkpoint", batch) for batch in (1, 2, 3)), ("stopped", JobState.FINISHED),
    ]  # fmt: skip

    source.set_count("a", 1100)
    source.set_count("c", 10)
    again = job.run("spark", checkpoint=tmp_path / "state")
    assert sink.stored() == expected(a=range(0, 1100, 2), b=range(0, 500, 2), c=range(0, 10, 2))
    assert (again.records_read, dict(again.rows_written), again.rows_skipped) == (110, {"to_database": 55}, 0)

    anew = job.run("spark")
    assert (anew.records_read, dict(anew.rows_written), anew.rows_skipped) == (1610, {"to_database": 0}, 805)


def test_queues_come_and_go_while_a_job_runs(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path, observer: Observer
) -> None:
    source.set_count("a", 10)
    job = stream_of(source, "unbounded").to(sink)
    options: dict[str, Any] = dict(checkpoint=tmp_path / "state", discovery_interval="100 ms")
    handle = job.start("spark", **options)
    eventually(lambda: sink.stored() == expected(a=range(10)), "first rows")
    assert handle.status().state is JobState.RUNNING
    source.set_count("b", 5)
    eventually(lambda: len(sink.stored()) == 15, "rows of the queue added")
    source.remove("a")
    eventually(lambda: ("removed", "counting/a") in observer.seen, "queue removed")
    source.set_count("b", 8)
    eventually(lambda: len(sink.stored()) == 18, "rows after a queue was removed")
    eventually(lambda: handle.status().records_read == 18, "figures")
    with pytest.raises(TimeoutError, match="has not ended within"):
        handle.wait(timedelta(0))
    handle.stop()
    handle.stop()
    report = handle.wait()
    assert (report.state, report.records_read) == (JobState.STOPPED, 18)

    source.set_count("a", 12)
    source.set_count("b", 9)
    with job.start("spark", **options) as second:
        eventually(lambda: second.status().records_read == 3, "what came while the job was stopped")
    assert sink.stored() == expected(a=range(12), b=range(9))
    assert second.wait().rows_skipped == 0


def test_a_stop_lets_the_batch_at_hand_be_finished(source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 100_000)
    sink = LineSink(tmp_path / "lines")
    handle = stream_of(source, "stop").to(sink).start("spark", max_micro_batch_records=500, max_batch_records=100)
    eventually(lambda: handle.status().records_read > 0, "a batch")
    handle.stop()
    report = handle.wait()
    numbers = sorted(int(str(row["n"])) for row in sink.rows())
    assert numbers == [*range(report.records_read)], "whole batches, and each row once even in a plain sink"
    assert report.records_read % 500 == 0


def test_bad_records_and_refused_rows_go_to_the_dead_letters(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path
) -> None:
    source.set_count("a", 100)
    (source.directory / ".broken-a").write_text("[3, 40]", encoding="utf-8")
    Path(sink.path + ".refused").write_text("77", encoding="utf-8")
    letters = LineSink(tmp_path / "letters")
    job = (
        stream_of(source, "letters")
        .dead_letters(lambda bad: bad.select("offset", "origin", "reason").to(letters))
        .to(sink)
    )
    report = job.run("spark")
    assert [n for _, n in sink.stored()] == [n for n in range(100) if n not in (3, 40, 77)]
    rows = sorted((row["offset"], row["origin"]) for row in letters.rows())
    assert rows == [(3, "counting"), (40, "counting"), (77, "to_database")]
    assert report.dead_letters == 3
    assert report.queues[0].dead_letters == 3
    assert dict(report.rows_written) == {"to_database": 97}


def test_a_bad_record_that_stops_the_job_is_named(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 100)
    (source.directory / ".broken-a").write_text("[30]", encoding="utf-8")
    handle = stream_of(source, "stops", bad_records="stop").to(sink).start("spark", until="end")
    with pytest.raises(JobFailedError, match="the job failed: bad record at 'counting'") as raised:
        handle.wait()
    cause = raised.value.__cause__
    assert isinstance(cause, DataError)
    assert (cause.queue, cause.offset) == ("counting/a", 30)
    assert "dead_letters()" in str(raised.value)
    assert "at org.apache" not in str(raised.value)
    assert handle.status().state is JobState.FAILED
    assert "bad record" in (handle.status().error or "")


def test_an_error_of_an_operator_is_told_as_it_is(source: CountingSource, sink: DatabaseSink) -> None:
    source.set_count("a", 10)
    with pytest.raises(JobFailedError, match="the job failed: ZeroDivisionError: integer division or modulo") as raised:
        stream_of(source, "broken").apply(Failing()).to(sink).run("spark")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "in a worker process" in "\n".join(getattr(raised.value.__cause__, "__notes__", []))


def test_what_is_wrong_from_the_start_is_told_at_the_start(source: CountingSource, sink: DatabaseSink) -> None:
    source.directory.rmdir()
    with pytest.raises(JobError, match="is no directory") as raised:
        stream_of(source).to(sink).start("spark")
    assert not isinstance(raised.value, JobFailedError)


def test_several_tasks_read_one_large_queue(source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 100_000)
    reported: dict[str, list[dict[str, Any]]] = {}
    for name in ("rows", "counts"):
        sink = LineSink(tmp_path / name)
        read = stream_of(source, name).map(with_process, schema={"n": "int64", "process": "int64"})
        job = (
            read.to(sink)
            if name == "rows"
            else read.key_by("process").agg(n="count(*)").to(ChangeSink(tmp_path / name))
        )
        report = job.run("spark", max_micro_batch_records=60_000)
        assert report.records_read == 100_000
        reported[name] = sink.rows()
    written = [path.read_text().splitlines() for path in (tmp_path / "rows").iterdir()]  # by the process that wrote it
    numbers = [[json.loads(line)["n"] for line in lines] for lines in written]
    assert len({row["process"] for row in reported["rows"]}) > 1, "several processes have read it"
    assert all(each == sorted(each) for each in numbers), "and its rows came to the sink in order"
    assert sorted(n for each in numbers for n in each) == list(range(100_000))
    counts: dict[int, int] = {}
    for row in reported["counts"]:  # they only grow
        counts[row["process"]] = max(row["n"], counts.get(row["process"], 0))
    assert len(counts) > 1
    assert sum(counts.values()) == 100_000


def with_process(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "process": os.getpid()}


class ChangeSink(LineSink):
    """Takes changes of results: the last row of a key counts."""

    accepts = "changelog"


def test_a_worker_that_is_killed_is_replaced(source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 2000)
    source.set_count("b", 2000)
    sink = KillingSink(tmp_path / "rows.db")
    report = stream_of(source, "worker").to(sink).run("spark", max_micro_batch_records=1000)
    assert Path(sink.path + ".killed").exists()
    assert sink.stored() == expected(a=range(2000), b=range(2000))
    assert report.records_read == 4000
    assert dict(report.rows_written) == {"to_killing": 4000}, "rows that the killed worker stored count as well"


class KillingSink(DatabaseSink):
    """Kills its process once, after a batch is stored and before anybody knows."""

    def batch_insert(self, batch: hr.SinkBatch) -> None:
        super().batch_insert(batch)
        self._fail_once(batch)

    def _fail_once(self, batch: hr.SinkBatch) -> None:
        if batch.last.offset < 900:
            return
        try:
            open(self.path + ".killed", "x", encoding="utf-8").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class RaisingSink(KillingSink):
    """Stores and then fails, again and again at other places."""

    def _fail_once(self, batch: hr.SinkBatch) -> None:
        place = self.path + f".raised-{batch.last.offset % 5}"
        try:
            open(place, "x", encoding="utf-8").close()
        except FileExistsError:
            return
        raise JobFailedError("fails once here", queue=batch.queue.id)


def test_errors_after_storing_leave_no_duplicates(source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 1003)
    source.set_count("b", 1501)
    sink = RaisingSink(tmp_path / "rows.db", hr.SinkSettings(batch_size=97))
    job = stream_of(source, "raising").to(sink)
    written = 0
    for _ in range(5):
        try:
            report = job.run("spark", checkpoint=tmp_path / "state", max_micro_batch_records=300)
        except JobFailedError:
            continue
        written += report.rows_written["to_raising"]
        break
    assert sink.stored() == expected(a=range(1003), b=range(1501))


def test_where_a_job_began_is_remembered_when_its_first_batch_fails(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path
) -> None:
    source.set_count("a", 10)
    latest = hr.stream("test", "began").from_(source, format="json", schema=SCHEMA, start="latest")
    handle = latest.apply(Failing()).to(sink).start("spark", checkpoint=tmp_path / "state")
    source.set_count("a", 15)
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        handle.wait(timedelta(minutes=2))
    source.set_count("a", 20)
    latest.to(sink).run("spark", checkpoint=tmp_path / "state")
    assert sink.stored() == expected(a=range(10, 20))


def test_checkpoints_belong_to_one_job_at_a_time(source: CountingSource, sink: DatabaseSink, tmp_path: Path) -> None:
    source.set_count("a", 1)
    state = tmp_path / "state"
    with stream_of(source, "first").to(sink).start("spark", checkpoint=state) as running:
        eventually(lambda: running.status().records_read == 1, "first row")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace_spark.checkpoints.checkpoint._LOCK_WAIT_SECONDS", 0.0)
            with pytest.raises(CheckpointError, match="in use by another running job"):
                stream_of(source, "first").to(sink).run("spark", checkpoint=state)
    with pytest.raises(CheckpointError, match=r"belongs to the job 'test\.first'"):
        stream_of(source, "second").to(DatabaseSink(tmp_path / "second.db")).run("spark", checkpoint=state)
    renamed = hr.stream("test", "first").from_(source, format="json", schema=SCHEMA, name="other").to(sink)
    with pytest.raises(CheckpointError, match="knows a source 'counting'"):
        renamed.run("spark", checkpoint=state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"master": "locl[2]"}, "does not know such a master"),
        ({"mastre": "local[2]"}, "did you mean 'master'"),
        ({"memory": "lots"}, "memory"),
        ({"session": 5}, "is not a SparkSession"),
        ({"parallelism": 0}, "parallelism"),
    ],
)
def test_wrong_options_are_told_before_anything_starts(
    source: CountingSource, sink: DatabaseSink, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        stream_of(source).to(sink).run("spark", **options)


def test_a_session_of_the_users_own(source: CountingSource, sink: DatabaseSink, tmp_path: Path) -> None:
    source.set_count("a", 20)
    own = session.session_for(SparkSettings()).session
    query = stream_of(source, "own").to(sink).to_spark(own, until="end", checkpoint=tmp_path / "state")
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert sink.stored() == expected(a=range(20))
    report = stream_of(source, "own").to(sink).run("spark", session=own, checkpoint=tmp_path / "state")
    assert report.records_read == 0
    assert own.range(3).count() == 3, "the session is left as it was"
    with pytest.raises(OptionError, match="the given session has its own settings"):
        stream_of(source, "own").to(sink).run("spark", session=own, master="local[1]")


@pytest.mark.slow
def test_other_options_start_another_spark(
    source: CountingSource, sink: DatabaseSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.set_count("a", 5)
    job = stream_of(source, "restart").to(sink)
    with job.start("spark") as running:
        eventually(lambda: running.status().records_read == 5, "rows")
        with pytest.raises(OptionError, match="with other options"):
            job.run("spark", master="local[1]")
    monkeypatch.setenv("TEST_S3_KEY", "open sesame 1")
    secrets = {"spark.hadoop.fs.s3a.secret.key": "${TEST_S3_KEY}", "spark.hadoop.fs.s3a.session.token": "open sesame 2"}
    assert job.run("spark", master="local[1]", conf={"spark.app.name": "renamed", **secrets}).rows_skipped == 5
    own = session._own
    assert own is not None
    context: Any = own.session.sparkContext
    found = [context._jsc.hadoopConfiguration().get(name.removeprefix("spark.hadoop.")) for name in secrets]
    assert found == ["open sesame 1", "open sesame 2"]
    java = psutil.Process(context._gateway.proc.pid)
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert java.cmdline() in lines
    # Every user of the machine can read a command line.
    assert not [line for line in lines if any("open sesame" in word for word in line)]


@pytest.mark.slow
def test_a_job_whose_java_is_killed_says_so_and_the_next_one_starts_another(
    source: CountingSource, sink: DatabaseSink, tmp_path: Path
) -> None:
    source.set_count("a", 10)
    job = stream_of(source, "java").to(sink)
    handle = job.start("spark", checkpoint=tmp_path / "state")
    eventually(lambda: handle.status().records_read == 10, "rows")
    own = session._own
    assert own is not None
    gateway: Any = own.session.sparkContext._gateway
    gateway.proc.kill()
    with pytest.raises(JobFailedError, match="Spark's Java process has ended"):
        handle.wait(timedelta(minutes=1))
    source.set_count("a", 15)
    again = job.run("spark", checkpoint=tmp_path / "state")
    # Java may have been killed before it had noted that the first batch was done: then it is done again.
    assert (again.records_read, again.rows_skipped) in ((5, 0), (15, 10))
    assert sink.stored() == expected(a=range(15))


def test_a_planner_that_is_killed_is_replaced(sink: DatabaseSink, tmp_path: Path) -> None:
    source = ToldSource(tmp_path / "queues")
    source.set_count("a", 10)
    job = stream_of(source, "planner").to(sink)
    with job.start("spark", checkpoint=tmp_path / "state", discovery_interval="50 ms") as handle:
        eventually(lambda: handle.status().records_read == 10, "rows")
        first = source.planner()
        os.kill(first, signal.SIGKILL)
        source.set_count("a", 15)
        eventually(lambda: handle.status().records_read == 15, "rows after it was replaced", shown=handle.status)
        assert source.planner() != first
    assert handle.wait().state is JobState.STOPPED
    assert sink.stored() == [("told/a", n) for n in range(15)]


def test_a_query_is_started_again_when_a_process_did_not_start_in_time(
    source: CountingSource,
    sink: DatabaseSink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What Spark says on a machine that has too much to do; nothing of the job has failed."""
    source.set_count("a", 10)
    with stream_of(source, "busy").to(sink).start("spark", checkpoint=tmp_path / "state") as handle:
        eventually(lambda: handle.status().records_read == 10, "rows")
        assert isinstance(handle, SparkHandle)
        query = handle._started.query

        def failed(timeout: float | None = None) -> bool:
            query.stop()
            raise RuntimeError("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back.")

        monkeypatch.setattr(query, "awaitTermination", failed)
        # The query that fails must not read the rows that come now.
        eventually(lambda: handle._started.query is not query, "it was started again", shown=handle.status)
        source.set_count("a", 15)
        eventually(lambda: handle.status().records_read == 15, "rows after it was started again", shown=handle.status)
    assert "did not start within ten seconds" in caplog.text
    assert sorted(n for _, n in sink.stored()) == list(range(15))


def test_a_planner_is_not_replaced_where_the_checkpoint_was_removed(sink: DatabaseSink, tmp_path: Path) -> None:
    """Spark would make the directory anew, and the job would read everything again."""
    source = ToldSource(tmp_path / "queues")
    source.set_count("a", 10)
    handle = (
        stream_of(source, "removed").to(sink).start("spark", checkpoint=tmp_path / "state", discovery_interval="50 ms")
    )
    eventually(lambda: handle.status().records_read == 10, "rows")
    (tmp_path / "state").rename(tmp_path / "removed")
    os.kill(source.planner(), signal.SIGKILL)
    with pytest.raises(JobFailedError, match="is missing: the checkpoint was removed while the job ran") as caught:
        handle.wait(timedelta(minutes=1))
    assert str(tmp_path / "state" / "spark") in str(caught.value)
    assert sink.stored() == [("told/a", n) for n in range(10)]


class ToldSource(CountingSource):
    """Notes which process plans with it."""

    def queues(self) -> Collection[hr.Queue]:
        new = self.directory.with_suffix(f".{os.getpid()}.new")
        new.write_text(str(os.getpid()), encoding="utf-8")
        new.replace(self.directory.with_suffix(".pid"))  # the test may read at any moment
        return super().queues()

    def planner(self) -> int:
        return int(self.directory.with_suffix(".pid").read_text(encoding="utf-8"))


def test_what_workers_print_is_printed_here(source: CountingSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.set_count("a", 3000)
    source.set_count("b", 3000)
    stream_of(source, "printing").to(PrintingSink()).run("spark")
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == sorted(f"{queue} {n} {'ü' * 50}" for queue in "ab" for n in range(3000))


class PrintingSink(hr.Sink):
    """Prints each batch with one call."""

    def batch_insert(self, batch: hr.SinkBatch) -> None:
        print("\n".join(f"{batch.queue.name} {row['n']} {'ü' * 50}" for row in batch.rows()))


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (ConnectionRefusedError(), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o150.awaitTermination"), True),
        (
            Py4JError("An error occurred while calling o1.x. Trace:\npy4j.Py4JException: Method x([]) does not exist"),
            False,
        ),
        (ValueError("of the job"), False),
    ],
)
def test_a_java_that_ends_in_the_middle_of_a_call_is_known(raised: Exception, wanted: bool) -> None:
    assert _says_that_java_has_ended(raised) is wanted
