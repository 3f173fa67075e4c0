"""Writers that are killed: every row is there exactly once, wherever it happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace.flow.messages import Position, Queue
from headrace.interfaces.output_definition import OutputDefinition
from headrace_file.parts import queue_key
from headrace_file.queue_state import _newest
from sink_world import insert, make_sink, parts, stored

QUEUES = ("q0", "q1", "q2")


class Children:
    """The process that forks writers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crash_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )

    def run(self, directory: Path, **command: Any) -> int:
        """Run a writer; return its exit status, negative for the signal that killed it."""
        given = {
            "rows": 40,
            "batch": 20,
            "divided": False,
            "overwrites": False,
            "fsync": False,
            "die_at": None,
            "kill_after_ms": None,
            **command,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"directory": str(directory), **given}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    made = Children()
    yield made
    made.close()


def expect_once(directory: Path, count: int) -> None:
    found = stored(parts(directory))
    for queue in QUEUES:
        assert [row for row in found if row[0] == queue] == [(queue, n) for n in range(count)]
    assert os.listdir(directory / "_headrace" / "tmp") == []


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_each_system_call(children: Children, tmp_path: Path, step: int) -> None:
    """One run for each call that the sink makes, or for each fifth: killed right there, then run again to the end."""
    deaths = 0
    while True:
        directory = tmp_path / f"run-{deaths}"
        status = children.run(directory, die_at=1 + deaths * step, fsync=True)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        deaths += 1
        visible = stored(parts(directory))
        assert len(visible) == len(set(visible))
        assert children.run(directory) == 0
        expect_once(directory, 40)
    assert deaths > 40 // step, "the calls were not intercepted"
    expect_once(directory, 40)


def expect_once_divided(directory: Path, count: int) -> None:
    for half in (0, 1):
        found = stored(parts(directory / f"half={half}"))
        for queue in QUEUES:
            assert [row for row in found if row[0] == queue] == [(queue, n) for n in range(half, count, 2)]
    assert os.listdir(directory / "_headrace" / "tmp") == []


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_between_the_parts_of_partitions(children: Children, tmp_path: Path, step: int) -> None:
    """As before, with several parts in each commit; killed again in the run that mends it."""
    deaths, death = 0, 1
    while True:
        directory = tmp_path / f"run-{death}"
        status = children.run(directory, die_at=death, fsync=True, divided=True, rows=20, batch=20)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        deaths += 1
        children.run(directory, die_at=1 + death % 9, divided=True)
        assert children.run(directory, divided=True) == 0
        expect_once_divided(directory, 40)
        death += step
    assert deaths > 100 // step, "the calls were not intercepted"


def committed(directory: Path) -> dict[str, int]:
    """Return up to which record each queue of the table is stored, without touching anything."""
    found = {}
    for queue in QUEUES:
        state = directory / "_headrace" / "state" / queue_key(Queue(queue), "")
        slot = _newest(state.read_bytes()) if state.exists() else None
        found[queue] = -1 if slot is None else slot.offset
    return found


@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_from_before_do_not_come_back_into_a_partition_that_was_overwritten(
    children: Children, tmp_path: Path, step: int
) -> None:
    """A writer of the whole table is killed at each call, one partition is overwritten, and the writer goes on."""
    hidden = 0
    for death in range(1, 10_000, step):
        directory = tmp_path / f"run-{death}"
        if children.run(directory, die_at=death, divided=True, fsync=True, rows=20) == 0:
            break
        before = committed(directory)
        left = [path.name for path in (directory / "_headrace" / "tmp").glob("*.tmp")]
        slots = [_newest(path.read_bytes()) for path in (directory / "_headrace" / "state").iterdir()]
        hidden += any(slot is not None and slot.temporary in left for slot in slots)
        assert children.run(directory, overwrites=True, rows=6, batch=6) == 0
        assert children.run(directory, divided=True) == 0
        overwritten = stored(parts(directory / "half=1"))
        assert [row for row in overwritten if row[0] == "over"] == [("over", n) for n in range(6)]
        for queue in QUEUES:
            wanted = [(queue, n) for n in range(1, 40, 2) if n > before[queue]]
            assert [row for row in overwritten if row[0] == queue] == wanted, f"killed at {death}"
            kept = [row for row in stored(parts(directory / "half=0")) if row[0] == queue]
            assert kept == [(queue, n) for n in range(0, 40, 2)]
    assert hidden, "no writer was killed between its commit and the names of its parts"


def test_rows_from_before_do_not_come_back_into_a_table_that_was_replaced(children: Children, tmp_path: Path) -> None:
    """The other way round: the writer of one partition is killed, and the whole table is replaced."""
    hidden = 0
    for death in range(1, 10_000):
        directory = tmp_path / f"run-{death}"
        if children.run(directory, overwrites=True, rows=6, batch=6, die_at=death) == 0:
            break
        own = directory / "half=1" / "_headrace"
        slots = [_newest(path.read_bytes()) for path in (own / "state").glob("*")]
        if not any(slot is not None and (own / "tmp" / slot.temporary).is_file() for slot in slots):
            continue
        hidden += 1
        make_sink(directory, partition_by=["half"]).adopt(OutputDefinition({}, "whole", replace=True))
        make_sink(directory, partition={"half": "1"}, writer="overwriting")
        assert parts(directory / "half=1") == [], f"killed at {death}"
    assert hidden, "the writer was never killed between its commit and the name of its part"


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_a_partition_is_overwritten(children: Children, tmp_path: Path, step: int) -> None:
    """Killed at each call from the start on and run again, the partition has the new rows only, and others have theirs."""
    deaths = 0
    for death in range(1, 10_000, step):
        directory = tmp_path / f"run-{death}"
        assert children.run(directory, divided=True, rows=4, batch=4) == 0
        assert children.run(directory, overwrites=True, rows=10, batch=5) == 0
        status = children.run(directory, overwrites=True, rows=6, batch=6, die_at=death)
        if status != 0:
            deaths += 1
            assert status == -signal.SIGKILL
            assert children.run(directory, overwrites=True, rows=6, batch=6) == 0
        assert stored(parts(directory / "half=1")) == [("over", n) for n in range(6)]
        assert len(stored(parts(directory / "half=0"))) == 6
        if status == 0:
            break
    assert deaths > 10 // step, "the calls were not intercepted"


@pytest.mark.parametrize("first_death", [11, *(pytest.param(death, marks=pytest.mark.slow) for death in (4, 17))])
def test_killed_again_while_recovering(children: Children, tmp_path: Path, first_death: int) -> None:
    """Killed at some call, then killed at each call of the run that mends it, and again, until one gets through."""
    assert children.run(tmp_path, die_at=first_death) == -signal.SIGKILL
    for death in range(1, 400):
        if children.run(tmp_path, die_at=death) == 0:
            break
    expect_once(tmp_path, 40)


@pytest.mark.parametrize("kills_max", [12, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_killed_at_random_moments(children: Children, tmp_path: Path, kills_max: int) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    count = 200 * kills_max
    kills = 0
    while kills < kills_max:
        status = children.run(tmp_path, rows=count, batch=10, kill_after_ms=chance.uniform(5, 150))
        if status == 0:
            break
        assert status == -signal.SIGKILL, f"seed {seed}"
        kills += 1
    assert children.run(tmp_path, rows=count, batch=10) == 0
    print(f"{kills} kills, seed {seed}")
    assert kills > 3, f"seed {seed}: the writer was done before it could be killed"
    expect_once(tmp_path, count)


def test_parts_moved_away_meanwhile_do_not_come_again(children: Children, tmp_path: Path) -> None:
    """A consumer takes finished parts at once; the writer is killed at every call."""
    taken: list[Path] = []
    aside = tmp_path / "taken"
    aside.mkdir()
    directory = tmp_path / "out"

    def take() -> None:
        for part in parts(directory):
            taken.append(part.rename(aside / f"{len(taken):06d}.json"))

    for death in range(1, 200):
        status = children.run(directory, die_at=death)
        take()
        if status == 0:
            break
    found = stored(taken)
    for queue in QUEUES:
        assert [row for row in found if row[0] == queue] == [(queue, n) for n in range(40)]


def test_a_part_left_hidden_is_shown_when_the_job_starts_even_if_its_queue_never_comes_back(
    children: Children, tmp_path: Path
) -> None:
    shown = 0
    for death in range(1, 45):
        directory = tmp_path / f"run-{death}"
        children.run(directory, die_at=death, rows=20)
        before = len(parts(directory))
        sink = make_sink(directory)
        shown += len(parts(directory)) - before
        for queue in QUEUES:
            last = sink.last_offset(Queue(queue))
            assert (last == Position(19)) == ((queue, 19) in stored(parts(directory)))
        assert os.listdir(directory / "_headrace" / "tmp") == []
    assert shown >= 3


def test_temporary_files_of_living_writers_are_left_alone(tmp_path: Path) -> None:
    import fcntl

    sink = make_sink(tmp_path)
    insert(sink, "q", 0, 1)
    key = (tmp_path / "_headrace" / "state").iterdir().__next__().name
    dead = tmp_path / "_headrace" / "tmp" / f"{key}-1-aa.tmp"
    alive = tmp_path / "_headrace" / "tmp" / f"{key}-2-bb.tmp"
    foreign = tmp_path / "_headrace" / "tmp" / "notes.txt"
    for path in (dead, alive, foreign):
        path.touch()
    with open(alive, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        make_sink(tmp_path)
        assert [path.exists() for path in (dead, alive, foreign)] == [False, True, True]
    make_sink(tmp_path)
    assert [path.exists() for path in (dead, alive, foreign)] == [False, False, True]
