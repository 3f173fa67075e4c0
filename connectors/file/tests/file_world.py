"""What the tests of the file source share: a clock that is moved by hand, sources, and reading everything there is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import ManualClock
from headrace.interfaces.source import EARLIEST, StartPosition
from headrace_file import FileSource, FileSourceSettings
from headrace_file.reader import FileReader

NO_WAIT = timedelta(0)


class Records(list[tuple[int, bytes]]):
    """What was read: (record number, body)."""

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self]

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self]


class World:
    """A directory with files, and sources on it that see time pass as the test says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(time.time())
        self._sources: list[FileSource] = []
        self._readers: list[FileReader] = []

    def path(self, name: str) -> Path:
        return self.directory / name

    def write(self, name: str, data: bytes) -> Path:
        path = self.path(name)
        path.write_bytes(data)
        return path

    def append(self, name: str, data: bytes) -> None:
        with open(self.path(name), "ab") as file:
            file.write(data)

    def source(self, path: str | Sequence[str] = "log", **options: Any) -> FileSource:
        """Return a source; ``path`` is relative to the directory."""
        paths = [path] if isinstance(path, str) else list(path)
        format = options.pop("format", None)
        until = options.pop("until", None)
        given = {"path": [str(self.directory / one) for one in paths], **options}
        source = FileSource(FileSourceSettings.of(given, plugin="file"), clock=self.clock)
        source.use_format(format, None)
        source.use_run(until=until)
        source.check()
        self._sources.append(source)
        return source

    def names(self, source: FileSource) -> list[str]:
        """Return the names of the queues, relative to the directory."""
        return [str(Path(queue.name).relative_to(self.directory)) for queue in source.queues()]

    def queue(self, name: str = "log") -> Queue:
        return Queue(str(self.directory / name))

    def open(
        self, source: FileSource, name: str = "log", start: StartPosition = EARLIEST, *, discover: bool = True
    ) -> FileReader:
        if discover:
            source.queues()
        reader = source.open(self.queue(name), start)
        self._readers.append(reader)
        return reader

    def quiet(self) -> None:
        """Let so much time pass that every file counts as quiet."""
        self.clock.advance(3600)

    def close(self) -> None:
        """Close all readers and sources: a reader that a test leaves open would keep its file for the rest of the run."""
        for reader in self._readers:
            reader.close()
        for source in self._sources:
            source.close()


def drain(reader: FileReader, *, per_poll: int = 1000, at_most: int | None = None) -> Records:
    """Read what there is now, or ``at_most`` records."""
    records = Records()
    while at_most is None or len(records) < at_most:
        wanted = per_poll if at_most is None else min(per_poll, at_most - len(records))
        raw = reader.poll(wanted, NO_WAIT)
        if raw is None:
            break
        assert raw.bodies is not None
        assert raw.next_position == reader.position
        assert len(raw.offsets) == len(raw.bodies) <= wanted
        if len(raw.bodies) and raw.bodies.newline_separated:
            assert raw.bodies.joined() == b"\n".join(raw.bodies)
        records += zip(raw.offsets.tolist(), raw.bodies, strict=True)
    return records


def checkpointed(position: ReadPosition) -> ReadPosition:
    """Return a position as a checkpoint gives it back."""
    import json

    return ReadPosition.from_json(json.loads(json.dumps(position.to_json())))


def lines(*numbers: int, prefix: str = "line") -> bytes:
    """Return lines with these numbers, each ended by a newline."""
    return b"".join(b"%s %d\n" % (prefix.encode(), number) for number in numbers)
