"""Files of a store, with the interface that headrace-file uses for local files: status, bytes from an offset, lists.

The files of a store are listed at most once in ``list_interval``. Between two lists, the status of a file is that of
the last list or of the last request for this file.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.foundation.errors import MissingPluginError, OptionError
from headrace_file.file_system import FileSystem, Paths

from headrace_remotefiles.entries import Entry, entry_of
from headrace_remotefiles.opened import RemoteFile

if TYPE_CHECKING:
    from headrace_file.settings import FileSourceSettings

#: Names of the errors that clients raise if the login is missing or refused, or if the identity of the server cannot be
#: verified.
_REFUSALS = frozenset(
    {
        "AuthenticationException", "BadHostKeyException", "ClientAuthenticationError", "DefaultCredentialsError", "NoCredentialsError",
        "PartialCredentialsError", "UnknownHostKeyError",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Store:
    """A kind of store."""

    #: The package that implements it, and its name in fsspec.
    package: str
    protocol: str
    #: Whether a file is never changed in place, but replaced by another version, and the store tells versions apart.
    versions: bool = False
    #: Whether its client must not be used by several threads at once.
    one_at_a_time: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def check_installed(self) -> None:
        """Raise MissingPluginError when the package is not there."""
        if find_spec(self.package) is None:
            raise MissingPluginError(
                f"{self.protocol}:// needs the package {self.package}, which is not installed",
                plugin="file",
                hint=f"pip install headrace-remotefiles[{self.protocol}]",
            )


@dataclass(slots=True)
class _Seen:
    """The status of a file at a time; ``entry`` is None if the file did not exist."""

    at: float
    entry: Entry | None


@dataclass(slots=True)
class _Client:
    system: Any
    lock: Any


class RemoteFiles(FileSystem):
    """The files of one store. Connects when it is first asked."""

    def __init__(self, store: Store, settings: FileSourceSettings, options: Mapping[str, Any]) -> None:
        self.store = store
        self._options = options
        self._seconds = settings.list_interval.total_seconds()
        self._lock = threading.RLock()
        self._clients: dict[str, _Client] = {}
        self._seen: dict[str, _Seen] = {}
        #: The directories that were listed completely, and when.
        self._listed: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------------ for headrace-file

    def status(self, path: str) -> Entry:
        with self._lock:
            seen = self._seen.get(path)
            at = self._listed.get(path.rpartition("/")[0], float("-inf")) if seen is None else seen.at
            # While a job runs, lists are renewed often enough: then no file needs a request of its own.
            if not self.is_fresh(at, intervals=2):
                return self.look(path)
            found = None if seen is None else seen.entry
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return found

    def open(self, path: str) -> RemoteFile:
        return RemoteFile(self, path, self.status(path))

    def entries(self, directory: str) -> Iterable[tuple[str, int]]:
        with self._lock:
            if not self.is_fresh(self._listed.get(directory, float("-inf"))):
                self.listed(directory, self.list(directory, recursive=False), (directory,))
            start = len(directory) + 1
            return [
                (path[start:], seen.entry.st_ino)
                for path, seen in self._seen.items()
                if seen.entry is not None and path.startswith(f"{directory}/") and "/" not in path[start:]
            ]

    def changed_ns(self, directory: str) -> int:
        with self._lock:
            return int(self._listed.get(directory, 0.0) * 1e9)

    def paths(self, settings: FileSourceSettings) -> Paths:
        from headrace_remotefiles.remote_paths import RemotePaths  # it builds on this module

        return RemotePaths(self, settings)

    def close(self) -> None:
        with self._lock:
            self._clients.clear()
            self._seen.clear()
            self._listed.clear()

    # ------------------------------------------------------------------------------------------------ asking the store

    def is_fresh(self, at: float, *, intervals: int = 1) -> bool:
        """Return whether a status from this time may still be used."""
        return time.monotonic() - at < intervals * self._seconds

    def look(self, path: str) -> Entry:
        """Request the status of one file. Raises OSError."""
        at = time.monotonic()
        try:
            with self.asking(path) as system:
                info = system.info(_name(system, path))
            entry = self._entry(path, info)
        except FileNotFoundError:
            entry = None
        with self._lock:
            self._seen[path] = _Seen(at, entry)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return entry

    def read(self, path: str, begin: int, end: int) -> bytes:
        """Return the bytes of a range that lies within the file. Raises OSError."""
        with self.asking(path) as system:
            return bytes(system.cat_file(_name(system, path), start=begin, end=end))

    def list(self, root: str, *, recursive: bool) -> dict[str, Entry]:
        """Return the files in a directory by path. Raises OSError; FileNotFoundError if there is no such directory."""
        with self.asking(root) as system:
            found = system.find(_name(system, root), maxdepth=None if recursive else 1, detail=True)
            if not recursive:  # adlfs gives all that is below, whatever maxdepth says
                start = len(_name(system, root).rstrip("/")) + 1
                found = {name: info for name, info in found.items() if "/" not in name[start:]}
            return self._entries(system, root, found)

    def matching(self, root: str, pattern: str) -> dict[str, Entry]:
        """Return the files below ``root`` whose paths match a glob. Raises OSError."""
        with self.asking(root) as system:
            return self._entries(system, root, system.glob(_name(system, pattern), detail=True))

    def _entries(self, system: Any, root: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
        start, begin = len(_name(system, root).rstrip("/")), root.rstrip("/")
        made = {}
        for name, info in found.items():
            path = begin + name[start:]
            # fsspec gives an empty directory of a web server as a file of which nothing is known.
            if info.get("type") == "file":
                made[path] = self._entry(path, info if info.get("size") is not None else system.info(name))
        return made

    def listed(self, root: str, found: Mapping[str, Entry], directories: Iterable[str]) -> None:
        """Use a list. Files below ``root`` in these directories that are not in the list do not exist."""
        at = time.monotonic()
        with self._lock:
            gone = [path for path in self._seen if path.startswith(f"{root.rstrip('/')}/") and path not in found]
            for path in gone:
                del self._seen[path]
            self._seen.update((path, _Seen(at, entry)) for path, entry in found.items())
            for directory in directories:
                self._listed[directory] = at

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory at ``path``. Raises OSError; FileNotFoundError if there is nothing."""
        if path.endswith("/"):
            return True
        with self.asking(path) as system:
            info = system.info(_name(system, path))
        return bool(info["type"] == "directory")

    def _entry(self, path: str, info: Mapping[str, Any]) -> Entry:
        if info["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, "it is a directory", path)
        place = urlsplit(path)
        return entry_of(info, device=f"{self.store.protocol}://{place.netloc}", path=path, versions=self.store.versions)

    @contextmanager
    def asking(self, path: str) -> Iterator[Any]:
        """Give the client for a path. Errors of the client become OSError with an errno that tells the cause."""
        client = self._client(path)
        try:
            with client.lock:
                yield client.system
        except FileNotFoundError as error:
            if (away := _cause_of(error)) is not None:
                raise self._lost(path, away) from error
            raise
        except IsADirectoryError:
            raise
        except Exception as error:
            raise self._lost(path, error) from error

    def _lost(self, path: str, error: Exception) -> OSError:
        status = getattr(error, "status", None) or getattr(error, "status_code", None)
        refused = type(error).__name__ in _REFUSALS or status in (401, 403)
        if isinstance(error, PermissionError) or refused:
            return PermissionError(errno.EACCES, str(error) or "permission denied", path)
        with self._lock:  # the next call connects anew
            self._clients.pop(_place(path), None)
        return OSError(errno.ECONNABORTED, f"{type(error).__name__}: {error}", path)

    def _client(self, path: str) -> _Client:
        place = _place(path)
        with self._lock:
            client = self._clients.get(place)
            if client is None:
                client = self._clients[place] = _Client(self._connected(path), _lock_of(self.store))
            return client

    def _connected(self, path: str) -> Any:
        import fsspec

        from headrace_remotefiles.schemes import revealed

        options = {**self.store.options, **revealed(self._options)}
        kind: Callable[..., Any] = fsspec.get_filesystem_class(self.store.protocol)
        try:
            own = kind._get_kwargs_from_urls(path)  # type: ignore[attr-defined]
            return kind(**{**own, **options}, skip_instance_cache=True)
        except TypeError as error:
            raise OptionError(
                f"fsspec does not accept these options: {error}", plugin="file", option="storage_options"
            ) from error
        except Exception as error:
            raise self._lost(path, error) from error


def _place(path: str) -> str:
    return urlsplit(path).netloc


def _name(system: Any, path: str) -> str:
    return str(system._strip_protocol(path))


def _lock_of(store: Store) -> Any:
    return threading.Lock() if store.one_at_a_time else nullcontext()


def _cause_of(error: BaseException) -> Exception | None:
    """Return the cause if a file could not be found for another reason than that it does not exist: web clients do not
    distinguish these cases.
    """
    cause = error.__cause__
    if isinstance(cause, Exception) and getattr(cause, "status", None) not in (404, 410):
        return (
            cause
            if type(cause).__module__.startswith(("aiohttp", "asyncio")) or isinstance(cause, TimeoutError)
            else None
        )
    return None
