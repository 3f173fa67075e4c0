"""Rotations of all kinds, in their single system calls, with reads, pauses and restarts between any two of them: each line comes once.

The file system of the tests should give inodes again at once, as ext4 does: a new log often has that of one that was compressed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from file_world import World, checkpointed, drain
from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.source import EARLIEST
from headrace_file.reader import FileReader
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import _SUFFIXES, KEEPING, compress, compressed

from tests.effort import examples


class SteppedLog:
    """A log that is rotated in single steps. ``lines`` is all that was ever written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self._rotations = 0
        path.touch()

    def write(self, count: int) -> None:
        made = [b"line %d of the log" % (len(self.lines) + number) for number in range(count)]
        self.lines += made
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in made))

    def rotate(self, way: str) -> Iterator[None]:
        """Rotate; whatever is read at a ``yield`` is read between two system calls."""
        self._rotations += 1
        aside = self.path.with_name(f"{self.path.name}.1")
        if way == "dated":
            aside = self.path.with_name(f"{self.path.name}-2024{self._rotations:04d}")
        else:
            yield from self._shift()
        if way.startswith("copytruncate"):
            shutil.copy2(self.path, aside)
            yield
            os.truncate(self.path, 0)
            way = way.removeprefix("copytruncate").removeprefix("_")
        else:
            os.rename(self.path, aside)
            yield
            self.path.touch()
        yield
        if way in _SUFFIXES:
            status = aside.stat()
            packed = aside.with_name(aside.name + _SUFFIXES[way])
            packed.write_bytes(compressed(aside.read_bytes(), way))
            yield
            os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
            yield
            aside.unlink()
            yield

    def _shift(self) -> Iterator[None]:
        for number in range(9, 0, -1):
            for suffix in ("", *_SUFFIXES.values()):
                old = self.path.with_name(f"{self.path.name}.{number}{suffix}")
                if old.exists():
                    os.rename(old, self.path.with_name(f"{self.path.name}.{number + 1}{suffix}"))
                    yield


class Everything:
    """Reads all queues of a world, as a backend does, and goes on after interruptions: by closing files, or in a new process."""

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self._path = path
        self.found: list[bytes] = []
        self._readers: dict[Queue, FileReader] = {}
        self._begin({})

    def _begin(self, positions: dict[Queue, ReadPosition]) -> None:
        self._source = self._world.source(self._path)
        self._source.restore(positions)
        self._readers = {queue: self._source.open(queue, position) for queue, position in positions.items()}
        self.discover()

    def discover(self) -> None:
        queues = self._source.queues()
        for queue in [queue for queue in self._readers if queue not in queues]:
            self._readers.pop(queue).close()
        for queue in queues:
            if queue not in self._readers:
                self._readers[queue] = self._source.open(queue, EARLIEST)

    def read(self, count: int | None = None) -> None:
        for reader in self._readers.values():
            self.found += drain(reader, at_most=count).bodies

    def release(self) -> None:
        for reader in self._readers.values():
            reader._cursor.release()

    def restart(self) -> None:
        positions = {queue: checkpointed(reader.position) for queue, reader in self._readers.items()}
        self.close()
        self._begin(positions)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._source.close()


BETWEEN = ("nothing", "nothing", "read", "read one", "pass time", "discover", "release", "restart")
STEPS = st.lists(
    st.one_of(st.tuples(st.just("write"), st.integers(1, 3)), st.tuples(st.just("rotate"), st.sampled_from(KEEPING))),
    max_size=8,
)


Steps = list[tuple[str, int | str]]


class Log(Protocol):
    """A log that is written and rotated."""

    lines: list[bytes]

    def write(self, count: int) -> None: ...

    def rotate(self, way: str) -> Iterator[None]: ...


def check(
    directory: Path, path: str, steps: Steps, between: Sequence[str], made: Callable[[Path], Log] = SteppedLog
) -> None:
    """Take the steps, and do between their system calls what ``between`` says. Each line must have come once at the end."""
    world = World(directory)
    log = made(world.path("log"))
    everything = Everything(world, path)
    choices = iter(between)

    def look() -> None:
        choice = next(choices, "nothing")
        if choice.startswith("read"):
            everything.read(1 if choice == "read one" else None)
        elif choice == "pass time":
            world.quiet()
        elif choice != "nothing":
            getattr(everything, choice)()

    for step, value in steps:
        look()
        if step == "write":
            log.write(int(value))
        else:
            for _ in log.rotate(str(value)):
                look()
    for _ in range(len(steps) + 3):
        world.quiet()
        everything.discover()
        everything.read()
    everything.close()
    if path == "log":  # else rotated files that are found before their log was looked at are queues of their own
        assert everything.found == log.lines
    assert sorted(everything.found) == sorted(log.lines)


@pytest.mark.parametrize("path", ["log", "log*"])
@settings(max_examples=examples(100, least=5), deadline=None, derandomize=True)
@given(steps=STEPS, between=st.lists(st.sampled_from(BETWEEN), max_size=60))
def test_each_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory, path: str, steps: Steps, between: list[str]
) -> None:
    check(tmp_path_factory.mktemp("steps"), path, steps, between)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["log", "log*"])
@settings(max_examples=examples(4000), deadline=None)
@given(steps=STEPS, between=st.lists(st.sampled_from(BETWEEN), max_size=60))
def test_each_line_comes_once_in_many_more_rotations(
    tmp_path_factory: pytest.TempPathFactory, path: str, steps: Steps, between: list[str]
) -> None:
    check(tmp_path_factory.mktemp("steps"), path, steps, between)


#: What the generator has found once, by the reason why a line was lost or came twice.
FOUND: dict[str, tuple[Steps, list[str]]] = {
    "an empty log is compressed away, and its inode is that of a later one": (
        [("rotate", "gzip"), ("rotate", "gzip"), ("write", 1), ("rotate", "rename")],
        ["nothing", "nothing", "read", "release"],
    ),
    "the list of the directory is older than the file at the path, and no byte of the one before is known": (
        [("write", 1), ("rotate", "rename"), ("rotate", "rename"), ("write", 1), ("rotate", "dated")],
        [*["nothing"] * 7, "pass time", "read", "nothing", "release", "read"],
    ),
    "a log was truncated and then renamed: its inode is that of a past file and of the present one": (
        [("write", 1), ("rotate", "copytruncate"), ("write", 1), ("rotate", "rename")],
        ["nothing", "read", "pass time", "read"],
    ),
    "a log was copied and truncated before a byte of it was seen, and its copy is being compressed": (
        [("write", 2), ("rotate", "copytruncate_gzip")],
        [*["nothing"] * 3, "pass time", "discover", "read one", "restart"],
    ),
}


def test_a_log_that_was_written_after_the_next_one_was_made_is_not_read_again_when_it_is_compressed(
    tmp_path: Path,
) -> None:
    """As with ``create`` and a service that opens its log a moment later; the next log has its first line when files are looked for."""
    world = World(tmp_path)
    world.write("log", b"1\n")
    everything = Everything(world, "log*")
    everything.read()
    os.rename(world.path("log"), world.path("log.1"))
    world.write("log", b"")
    world.append("log.1", b"2\n")
    made = world.path("log").stat().st_mtime_ns
    os.utime(world.path("log.1"), ns=(made, made + 5_000_000))
    world.quiet()
    everything.read()
    compress(world.path("log.1"), "gzip")
    world.append("log", b"3\n")
    os.utime(world.path("log"), ns=(made, made + 9_000_000))
    for _ in range(3):
        everything.discover()
        everything.read()
        world.quiet()
    everything.close()
    assert everything.found == [b"1", b"2", b"3"]


@pytest.mark.parametrize("path", ["log", "log*"])
@pytest.mark.parametrize("reason", FOUND)
def test_each_line_comes_once_where_it_did_not(tmp_path: Path, path: str, reason: str) -> None:
    check(tmp_path, path, *FOUND[reason])


def test_a_rotated_file_that_was_there_first_is_not_read_again_when_it_is_compressed(tmp_path: Path) -> None:
    """With ``delaycompress``: what a job finds as log.1 when it begins is compressed at the next rotation, as log.2.gz."""
    world = World(tmp_path)
    world.write("log", b"3\n4\n")
    os.utime(world.write("log.1", b"1\n2\n"), (1, 1))
    everything = Everything(world, "log*")
    for _ in range(2):
        everything.read()
        world.quiet()
        everything.discover()
    os.rename(world.path("log.1"), world.path("log.2"))
    compress(world.path("log.2"), "gzip")
    os.rename(world.path("log"), world.path("log.1"))
    world.write("log", b"5\n")
    for _ in range(4):
        world.quiet()
        everything.discover()
        everything.read()
    everything.close()
    assert sorted(everything.found) == [b"1", b"2", b"3", b"4", b"5"]
