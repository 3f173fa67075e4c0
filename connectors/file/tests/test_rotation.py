"""Files that are renamed, copied, compressed, truncated or replaced while they are read: nothing twice, nothing lost."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from file_world import NO_WAIT, Records, World, checkpointed, drain, lines
from headrace.foundation.errors import DataError
from headrace_file.reader import FileReader
from headrace_file.rotated_order import order_key
from headrace_file.rotation import RotatedNames
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import KEEPING, RotatingLog, compress

from tests.effort import examples

#: live: the reader lives on; idle: it holds no descriptor; restart: a new process begins at the checkpoint's position.
HOWS = ("live", "idle", "restart")


class Follower:
    """Follows the log of a world, and goes on after interruptions in one of the ways of HOWS."""

    def __init__(self, world: World, how: str, **options: Any) -> None:
        self.world = world
        self.how = how
        self.options = options
        self.found = Records()
        self.reader: FileReader = world.open(world.source(**options))

    def read(self, count: int | None = None) -> None:
        self.found += drain(self.reader, per_poll=3, at_most=count)

    def interrupt(self) -> None:
        if self.how == "idle":
            self.reader._cursor.release()
        if self.how == "restart":
            position = checkpointed(self.reader.position)
            self.reader.close()
            source = self.world.source(**self.options)
            source.restore({self.world.queue(): position})
            self.reader = self.world.open(source, start=position)

    def expect(self, lines: list[bytes]) -> None:
        assert self.found.bodies == lines
        assert self.found.numbers == list(range(len(lines)))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("read_before", [0, 1, 5, 10])
@pytest.mark.parametrize("way", KEEPING)
class TestEveryWay:
    def test_the_rest_comes_first_and_then_the_new_file(
        self, world: World, way: str, read_before: int, how: str
    ) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how)
        follower.read(read_before)
        log.rotate(way)
        follower.interrupt()
        log.write(7)
        world.quiet()
        assert follower.reader.latest == 17
        follower.read()
        follower.expect(log.lines)
        log.write(3)
        follower.read()
        follower.expect(log.lines)

    def test_several_rotations_between_two_looks(self, world: World, way: str, read_before: int, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how)
        follower.read(read_before)
        for _ in range(3):
            log.rotate(way)
            log.write(4)
        follower.interrupt()
        world.quiet()
        follower.read()
        follower.expect(log.lines)

    def test_a_rotation_after_each_look(self, world: World, way: str, read_before: int, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how)
        follower.read(read_before)
        for _ in range(4):
            log.rotate(way)
            log.write(3)
            world.quiet()
            follower.interrupt()
            follower.read(2)
        follower.read()
        follower.expect(log.lines)


class TestWhenTheNewFileCounts:
    @pytest.mark.parametrize("how", HOWS)
    def test_late_lines_to_the_renamed_file_come_first(self, world: World, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(3)
        follower = Follower(world, how)
        aside = log.rotate("rename")
        log.path.write_bytes(b"new 0\n")
        follower.read()
        follower.interrupt()
        with open(aside, "ab") as file:
            file.write(b"late\n")
        follower.read()
        assert follower.found.bodies == [*log.lines, b"late"]
        world.quiet()
        follower.read()
        assert follower.found == list(enumerate([*log.lines, b"late", b"new 0"]))

    def test_the_wait_is_an_option(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(1)
        reader = world.open(world.source(rotate_wait="10 s"))
        log.rotate("rename")
        log.write(1)
        assert drain(reader).numbers == [0]
        world.clock.advance(9)
        assert drain(reader).numbers == []
        world.clock.advance(2)
        assert drain(reader).numbers == [1]

    def test_the_path_may_be_empty_for_a_while(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(2)
        source = world.source()
        reader = world.open(source)
        aside = log.rotate("rename", create=False)
        with open(aside, "ab") as file:
            file.write(b"late\n")
        assert drain(reader).bodies == [*log.lines, b"late"]
        assert world.names(source) == ["log"]
        world.quiet()
        assert drain(reader) == []
        log.write(1)
        assert drain(reader) == [(3, log.lines[-1])]

    def test_a_last_line_without_newline_is_a_record_when_its_file_is_finished(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(2, ended=False)
        reader = world.open(world.source(last_line="wait"))
        assert drain(reader).numbers == [0]
        log.rotate("rename")
        log.write(1)
        assert drain(reader).numbers == []
        world.quiet()
        assert drain(reader) == list(enumerate(log.lines))[1:]

    def test_a_compression_in_progress_is_waited_for(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(2)
        reader = world.open(world.source())
        drain(reader)
        aside = log.rotate("rename")
        log.write(2)
        world.quiet()
        aside.with_name("log.1.gz").write_bytes(b"\x1f\x8b")
        now = world.clock.now()
        os.utime(aside.with_name("log.1.gz"), (now, now))
        assert drain(reader) == []
        aside.with_name("log.1.gz").unlink()
        compress(aside, "gzip")
        assert drain(reader).numbers == [2, 3]

    def test_empty_files_are_passed_over(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        follower = Follower(world, "live")
        for count in (0, 2, 0, 0, 1):
            log.write(count, ended=bool(count))
            log.rotate("rename")
        log.write(1)
        world.quiet()
        follower.read()
        follower.expect([line for line in log.lines if line])

    def test_headers_are_left_out_of_each_file(self, world: World) -> None:
        path = world.write("log", b"id,text\n1,a\n")
        reader = world.open(world.source(header=True))
        os.rename(path, world.path("log.1"))
        world.write("log", b"id,text\n2,b\n")
        world.quiet()
        assert reader.latest == 2
        assert drain(reader) == [(0, b"1,a"), (1, b"2,b")]


class TestTruncation:
    @pytest.mark.parametrize("how", HOWS)
    @pytest.mark.parametrize("refill", [0, 1, 3, 30])
    def test_a_truncated_file_goes_on_with_growing_numbers(
        self, world: World, how: str, refill: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how)
        follower.read()
        os.truncate(log.path, 0)
        log.write(refill, ended=bool(refill))
        log.lines = [line for line in log.lines if line]
        follower.interrupt()
        follower.read()
        log.write(3)
        follower.read()
        follower.expect(log.lines)
        assert [message for message in caplog.messages if "was truncated or replaced after record 10" in message]

    @pytest.mark.parametrize("how", HOWS)
    def test_records_known_to_be_lost_stop_the_job(self, world: World, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how)
        follower.read(4)
        os.truncate(log.path, 0)
        with pytest.raises(DataError, match=r"records 4 and later ones of .*log are no longer there") as caught:
            _interrupt_and_read(follower)
        assert caught.value.offset == 4
        assert "if_lost='skip'" in str(caught.value)

    @pytest.mark.parametrize("how", HOWS)
    def test_or_are_skipped_when_asked_for(self, world: World, how: str, caplog: pytest.LogCaptureFixture) -> None:
        log = RotatingLog(world.path("log"))
        log.write(10)
        follower = Follower(world, how, if_lost="skip")
        follower.read(4)
        os.truncate(log.path, 0)
        log.write(2)
        _interrupt_and_read(follower)
        assert follower.found == list(enumerate([*log.lines[:4], *log.lines[10:]]))
        assert any("no longer there" in message and "skipped" in message for message in caplog.messages)

    @pytest.mark.parametrize("how", HOWS)
    def test_a_file_rewritten_in_place_is_a_new_one(self, world: World, how: str) -> None:
        world.write("log", lines(0, 1, 2))
        follower = Follower(world, how)
        follower.read()
        with open(world.path("log"), "r+b") as file:
            file.write(lines(*range(100, 110)))
        follower.interrupt()
        follower.read()
        assert follower.found.bodies == [*lines(0, 1, 2).split(b"\n")[:-1], *lines(*range(100, 110)).split(b"\n")[:-1]]
        assert follower.found.numbers == list(range(13))


class TestReplacement:
    @pytest.mark.parametrize("how", HOWS)
    def test_a_file_put_in_place_of_another_is_read_from_its_start(self, world: World, how: str) -> None:
        world.write("log", lines(0, 1))
        follower = Follower(world, how)
        follower.read()
        os.replace(world.write("log.new", lines(2, 3, 4)), world.path("log"))
        follower.interrupt()
        world.quiet()
        follower.read()
        assert follower.found == list(enumerate(lines(0, 1, 2, 3, 4).split(b"\n")[:-1]))

    @pytest.mark.parametrize("how", HOWS)
    @pytest.mark.parametrize("read_before", [1, 3])
    def test_a_longer_copy_put_in_place_is_the_same_file(self, world: World, how: str, read_before: int) -> None:
        """As rsync does."""
        log = RotatingLog(world.path("log"))
        log.write(3)
        follower = Follower(world, how)
        follower.read(read_before)
        for count in (2, 1):
            old = log.path.read_bytes()
            log.path.unlink()
            log.path.write_bytes(old)
            log.write(count)
            follower.interrupt()
            world.quiet()
            follower.read()
            follower.expect(log.lines)

    @pytest.mark.parametrize("how", ["live", "restart"])
    def test_what_was_open_is_read_to_its_end_even_if_deleted(self, world: World, how: str) -> None:
        log = RotatingLog(world.path("log"))
        log.write(5)
        follower = Follower(world, "live")
        follower.read(2)
        log.path.unlink()
        log.path.touch()
        log.write(2)
        world.quiet()
        if how == "restart":
            follower.how = "restart"
            with pytest.raises(DataError, match="records 2 and later"):
                _interrupt_and_read(follower)
            return
        follower.read()
        follower.expect(log.lines)

    def test_unrelated_files_in_the_directory_are_left_alone(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(2)
        reader = world.open(world.source())
        for name in ("log.old", "log.txt", "log2", "other.1", "xlog.1", "log.d-1"):
            world.write(name, lines(99))
        log.rotate("rename")
        for name in ("later.1", "log.bak"):
            world.write(name, lines(99))
        log.write(1)
        world.quiet()
        assert drain(reader) == list(enumerate(log.lines))

    def test_older_rotated_files_are_not_read(self, world: World) -> None:
        world.write("log.1", lines(98))
        world.write("log.2", lines(99))
        for age, name in ((20, "log.1"), (40, "log.2")):
            os.utime(world.path(name), (world.clock.now() - age, world.clock.now() - age))
        log = RotatingLog(world.path("log"))
        reader = world.open(world.source())
        log.write(2)
        log.rotate("rename")
        log.write(1)
        world.quiet()
        assert drain(reader) == list(enumerate(log.lines))

    def test_other_names_of_rotated_files(self, world: World) -> None:
        path = world.write("app.log", lines(0))
        source = world.source("app.log", rotated=["{stem}-[0-9]*{suffix}*"])
        reader = world.open(source, "app.log")
        for number in (1, 2):
            aside = world.path(f"app-{number}.log")
            os.rename(path, aside)
            compress(aside, "gzip")
            world.write("app.log", lines(number))
        world.quiet()
        assert drain(reader).bodies == [b"line 0", b"line 1", b"line 2"]

    def test_a_symbolic_link_that_is_pointed_elsewhere(self, world: World) -> None:
        (world.directory / "real").mkdir()
        world.write("real/a.log", lines(0, 1))
        world.path("log").symlink_to(world.path("real/a.log"))
        reader = world.open(world.source())
        drain(reader, at_most=1)
        world.write("real/b.log", lines(2))
        world.path("link").symlink_to(world.path("real/b.log"))
        os.replace(world.path("link"), world.path("log"))
        world.quiet()
        assert drain(reader).bodies == [b"line 1", b"line 2"]


class TestNames:
    @pytest.mark.parametrize(
        ("name", "path", "matches"),
        [
            ("app.log", "d/app.log.1", True),
            ("app.log", "app.log-20240131.gz", True),
            ("app.log", "app.log.2024-01-31", True),
            ("app.log", "app.log.gz", False),
            ("app.log", "app.log.old", False),
            ("app.log", "app1.log", False),
            ("a[1].log", "a[1].log.1", True),
            ("a[1].log", "a1.log.1", False),
        ],
    )
    def test_default_patterns(self, name: str, path: str, matches: bool) -> None:
        from headrace_file.settings import DEFAULT_ROTATED

        assert RotatedNames(DEFAULT_ROTATED).matcher(name)(path) is matches

    def test_older_files_come_first(self) -> None:
        names = [("log.10", 5), ("log.2.gz", 5), ("log.1", 5), ("log", 5)]
        assert sorted(names, key=lambda entry: order_key(*entry)) == names
        assert order_key("log.1", 4) < order_key("log.2", 5)


def test_a_truncated_file_that_begins_again_as_before_is_read(world: World) -> None:
    banner = b"#" * 1100 + b"\n"
    world.write("log", banner + lines(0, 1, 2))
    reader = world.open(world.source())
    assert drain(reader).bodies[1:] == [b"line 0", b"line 1", b"line 2"]
    world.write("log", banner + lines(3))
    world.quiet()
    assert drain(reader).bodies[1:] == [b"line 3"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("packed", [None, "gzip"])
@pytest.mark.parametrize("matching", [False, True])
def test_lines_read_between_copy_and_truncation_do_not_bring_the_copy_twice(
    world: World, how: str, packed: str | None, matching: bool
) -> None:
    """copytruncate loses these lines from the files, but a reader that was quick has them: it has read more than the copy holds."""
    log = RotatingLog(world.path("log"))
    log.write(100)
    follower = Follower(world, how, **({"path": "log*"} if matching else {}))
    follower.read(40)
    shutil.copy(log.path, world.path("log.1"))  # with a time of its own, as logrotate copies
    log.write(3)
    follower.read()
    os.truncate(log.path, 0)
    follower.interrupt()
    if packed:
        compress(world.path("log.1"), packed)
    log.write(4)
    world.quiet()
    for _ in range(2):
        follower.read()
        follower.interrupt()
    follower.expect(log.lines)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(1, 4)),
            st.tuples(st.just("read"), st.integers(1, 5)),
            st.tuples(st.just("rotate"), st.sampled_from(KEEPING)),
            st.tuples(st.just("restart"), st.sampled_from(HOWS)),
        ),
        max_size=25,
    )
)
def test_any_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]) -> None:
    """Whatever happens in whatever order: every line once, in order, numbered without gaps."""
    world = World(Path(tmp_path_factory.mktemp("history")))
    log = RotatingLog(world.path("log"))
    log.write(1)
    follower = Follower(world, "live")
    for step, value in steps:
        if step == "write":
            log.write(int(str(value)))
        elif step == "read":
            follower.read(int(str(value)))
        elif step == "rotate":
            # A log of which nothing was read can only be known by its content once it is copied.
            log.rotate(str(value))
            log.write(1)
        else:
            follower.how = str(value)
            follower.interrupt()
        if step != "write":
            world.quiet()
    world.quiet()
    follower.read()
    follower.expect(log.lines)
    world.close()


def _interrupt_and_read(follower: Follower) -> None:
    follower.interrupt()
    follower.read()


def test_the_matrix_is_whole() -> None:
    assert len(list(itertools.product(KEEPING, HOWS))) == 24


def test_poll_between_rename_and_create(world: World) -> None:
    log = RotatingLog(world.path("log"))
    log.write(1)
    reader = world.open(world.source())
    log.rotate("rename", create=False)
    assert drain(reader).numbers == [0]
    assert reader.poll(1, NO_WAIT) is None
