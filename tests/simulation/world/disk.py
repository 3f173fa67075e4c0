"""The disk of a simulated machine: real files in a directory in memory, and what of them would survive the loss of power.

The real files are what processes see (the page cache). Beside them it is kept what was made durable: of a file its content at the
last ``fsync``, of a directory its entries at the last ``fsync`` of it. When the power fails, each directory has its entries of any moment
since then, and each file what was durable, what it has now, or a part of that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any
from weakref import finalize

from tests.simulation.world.scheduler import World

_SECTOR = 512


class File:
    """A file: its content at the last ``fsync``, its size after each write since, and, when no name is left of it, its last content."""

    __slots__ = ("durable", "last", "sizes")

    def __init__(self) -> None:
        self.durable = b""
        self.sizes: list[int] = []
        self.last: bytes | None = None


class Directory:
    """A directory: its entries now, and those of each moment since they were made durable, the oldest first."""

    __slots__ = ("entries", "moments")

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.moments: list[dict[str, File | Directory]] = [{}]

    def changed(self) -> None:
        self.moments.append(dict(self.entries))

    def sync(self) -> None:
        self.moments = [dict(self.entries)]


class Disk:
    """The disk of one machine, in the directory ``place``, which must be empty. Used by the threads of a world, through the seams.

    ``journal``: whether ``fsync`` of anything makes all names durable that were given before, as the journals of most file systems of
    Linux do, and none has to.
    """

    def __init__(self, world: World, place: str, *, journal: bool = False) -> None:
        self.place = os.path.realpath(place)
        self._prefix = self.place + os.sep
        self._world = world
        self._journal = journal
        self._root = Directory()
        #: By descriptor: the path, and its file or directory.
        self._open: dict[int, tuple[str, File | Directory | None]] = {}
        #: What was renamed into another directory: from where, to where. It is in one of both after the power failed.
        self._moved: list[tuple[Directory, str, Directory, File | Directory]] = []
        #: Until when a write finds no room, and how often of a hundred a sync fails or takes long.
        self.full_until_us = 0
        self.failing = 0.0
        self.slow = 0.0
        #: How many bytes of the next write are done before the process ends; None: all.
        self.torn: Callable[[int], int | None] = lambda size: None

    def has(self, path: Any) -> bool:
        """Whether a path or descriptor belongs to this disk."""
        if type(path) is int:
            return path in self._open
        try:
            text = os.fspath(path)
        except TypeError:
            return False
        return isinstance(text, str) and (text.startswith(self._prefix) or text == self.place)

    def _name(self, path: Any) -> str:
        text: str = os.fspath(path)
        return os.path.normpath(text)[len(self._prefix) :]

    def _find(self, name: str) -> tuple[Directory, str]:
        """Return the directory of a name, and the last part of it."""
        directory = self._root
        *above, last = name.split(os.sep)
        for part in above:
            found = directory.entries.get(part)
            if not isinstance(found, Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            directory = found
        return directory, last

    # ------------------------------------------------------------------------------------------------- calls

    def open(self, real: Callable[..., int], path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        name = self._name(path)
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if writes:
            self._world.step("open", name)
            if flags & os.O_CREAT and not os.path.exists(path):
                self._check_room(path)
        new = writes and not os.path.lexists(path)
        descriptor = real(path, flags, *arguments, **options)
        if not name or name == ".":
            node: File | Directory | None = self._root
        else:
            directory, last = self._find(name)
            if new:
                directory.entries[last] = File()
                directory.changed()
            node = directory.entries.get(last)
        self._open[descriptor] = name, node
        self._world.current.process.descriptors.add(descriptor)
        return descriptor

    def open_file(self, real: Callable[..., Any], file: Any, mode: str, *arguments: Any, **options: Any) -> Any:
        """Open a file as ``open`` does."""
        if type(file) is int or mode in ("r", "rb", "rt"):
            return real(file, mode, *arguments, **options)
        opener = options.pop("opener", None) or (lambda path, flags: os.open(path, flags, 0o666))
        made = real(file, mode, *arguments, opener=opener, **options)
        # Python closes its descriptor without asking os.close.
        descriptor = made.fileno()
        self._world.current.process.descriptors.discard(descriptor)
        finalize(made, self._forget, descriptor, self._open[descriptor])
        return made

    def _forget(self, descriptor: int, entry: tuple[str, File | Directory | None]) -> None:
        if self._open.get(descriptor) is entry:
            del self._open[descriptor]

    def close(self, real: Callable[..., None], descriptor: int) -> None:
        if self._world.current.process.dead:
            return  # the world closes it
        del self._open[descriptor]
        self._world.current.process.descriptors.discard(descriptor)
        real(descriptor)

    def release(self, descriptors: set[int], real: Callable[[int], None]) -> None:
        """Close what a process that was killed has left open."""
        for descriptor in sorted(descriptors):
            if self._open.pop(descriptor, None) is not None:
                real(descriptor)
        descriptors.clear()

    def names_of(self, descriptors: set[int]) -> list[str]:
        """Return what is open under these descriptors."""
        return sorted(self._open[each][0] for each in descriptors if each in self._open)

    def write(self, real: Callable[..., int], descriptor: int, data: Any, *place: int) -> int:
        name, node = self._open[descriptor]
        view = memoryview(data)
        self._world.step("write", name)
        size = self.torn(len(view))
        if size is not None:
            # What is written over is a row of sectors, each of which is written whole.
            size -= size % _SECTOR if place else 0
            real(descriptor, view[:size], *place)
            self._world.kill(self._world.current.process, "in the middle of a write")
            self._world.step("write", name)
        if self._world.us < self.full_until_us:
            if not len(view) or self._world.random.random() < 0.5:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            view = view[: int(self._world.random.random() * len(view)) or 1]
        written = real(descriptor, view, *place)
        if isinstance(node, File):
            node.sizes.append(os.fstat(descriptor).st_size)
        return written

    def _check_room(self, path: Any) -> None:
        if self._world.us < self.full_until_us and self._world.random.random() < 0.3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    def sync(self, real: Callable[..., None], descriptor: int) -> None:
        name, node = self._open[descriptor]
        self._world.step("sync", name, us=100)
        if self.slow and self._world.random.random() < self.slow:
            self._world.pause(int(self._world.random.random() * 2_000_000))
        if self.failing and self._world.random.random() < self.failing:
            self._world.trace.add(self._world.us, "disk", "fails", name)
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._prefix + name)
        if isinstance(node, Directory):
            node.sync()
        elif node is not None:
            node.durable, node.sizes = self._content(name), []
        if self._journal:
            self._sync_all(self._root)

    def _sync_all(self, directory: Directory) -> None:
        directory.sync()
        for each in directory.entries.values():
            if isinstance(each, Directory):
                self._sync_all(each)

    def change(self, real: Callable[..., Any], path: Any, *arguments: Any) -> Any:
        name = self._open[path][0] if type(path) is int else self._name(path)
        self._world.step("truncate", name)
        return real(path, *arguments)

    def rename(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        old, new = self._name(source), self._name(target)
        self._world.step("rename", f"{old} -> {new}")
        before, after = self._find(old), self._find(new)
        self._keep_last(*after)
        real(source, target, **options)
        after[0].entries[after[1]] = before[0].entries.pop(before[1])
        before[0].changed()
        if after[0] is not before[0]:
            after[0].changed()
            self._moved.append((before[0], before[1], after[0], after[0].entries[after[1]]))

    def link(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        old, new = self._name(source), self._name(target)
        self._world.step("link", f"{old} -> {new}")
        real(source, target, **options)
        (before, name), (after, last) = self._find(old), self._find(new)
        after.entries[last] = before.entries[name]
        after.changed()

    def remove(self, real: Callable[..., None], path: Any, **options: Any) -> None:
        name = self._name(path)
        self._world.step("remove", name)
        directory, last = self._find(name)
        self._keep_last(directory, last)
        real(path, **options)
        directory.entries.pop(last, None)
        directory.changed()

    def make_directory(self, real: Callable[..., None], path: Any, *arguments: Any, **options: Any) -> None:
        name = self._name(path)
        self._world.step("mkdir", name)
        real(path, *arguments, **options)
        directory, last = self._find(name)
        directory.entries[last] = Directory()
        directory.changed()

    def _keep_last(self, directory: Directory, name: str) -> None:
        node = directory.entries.get(name)
        if isinstance(node, File):
            found = self._path_of(node, self._root, "")
            node.last = None if found is None else self._content(found)

    def _path_of(self, node: File, directory: Directory, above: str) -> str | None:
        for name, each in directory.entries.items():
            if each is node:
                return above + name
            if isinstance(each, Directory) and (found := self._path_of(node, each, f"{above}{name}/")):
                return found
        return None

    def _content(self, name: str) -> bytes:
        descriptor = _os_open(self._prefix + name, os.O_RDONLY)
        try:
            return _os_read(descriptor)
        finally:
            _os_close(descriptor)

    # ------------------------------------------------------------------------------------------------ faults

    def lose_power(self) -> None:
        """What was not durable may be lost. All processes of the machine must have ended."""
        self._world.trace.add(self._world.us, "disk", "power failed", "")
        contents: dict[int, bytes] = {}
        self._read(self._root, "", contents)
        _empty(self.place)
        self._choose_entries(self._root, set())
        for old, name, new, node in self._moved:
            if node not in new.entries.values() and name not in old.entries:
                old.entries[name] = node
        self._moved.clear()
        self._restore(self._root, "", contents)

    def _read(self, directory: Directory, above: str, contents: dict[int, bytes]) -> None:
        for name, node in directory.entries.items():
            if isinstance(node, Directory):
                self._read(node, f"{above}{name}/", contents)
            else:
                contents[id(node)] = self._content(above + name)

    def _choose_entries(self, directory: Directory, done: set[int]) -> None:
        """Give a directory, and all that it had at any moment, the entries of one moment."""
        if id(directory) in done:
            return
        done.add(id(directory))
        moments = directory.moments
        draw = self._world.random.random()
        at = len(moments) - 1 if draw < 0.3 else 0 if draw < 0.7 else int(self._world.random.random() * len(moments))
        directory.entries = dict(moments[at])
        for moment in moments:
            for _, node in sorted(moment.items()):
                if isinstance(node, Directory):
                    self._choose_entries(node, done)

    def _restore(self, directory: Directory, above: str, contents: dict[int, bytes]) -> None:
        directory.sync()
        for name, node in sorted(directory.entries.items()):
            path = above + name
            if isinstance(node, Directory):
                _mkdir(self._prefix + path)
                self._restore(node, f"{path}/", contents)
            else:
                now = contents.get(id(node), node.last if node.last is not None else node.durable)
                node.durable, node.sizes = self._survives(node, now), []
                self._world.trace.add(self._world.us, "disk", "has", f"{path} ({len(node.durable)} bytes)")
                with _open(self._prefix + path, "wb") as file:
                    file.write(node.durable)

    def _survives(self, node: File, now: bytes) -> bytes:
        durable = node.durable
        if durable == now:
            return now
        draw = self._world.random.random()
        if draw < 0.3:
            return now
        if draw < 0.6:
            return durable
        cut = int(self._world.random.random() * len(now))
        cut -= cut % _SECTOR
        if now.startswith(durable):  # something was added: it ends behind one of the writes, or behind a sector
            if node.sizes and draw < 0.8:
                cut = node.sizes[int(self._world.random.random() * len(node.sizes))]
            return now[: max(cut, len(durable))]
        return now[:cut] + durable[cut:]

    def rot(self, name: str) -> None:
        """Turn one bit of a file round; of half of the files with digits, one that leaves a digit: what nobody sees but a checksum."""
        content = bytearray(self._content(name))
        if content:
            chance = self._world.random.random
            digits = [at for at, byte in enumerate(content) if 0x30 <= byte <= 0x37] if chance() < 0.5 else []
            at = digits[int(chance() * len(digits))] if digits else int(chance() * len(content))
            content[at] ^= 1 << int(chance() * (3 if digits else 8))
            with _open(self._prefix + name, "wb") as file:
                file.write(content)
            self._world.trace.add(self._world.us, "disk", "bit turned", f"{name} at {at}")

    def files(self) -> list[str]:
        """Return the names of all files, sorted."""
        contents: list[str] = []

        def visit(directory: Directory, above: str) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    visit(node, f"{above}{name}/")
                else:
                    contents.append(above + name)

        visit(self._root, "")
        return sorted(contents)


# The real ones: the driver calls them while the world is entered.
_os_open, _os_close, _open, _mkdir, _unlink, _rmdir = os.open, os.close, open, os.mkdir, os.unlink, os.rmdir


def _os_read(descriptor: int) -> bytes:
    return os.read(descriptor, os.fstat(descriptor).st_size)


def _empty(place: str) -> None:
    """Remove what is in a directory."""
    for entry in list(os.scandir(place)):
        if entry.is_dir(follow_symlinks=False):
            _empty(entry.path)
            _rmdir(entry.path)
        else:
            _unlink(entry.path)
