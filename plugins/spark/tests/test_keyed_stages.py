"""Keyed stages as worker processes run them, without Spark: what shards are told, state, replays, second stages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, Queue, Watermark
from headrace.foundation.errors import CheckpointError, PlanError
from headrace.jobs.dsl import Stream
from headrace.jobs.keyed import joined, shuffled
from headrace.runtime.lane import Shipment
from headrace_spark.checkpoints.state_files import _ArrowFiles, state_files
from headrace_spark.shards import shard_state
from headrace_spark.shards.shard_state import StateChain, StateVersion
from headrace_spark.shards.topology import Address, Topology
from headrace_spark.transit.envelopes import Envelope
from headrace_spark.workers.shipping import Outbox
from keyed_parts import SCHEMA, Clocked, Pairs, found, stream_of, timed, windowed, windows_of
from micro_batches import MicroBatches, another_process, line_sink
from pyarrow import fs
from spark_parts import CountingSource, DatabaseSink, LineSink

pytestmark = pytest.mark.usefixtures("_no_kept_parts")


sink = line_sink


@pytest.mark.parametrize(("records_max", "shards"), [(None, 1), (13, 3), pytest.param(250, 2, marks=pytest.mark.slow)])
def test_windows_are_the_same_however_the_input_is_cut(
    source: CountingSource, sink: LineSink, tmp_path: Path, records_max: int | None, shards: int
) -> None:
    counts = {"a": 700, "b": 1010, "empty": 0}
    for queue, count in counts.items():
        source.set_count(queue, count)
    job = windowed(timed(stream_of(source))).to(sink)
    run = MicroBatches(job, tmp_path / "run", shards=shards, batch_records=60, seed=shards)
    run.run_to_end(records_max)
    assert found(sink) == windows_of(counts)
    assert sum(figures["late_rows"] or 0 for figures in run.shard_figures().values()) == 0


def test_windows_fire_when_all_queues_have_passed_their_end(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 350)
    source.set_count("b", 120)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", until=None)
    while run.run_batch():
        pass
    assert {w for _, w in found(sink)} == {0}
    source.set_count("b", 301)
    while run.run_batch():
        pass
    assert {w for _, w in found(sink)} == {0, 1, 2}
    assert {figures["watermark_us"] for figures in run.shard_figures().values()} == {300_000_000}
    assert sum(figures["state_rows"] or 0 for figures in run.shard_figures().values()) == 5


def test_a_queue_that_appears_is_waited_for_from_before_its_first_row(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 150)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", until=None)
    while run.run_batch():
        pass
    source.set_count("b", 10)
    source.set_count("a", 500)
    while run.run_batch():
        pass
    assert {w for _, w in found(sink)} == {0}, "b is at 9 seconds, and every row of it is taken"
    source.remove("b")
    while run.run_batch():
        pass
    assert {w for _, w in found(sink)} == {0, 1, 2, 3}, "a queue that is gone is not waited for"


def test_an_idle_queue_is_not_waited_for_until_something_comes(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 250)
    source.set_count("silent", 0)
    stream = timed(stream_of(source), idle_timeout="30 s")
    run = MicroBatches(windowed(stream).to(sink), tmp_path / "run", until=None)
    while run.run_batch():
        pass
    assert not found(sink)
    run.clock.advance(30)
    source.set_count("a", 260)
    assert run.run_batch()
    assert {w for _, w in found(sink)} == {0, 1}
    assert run.offsets.keyed is not None
    assert [queue.name for queue in run.offsets.keyed.idle] == ["silent"]
    assert not run.run_batch(), "it is told once"
    run.clock.advance(100)
    assert run.run_batch(), "the other one is silent now too"
    assert [queue.name for queue in run.offsets.keyed.idle] == ["a", "silent"]
    assert not run.run_batch()
    run.restarted()
    assert not run.run_batch(), "and known after a restart"
    source.set_count("silent", 20)
    source.set_count("a", 450)
    assert run.run_batch()
    assert run.offsets.keyed.idle == ()
    assert sum(figures["late_rows"] or 0 for figures in run.shard_figures().values()) == 20
    assert {w for _, w in found(sink)} == {0, 1}, "it is waited for again"


def test_when_all_fall_silent_the_greatest_time_counts(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    source.set_count("a", 250)
    source.set_count("silent", 0)
    stream = timed(stream_of(source), idle_timeout="30 s")
    run = MicroBatches(windowed(stream).to(sink), tmp_path / "run", until=None)
    while run.run_batch():
        pass
    run.clock.advance(40)
    while run.run_batch():
        pass
    assert run.offsets.keyed is not None
    assert [queue.name for queue in run.offsets.keyed.idle] == ["a", "silent"]
    assert {w for _, w in found(sink)} == {0, 1}


def test_the_end_of_a_bounded_run_is_told_once_and_again_in_the_next_run(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 200)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run")
    run.run_to_end(70)
    assert run.next_batch == 4, "one to note the queues, and the last one with rows brings the end as well"
    assert run.offsets.keyed is not None
    assert run.offsets.keyed.ends == 1
    assert found(sink) == windows_of({"a": 200})
    run.restarted().run_to_end()
    assert (run.next_batch, run.offsets.keyed.ends) == (5, 2), "a micro-batch with nothing but the end"
    source.set_count("a", 420)
    run.restarted().run_to_end()
    assert found(sink) == windows_of({"a": 420})


def test_what_is_run_again_gives_the_same(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    source.set_count("a", 900)
    source.set_count("b", 800)
    job = windowed(windowed(timed(stream_of(source))), seconds=300).to(sink)
    run = MicroBatches(job, tmp_path / "run", shards=2)
    for _ in range(40):
        start = run.offsets
        end = run.planner.next_end(start, 97)
        if end == start:
            break
        with another_process():
            first = [_content(part) for part in run.before_sinks(start, end, run.next_batch)]
        with another_process():
            again = [_content(part) for part in run.before_sinks(start, end, run.next_batch)]
        here = [_content(part) for part in run.before_sinks(start, end, run.next_batch)]
        assert first == again
        assert first == here, "kept shards and restored ones"
        run.offsets, run.next_batch = end, run.next_batch + 1
    assert run.next_batch > 15


def _content(envelopes: Iterable[Envelope]) -> list[Any]:
    """Return what envelopes hold, but for the size of state files: the first one that a process writes is larger."""
    found = []
    for each in envelopes:
        content = each.content()
        if each.kind == "shard":
            figures = json.loads(content)
            assert figures.pop("state_bytes") > 0
            content = json.dumps(figures).encode()
        found.append((each.kind, each.queue, each.place, each.first, each.count, content))
    return sorted(found)


def test_processes_that_take_turns_bring_their_copies_up_to_date(
    source: CountingSource, sink: LineSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_state, "_DELTAS_MAX", 4)
    source.set_count("a", 2000)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", shards=2)
    place = 0
    while True:
        if place % 3 == 1:
            with another_process():
                more = run.run_batch(100)
        else:
            more = run.run_batch(100)
        place += 1
        if not more:
            break
    assert found(sink) == windows_of({"a": 2000})
    names = sorted(path.name for path in (tmp_path / "run" / "shards" / "key_by" / "0").iterdir())
    assert len(names) < 15, "files that no restart needs are removed"
    assert any(name.endswith(".snapshot") for name in names)


def test_a_copy_of_an_attempt_that_failed_is_not_used(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    source.set_count("a", 500)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", shards=2)
    run.run_batch(100)
    run.run_batch(100)
    start = run.offsets
    end = run.planner.next_end(start, 100)
    for part in run.before_sinks(start, end, run.next_batch):
        list(part)  # its task failed later: this process keeps what nobody else has
    with another_process():
        run.run(start, end, run.next_batch)
    run.offsets, run.next_batch = end, run.next_batch + 1
    run.run_to_end(100)
    assert found(sink) == windows_of({"a": 500})


def test_state_that_is_missing_is_told(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    source.set_count("a", 500)
    run = MicroBatches(windowed(timed(stream_of(source))).to(sink), tmp_path / "run", shards=1)
    for _ in range(4):
        run.run_batch(100)
    next((tmp_path / "run" / "shards" / "key_by" / "0").glob("*2.delta")).unlink()
    with another_process(), pytest.raises(CheckpointError, match="key_by/0 after micro-batch 2 is missing"):
        run.run_batch(100)


def test_a_second_stage_counts_what_the_first_gives(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    counts = {"a": 700, "b": 650}
    for queue, count in counts.items():
        source.set_count(queue, count)
    first = windowed(timed(stream_of(source)))
    second = windowed(first.with_columns(k="k % 2"), seconds=200).to(sink)
    run = MicroBatches(second, tmp_path / "run", shards=3).run_to_end(111)
    results = Counter((k % 2, w // 2) for k, w in windows_of(counts))
    assert found(sink) == results
    assert len(run.shard_figures()) == 6
    assert sum(figures["late_rows"] or 0 for figures in run.shard_figures().values()) == 0


def test_two_sides_meet_by_key(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    other = CountingSource(tmp_path / "others")
    source.set_count("a", 12)
    other.set_count("x", 7)
    other.set_count("y", 3)
    left = stream_of(source)
    right = hr.stream("test", "keyed").from_(other, format="json", schema=SCHEMA, name="others").with_columns(k="n % 5")
    job = joined(left, right, [("k", "k")], Pairs(), "pairs").to(sink)
    MicroBatches(job, tmp_path / "run", batch_records=2).run_to_end(5)
    wanted = [(a % 5, a + b) for a in range(12) for count in (7, 3) for b in range(count) if a % 5 == b % 5]
    assert sorted((row["k"], row["n"]) for row in sink.rows()) == sorted(wanted)


def test_branches_that_are_not_keyed_pass_by(source: CountingSource, sink: LineSink, tmp_path: Path) -> None:
    source.set_count("a", 300)
    source.set_count("b", 200)
    (source.directory / ".broken-a").write_text("[5]", encoding="utf-8")
    plain = DatabaseSink(tmp_path / "rows.db")
    plain.prepare(None)
    letters = LineSink(tmp_path / "letters")
    letters.prepare(None)
    stream = stream_of(source).dead_letters(lambda bad: bad.select("offset").to(letters))
    job = windowed(timed(stream)).to(sink).also(stream.to(plain, name="plain"))
    run = MicroBatches(job, tmp_path / "run").run_to_end(90)
    assert [n for queue, n in plain.stored() if queue == "counting/a"] == [n for n in range(300) if n != 5]
    assert [row["offset"] for row in letters.rows()] == [5]
    assert found(sink)[0, 0] == 20 + 19
    assert run.offsets.queues[Queue("a", "counting")].offset == 300


def test_operators_that_wait_for_the_clock_are_told_of_it(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    source.set_count("a", 30)
    run = MicroBatches(shuffled(stream_of(source), ("k",)).apply(Clocked()).to(sink), tmp_path / "run", until=None)
    run.run_batch()
    run.run_batch()
    assert not sink.rows(), "the tick comes before the rows"
    assert run.run_batch(), "a second later there is a micro-batch without data"
    assert sum(int(str(row["n"])) for row in sink.rows()) == 30
    before = run.offsets.keyed
    assert run.run_batch()
    assert before is not None
    assert run.offsets.keyed is not None
    assert run.offsets.keyed.time_us >= before.time_us + 1_000_000


def test_dead_letters_cannot_be_keyed(source: CountingSource, sink: LineSink) -> None:
    job = stream_of(source).dead_letters(lambda bad: shuffled(bad, ("origin",)).to(LineSink("bad"))).to(sink)
    with pytest.raises(PlanError, match="dead letters cannot be divided by key"):
        Topology(job.plan(), 2)


def test_a_shard_gets_one_blob_per_range_with_the_watermarks_that_came_between(
    source: CountingSource, sink: LineSink
) -> None:
    plan = windowed(timed(stream_of(source))).to(sink).plan()
    topology, queue = Topology(plan, 2), Queue("a", "counting")
    outbox = Outbox(plan, topology, queue)

    def rows(begin: int, marks: list[int | None]) -> Shipment:
        frame = pl.DataFrame(
            {
                "__hr_offset": range(begin, begin + len(marks)),
                "k": range(len(marks)),
                WATERMARK: pl.Series(marks, dtype=pl.Int64),
            }
        )
        return Shipment("key_by", 0, queue, Batch(queue, frame))

    shipped = [rows(0, [None, 5, 7]), Shipment("key_by", 0, queue, Watermark(queue, 9)), rows(3, [None, 8, 12])]
    assert list(outbox.take(shipped)) == []
    made = list(outbox.rest())
    assert [each.mark for each in made] == [9, 9]
    frame = pl.concat([each.frame() for each in made if each.count]).sort("__hr_offset")
    assert frame[WATERMARK].to_list() == [None, 5, 7, 9, 9, 12]
    assert len({each.shard for each in made}) == len(made) == 2
    assert list(outbox.rest()) == []


@pytest.mark.parametrize("kind", ["local", "arrow", "arrow store"])
def test_files_of_state(tmp_path: Path, kind: str) -> None:
    files = (
        state_files(tmp_path.as_uri())
        if kind == "local"
        else _ArrowFiles(fs.LocalFileSystem(), str(tmp_path), renames=kind == "arrow")
    )
    if kind == "arrow store":
        (tmp_path / "key by" / "0").mkdir(parents=True)
    assert files.names("key by/0") == {}
    assert files.read("key by/0/x") is None
    files.write("key by/0/x", b"abcdef")
    files.write("key by/0/x", b"ABCDEF")
    assert (files.read("key by/0/x"), files.read("key by/0/x", 3)) == (b"ABCDEF", b"ABC")
    assert files.names("key by/0") == {"x": 6}
    files.remove("key by/0/x")
    files.remove("key by/0/x")
    assert files.names("key by/0") == {}


def test_a_place_that_workers_cannot_reach_is_told() -> None:
    with pytest.raises(CheckpointError, match="keyed state cannot be stored in 'ftp://somewhere/state'"):
        state_files("ftp://somewhere/state")


class Growing:
    """A shard whose state has ``rows`` rows of 1 KiB, of which each micro-batch writes ``written``."""

    def __init__(self, rows: int, written: int) -> None:
        self.rows, self.written = rows, written

    def delta(self, *, seal: bool = True) -> bytes:
        return bytes(1024 * self.written)

    def snapshot(self, *, seal: bool = True) -> bytes:
        return bytes(1024 * self.rows)

    def state_rows(self) -> int:
        return self.rows


def snapshots_of(tmp_path: Path, grows: bool) -> int:
    """Return how many snapshots 60 micro-batches make that each write 1,000 rows."""
    chain, at = StateChain(state_files(tmp_path.as_uri()), Address("s", 0)), StateVersion()
    made = set()
    for number in range(60):
        at = chain.save(Growing(1_000 * (number + 1 if grows else 10), 1_000), at, number)  # type: ignore[arg-type]
        made.add(at.snapshot_id)
        restart_bytes = at.snapshot_bytes + at.delta_bytes
        assert restart_bytes <= 1024 * 1_000 * (60 if grows else 21) + 10_000
    return len(made)


def test_state_that_only_grows_is_seldom_written_as_a_whole(tmp_path: Path) -> None:
    assert snapshots_of(tmp_path / "grows", grows=True) <= 2
    assert snapshots_of(tmp_path / "changes", grows=False) >= 5


def test_a_snapshot_of_another_life_is_not_taken(tmp_path: Path) -> None:
    files = state_files(tmp_path.as_uri())
    chain = StateChain(files, Address("s", 0))
    for number in range(3):
        files.write(f"s/0/{number:012}.delta", b"%016d" % number + b"delta%d" % number)
    files.write("s/0/000000000001.snapshot", b"another token...snapshot")
    assert [content for content, _ in chain.after(StateVersion(), 3)] == [b"delta0", b"delta1", b"delta2"]
    files.write("s/0/000000000001.snapshot", b"%016d" % 1 + b"whole")
    assert [content for content, _ in chain.after(StateVersion(), 3)] == [b"whole", b"delta2"]


class Whole(Growing):
    """A shard of which each micro-batch writes the same."""

    def __init__(self) -> None:
        super().__init__(rows=1, written=1)

    def delta(self, *, seal: bool = True) -> bytes:
        return b"delta" * 9


def test_a_file_of_another_checkpoint_or_none_where_there_must_be_one_is_told(tmp_path: Path) -> None:
    files = state_files(tmp_path.as_uri())
    own, other = (StateChain(files, Address("s", 0), name, has_beginning=True) for name in ("own", "other"))
    with pytest.raises(CheckpointError, match=r"state file s/0/beginning\.snapshot is missing"):
        list(own.after(StateVersion(), 1))
    own.begin(b"begun")
    own.save(Whole(), StateVersion(), 0)  # type: ignore[arg-type]
    assert [content for content, _ in own.after(StateVersion(), 1)] == [b"begun", b"delta" * 9]
    with pytest.raises(CheckpointError, match="or of another job"):
        list(other.after(StateVersion(), 1))
    StateChain(files, Address("s", 0)).save(Whole(), StateVersion(), 0)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"000000000000\.delta of the checkpoint is damaged, or of another job"):
        list(own.after(StateVersion(), 1))
    files.write("s/0/000000000000.delta", bytes(16) + b"without a checksum")
    with pytest.raises(CheckpointError, match="or of another job"):
        list(own.after(StateVersion(), 1))


def test_a_file_that_is_damaged_empty_or_in_anothers_place_is_told(tmp_path: Path) -> None:
    files = state_files(tmp_path.as_uri())
    chain, at = StateChain(files, Address("s", 0)), StateVersion()
    for number in range(3):
        at = chain.save(Whole(), at, number)  # type: ignore[arg-type]
    assert [content for content, _ in chain.after(StateVersion(), 3)] == [b"delta" * 9] * 3
    name = f"s/0/{1:012}.delta"
    good = files.read(name)
    assert good is not None
    other = files.read(f"s/0/{2:012}.delta")
    damaged = [
        good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :] for place in range(16, len(good))
    ]
    assert other is not None
    # Where the mark of the checksum is: without it a file is one of an older version, with bytes behind that are no state.
    mark = len(good) - 16 - 8
    for content in (*damaged[:mark], *damaged[mark + 4 :], b"", good[:16], other):
        files.write(name, content)
        with pytest.raises(CheckpointError, match=name):
            list(chain.after(StateVersion(), 3))
    for content in (*damaged[mark : mark + 4], good[:-1]):
        files.write(name, content)
        assert [state for state, _ in chain.after(StateVersion(), 3)][1] != b"delta" * 9


class Later:
    """Gives a row five seconds after the first one of its key."""

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
        if not state:
            state["set"] = True
            timers.at_processing_time(timers.now + timedelta(seconds=5))

    def on_timer(self, key: int, time: Any, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state.clear()
        yield {"k": key, "n": 1}


CLOCKED: dict[str, Callable[[Stream], Stream]] = {
    "tumbling": lambda rows: rows.key_by("k").window(hr.tumbling("10 s")).agg(n="count(*)"),
    "session": lambda rows: rows.key_by("k").window(hr.session("10 s")).agg(n="count(*)"),
    "timer": lambda rows: rows.key_by("k").process(Later, schema={"k": "int64", "n": "int64"}),
    "interval join": lambda rows: rows.join(
        rows.where("n < 0"), "k", how="anti", within=("0 s", "10 s"), by_clock=True
    ).select("k", "n"),
    "window join": lambda rows: rows.join(
        rows.where("n < 0"), "k", how="left", window=hr.tumbling("10 s"), suffix="_r"
    ).select("k", "n"),
}


@pytest.mark.parametrize("kind", CLOCKED)
def test_what_is_due_by_the_clock_comes_while_the_source_is_idle(
    source: CountingSource, sink: LineSink, tmp_path: Path, kind: str
) -> None:
    source.set_count("a", 5)
    run = MicroBatches(CLOCKED[kind](stream_of(source)).to(sink), tmp_path / "run", until=None)
    assert run.run_batch()
    assert sink.rows() == []
    for number in range(40):
        if number == 5:
            run.restarted()
        run.run_batch()
    assert sorted(row["k"] for row in sink.rows()) == [0, 1, 2, 3, 4]
    assert sum(figures["state_rows"] or 0 for figures in run.shard_figures().values()) == 0


def test_a_job_that_only_forgets_by_the_clock_is_told_of_it_rarely(
    source: CountingSource, sink: LineSink, tmp_path: Path
) -> None:
    """Each tick is a micro-batch: one every second would keep an idle cluster busy."""
    source.set_count("a", 5)
    job = stream_of(source).key_by("k").ttl("5 min").distinct().to(sink)
    run = MicroBatches(job, tmp_path / "run", until=None)
    while not run.shard_figures() or not sum(figures["state_rows"] or 0 for figures in run.shard_figures().values()):
        run.run_batch()
    begun, ticks = run.clock.now(), 0
    while sum(figures["state_rows"] or 0 for figures in run.shard_figures().values()):
        ticks += run.run_batch()
        assert run.clock.now() - begun < 600
    assert 10 <= ticks <= 11
