"""The files beside those that are followed: a directory is listed once for many queues, not once for each."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace_file.file_system import LOCAL, FileSystem
from headrace_file.read_errors import read_error

_LISTINGS_MAX = 256
#: A directory that has not changed for so long before it was listed has changed since if its time of change is another one. Clocks
#: of file systems are coarse.
_SETTLED_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sibling:
    """A regular file in the directory of the file that is followed."""

    path: str
    inode: int


@dataclass(slots=True)
class _Listing:
    """The regular files of one directory; of several names of one file, one."""

    directory: str
    #: By ``time.monotonic``, before the first entry was read.
    begun_seconds: float
    begun_ns: int
    changed_ns: int
    names: list[str] = field(default_factory=list)
    name_of_inode: dict[int, str] = field(default_factory=dict)
    inode_of_name: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: str, files: FileSystem = LOCAL) -> _Listing:
        """List a directory; nothing is in one that does not exist. Raises RetriableError or BrokenQueueError."""
        listing = cls(directory, time.monotonic(), time.time_ns(), 0)
        try:
            listing.changed_ns = files.changed_ns(directory)
            for name, inode in files.entries(directory):
                listing.name_of_inode.setdefault(inode, name)
        except (FileNotFoundError, NotADirectoryError):
            listing.begun_seconds = -1.0
        except OSError as error:
            raise read_error(directory or ".", error) from error
        listing.inode_of_name = {name: inode for inode, name in listing.name_of_inode.items()}
        listing.names = sorted(listing.inode_of_name)
        return listing

    def is_current(self, since_seconds: float, files: FileSystem = LOCAL) -> bool:
        """Return whether it shows the directory as it was at ``since_seconds`` or later."""
        if self.begun_seconds >= since_seconds:
            return True
        if self.begun_seconds < 0 or self.begun_ns - self.changed_ns < _SETTLED_NS:
            return False
        try:
            return files.changed_ns(self.directory) == self.changed_ns
        except OSError:
            return False


class Beside:
    """The regular files beside a path, and beside the target if it is a symbolic link."""

    def __init__(self, listings: list[_Listing], *, current: bool) -> None:
        self._listings = listings
        #: Whether it is as new as was asked for.
        self.current = current

    def with_inode(self, inode: int) -> Iterator[str]:
        """Yield the paths of the files with an inode: one of each device."""
        for listing in self._listings:
            name = listing.name_of_inode.get(inode)
            if name is not None:
                yield os.path.join(listing.directory, name)

    def starting_with(self, prefix: str) -> Iterator[Sibling]:
        """Yield the files whose names begin with ``prefix``."""
        seen = set()
        for listing in self._listings:
            for at in range(bisect_left(listing.names, prefix), len(listing.names)):
                name = listing.names[at]
                if not name.startswith(prefix):
                    break
                inode = listing.inode_of_name[name]
                if inode not in seen:
                    seen.add(inode)
                    yield Sibling(os.path.join(listing.directory, name), inode)


class Directories:
    """The listings that the cursors of a source share. Usable from several threads."""

    def __init__(self, files: FileSystem = LOCAL) -> None:
        self.files = files
        self._lock = threading.RLock()
        self._listings: OrderedDict[str, _Listing] = OrderedDict()

    def beside(self, path: str, since_seconds: float | None = None) -> Beside:
        """Return the files beside ``path`` as they were at ``since_seconds`` (``time.monotonic``) or later; None: now.

        Raises RetriableError or BrokenQueueError when a directory cannot be read.
        """
        since = time.monotonic() if since_seconds is None else since_seconds
        with self._lock:
            return Beside([self._listing(directory, since) for directory in self._directories(path)], current=True)

    def looks(self, path: str) -> Iterator[Beside]:
        """Yield the files beside ``path`` as they were when last listed, and then, if that may be too old, as they are now.

        For a search whose find is checked: what is found in the first need not be looked for in the second.
        """
        since = time.monotonic()
        with self._lock:
            known = [self._listings.get(directory) for directory in self._directories(path)]
        listings = [listing for listing in known if listing is not None]
        if len(listings) == len(known):
            current = all(listing.is_current(since, self.files) for listing in listings)
            yield Beside(listings, current=current)
            if current:
                return
        yield self.beside(path, since)

    def _listing(self, directory: str, since: float) -> _Listing:
        listing = self._listings.get(directory)
        if listing is None or not listing.is_current(since, self.files):
            listing = self._listings[directory] = _Listing.read(directory, self.files)
            while len(self._listings) > _LISTINGS_MAX:
                self._listings.popitem(last=False)
        self._listings.move_to_end(directory)
        return listing

    def _directories(self, path: str) -> list[str]:
        return list(dict.fromkeys((os.path.dirname(path), os.path.dirname(self.files.real_path(path)))))
