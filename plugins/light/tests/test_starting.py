"""A job that starts while a server is away: what it asks is asked again, and nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.source import StartPosition
from headrace.testing import MemorySink, MemorySource
from headrace_light.backend import LightBackend
from headrace_light.settings import LightSettings
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore
from test_idle_engine import EngineClock

SCHEMA = {"n": "int64"}


class Away:
    """Counts down calls that find the server away."""

    def __init__(self, **calls: int) -> None:
        self.calls = calls

    def __call__(self, what: str) -> None:
        if self.calls.get(what, 0) > 0:
            self.calls[what] -= 1
            raise RetriableError(f"{what}: connection refused")


class AwaySource(MemorySource):
    def __init__(self, away: Away, **queues: list[bytes]) -> None:
        super().__init__(queues)
        self.away = away

    def queues(self) -> Collection[Queue]:
        self.away("queues")
        return super().queues()

    def open(self, queue: Queue, start: StartPosition) -> hr.Reader:
        self.away(f"open_{queue.name}")
        return super().open(queue, start)


class AwaySink(MemorySink):
    def __init__(self, away: Away) -> None:
        super().__init__(hr.SinkSettings(flush_interval=timedelta(0)))
        self.away = away
        self.prepared = 0

    def prepare(self, schema: hr.Schema | None) -> None:
        self.away("prepare")
        self.prepared += 1

    def open(self) -> None:
        self.away("open_sink")
        super().open()


class StillClock(EngineClock):
    """Moves for the waits of the start, which the test's own thread makes."""

    def wait(self, event: Any, seconds: float) -> bool:
        self.advance(seconds)
        return super().wait(event, 0)


def bodies(*numbers: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def run(source: AwaySource, sink: AwaySink, tmp_path: Path, **options: Any) -> hr.JobReport:
    stream = hr.stream("test", "starting").from_(source, format="json", schema=SCHEMA)
    job = stream.key_by("n").distinct().to(sink)
    given = hr.RunOptions(until="end", checkpoint=str(tmp_path), **options)
    return LightBackend(LightSettings(), StillClock()).start(job.plan(given), given).wait(timedelta(minutes=1))


@pytest.mark.parametrize("what", ["queues", "open_a", "open_b", "prepare", "open_sink"])
def test_the_start_waits_for_whatever_is_away(what: str, tmp_path: Path) -> None:
    away = Away(**{what: 4})
    source, sink = AwaySource(away, a=bodies(1, 2), b=bodies(3)), AwaySink(away)
    report = run(source, sink, tmp_path)
    assert sorted(row["n"] for row in sink.rows) == [1, 2, 3]
    assert (report.records_read, sink.prepared, sink.opened) == (3, 1, 1)
    assert len(source.opened) == len({name for name, _ in source.opened}) == 2
    assert away.calls == {what: 0}


@pytest.mark.parametrize("what", ["queues", "open_a", "prepare", "open_sink"])
def test_it_does_not_wait_for_ever(what: str, tmp_path: Path) -> None:
    away = Away(**{what: 10_000})
    sink = AwaySink(away)
    with pytest.raises(RetriableError, match="connection refused") as caught:
        run(AwaySource(away, a=bodies(1)), sink, tmp_path, start_timeout=timedelta(seconds=5))
    assert "it was waited for 5 s" in str(caught.value)
    assert sink.rows == []
    assert run(AwaySource(Away(), a=bodies(1)), AwaySink(Away()), tmp_path).records_read == 1, "the directory is free"


class AwayStore(DirectoryStateStore):
    """Is away at the load of a shard, each time behind its first version: what is taken in by then is of no use."""

    away_at: ClassVar[set[str]] = set()
    asked: ClassVar[list[str]] = []

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        self.asked.append(shard)
        for found in super().load(shard, version):
            yield found
            if shard in self.away_at:
                self.away_at.discard(shard)
                raise RetriableError("the store is away")


class OverAwayStore(LightBackend):
    def _state_store(self, job: str, directory: Path) -> AwayStore:
        return AwayStore(DirectoryStateSettings(path=str(directory / "state")))


def count(tmp_path: Path, *numbers: int, **options: Any) -> list[tuple[int, int]]:
    """Count numbers by themselves on four shards, in a run that goes on from the one before; return the new counts."""
    source, sink = MemorySource({"a": bodies(*numbers)}), MemorySink()
    counts = hr.stream("test", "counts").from_(source, format="json", schema=SCHEMA).key_by("n").agg(c="count(*)")
    given = hr.RunOptions(until="end", checkpoint=str(tmp_path), **options)
    backend = OverAwayStore(LightSettings(shards=4), StillClock())
    backend.start(counts.to(sink).plan(given), given).wait(timedelta(minutes=1))
    return sorted({row["n"]: row["c"] for row in sink.rows}.items())


def test_a_state_store_that_goes_away_between_shards_is_waited_for(tmp_path: Path) -> None:
    numbers = list(range(20))
    assert count(tmp_path, *numbers) == [(n, 1) for n in numbers]
    assert count(tmp_path, *numbers, *numbers) == [(n, 2) for n in numbers]
    AwayStore.asked.clear()
    AwayStore.away_at.update(f"key_by/{shard}" for shard in (1, 3))
    assert count(tmp_path, *numbers, *numbers, *numbers) == [(n, 3) for n in numbers]
    assert (AwayStore.away_at, AwayStore.asked) == (set(), [f"key_by/{shard}" for shard in (0, 1, 1, 2, 3, 3)])


def test_a_state_store_that_stays_away_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count(tmp_path, 1, 2, 3)

    def away(self: AwayStore, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        raise RetriableError("the store is away")

    monkeypatch.setattr(AwayStore, "load", away)
    with pytest.raises(RetriableError, match="the store is away") as caught:
        count(tmp_path, 1, 2, 3, 4, start_timeout=timedelta(seconds=5))
    assert "it was waited for 5 s" in str(caught.value)


def test_a_mistake_fails_at_once(tmp_path: Path) -> None:
    class Wrong(AwaySink):
        def prepare(self, schema: hr.Schema | None) -> None:
            raise JobError("unknown table 'alerts'")

    with pytest.raises(JobError, match="unknown table"):
        run(AwaySource(Away(), a=bodies(1)), Wrong(Away()), tmp_path)


def test_a_table_that_is_away_while_the_job_is_built_is_waited_for() -> None:
    class Table(MemorySource):
        calls_away = 2

        def schema(self) -> hr.Schema | None:
            if self.calls_away:
                self.calls_away -= 1
                raise RetriableError("connection refused")
            return hr.Schema.of(SCHEMA)

    assert dict(hr.stream("test", "table").from_(Table({})).schema or {}) == dict(hr.Schema.of(SCHEMA))
    hr.namespace("impatient", start_timeout=0)
    with pytest.raises(RetriableError, match="connection refused"):
        hr.stream("impatient", "table").from_(Table({}))


def test_the_option_is_a_duration() -> None:
    stream = hr.stream("test", "option").from_(MemorySource({}), format="json", schema=SCHEMA)
    with pytest.raises(hr.OptionError, match="soon"):
        stream.to(MemorySink()).run("light", start_timeout="soon")
