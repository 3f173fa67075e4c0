"""Counting that begins where an earlier count has passed plans the same ranges."""

from __future__ import annotations

import gzip
from pathlib import Path

import headrace_file.waypoints
import pytest
from file_world import World, checkpointed
from headrace_file import FileSource
from headrace_file.identity import Place
from headrace_file.waypoints import Waypoints
from hypothesis import given
from hypothesis import strategies as st

#: Windows of 64 KiB are read at a time.
SMALL = {"read_bytes": "64KiB"}


@pytest.fixture(autouse=True)
def close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace_file.waypoints, "_BYTES_BETWEEN", 100_000)


def counted(world: World, **options: str) -> FileSource:
    """Return a source that has passed through the whole file."""
    source = world.source(until="end", **SMALL, **options)
    world.open(source).position_after(10**9)
    return source


@given(wanted=st.integers(1, 60_000), begin=st.integers(0, 59_000), longest=st.integers(1, 80))
def test_a_range_ends_at_the_same_place(
    tmp_path_factory: pytest.TempPathFactory, wanted: int, begin: int, longest: int
) -> None:
    world = World(tmp_path_factory.mktemp("files"))
    world.write("log", b"".join(b"%d %s\n" % (number, b"x" * (number % longest)) for number in range(60_000)))
    waypoints = world.open(counted(world)).waypoints()
    assert waypoints
    assert [point.offset for point in waypoints] == sorted(point.offset for point in waypoints)
    plain = world.open(world.source(until="end", **SMALL))
    start = checkpointed(plain.position_after(begin)) if begin else plain.position
    plain.seek(start)
    guided = world.open(world.source(until="end", **SMALL), start=start)
    guided.use_waypoints([checkpointed(point) for point in waypoints])
    assert guided.position_after(wanted) == plain.position_after(wanted)
    world.close()


def test_the_second_count_reads_only_what_is_behind_the_last_waypoint(world: World) -> None:
    path = world.write("log", b"".join(b"line %07d\n" % number for number in range(100_000)))
    waypoints = world.open(counted(world)).waypoints()
    # A newline more in front of a waypoint: who counts it again would find it.
    with path.open("r+b") as file:
        file.seek(600_006)
        file.write(b"\n")
    reader = world.open(world.source(until="end", **SMALL))
    reader.use_waypoints(waypoints)
    assert reader.position_after(90_000).hint["byte"] == 90_000 * 13


def test_a_waypoint_in_a_file_that_was_replaced_is_not_used(world: World) -> None:
    world.write("log", b"".join(b"line %07d\n" % number for number in range(100_000)))
    waypoints = world.open(counted(world)).waypoints()
    world.write("log", b"".join(b"other %d\n" % number for number in range(100_000)))
    reader = world.open(world.source(until="end", **SMALL))
    plain = world.open(world.source(until="end", **SMALL))
    reader.use_waypoints(waypoints)
    assert reader.position_after(90_000) == plain.position_after(90_000)


def test_there_are_none_in_compressed_files(world: World) -> None:
    world.write("log", gzip.compress(b"".join(b"line %07d\n" % number for number in range(100_000))))
    assert world.open(counted(world)).waypoints() == []


def test_their_number_is_bounded(tmp_path: Path) -> None:
    waypoints = Waypoints()
    for number in range(1, 100_000):
        if waypoints.is_due(0, number * 50_000):
            waypoints.passed(Place(number, 0, 0, number * 50_000))
    places = waypoints.places
    assert 1_000 < len(places) <= 2_048
    assert places[-1].byte > 0.99 * 100_000 * 50_000
    assert not waypoints.is_due(0, places[-1].byte + 50_000)


def test_a_new_file_begins_anew() -> None:
    waypoints = Waypoints()
    waypoints.passed(Place(10, 0, 0, 200_000))
    assert not waypoints.is_due(1, 50_000)
    assert waypoints.is_due(1, 100_000)
    waypoints.passed(Place(30, 1, 20, 100_000))
    assert [place.generation for place in waypoints.places] == [1]
    assert waypoints.nearest(Place(0, 0, 0, 0), 15) is None
