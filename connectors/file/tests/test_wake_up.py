"""A reader that waits is woken when its file is written to."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from file_world import World
from headrace.foundation.clock import ManualClock, SystemClock
from headrace_file import wake_up
from headrace_file.wake_up import WakeUp

LONG_SECONDS = 100.0


def _written(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _watching(path: Path) -> WakeUp:
    path.touch()
    made = WakeUp(SystemClock())
    made.watch(str(path))
    return made


def _wait_is_ended(made: WakeUp) -> bool:
    clock = SystemClock()
    begun = clock.monotonic()
    made.wait(LONG_SECONDS)
    return clock.monotonic() - begun < LONG_SECONDS


def test_what_was_written_before_the_wait_ends_it_at_once(tmp_path: Path) -> None:
    made = _watching(path := tmp_path / "file")
    _written(path)
    assert _wait_is_ended(made)
    made.close()
    made.close()


def test_a_write_of_another_thread_ends_a_wait(tmp_path: Path) -> None:
    made = _watching(path := tmp_path / "file")
    made.watch(str(path))
    writer = threading.Timer(0.05, _written, (path,))
    writer.start()
    assert _wait_is_ended(made)
    writer.join()
    made.close()


def test_a_file_that_takes_the_place_of_another_one_is_watched_too(tmp_path: Path) -> None:
    made = _watching(path := tmp_path / "file")
    path.rename(tmp_path / "file.1")
    path.touch()
    made.watch(str(path))
    _written(path)
    assert _wait_is_ended(made)
    made.close()


def test_without_events_the_time_ends_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = WakeUp(SystemClock())
    quiet.watch(str(tmp_path / "absent"))
    quiet.wait(0.001)
    quiet.close()
    by_hand = ManualClock()
    moved = WakeUp(by_hand)
    moved.watch(str(tmp_path))
    moved.wait(LONG_SECONDS)
    assert by_hand.monotonic() == LONG_SECONDS
    monkeypatch.setattr(wake_up, "_functions", lambda: None)  # another system
    other = WakeUp(SystemClock())
    other.watch(str(tmp_path))
    other.wait(0.001)


def test_wake_ups_without_an_end_leave_a_pause_between_them(tmp_path: Path) -> None:
    path, clock = tmp_path / "file", SystemClock()
    path.touch()
    made = WakeUp(clock)
    made.watch(str(path))
    begun = clock.monotonic()
    for _ in range(20):
        _written(path)
        made.wait(LONG_SECONDS)
    assert clock.monotonic() - begun >= 0.015
    made.close()


def test_a_reader_with_records_watches_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """To stop watching takes longer than a small file takes to be read: a run that ends with its input never waits."""
    watched: list[str] = []
    monkeypatch.setattr(WakeUp, "watch", lambda self, path: watched.append(path))
    world.write("log", b"a\nb\n")
    reader = world.open(world.source())
    for body in (b"a", b"b"):
        raw = reader.poll(1, timedelta(seconds=LONG_SECONDS))
        assert raw is not None
        assert raw.bodies is not None
        assert raw.bodies.joined() == body
    assert watched == []


def test_what_is_written_before_the_file_is_watched_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = WakeUp.watch

    def late(made: WakeUp, name: str) -> None:
        world.append("log", b"b\n")  # behind the first look
        watch(made, name)

    monkeypatch.setattr(WakeUp, "watch", late)
    world.write("log", b"a\n")
    reader = world.open(world.source())
    assert reader.poll(10, timedelta(0)) is not None
    waits: list[float] = []
    monkeypatch.setattr(WakeUp, "wait", lambda made, seconds: waits.append(seconds))
    raw = reader.poll(10, timedelta(seconds=LONG_SECONDS))
    assert raw is not None
    assert waits == []
