"""The status of a remote file, in the form of ``os.stat``."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

#: Keys under which clients of stores give the time of the last change, and the version.
_TIMES = ("LastModified", "mtime", "last_modified", "updated", "Last-Modified", "created")
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "content_md5")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file. Its inode is a hash of its path and, if the store has versions, of its version: a new version is another
    file.
    """

    st_dev: int
    st_ino: int
    st_size: int
    st_mtime_ns: int


def entry_of(info: Mapping[str, Any], *, device: str, path: str, versions: bool) -> Entry:
    """Return the entry for the answer of a client of fsspec. Raises OSError if the size is not known."""
    size = info.get("size")
    if size is None:
        raise OSError(errno.EIO, "the server does not return the size of the file", path)
    modified_ns = next((_nanoseconds(info[name]) for name in _TIMES if info.get(name)), 0)
    version = ""
    if versions:
        version = next((str(info[name]) for name in _VERSIONS if info.get(name)), f"{modified_ns} {size}")
    return Entry(_number(device), _number(f"{path}\0{version}"), int(size), modified_ns)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _nanoseconds(time: Any) -> int:
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            try:
                time = parsedate_to_datetime(time)
            except ValueError:
                return 0
    if isinstance(time, datetime):
        time = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    return int(time * 1e9)
