"""The simulated world: the same seed gives the same events, time moves by itself, and processes end wherever they are."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World
from tests.simulation.world.seams import Entered


def simulated(
    seed: int,
    main: Callable[[], Any],
    place: Path | None = None,
    watch: Callable[[World, Process, str], None] | None = None,
) -> tuple[World, Process, bool]:
    """Run a process in a world; return both, and whether its threads came to an end."""
    world = World(seed, preempt=0.3)
    if watch is not None:
        world.watch = lambda process, kind, what: watch(world, process, kind)
    with Entered(world, None if place is None else Disk(world, str(place))):
        process = world.process("p", main)
        return world, process, world.run(process)


def counting() -> tuple[list[tuple[int, int]], float, float]:
    """Three threads that share a lock, and wait."""
    found: list[tuple[int, int]] = []
    lock, done = threading.Lock(), threading.Event()

    def count(number: int) -> None:
        for at in range(5):
            with lock:
                found.append((number, at))
                time.sleep(0.1)
        done.set()

    threads = [threading.Thread(target=count, args=(number,)) for number in range(3)]
    begun = time.time()
    for each in threads:
        each.start()
    assert done.wait(60)
    for each in threads:
        each.join()
        assert not each.is_alive()
    return found, begun, time.monotonic()


def test_the_same_seed_gives_the_same_events_and_others_give_others() -> None:
    first, again, other = (simulated(seed, counting) for seed in (5, 5, 6))
    assert first[0].trace.text() == again[0].trace.text()
    assert first[1].result == again[1].result
    assert len({tuple(each[1].result[0]) for each in (first, other)}) == 2
    assert sorted(first[1].result[0]) == sorted(other[1].result[0])


def test_time_moves_without_anybody_waiting_for_it() -> None:
    """If it did, pytest's time limit would end this test."""

    def a_day() -> tuple[float, float]:
        time.sleep(86_400)
        return time.monotonic(), time.time()

    _, process, _ = simulated(1, a_day)
    assert 86_400 < process.result[0] < 86_401
    assert 1_700_086_400 < process.result[1] < 1_700_086_401


def test_threads_that_wait_for_each_other_for_ever_are_found() -> None:
    def main() -> None:
        one, two = threading.Lock(), threading.Lock()
        one.acquire()

        def other() -> None:
            with two:
                one.acquire()

        thread = threading.Thread(target=other, name="the other")
        thread.start()
        time.sleep(1)
        two.acquire()

    _, process, ended = simulated(1, main)
    assert not ended
    assert "two.acquire()" in process.stacks
    assert "one.acquire()" in process.stacks


def test_a_process_that_makes_no_progress_is_ended() -> None:
    def main() -> None:
        while True:
            time.sleep(1)

    world = World(1, steps_max=1000)
    with Entered(world, None):
        process = world.process("p", main)
        assert world.run(process)
    assert process.dead
    assert "time.sleep(1)" in process.stacks


def test_a_killed_process_does_nothing_any_more(tmp_path: Path) -> None:
    def main() -> None:
        try:
            with open(tmp_path / "a", "w") as file:
                file.write("x")
            os.mkdir(tmp_path / "never")
        finally:
            os.mkdir(tmp_path / "not here either")

    def watch(world: World, process: Process, kind: str) -> None:
        if kind == "mkdir":
            world.kill(process, "test")

    _, process, _ = simulated(1, main, tmp_path, watch)
    assert process.dead
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("journal", [False, True])
def test_what_survives_the_loss_of_power(tmp_path: Path, *, journal: bool) -> None:
    """What was synced with its name is always there; what was not is sometimes, and never something else."""
    seen: dict[str, set[bytes | None]] = {name: set() for name in ("durable", "nameless", "behind", "over", "lost")}
    for seed in range(60):
        place = tmp_path / str(seed)
        place.mkdir()
        world = World(seed)
        disk = Disk(world, str(place), journal=journal)
        with Entered(world, disk):
            process = world.process("p", partial(_write, place))
            assert world.run(process)
            assert process.error is None
            disk.lose_power()
        disk.release(process.descriptors, os.close)
        for name, found in seen.items():
            path = place / name
            found.add(path.read_bytes() if path.exists() else None)
    assert seen["durable"] == {b"new"}
    assert seen["over"] == ({b"new"} if journal else {b"old", b"new"})
    assert seen["behind"] == {b"synced", b"synced and more"}
    assert seen["nameless"] == ({b"there"} if journal else {b"there", None})
    assert (None in seen["lost"]) is not journal
    assert b"never synced" in seen["lost"]


def _write(place: Path) -> None:
    def written(name: str, content: bytes, *, sync: bool = True) -> int:
        descriptor = os.open(place / name, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, content)
        if sync:
            os.fsync(descriptor)
        return descriptor

    directory = os.open(place, os.O_RDONLY)
    for name in ("durable", "over"):
        written(name, b"old")
        written(f"{name}.new", b"new")
    behind = written("behind", b"synced")
    os.replace(place / "durable.new", place / "durable")
    os.fsync(directory)
    os.replace(place / "over.new", place / "over")
    os.write(behind, b" and more")
    written("lost", b"never synced", sync=False)
    os.write(written("nameless", b"the", sync=False), b"re")
    os.fsync(os.open(place / "nameless", os.O_RDONLY))
