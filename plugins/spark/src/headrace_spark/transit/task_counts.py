"""What a task tells the driver of its work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TaskCounts:
    """What one task did. Rows per sink, records and dead letters per queue id."""

    written: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    records: dict[str, int] = field(default_factory=dict)
    #: The offset after the last record that was read, per queue id.
    ends: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    #: Their reasons: origin, error, reason, count.
    reasons: list[tuple[str, str, str, int]] = field(default_factory=list)
    #: Figures of shards per queue id: ``watermark_us``, ``state_rows``, ``state_bytes``; of this micro-batch ``late_rows`` and
    #: ``entry_bytes``, the bytes of the rows that came.
    shards: dict[str, dict[str, int | None]] = field(default_factory=dict)
    #: What the meters of the processes have counted for this task, for ``Meter.merge``; empty unless somebody wants figures.
    metrics: list[dict[str, Any]] = field(default_factory=list)
