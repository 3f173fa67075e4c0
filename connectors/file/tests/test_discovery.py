"""Directories and globs: which files are queues, and which belong to queues that are there already."""

from __future__ import annotations

import glob
import gzip
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from file_world import Records, World, checkpointed, drain, lines
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace_file import FileSource
from headrace_file.reader import FileReader
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import KEEPING, RotatingLog, compress

from tests.effort import examples


class Watcher:
    """Reads every queue of a source as a runtime does: looks for queues, opens what is new, closes what has gone."""

    def __init__(self, world: World, path: str, **options: Any) -> None:
        self.world = world
        self.path = path
        self.options = options
        self.positions: dict[str, ReadPosition] = {}
        self.found: dict[str, Records] = {}
        self._start()

    def _start(self) -> None:
        self.source: FileSource = self.world.source(self.path, **self.options)
        self.readers: dict[str, FileReader] = {}
        self.source.restore({Queue(name): position for name, position in self.positions.items()})

    def look(self) -> list[str]:
        """Look for queues; return their names."""
        names = [queue.name for queue in self.source.queues()]
        for name in sorted(set(self.readers) - set(names)):
            self.positions[name] = checkpointed(self.readers[name].position)
            self.readers.pop(name).close()
        for name in sorted(set(names) - set(self.readers)):
            relative = os.path.relpath(name, self.world.directory)
            start = self.positions.get(name, EARLIEST)
            self.readers[name] = self.world.open(self.source, relative, start, discover=False)
        return [os.path.relpath(name, self.world.directory) for name in names]

    def read(self, count: int | None = None) -> None:
        for name, reader in self.readers.items():
            self.found.setdefault(name, Records()).extend(drain(reader, at_most=count))
            self.positions[name] = checkpointed(reader.position)

    def turn(self, count: int | None = None) -> None:
        self.look()
        self.read(count)

    def restart(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self._start()

    @property
    def bodies(self) -> list[bytes]:
        return [body for records in self.found.values() for body in records.bodies]

    def expect(self, lines: list[bytes]) -> None:
        assert Counter(self.bodies) == Counter(lines)
        for records in self.found.values():
            assert records.numbers == list(range(len(records)))


class TestPaths:
    def test_a_directory(self, world: World) -> None:
        for name in ("b", "a", ".hidden", "_headrace-part", "x.tmp"):
            world.write(name, b"")
        (world.directory / "folder").mkdir()
        world.write("folder/c", b"")
        source = world.source(".")
        assert world.names(source) == ["a", "b"]

    def test_a_directory_with_its_folders(self, world: World) -> None:
        for folder in ("x/y", ".git", "_headrace/tmp"):
            (world.directory / folder).mkdir(parents=True)
        for name in ("a", "x/b", "x/y/c", ".git/d", "_headrace/tmp/e"):
            world.write(name, b"")
        assert world.names(world.source(".", recursive=True)) == ["a", "x/b", "x/y/c"]

    def test_globs(self, world: World) -> None:
        for folder in ("x", "y", "_headrace"):
            (world.directory / folder).mkdir()
        for name in ("a.log", "b.txt", "x/c.log", "y/d.log", "_headrace/e.log", ".f.log"):
            world.write(name, b"")
        assert world.names(world.source("*.log")) == ["a.log"]
        assert world.names(world.source("*/*.log")) == ["x/c.log", "y/d.log"]
        assert world.names(world.source("**/*.log")) == ["a.log", "x/c.log", "y/d.log"]
        assert world.names(world.source("[ab].*")) == ["a.log", "b.txt"]

    def test_several_paths_and_no_file_twice(self, world: World) -> None:
        for name in ("a.log", "b.log", "c.txt"):
            world.write(name, b"")
        assert world.names(world.source(["*.log", "b.log", "c.txt", "."])) == ["a.log", "b.log", "c.txt"]

    def test_exclude_is_an_option(self, world: World) -> None:
        for name in ("a.log", "_b.log", "c.bak"):
            world.write(name, b"")
        assert world.names(world.source(".", exclude=["*.bak"])) == ["_b.log", "a.log"]

    def test_names_are_as_the_user_gave_the_path(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        (world.directory / "in").mkdir()
        world.write("in/a", b"")
        monkeypatch.chdir(world.directory)
        from headrace_file import FileSourceSettings

        for path, name in (("in", "in/a"), ("in/", "in/a"), ("in/*", "in/a"), ("./in/*", "./in/a"), ("in/a", "in/a")):
            source = FileSource(FileSourceSettings.of({"path": path}))
            assert [queue.name for queue in source.queues()] == [name]
            source.close()

    def test_one_file_under_several_names_is_one_queue(self, world: World) -> None:
        world.write("a", lines(0))
        os.link(world.path("a"), world.path("b"))
        world.path("c").symlink_to(world.path("a"))
        assert world.names(world.source(".")) == ["a"]

    @pytest.mark.parametrize("path", ["in", "in/*", "in/**"])
    def test_links_do_not_lead_out_of_the_directory(
        self, world: World, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("in/sub", "secret"):
            (world.directory / name).mkdir(parents=True)
        world.write("secret/shadow", lines(0))
        world.write("in/a", lines(0))
        world.write("in/sub/b", lines(0))
        world.path("in/stolen").symlink_to(world.path("secret/shadow"))
        world.path("in/folder").symlink_to(world.path("secret"))
        world.path("in/inner").symlink_to(world.path("in/sub/b"))
        own = {"in": {"in/a", "in/inner"}, "in/*": {"in/a", "in/inner"}, "in/**": {"in/a", "in/inner"}}[path]
        for _ in range(2):
            assert set(world.names(world.source(path))) == own
        told = [record.message for record in caplog.records if "leads out of the directory" in record.message]
        assert any("stolen" in text for text in told)
        allowed = set(world.names(world.source(path, follow_symlinks=True)))
        assert any("stolen" in name or "shadow" in name for name in allowed)

    @pytest.mark.parametrize("path", ["in", "in/**", "in/**/*.log", "**/*.log"])
    def test_links_that_lead_round_are_gone_once(
        self, world: World, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (world.directory / "in/sub/deep").mkdir(parents=True)
        for name in ("in/a.log", "in/sub/b.log", "in/sub/deep/c.log"):
            world.write(name, lines(0))
        for number in range(5):
            world.path(f"in/up{number}").symlink_to(world.path("in"))
            world.path(f"in/sub/up{number}").symlink_to(world.path("in"))
            world.path(f"in/self{number}").symlink_to(world.path(f"in/self{number}"))
        names = world.names(world.source(path, recursive=True))
        assert names == ["in/a.log", "in/sub/b.log", "in/sub/deep/c.log"]

    @pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take UTF-8 only")
    @pytest.mark.parametrize("path", [".", "*"])
    def test_name_that_is_no_text(self, world: World, path: str, caplog: pytest.LogCaptureFixture) -> None:
        world.write("a", lines(0))
        with open(os.path.join(os.fsencode(world.directory), b"bad\xff"), "wb") as file:
            file.write(b"x\n")
        assert world.names(world.source(path)) == ["a"]
        assert "its name is not UTF-8" in caplog.text

    def test_globs_of_folders(self, world: World) -> None:
        names = ["a.log", "x/b.log", "x/y/c.log", "x/y/d.txt", ".h/e.log", "x/.h/f.log"]
        for name in names:
            (world.directory / name).parent.mkdir(parents=True, exist_ok=True)
            world.write(name, lines(0))
        for pattern in ("**/*.log", "**", "x/**/*.log", "x/**/y/*", "*/*.log", "**/y/**", "**/[ab].log"):
            found = set(world.names(world.source(pattern, exclude=())))
            expected = glob.glob(str(world.path(pattern)), recursive=True)
            assert found == {os.path.relpath(name, world.directory) for name in expected if os.path.isfile(name)}, (
                pattern
            )

    def test_what_is_no_file_is_left_out(self, world: World) -> None:
        os.mkfifo(world.path("fifo"))
        world.path("dangling").symlink_to(world.path("nowhere"))
        world.write("a", b"")
        assert world.names(world.source(".")) == ["a"]

    def test_a_glob_may_match_nothing_but_its_directory_must_be_there(self, world: World) -> None:
        assert world.names(world.source("*.log")) == []
        with pytest.raises(JobError, match=r"nowhere, where .*nowhere/\*.log looks for files, does not exist"):
            world.source("nowhere/*.log").queues()

    def test_a_directory_that_goes_away_is_waited_for(self, world: World) -> None:
        (world.directory / "in").mkdir()
        world.write("in/a", b"")
        for path in ("in", "in/*"):
            source = world.source(path)
            assert world.names(source) == ["in/a"]
            os.rename(world.path("in"), world.path("away"))
            with pytest.raises(RetriableError, match="in is missing"):
                source.queues()
            os.rename(world.path("away"), world.path("in"))
            assert world.names(source) == ["in/a"]


class TestComingAndGoing:
    def test_new_files_are_queues_and_vanished_ones_are_not(self, world: World) -> None:
        source = world.source(".")
        assert world.names(source) == []
        world.write("a", b"")
        world.write("b", b"")
        assert world.names(source) == ["a", "b"]
        world.path("a").unlink()
        assert world.names(source) == ["b"]

    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize("look_between", [False, True])
    def test_a_file_that_comes_back_goes_on_counting(self, world: World, restart: bool, look_between: bool) -> None:
        world.write("a", lines(0, 1))
        watcher = Watcher(world, ".")
        watcher.turn()
        world.path("a").unlink()
        if look_between:
            assert watcher.look() == []
        if restart:
            watcher.restart()
        world.write("a", lines(2, 3))
        world.quiet()
        watcher.turn()
        watcher.expect(lines(0, 1, 2, 3).split(b"\n")[:-1])

    def test_even_when_it_is_opened_as_new(self, world: World) -> None:
        """A runtime that has forgotten the position of a queue that was removed."""
        world.write("a", lines(0, 1))
        source = world.source(".")
        drain(world.open(source, "a"))
        world.path("a").unlink()
        assert world.names(source) == []
        world.write("a", lines(2))
        assert drain(world.open(source, "a")) == [(2, b"line 2")]

    def test_not_for_ever(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is remembered of queues that have gone is bounded."""
        monkeypatch.setattr("headrace_file.tracker._GONE_MAX", 3)
        source = world.source(".")
        for name in ("a", "b", "c", "d", "e"):
            world.write(name, lines(0))
            drain(world.open(source, name))
            world.path(name).unlink()
            source.queues()
        assert [Path(name).name for name in source.context.tracker._queues] == ["c", "d", "e"]
        for name, number in (("a", 0), ("e", 1)):
            world.write(name, lines(1))
            assert drain(world.open(source, name)).numbers == [number]

    def test_a_file_moved_out_and_back_is_the_same(self, world: World) -> None:
        (world.directory / "in").mkdir()
        world.write("in/a", lines(0, 1))
        watcher = Watcher(world, "in")
        watcher.turn()
        os.rename(world.path("in/a"), world.path("a"))
        assert watcher.look() == []
        world.append("a", lines(2))
        os.rename(world.path("a"), world.path("in/a"))
        watcher.turn()
        watcher.expect(lines(0, 1, 2).split(b"\n")[:-1])

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_file_renamed_in_its_directory_stays_one_queue(self, world: World, restart: bool) -> None:
        world.write("a", lines(0, 1))
        watcher = Watcher(world, ".")
        watcher.turn(1)
        os.rename(world.path("a"), world.path("z"))
        if restart:
            watcher.restart()
        world.append("z", lines(2))
        watcher.turn()
        assert watcher.look() == ["a"]
        watcher.expect(lines(0, 1, 2).split(b"\n")[:-1])

    @pytest.mark.parametrize("look_between", [False, True])
    def test_an_inode_used_again_is_another_file(self, world: World, look_between: bool) -> None:
        """File systems give a deleted file's inode to the next new one; renaming a rewritten file looks the same."""
        source = world.source(".")
        world.write("f0", lines(0))
        for number in range(5):
            name = f"f{number}"
            assert world.names(source) == [name]
            assert drain(world.open(source, name)).bodies == [b"line %d" % number]
            world.path(name).rename(world.directory.parent / f"aside-{world.directory.name}")
            if look_between:
                assert world.names(source) == []
            (world.directory.parent / f"aside-{world.directory.name}").rename(world.path(f"f{number + 1}"))
            world.write(f"f{number + 1}", lines(number + 1))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("way", KEEPING)
class TestRotatedFilesThatMatch:
    """The glob also matches the names that rotation gives."""

    def test_they_are_read_once(self, world: World, way: str, restart: bool) -> None:
        log = RotatingLog(world.path("log"))
        log.write(5)
        watcher = Watcher(world, "log*")
        watcher.turn(3)
        for _ in range(4):
            log.rotate(way)
            log.write(2)
            if restart:
                watcher.restart()
            watcher.turn(1)
            world.quiet()
            watcher.turn(2)
        watcher.turn()
        assert watcher.look() == ["log"]
        watcher.expect(log.lines)

    def test_and_those_of_before_are_queues_of_their_own(self, world: World, way: str, restart: bool) -> None:
        log = RotatingLog(world.path("log"))
        for count in (3, 2):
            log.write(count)
            log.rotate(way)
        log.write(4)
        watcher = Watcher(world, "log*")
        assert len(watcher.look()) == 3
        watcher.read(1)
        for _ in range(3):
            log.rotate(way)
            log.write(2)
            if restart:
                watcher.restart()
            world.quiet()
            watcher.turn(1)
        watcher.turn()
        watcher.expect(log.lines)

    def test_several_rotations_between_two_looks(self, world: World, way: str, restart: bool) -> None:
        log = RotatingLog(world.path("log"))
        log.write(5)
        watcher = Watcher(world, "log*")
        watcher.turn(3)
        for _ in range(4):
            log.rotate(way)
            log.write(2)
        if restart:
            watcher.restart()
        world.quiet()
        watcher.turn()
        watcher.turn()
        assert watcher.look() == ["log"]
        watcher.expect(log.lines)


class TestCopies:
    def test_compressing_a_finished_file_makes_no_queue(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(5)
        watcher = Watcher(world, "log*")
        watcher.turn()
        aside = log.rotate("rename")
        log.write(1)
        world.quiet()
        watcher.turn()
        for restart in (False, True):
            packed = aside.with_name("log.1.gz")
            packed.write_bytes(gzip.compress(aside.read_bytes())[:5])
            now = world.clock.now()
            os.utime(packed, (now, now))
            if restart:
                watcher.restart()
            assert watcher.look() == ["log"]
            packed.unlink()
        compress(aside, "gzip")
        for _ in range(2):
            assert watcher.look() == ["log"]
            watcher.restart()
        watcher.turn()
        watcher.expect(log.lines)

    def test_a_copy_in_progress_makes_no_queue(self, world: World) -> None:
        log = RotatingLog(world.path("log"))
        log.write(100)
        watcher = Watcher(world, "log*")
        watcher.turn()
        whole = log.path.read_bytes()
        for size in (0, 10, 1000, len(whole)):
            world.write("log.1", whole[:size])
            assert watcher.look() == ["log"]
        shutil.copystat(log.path, world.path("log.1"))
        os.truncate(log.path, 0)
        log.write(3)
        world.quiet()
        watcher.turn()
        assert watcher.look() == ["log"]
        watcher.expect(log.lines)

    def test_files_of_the_same_content_are_different_files(self, world: World) -> None:
        for name in ("a", "b", "a.1"):
            world.write(name, lines(0, 1))
        watcher = Watcher(world, ".")
        assert watcher.look() == ["a", "a.1", "b"]
        world.write("c", lines(0, 1))
        watcher.turn()
        assert sorted(watcher.bodies) == sorted(4 * [b"line 0", b"line 1"])

    def test_a_new_file_with_a_rotated_name_and_other_content_is_a_queue(self, world: World) -> None:
        world.write("a", lines(0, 1))
        watcher = Watcher(world, ".")
        watcher.turn()
        world.write("a.1", lines(7, 8))
        assert watcher.look() == ["a"]
        world.quiet()
        assert watcher.look() == ["a", "a.1"]

    def test_damaged_files_are_queues(self, world: World) -> None:
        world.write("a", lines(0))
        source = world.source(".")
        assert world.names(source) == ["a"]
        world.write("a.1.gz", b"\x1f\x8bbroken")
        world.quiet()
        assert world.names(source) == ["a", "a.1.gz"]
        with pytest.raises(DataError, match=r"a.1.gz is not valid gzip after 0 decompressed bytes"):
            drain(world.open(source, "a.1.gz"))


@settings(max_examples=examples(60, least=5), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(1, 3)),
            st.tuples(st.just("turn"), st.integers(1, 4)),
            st.tuples(st.just("rotate"), st.sampled_from(KEEPING)),
            st.tuples(st.just("restart"), st.just(0)),
            st.tuples(st.just("look"), st.just(0)),
            st.tuples(st.just("quiet"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_any_history_of_a_log_whose_rotated_files_match(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    """Whatever happens in whatever order: every line once, numbered without gaps in its queue."""
    world = World(Path(tmp_path_factory.mktemp("history")))
    log = RotatingLog(world.path("log"))
    log.write(1)
    watcher = Watcher(world, "log*")
    watcher.turn(1)
    for step, value in steps:
        if step == "write":
            log.write(int(str(value)))
        elif step == "turn":
            watcher.turn(int(str(value)))
        elif step == "rotate":
            log.rotate(str(value))
            log.write(1)
        elif step == "restart":
            watcher.restart()
        elif step == "look":
            watcher.look()
        else:
            world.quiet()
    for _ in range(3):
        world.quiet()
        watcher.turn()
    watcher.expect(log.lines)
    world.close()


def test_a_glob_that_matches_nothing_is_warned_of_until_it_does(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write("there.log", b"x\n")
    source = world.source([str(world.directory / "*.log"), str(world.directory / "*.ndjsn")])
    for _ in range(3):
        assert len(source.queues()) == 1
    [warning] = caplog.messages
    assert f"path '{world.directory}/*.ndjsn' matches no file so far; the working directory is" in warning
    world.write("late.ndjsn", b"y\n")
    assert len(source.queues()) == 2
    assert len(caplog.messages) == 1
