"""What jobs on Spark write: its processes keep batches as files, this one reads them."""

from __future__ import annotations

import pickle
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.flow.messages import CHANGE, ChangeKind, Position
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings

from tests.differential.comparing import Row, row_of


@dataclass(frozen=True)
class Kept:
    """A batch that was written: ``signs`` has 1 for a row that is given, −1 for one that is taken back."""

    queue: str
    first: Position
    last: Position
    rows: list[dict[str, Any]]
    signs: list[int]
    key: tuple[str, ...] | None


class KeptSink(Sink):
    """Keeps batches below a directory."""

    accepts = "changelog"

    def __init__(self, directory: Path, name: str = "out") -> None:
        self.settings = SinkSettings()
        self.directory, self.name = directory, name

    def batch_insert(self, batch: SinkBatch) -> None:
        kinds = batch.frame[CHANGE].to_list() if CHANGE in batch.frame.columns else [ChangeKind.INSERT] * len(batch)
        signs = [1 if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER) else -1 for kind in kinds]
        key = None if self.changes is None or self.changes.key is None else tuple(self.changes.key)
        kept = Kept(batch.queue.id, batch.first, batch.last, batch.rows(), signs, key)
        (self.directory / f"{self.name}-{uuid.uuid4()}").write_bytes(pickle.dumps(kept))


def kept_in(directory: Path, name: str = "out") -> list[Kept]:
    """Return the batches of a sink; those of a queue are in their order."""
    found = [pickle.loads(path.read_bytes()) for path in directory.glob(f"{name}-*")]  # noqa: S301 - our own
    return sorted(found, key=lambda kept: (kept.queue, kept.first))


def rows_on_spark(made: Callable[[Sink], hr.Job], **options: Any) -> Counter[Row]:
    """Run a job on Spark, in the session of this process, and return what changes come to. ``made`` makes it for a sink.

    A row that is taken back more often than it is given has a negative number.
    """
    with tempfile.TemporaryDirectory() as place:
        made(KeptSink(Path(place))).run("spark", show_progress=False, **options)
        rows: Counter[Row] = Counter()
        for kept in kept_in(Path(place)):
            for row, sign in zip(kept.rows, kept.signs, strict=True):
                rows[row_of(row.values())] += sign
        return Counter({row: count for row, count in rows.items() if count})
