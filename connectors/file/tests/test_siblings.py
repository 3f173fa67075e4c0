"""A directory is listed once for many queues, and never too seldom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from file_world import World, drain, lines
from headrace_file import siblings
from headrace_file.file_system import FileSystem
from headrace_file.siblings import Directories

COUNT = 30


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the directories that were listed, one entry each time."""
    made: list[str] = []
    read = siblings._Listing.read

    def counted(directory: str, files: FileSystem) -> siblings._Listing:
        made.append(directory)
        return read(directory, files)

    monkeypatch.setattr(siblings._Listing, "read", staticmethod(counted))
    return made


def settle(directory: Path) -> None:
    """Let a directory look as if it had not changed for a while."""
    os.utime(directory, (0, 0))


class TestDirectories:
    def test_what_is_beside_a_path(self, tmp_path: Path) -> None:
        for name in ("app.log", "app.log.1", "app.log.2.gz", "app.lo", "other.log"):
            (tmp_path / name).touch()
        (tmp_path / "app.log.d").mkdir()
        (tmp_path / "app.log.link").symlink_to("app.log")
        beside = Directories().beside(str(tmp_path / "app.log"))
        found = [os.path.basename(each.path) for each in beside.starting_with("app.log")]
        assert found == ["app.log", "app.log.1", "app.log.2.gz"]
        inode = (tmp_path / "other.log").stat().st_ino
        assert list(beside.with_inode(inode)) == [str(tmp_path / "other.log")]

    def test_beside_a_link_and_what_it_leads_to(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "a.log.1").touch()
        (tmp_path / "a.log").symlink_to("real/a.log")
        (tmp_path / "a.log.2").touch()
        found = [each.path for each in Directories().beside(str(tmp_path / "a.log")).starting_with("a.log")]
        assert found == [str(tmp_path / "a.log.2"), str(tmp_path / "real" / "a.log.1")]

    def test_a_directory_that_does_not_change_is_listed_once(self, tmp_path: Path, listings: list[str]) -> None:
        (tmp_path / "a").touch()
        settle(tmp_path)
        directories = Directories()
        for _ in range(3):
            directories.beside(str(tmp_path / "a"))
        assert len(listings) == 1
        (tmp_path / "b").touch()
        assert len(list(directories.beside(str(tmp_path / "a")).starting_with(""))) == 2

    def test_one_that_has_just_changed_is_listed_again(self, tmp_path: Path, listings: list[str]) -> None:
        """The clock of the file system is coarse: a later change may have the same time."""
        (tmp_path / "a").touch()
        directories = Directories()
        directories.beside(str(tmp_path / "a"))
        directories.beside(str(tmp_path / "a"))
        assert len(listings) == 2

    def test_a_directory_that_is_gone(self, tmp_path: Path) -> None:
        directories, path = Directories(), tmp_path / "in" / "a"
        assert list(directories.beside(str(path)).starting_with("")) == []
        path.parent.mkdir()
        path.touch()
        assert len(list(directories.beside(str(path)).starting_with(""))) == 1

    def test_a_search_looks_into_the_old_listing_first(self, tmp_path: Path, listings: list[str]) -> None:
        (tmp_path / "a").touch()
        directories = Directories()
        directories.beside(str(tmp_path / "a"))
        (tmp_path / "b").touch()
        looks = [
            [os.path.basename(each.path) for each in look.starting_with("")]
            for look in directories.looks(str(tmp_path / "a"))
        ]
        assert looks == [["a"], ["a", "b"]]


def test_a_rotation_of_all_logs_lists_their_directory_a_few_times(world: World, listings: list[str]) -> None:
    for number in range(COUNT):
        world.write(f"app{number}.log", lines(1))
    source = world.source("*.log")
    readers = {name: world.open(source, name) for name in world.names(source)}
    for reader in readers.values():
        assert drain(reader).bodies == [b"line 1"]
    for name in readers:
        world.append(name, lines(2))
        os.rename(world.path(name), world.path(f"{name}.1"))
        world.write(name, lines(3))
    listings.clear()
    assert len(world.names(source)) == COUNT
    assert len(listings) == 1
    for reader in readers.values():
        assert drain(reader).bodies == [b"line 2"]
    assert len(listings) <= 2
    world.quiet()
    for reader in readers.values():
        assert drain(reader).bodies == [b"line 3"]
    assert len(listings) <= 4
