"""A prepared job that loads the state of a running one ahead goes on as if nothing had happened: for each kind of keyed state."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.runtime.shard import Shard
from headrace.testing import MemorySink, MemorySource
from headrace_light.stages.shard_storage import ShardStorage
from headrace_rocksdb.state_store import RocksStateStore

from tests.effort import often_or_slow
from tests.eventually import eventually

SCHEMA = {"k": "string", "v": "int64", "ts": "timestamp"}
RECORDS, CUTS = 240, (90, 150, 200)


def bodies() -> list[bytes]:
    choose = random.Random(15)
    begin = datetime(2026, 11, 25, tzinfo=UTC)
    found = []
    for number in range(RECORDS):
        ts = begin + timedelta(seconds=number + choose.randrange(-3, 3))
        row = {"k": choose.choice("abcdefg"), "v": choose.choice([None, *range(9)]), "ts": ts.isoformat()}
        found.append(json.dumps(row).encode())
    return found


def rows_of(source: MemorySource) -> hr.Stream:
    stream = hr.stream("test", "ahead").from_(source, format="json", schema=SCHEMA)
    delayed: hr.Stream = stream.watermark("ts", delay="5 s")
    return delayed


KINDS: dict[str, Callable[[hr.Stream], Any]] = {
    "aggregates": lambda s: s.key_by("k").agg(n="count(*)", s="sum(v)", d="count(DISTINCT v)"),
    "top-n": lambda s: s.key_by("k").top_n(2, by="v desc", rank="place"),
    "distinct": lambda s: s.distinct("k", "v"),
    "deduplicated": lambda s: s.key_by("k").deduplicate(keep="last"),
    "windows": lambda s: s.key_by("k").window(hr.tumbling("20 s", on="ts")).agg(n="count(*)", m="max(v)"),
    "sessions": lambda s: s.key_by("k").window(hr.session("6 s", on="ts")).agg(n="count(*)", m="max(v)"),
    "join": lambda s: s.where("v > 4").join(s.where("v <= 4"), "k", within=("0 s", "5 s"), time="ts"),
    "two stages": lambda s: s.key_by("k").agg(n="count(*)").key_by("n").agg(c="count(*)"),
}


class Run:
    """A prepared job over records of which more and more come."""

    def __init__(self, kind: str, sink: MemorySink, checkpoint: Path | None, records: list[bytes]) -> None:
        self.source = MemorySource({"q": records})
        self.prepared = (
            KINDS[kind](rows_of(self.source))
            .to(sink)
            .prepare("light", shards=2, metrics=True, checkpoint=checkpoint, checkpoint_interval="10 ms")
        )

    def add(self, records: list[bytes]) -> None:
        for each in records:
            self.source.append("q", each)


def wait_for_records(handle: hr.JobHandle, count: int) -> None:
    eventually(lambda: handle.status().records_read >= count, f"{count} records", shown=handle.status)


def table(sink: MemorySink) -> list[str]:
    return sorted(map(str, sink.table()))


#: In every run one of each kind of state; each of these runs three jobs.
OFTEN = ["aggregates", "windows", "join", "two stages"]


@pytest.mark.parametrize("kind", often_or_slow(list(KINDS), OFTEN))
def test_state_that_was_loaded_ahead_gives_the_results_of_a_job_that_never_stopped(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = bodies()
    expected = MemorySink()
    handle = Run(kind, expected, None, records).prepared.start()
    wait_for_records(handle, RECORDS)
    handle.stop()

    found = MemorySink()
    first, second, third = CUTS
    old, new = Run(kind, found, tmp_path, records[:first]), Run(kind, found, tmp_path, records)
    handle = old.prepared.start()
    wait_for_records(handle, first)
    eventually(lambda: handle.status().checkpoint_id > 0, "a checkpoint", shown=handle.status)
    new.prepared.load_ahead()
    old.add(records[first:second])
    wait_for_records(handle, second)
    new.prepared.load_ahead()
    old.add(records[second:third])
    wait_for_records(handle, third)
    handle.stop()

    loaded: list[str] = []
    real = ShardStorage.go_on

    def go_on(storage: ShardStorage, shard: Shard, *given: Any) -> None:
        loaded.append(shard.queue.id)
        real(storage, shard, *given)

    monkeypatch.setattr(ShardStorage, "go_on", go_on)
    handle = new.prepared.start()
    wait_for_records(handle, RECORDS - third)
    assert handle.metrics().to_json()
    handle.stop()
    assert loaded, "nothing was loaded ahead"
    assert table(found) == table(expected)


def test_a_state_store_that_cannot_be_read_beside_its_writer_is_not_even_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RocksStateStore] = []
    monkeypatch.setattr(RocksStateStore, "__init__", lambda store, settings: made.append(store))
    source = MemorySource({"q": bodies()[:5]})
    job = KINDS["aggregates"](rows_of(source)).to(MemorySink())
    job.prepare("light", checkpoint=tmp_path, state_store="rocksdb").load_ahead()
    assert made == []
