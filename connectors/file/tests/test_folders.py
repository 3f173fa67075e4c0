"""Directories that have not changed are not listed again, and nothing that changes in them is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from file_world import World, drain, lines
from headrace_file import folders, paths


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories count as settled at once."""
    monkeypatch.setattr(folders, "_SETTLED_NS", -1_000_000_000)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that looks at the paths have looked at one by one."""
    found: list[str] = []
    real = os.stat

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def stat(self, path: str) -> os.stat_result:
            found.append(path)
            return real(path)

    monkeypatch.setattr(paths, "os", Watched())
    return found


@pytest.mark.parametrize("pattern", [".", "*", "**"])
def test_files_in_directories_without_changes_are_not_looked_at_again(
    world: World, listed: list[str], pattern: str
) -> None:
    for name in "abc":
        world.write(name, lines(1))
    source = world.source(pattern)
    names = source.queues()
    assert len(names) == 3
    assert source.queues() == names  # the first look has made the queues, this one knows them
    listed.clear()
    world.append("a", lines(2))
    assert source.queues() is source.queues()
    assert not listed


@pytest.mark.parametrize("pattern", [".", "*", "**"])
def test_what_changes_in_a_directory_is_found(world: World, pattern: str) -> None:
    world.write("a", lines(1))
    source = world.source(pattern)
    for _ in range(3):
        assert world.names(source) == ["a"]
    world.write("b", lines(1))
    for _ in range(3):
        assert world.names(source) == ["a", "b"]
    world.write("c", lines(1))  # first: else it may get the inode of the other, and be taken for it
    world.path("b").unlink()
    for _ in range(3):
        assert world.names(source) == ["a", "c"]


def test_files_in_folders_are_found(world: World) -> None:
    world.path("in/one").mkdir(parents=True)
    world.write("in/one/a", lines(1))
    source = world.source("in", recursive=True)
    for _ in range(3):
        assert world.names(source) == ["in/one/a"]
    world.write("in/one/b", lines(1))
    for _ in range(3):
        assert world.names(source) == ["in/one/a", "in/one/b"]
    world.path("in/two").mkdir()
    for _ in range(3):
        assert len(source.queues()) == 2
    world.write("in/two/c", lines(1))
    assert len(source.queues()) == 3


def test_folders_that_a_pattern_names_are_looked_for_each_time(world: World) -> None:
    world.path("in/one").mkdir(parents=True)
    world.write("in/one/a", lines(1))
    source = world.source("in/*/deep/*")
    assert not source.queues()
    world.path("in/one/deep").mkdir()
    world.write("in/one/deep/b", lines(1))
    assert world.names(source) == ["in/one/deep/b"]


def test_what_a_link_leads_to_may_change_without_its_directory(world: World, tmp_path: Path) -> None:
    world.path("in/real").mkdir(parents=True)
    world.write("in/real/one", lines(1))
    world.write("in/real/two", lines(2))
    world.path("in/real/now").symlink_to("one")
    world.path("in/log").symlink_to("real/now")
    source = world.source("in")
    reader = world.open(source, "in/log")
    for _ in range(3):
        assert world.names(source) == ["in/log"]
    assert drain(reader).bodies == [b"line 1"]
    world.path("in/real/now").unlink()
    world.path("in/real/now").symlink_to("two")  # changes another directory than that which is listed
    world.quiet()
    assert world.names(source) == ["in/log"]
    assert drain(reader).bodies == [b"line 2"]


def test_rotation_is_followed(world: World) -> None:
    world.write("log", lines(1, 2))
    source = world.source("*")
    reader = world.open(source)
    for round_number in range(5):
        for _ in range(3):
            assert world.names(source) == ["log"]
        drain(reader)
        world.append("log", lines(round_number))
        if round_number:
            world.path("log.1").unlink()
        os.rename(world.path("log"), world.path("log.1"))
        world.write("log", lines(100 + round_number))
        world.quiet()
        assert world.names(source) == ["log"]
        found = drain(reader).bodies
        assert found == [b"line %d" % round_number, b"line %d" % (100 + round_number)]


def test_a_directory_that_is_replaced_is_listed_again(world: World) -> None:
    world.path("in").mkdir()
    world.write("in/a", lines(1))
    source = world.source("in")
    for _ in range(3):
        assert world.names(source) == ["in/a"]
    os.rename(world.path("in"), world.path("old"))
    world.path("in").mkdir()
    world.write("in/b", lines(1))
    world.quiet()
    source.queues()
    world.quiet()
    assert world.names(source) == ["in/b"]


def test_the_position_of_an_idle_reader_names_copies_that_are_found_later(world: World) -> None:
    """Else a copy would be a queue of its own after a restart, and its lines would come twice."""
    world.write("log", lines(*range(300)))
    source = world.source("*")
    reader = world.open(source)
    drain(reader)
    drain(reader)
    before = reader.position
    world.write("log.1", lines(*range(300)))
    world.quiet()
    assert world.names(source) == ["log"]
    drain(reader)
    assert "past" not in before.hint
    assert len(reader.position.hint["past"]) == 1
