"""What a child process of the crash checks is to do, and when it is killed or stopped.

The child imports this module and none of the checks: importing pytest takes longer than most tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headrace.flow.messages import Batch, ReadPosition
    from headrace.interfaces.sink import Sink
    from headrace.interfaces.source import Source


@dataclass(frozen=True)
class Moment:
    """When a child process that writes is killed or stopped: before, inside or after call ``insert`` (from 1) of ``batch_insert``.

    ``inside``: after a ``fraction`` of the number of lines of the plug-in's own code that the previous call executed.
    """

    insert: int
    place: Literal["before", "inside", "after"]
    fraction: float = 0.0
    action: Literal["kill", "stop"] = "kill"

    def __str__(self) -> str:
        part = f" at {self.fraction:.0%}" if self.place == "inside" else ""
        return f"{self.place} batch_insert {self.insert}{part}"


@dataclass(frozen=True)
class WriteTask:
    """A task: write batches through a SinkWriter. ``checkpoints``: after how many batches a checkpoint is sent."""

    sink: Sink
    batches: Sequence[Batch]
    moment: Moment | None
    checkpoints: frozenset[int] = frozenset()
    #: Kill the process right after the checkpoint that follows this many batches.
    kill_after_checkpoint: int | None = None


@dataclass(frozen=True)
class ReadTask:
    """A task: read a queue, note the position after each batch as a checkpoint, and be killed after ``batches`` batches."""

    source: Source
    queue_name: str
    position: ReadPosition | None
    batch_records: int
    batches: int
    #: The file for each batch's offsets and the position after it, one JSON object per line.
    journal: str
    patience_seconds: float
