"""What the tests of object stores share: sources over them, writing by another client, and the contract of their sources."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import fsspec
import headrace as hr
import pytest
from headrace_contract import SourceContract
from headrace_file import FileSource, FileSourceSettings


def source(path: str, **options: Any) -> FileSource:
    given = {"path": path, "list_interval": 0, "rotate_wait": 0, **options}
    return FileSource(FileSourceSettings.of(given, plugin="file"))


def client(url: str) -> fsspec.AbstractFileSystem:
    """Return a client of the store at a URL, which remembers nothing."""
    return fsspec.filesystem(url.partition("://")[0], use_listings_cache=False)


def put(url: str, data: bytes) -> None:
    client(url).pipe_file(url, data)


def remove(url: str) -> None:
    client(url).rm_file(url)


def read(reader: hr.Reader, count: int = 10_000) -> list[bytes]:
    raw = reader.poll(count, timedelta(0))
    return [] if raw is None else list(raw.bodies or ())


class StoredObjects(SourceContract):
    """Base: an object that is written again with more at its end is read on.

    A fixture of the derived class calls ``use_place`` with the URL of an empty bucket or container.
    """

    plugin = "file"
    many_writes = 5
    zero_timeout_limit = timedelta(seconds=1)  # each poll may ask the server

    def use_place(self, place: str) -> None:
        self.place = place
        self.numbers = itertools.count()
        self.content: dict[str, bytes] = {}

    def make_source(self) -> FileSource:
        return source(f"{self.place}/in/*.ndjson")

    def make_missing_source(self) -> FileSource:
        return source(f"{self.place}/in/nothing.ndjson")

    def add_queue(self) -> str:
        name = f"{self.place}/in/{next(self.numbers)}.ndjson"
        self.write(name, [])
        return name

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.content[queue] = self.content.get(queue, b"") + b"".join(body + b"\n" for body in bodies)
        put(queue, self.content[queue])

    def remove_queue(self, queue: str) -> None:
        remove(queue)


def replace_while_it_is_read(root: str) -> tuple[str, list[bytes]]:
    """Replace a file after its first records were read: its queue must break. Return the URL of the file, and its first lines."""
    url = f"{root}/a.ndjson"
    lines = [b'{"n": %07d}' % number for number in range(200_000)]
    put(url, b"\n".join(lines) + b"\n")
    made = source(root, read_bytes=64 * 1024, list_interval="1 h")
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    assert read(reader, 1_000) == lines[:1_000]
    put(url, b"\n".join(lines[1:]) + b"\n")
    with pytest.raises(hr.BrokenQueueError, match="its file is gone or was changed"):
        deque(iter(lambda: read(reader, 20_000), []), maxlen=0)
    made.close()
    return url, lines
