"""Ranges that a planner has cut: reading one again gives the same records, whatever happened to the file since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from file_world import Records, World, checkpointed, drain
from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import DataError
from headrace_file import FileSource
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import KEEPING, RotatingLog

from tests.effort import examples


def read_range(world: World, begin: ReadPosition, end: ReadPosition, **options: Any) -> Records:
    """Read a range as a task does: with a source of its own that knows nothing but the two positions."""
    source = world.source(**options)
    reader = source.open(world.queue(), begin)
    reader.limit(end)
    found = drain(reader, per_poll=3)
    assert reader.position == end
    reader.close()
    return found


class Planner:
    """Cuts ranges as Spark's driver does: opens the queue at the last end, asks where a read would end."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.options = options
        self.source: FileSource = world.source(**options)
        reader = world.open(self.source)
        self.ends = [checkpointed(reader.position)]
        reader.close()

    def plan(self, max_records: int) -> tuple[ReadPosition, ReadPosition]:
        begin = self.ends[-1]
        reader = self.source.open(self.world.queue(), begin)
        end = checkpointed(reader.position_after(max_records))
        assert end.offset <= reader.latest
        reader.close()
        self.ends.append(end)
        return begin, end

    def restart(self) -> None:
        self.source.close()
        self.source = self.world.source(**self.options)
        self.source.restore({self.world.queue(): self.ends[-1]})
        self.source.queues()


@pytest.mark.parametrize("way", KEEPING)
class TestRotation:
    def test_a_range_is_the_same_before_and_after(self, world: World, way: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        planner = Planner(world)
        ranges = [planner.plan(4), planner.plan(4)]
        before = [read_range(world, *one) for one in ranges]
        log.rotate(way)
        log.write(5)
        log.rotate(way)
        log.write(2)
        world.quiet()
        ranges += [planner.plan(4) for _ in range(4)]
        found = [read_range(world, *one) for one in ranges]
        assert found[:2] == before
        assert [record for records in found for record in records] == list(enumerate(log.lines))
        log.write(3)
        log.rotate(way)
        world.quiet()
        assert [read_range(world, *one) for one in ranges] == found

    def test_a_rotation_between_plan_and_read_changes_nothing(self, world: World, way: str) -> None:
        log = RotatingLog(world.path("log"))
        planner = Planner(world)
        found = Records()
        for count in (3, 1, 5):
            log.write(count)
            begin, end = planner.plan(100)
            log.rotate(way)
            log.write(2)
            found += read_range(world, begin, end)
            world.quiet()
            for _ in range(2):
                begin, end = planner.plan(100)
                found += read_range(world, begin, end)
        assert found == list(enumerate(log.lines))


class TestContinuation:
    def test_a_line_taken_by_the_plan_stays_as_it_was(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.path.write_bytes(b"one\ntw")
        planner = Planner(world, until="end")
        begin, end = planner.plan(10)
        assert end.offset == 2
        with open(log.path, "ab") as file:
            file.write(b"o\nthree\n")
        assert read_range(world, begin, end) == [(0, b"one"), (1, b"tw")]
        assert read_range(world, *planner.plan(10)) == [(2, b"two"), (3, b"three")]

    def test_late_lines_to_a_file_that_the_plan_has_left_are_not_read(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(2)
        planner = Planner(world)
        planner.plan(1)
        aside = log.rotate("rename")
        log.write(2)
        world.quiet()
        ranges = [planner.plan(10), planner.plan(10)]
        assert [end.hint["generation"] for _, end in ranges] == [0, 1]
        with open(aside, "ab") as file:
            file.write(b"too late\n")
        assert [body for one in ranges for body in read_range(world, *one).bodies] == log.lines[1:]

    def test_a_plan_repeated_is_the_same(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        planner = Planner(world)
        first = planner.plan(4)
        planner.ends.pop()
        assert planner.plan(4) == first
        planner.ends.pop()
        planner.restart()
        assert planner.plan(4) == first

    def test_an_empty_range(self, world: World) -> None:
        RotatingLog(world.path("log"))
        planner = Planner(world)
        begin, end = planner.plan(10)
        assert begin.offset == end.offset == 0
        assert read_range(world, begin, end) == []


class TestLoss:
    @pytest.mark.parametrize("how", ["deleted", "truncated", "replaced", "shortened"])
    def test_a_range_that_is_gone_is_an_error_naming_it(self, world: World, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        planner = Planner(world)
        planner.plan(3)
        begin, end = planner.plan(4)
        if how == "deleted":
            log.path.unlink()
        elif how == "truncated":
            os.truncate(log.path, 0)
            log.write(10)
        elif how == "replaced":
            log.path.unlink()
            log.path.touch()
            log.write(10)
        else:
            os.truncate(log.path, int(begin.hint["byte"]) + 30)
        world.quiet()
        with pytest.raises(
            DataError, match=r"records \d+( to 6| and later ones) of .*log are no longer there"
        ) as caught:
            read_range(world, begin, end)
        assert caught.value.offset in (3, 4)
        assert caught.value.queue == str(log.path)

    def test_a_range_after_a_file_that_is_gone(self, world: World) -> None:
        """Nothing of the gone file is missing: the range begins at its end."""
        log = RotatingLog(world.path("log"))
        log.write(3)
        planner = Planner(world)
        planner.plan(10)
        aside = log.rotate("rename")
        log.write(3)
        world.quiet()
        begin, end = planner.plan(10)
        aside.unlink()
        assert read_range(world, begin, end) == list(enumerate(log.lines))[3:]

    def test_skipped_when_asked_for(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        planner = Planner(world, if_lost="skip")
        first = planner.plan(5)
        os.truncate(log.path, 0)
        assert read_range(world, *first, if_lost="skip") == []
        assert any("records 0 to 4 of" in message and "skipped" in message for message in caplog.messages)
        log.write(2)
        assert read_range(world, *planner.plan(10), if_lost="skip") == [(5, log.lines[10]), (6, log.lines[11])]


@settings(max_examples=examples(60, least=5), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(1, 5)),
            st.tuples(st.just("plan"), st.integers(1, 6)),
            st.tuples(st.just("rotate"), st.sampled_from(KEEPING)),
            st.tuples(st.just("restart"), st.just(0)),
            st.tuples(st.just("retry"), st.just(0)),
            st.tuples(st.just("quiet"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_any_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]) -> None:
    """Whatever happens: planned ranges hold every line once, and a retry at any time later gives the same."""
    world = World(Path(tmp_path_factory.mktemp("history")))
    log = RotatingLog(world.path("log"))
    log.write(1)
    planner = Planner(world)
    planned: list[tuple[ReadPosition, ReadPosition]] = []
    for step, value in [*steps, *[("quiet", 0), ("plan", 1000)] * (len(steps) + 2), ("retry", 0)]:
        if step == "write":
            log.write(int(str(value)))
        elif step == "plan":
            planned.append(planner.plan(int(str(value))))
        elif step == "rotate":
            log.rotate(str(value))
            log.write(1)
        elif step == "restart":
            planner.restart()
        elif step == "retry":
            found = [record for one in planned for record in read_range(world, *one)]
            assert found == list(enumerate(log.lines))[: len(found)]
        else:
            world.quiet()
    assert len(found) == len(log.lines)
    world.close()
