"""Keyed stages of the light backend: state, the order of input, and what is left after a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import CheckpointError, PlanError
from headrace.jobs.keyed import shuffled
from headrace.plan.explain import describe_stages, plan_as_mermaid, plan_as_text
from headrace.testing import MemorySink, MemorySource
from headrace_light.stages.order_log import Entry, OrderLog
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore
from light_counting import Count
from light_keyed_job import keyed_job, run

from tests.effort import often_or_slow

HERE = Path(__file__).parent
PLACES = [
    "reader.after_poll",
    "lane.after_process",
    "shard.after_process",
    "sink.before_insert",
    "sink.after_insert",
    "checkpoint.after_flush",
    "shard.after_save",
    "checkpoint.after_save",
]
#: In every run; tests/conformance/test_stateful.py kills at all of them there.
OFTEN = ["sink.after_insert", "shard.after_save"]


def write_input(directory: Path, records: int = 90) -> Counter[str]:
    """Write three files of events and return how often each key comes."""
    (directory / "input").mkdir()
    keys: Counter[str] = Counter()
    for number in range(3):
        lines = []
        for place in range(records // 3):
            key = f"key-{(place * 7 + number) % 11}"
            keys[key] += 1
            lines.append(json.dumps({"k": key, "n": place, "ts": f"2024-01-01T00:00:{place % 60:02d}Z"}))
        (directory / "input" / f"{number}.ndjson").write_text("\n".join(lines) + "\n")
    return keys


def rows(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((directory / "output").rglob("*.json")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def check(directory: Path, keys: Counter[str]) -> None:
    """Every step of every key is there exactly once, and each key once at the end."""
    found = Counter((row["k"], row["count"]) for row in rows(directory))
    wanted = Counter({(key, step): 1 for key, count in keys.items() for step in range(1, count + 1)})
    wanted += Counter({(key, -1): 1 for key in keys})
    assert found == wanted


def start(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "light_keyed_job.py"), str(directory)],
        env={**os.environ, "PYTHONPATH": str(HERE), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_row_counts_once(tmp_path: Path) -> None:
    keys = write_input(tmp_path)
    report = run(tmp_path)
    assert report.records_read == 90
    check(tmp_path, keys)


def test_a_second_run_goes_on_with_the_state(tmp_path: Path) -> None:
    keys = write_input(tmp_path)
    run(tmp_path)
    with open(tmp_path / "input" / "0.ndjson", "a") as file:
        file.write('{"k":"key-0","n":1,"ts":"2024-01-01T00:02:00Z"}\n')
    assert run(tmp_path).records_read == 1
    assert (keys["key-0"] + 1) in {row["count"] for row in rows(tmp_path) if row["k"] == "key-0"}


@pytest.mark.parametrize("place", often_or_slow(PLACES, OFTEN))
def test_killed_at_a_named_place_and_started_again(place: str, tmp_path: Path) -> None:
    keys = write_input(tmp_path)
    for count in (3, 1):
        killed = start(tmp_path, HEADRACE_FAULTS=f"{place}:{count}:kill")
        if count == 3 or killed.returncode != 0:
            assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
    done = start(tmp_path)
    assert done.returncode == 0, done.stderr
    check(tmp_path, keys)


@pytest.mark.slow
def test_killed_at_random_places_fifty_times(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    keys = write_input(tmp_path, 3000)
    kills = 0
    for _ in range(50):
        place, count = chance.choice(PLACES), chance.randrange(1, 12)
        killed = start(tmp_path, HEADRACE_FAULTS=f"{place}:{count}:kill")
        assert killed.returncode in (0, -signal.SIGKILL), (seed, killed.stderr)
        kills += killed.returncode != 0
        if killed.returncode == 0:
            break
    assert kills > 0, seed
    done = start(tmp_path)
    assert done.returncode == 0, (seed, done.stderr)
    check(tmp_path, keys)


def test_the_number_of_shards_stays(tmp_path: Path) -> None:
    write_input(tmp_path)
    run(tmp_path)
    with pytest.raises(CheckpointError, match="keys cannot move between shards"):
        keyed_job(tmp_path).run("light", checkpoint=tmp_path / "state", shards=3)


def test_the_watermark_is_the_least_of_all_queues_and_skips_those_that_are_done() -> None:
    def body(second: int) -> bytes:
        return json.dumps({"k": "a", "ts": f"2024-01-01T00:00:{second:02d}Z"}).encode()

    source = MemorySource({"slow": [body(n) for n in range(3)], "fast": [body(n) for n in range(20, 50)]})
    stream = hr.stream("test", "marks").from_(source, format="json", schema={"k": "string", "ts": "timestamp"})
    sink = MemorySink()
    shuffled(stream.watermark("ts", delay="1 s"), ("k",)).apply(Count("k")).to(sink).run("light", max_batch_records=2)
    start_us = 1_704_067_200_000_000
    marks = [row["watermark"] for row in sink.rows if row["watermark"] is not None]
    assert marks == sorted(marks)
    # The slow queue holds it back until it is done.
    assert start_us - 1_000_000 <= marks[0] <= start_us + 2_000_000
    assert marks[-1] == start_us + 48_000_000


def test_rows_that_change_results_are_refused_by_a_sink_that_only_adds() -> None:
    class Changing(Count):
        def changes(self, before: hr.Changes | None) -> hr.Changes | None:
            return hr.Changes(("k",))

    source = MemorySource({"a": [b'{"k": "a"}']})
    stream = hr.stream("test", "changes").from_(source, format="json", schema={"k": "string"})

    class Appending(MemorySink):
        accepts = "append"

    with pytest.raises(PlanError, match="can only add rows"):
        shuffled(stream, ("k",)).apply(Changing("k")).to(Appending()).run("light")


def test_a_torn_line_of_the_order_log_is_no_entry(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    log.begin(3)
    entries = [
        Entry(1, 10, "added", Queue("q", "s")),
        Entry(2, 11, "read", Queue("q", "s"), ReadPosition(0), ReadPosition(5, {"byte": 17})),
        Entry(3, 12, "end"),
    ]
    for entry in entries:
        log.add(entry)
    log.close()
    path = tmp_path / "order-3.log"
    path.write_bytes(path.read_bytes()[:-4])
    assert list(OrderLog(tmp_path).entries(3)) == entries[:2]
    log.begin(3)
    log.add(entries[2])
    assert list(log.entries(3)) == entries
    log.begin(4)
    assert [path.name for path in tmp_path.iterdir()] == ["order-4.log"]
    log.close()
    path = tmp_path / "order-4.log"
    path.write_bytes(b"{}\n")
    with pytest.raises(CheckpointError, match=r"line 1 of .* is damaged"):
        list(OrderLog(tmp_path).entries(4))


def test_a_state_directory_gives_back_what_the_checkpoint_knows(tmp_path: Path) -> None:
    store = DirectoryStateStore(DirectoryStateSettings(path=str(tmp_path)))
    store.save("key_by/0", 1, b"a")
    store.save("key_by/0", 2, b"ab", snapshot=True)
    store.save("key_by/0", 3, b"c")
    store.save("key_by/1", 3, b"other")
    assert list(store.load("key_by/0", 3)) == [(2, b"ab", True), (3, b"c", False)]
    assert list(store.load("key_by/0", 2)) == [(2, b"ab", True)], "what is newer belongs to no checkpoint"
    assert list(store.load("key_by/0")) == [(2, b"ab", True)]
    store.remove("key_by/0", before=9)
    assert list(store.load("key_by/0")) == [(2, b"ab", True)]
    assert list(store.load("key_by/2")) == []


def test_a_shard_is_stored_before_the_next_one_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened = run_join(tmp_path / "state", monkeypatch)
    assert happened.count("stored") > 8
    # The rows of both sides are two frames.
    assert max(map(len, "".join(happened).replace("packed", "p").split("stored"))) == 2


def test_nothing_is_packed_where_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_join(None, monkeypatch) == []


def run_join(checkpoint: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Join two streams in four shards, with many checkpoints; return when a frame was packed and a version stored."""
    happened: list[str] = []
    pack, save = pl.DataFrame.write_ipc, DirectoryStateStore.save

    def packed(self: pl.DataFrame, *given: Any, **options: Any) -> Any:
        happened.append("packed")
        return pack(self, *given, **options)

    def stored(self: DirectoryStateStore, *given: Any, **options: Any) -> None:
        happened.append("stored")
        save(self, *given, **options)

    monkeypatch.setattr(pl.DataFrame, "write_ipc", packed)
    monkeypatch.setattr(DirectoryStateStore, "save", stored)
    stream, sink = hr.stream("test", "join"), MemorySink()
    sides = [
        stream.from_(
            MemorySource({"queue": [b'{"k": %d, "%s": %d}' % (number, name.encode(), number) for number in range(400)]}),
            format="json", schema={"k": "int64", name: "int64"},
        )
        for name in ("v", "w")
    ]  # fmt: skip
    sides[0].join(sides[1], "k").to(sink).run(
        "light", checkpoint=checkpoint, shards=4, checkpoint_interval="0 s", max_batch_records=50, show_progress=False
    )
    assert len(sink.rows) == 400
    return happened


def test_the_plan_shows_stages_shuffles_and_state(tmp_path: Path) -> None:
    plan = keyed_job(tmp_path).plan()
    text = plan_as_text(plan)
    assert "to shards by k" in text
    assert "kept per shard, in checkpoints" in text
    titles = [stage.title for stage in describe_stages(plan)]
    assert titles == ["one lane per queue of file", "one lane per shard of key_by", "the way of bad records"]
    assert 'subgraph stage2["stage 2: one lane per shard of key_by"]' in plan_as_mermaid(plan)


def test_the_example_of_the_page_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (HERE.parents[2] / "docs" / "state.md").read_text()
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    windowed = names["per_user"].window(hr.tumbling("1 min", on="ts"), late="5 s").agg(n="count(*)")
    assert list(windowed.schema) == ["user", "window_start", "window_end", "n"]
