"""Savepoints on the light backend: taken while the job runs, begun at by another, and refused where rows would come twice."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import CheckpointError, OptionError
from headrace.interfaces.backend import JobHandle
from headrace.runtime.savepoints import MANIFEST, Savepoint, SavepointWriter
from headrace.testing import MemorySink, MemorySource, MemoryTransactionalSink
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.eventually import eventually

SCHEMA = {"k": "string", "v": "int64", "ts": "timestamp"}
ROWS = 120


def bodies(begin: int = 0, end: int = ROWS) -> list[bytes]:
    """Return rows of seven keys, one a second, some out of order."""
    made = []
    for number in range(begin, end):
        seconds = 10 + number - (3 if number % 4 == 1 else 0)
        stamp = f"2024-01-01T00:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"
        made.append(json.dumps({"k": f"k{number * number % 7}", "v": number, "ts": stamp}).encode())
    return made


class World:
    """What stays when a job stops: what its source and sink hold."""

    def __init__(self, rows: int = ROWS) -> None:
        self.given = {"q": bodies(0, rows)}
        self.positions: dict[str, dict[Queue, Position]] = {}
        self.rows: list[dict[str, Any]] = []

    def job(self, name: str = "job", *, verb: str = "window") -> hr.Job:
        source = MemorySource(self.given)
        self.source = source
        stream = hr.stream("savepoints", name).from_(source, format="json", schema=SCHEMA, name="source")
        if verb == "window":
            made = stream.key_by("k").window(hr.tumbling("10 s", on="ts"), late="5 s").agg(n="count(*)", s="sum(v)")
        else:
            made = stream.key_by("k").distinct()
        self.sink = MemoryTransactionalSink(stored=self.positions.setdefault(name, {}))
        self.sink.rows = self.rows
        return made.to(self.sink, name="sink")

    def begun(self, *, read: int, name: str = "job", verb: str = "window", **options: Any) -> JobHandle:
        """Start a job and let it read so many rows; more come later with ``more``."""
        handle = self.job(name, verb=verb).start("light", **options)
        eventually(lambda: handle.status().records_read == read, "records are read")
        return handle

    def more(self, rows: int) -> None:
        """Let more rows come."""
        have = len(self.given["q"])
        self.given["q"] += bodies(have, have + rows)
        self.source.append("q", *bodies(have, have + rows))

    def table(self) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in self.rows)


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    world = World()
    world.job().run("light")
    assert len(world.rows) > 40
    return world.table()


def finish(world: World, **options: Any) -> None:
    """Give a job the rest of its input and run it to the end."""
    world.given["q"] = bodies()
    world.job(options.pop("name", "job")).run("light", **options)


def test_a_savepoint_is_taken_while_the_job_runs(tmp_path: Path, wanted: list[str]) -> None:
    world = World(50)
    with world.begun(read=50, shards=2, checkpoint=str(tmp_path / "checkpoint")) as handle:
        path = handle.savepoint(tmp_path / "one")
        world.more(30)
        eventually(lambda: handle.status().records_read == 80, "records are read")
        handle.savepoint(tmp_path / "two")
        world.more(ROWS - 80)
        eventually(lambda: handle.status().records_read == ROWS, "records are read")
    assert path == tmp_path / "one"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert Savepoint.read(path).place.positions[Queue("q", "source")].offset == 50
    # The job was not concerned: it goes on from its own checkpoint.
    world.job().run("light", shards=2, checkpoint=str(tmp_path / "checkpoint"))
    assert world.table() == wanted


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 2)])
def test_a_job_goes_on_with_another_number_of_shards(
    tmp_path: Path, wanted: list[str], before: int, after: int
) -> None:
    world = World(57)
    world.begun(read=57, shards=before).stop(savepoint=tmp_path / "here")
    finish(world, shards=after, from_savepoint=tmp_path / "here")
    assert world.table() == wanted


def test_a_fork_goes_on_under_a_new_name(tmp_path: Path, wanted: list[str], caplog: pytest.LogCaptureFixture) -> None:
    world = World(57)
    world.begun(read=57, shards=2).stop(savepoint=tmp_path / "here")
    with caplog.at_level(logging.WARNING):
        finish(world, name="other", shards=3, from_savepoint=tmp_path / "here")
    assert world.table() == wanted
    assert "it was savepoints.job" in caplog.text


def test_a_restart_with_the_same_savepoint_goes_on_from_the_checkpoint(tmp_path: Path, wanted: list[str]) -> None:
    """Whoever starts jobs again gives the same arguments: the job must not go back to the savepoint."""
    world = World(40)
    world.begun(read=40, shards=2).stop(savepoint=tmp_path / "here")
    places = {"checkpoint": str(tmp_path / "checkpoint"), "from_savepoint": tmp_path / "here"}
    options: dict[str, Any] = {"shards": 3, **places}
    world.given["q"] = bodies(0, 90)
    world.begun(read=50, **options).stop()
    finish(world, **options)
    assert world.table() == wanted


def test_a_checkpoint_that_has_begun_otherwise_is_not_written_over(tmp_path: Path) -> None:
    world = World(40)
    world.begun(read=40, checkpoint=str(tmp_path / "checkpoint")).stop(savepoint=tmp_path / "here")
    with pytest.raises(CheckpointError, match="has already started"):
        world.job().run("light", checkpoint=str(tmp_path / "checkpoint"), from_savepoint=tmp_path / "here")


def test_a_sink_that_is_ahead_is_noticed(tmp_path: Path) -> None:
    """The job went on after the savepoint: its rows would come twice."""
    world = World(40)
    with world.begun(read=40, shards=2) as handle:
        handle.savepoint(tmp_path / "here")
        world.more(40)
        eventually(lambda: handle.status().records_read == 80, "records are read")
    assert world.rows
    with pytest.raises(CheckpointError, match="came after the savepoint") as caught:
        world.job().run("light", shards=3, from_savepoint=tmp_path / "here")
    assert "sinks_ahead='write'" in str(caught.value.hint)
    before = len(world.rows)
    finish(world, shards=3, from_savepoint=tmp_path / "here", sinks_ahead="write")
    assert len(world.rows) > before, "rows since the savepoint are written once more, not dropped as known"


def test_a_sink_that_cannot_be_asked_is_taken_to_be_ahead(tmp_path: Path) -> None:
    from headrace.interfaces.sink import IdempotentSink

    class Keyed(MemorySink, IdempotentSink):
        """Names rows by their place."""

    def job(sink: Keyed) -> hr.Job:
        source = MemorySource({"q": bodies(0, 40)})
        stream = hr.stream("savepoints", "ids").from_(source, format="json", schema=SCHEMA)
        return stream.key_by("k").distinct().to(sink, name="sink")

    with job(Keyed()).start("light") as handle:
        eventually(lambda: handle.status().records_read == 40, "records are read")
        handle.savepoint(tmp_path / "running")
        handle.stop(savepoint=tmp_path / "stopped")
    with pytest.raises(CheckpointError, match="cannot be asked"):
        job(Keyed()).run("light", from_savepoint=tmp_path / "running")
    job(Keyed()).run("light", from_savepoint=tmp_path / "stopped")


def test_state_is_dropped_on_purpose(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(60)
    world.begun(read=60, verb="distinct", shards=2).stop(savepoint=tmp_path / "here")
    assert len(world.rows) == 4  # squares modulo 7
    world.given["q"] = bodies(0, 80)
    world.job(verb="distinct").run("light", shards=2, from_savepoint=tmp_path / "here")
    assert len(world.rows) == 4
    with caplog.at_level(logging.WARNING):
        world.job(verb="distinct").run("light", from_savepoint=tmp_path / "here", drop_state="distinct")
    assert len(world.rows) == 8, "each key is new again"
    assert "the state of distinct is dropped" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drop_state": "tumbling"}, "no verb with state 'tumbling'"),
        ({"sinks_ahead": "perhaps"}, "unusable value"),
        ({"from_savepoint": "nowhere"}, "is not a savepoint"),
        ({"from_savepoint": None, "drop_state": "window_aggregate"}, "leaves state out of a savepoint"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    world = World(20)
    world.begun(read=20).stop(savepoint=tmp_path / "here")
    with pytest.raises((CheckpointError, OptionError), match=reason):
        world.job().run("light", **{"from_savepoint": tmp_path / "here", **options})


def test_a_changed_verb_is_refused(tmp_path: Path) -> None:
    world = World(20)
    world.begun(read=20).stop(savepoint=tmp_path / "here")
    with pytest.raises(CheckpointError, match="window_aggregate"):
        world.job(verb="distinct").run("light", from_savepoint=tmp_path / "here")
    world.rows.clear()
    world.given["q"] = bodies(0, 40)
    dropped = {"from_savepoint": tmp_path / "here", "drop_state": "distinct,window_aggregate"}
    world.job(verb="distinct").run("light", **dropped)
    assert len(world.rows) == 4


def test_a_savepoint_has_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    world = World(20)
    with world.begun(read=20) as handle:
        with pytest.raises(CheckpointError, match="exists already"):
            handle.savepoint(tmp_path / "taken")
        with pytest.raises(CheckpointError, match="cannot be written"):
            handle.savepoint("/proc/nothing/here")
        assert handle.savepoint(tmp_path / "free") == tmp_path / "free"
    with pytest.raises(CheckpointError, match="the job has ended"):
        handle.savepoint(tmp_path / "late")


def test_damage_is_noticed(tmp_path: Path) -> None:
    world = World(30)
    world.begun(read=30).stop(savepoint=tmp_path / "here")
    state = next((tmp_path / "here").rglob("*.state"))
    content = state.read_bytes()
    state.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="checksum"):
        world.job().run("light", from_savepoint=tmp_path / "here")
    state.write_bytes(content)
    manifest = tmp_path / "here" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"offset": 30', '"offset": 31'))
    with pytest.raises(CheckpointError, match="checksum"):
        world.job().run("light", from_savepoint=tmp_path / "here")


def test_what_is_not_finished_is_no_savepoint(tmp_path: Path) -> None:
    writer = SavepointWriter(tmp_path / "here")
    writer.add_state("key_by", 0, b"state")
    with pytest.raises(CheckpointError, match="is not a savepoint"):
        Savepoint.read(tmp_path / "here")
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=examples(12, least=4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), before=st.integers(1, 5), after=st.integers(1, 5), records=st.integers(1, 50))
def test_any_cut_and_any_number_of_shards(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[str], seed: int, before: int, after: int, records: int
) -> None:
    place = tmp_path_factory.mktemp("cut") / "here"
    world = World(random.Random(seed).randint(1, ROWS - 1))
    read = len(world.given["q"])
    world.begun(read=read, shards=before, max_batch_records=records).stop(savepoint=place)
    finish(world, shards=after, from_savepoint=place)
    assert world.table() == wanted


PROGRAM = Path(__file__).with_name("light_savepoint_job.py")


@pytest.mark.parametrize("fault", ["savepoint.after_state:2", "savepoint.before_end:1", "checkpoint.after_save:2"])
def test_a_kill_leaves_no_half_savepoint_and_the_job_goes_on(tmp_path: Path, fault: str) -> None:
    def run(*arguments: str, **environment: str) -> int:
        command = [sys.executable, str(PROGRAM), str(tmp_path), *arguments]
        return subprocess.run(command, env={**os.environ, **environment}, timeout=300, check=False).returncode

    rows = "".join(body.decode() + "\n" for body in bodies())
    (tmp_path / "in.ndjson").write_text(rows[: rows.index('"v": 70')].rpartition("\n")[0] + "\n")
    assert run("savepoint", HEADRACE_FAULTS=f"{fault}:kill") == -signal.SIGKILL
    assert not (tmp_path / "savepoint").exists()
    (tmp_path / "in.ndjson").write_text(rows)
    assert run("end") == 0
    found = [
        json.loads(line)
        for part in sorted((tmp_path / "out").glob("*.json*"))
        for line in part.read_text().splitlines()
    ]
    whole = World()
    whole.job().run("light")
    assert sorted((row["k"], row["n"], row["s"]) for row in found) == sorted(
        (row["k"], row["n"], row["s"]) for row in whole.rows
    )
