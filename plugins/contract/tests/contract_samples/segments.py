"""A healthy source of segment files, each with the records of one write, and its contract."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import headrace as hr
import numpy as np
from headrace.foundation.errors import DataError
from headrace.interfaces.source import EARLIEST, StartPosition
from headrace_contract import SourceContract


class SegmentSettings(hr.Settings, frozen=True, kw_only=True):
    path: Annotated[str, hr.option("the directory whose directories are the queues")]


class SegmentSource(hr.Source):
    """Each directory is a queue; its files ``1``, ``2``, … are segments with a JSON list of bodies."""

    Settings = SegmentSettings

    def __init__(self, settings: SegmentSettings) -> None:
        self.settings = settings
        self.reader: type[SegmentReader] = SegmentReader

    def queues(self) -> Collection[hr.Queue]:
        return [hr.Queue(place.name) for place in Path(self.settings.path).iterdir()]

    def open(self, queue: hr.Queue, start: StartPosition) -> hr.Reader:
        return self.reader(Path(self.settings.path) / queue.name, start)


class SegmentReader(hr.Reader):
    """Reads all segments of a queue, in the order of their numbers."""

    def __init__(self, directory: Path, start: StartPosition) -> None:
        self._directory = directory
        self._done = 0
        if isinstance(start, hr.ReadPosition):
            if start.offset > self.latest:
                raise DataError(f"offset {start.offset} is behind the end, {self.latest}", offset=start.offset)
            self._done = start.offset
        elif start is not EARLIEST:
            self._done = len(self.records())

    def number(self, segment: Path) -> Any:
        """Return what segments are ordered by."""
        return int(segment.name)

    def records(self) -> list[tuple[int, bytes]]:
        """Return offset and body of each record."""
        lines: list[tuple[int, int, bytes]] = []
        for segment in sorted(self._directory.iterdir(), key=self.number):
            for place, text in enumerate(json.loads(segment.read_text())):
                lines.append((len(lines), place, text.encode("latin-1")))
        return self.placed(lines)

    def placed(self, lines: list[tuple[int, int, bytes]]) -> list[tuple[int, bytes]]:
        """Return offsets and bodies of (number in the queue, number in the segment, body)."""
        return [(number, body) for number, _, body in lines]

    def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
        found = self.records()[self._done : self._done + max_records]
        if not found:
            return None
        self._done += len(found)
        offsets = np.array([offset for offset, _ in found], dtype=np.int64)
        return hr.RawBatch(offsets, self.position, bodies=hr.Bodies.of([body for _, body in found]))

    def seek(self, position: hr.ReadPosition) -> None:
        self._done = position.offset

    @property
    def position(self) -> hr.ReadPosition:
        if not self._done:
            return hr.ReadPosition(0)
        return hr.ReadPosition(self.records()[self._done - 1][0] + 1)

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        found = self.records()
        return found[-1][0] + 1 if found else 0


class SegmentContract(SourceContract):
    """A contract whose every write makes a segment."""

    def make_source(self) -> SegmentSource:
        return SegmentSource(SegmentSettings(path=str(self._place())))

    def _place(self) -> Path:
        place = self.tmp_path / "segments"
        place.mkdir(exist_ok=True)
        return place

    def add_queue(self) -> str:
        name = f"queue {len(list(self._place().iterdir()))}"
        (self._place() / name).mkdir()
        return name

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        directory = self._place() / queue
        number = len(list(directory.iterdir())) + 1
        (directory / f"{number}").write_text(json.dumps([body.decode("latin-1") for body in bodies]))
