"""The figures of a run that are added up without the plan: for the status, and for Spark's ``StreamingQueryProgress``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

#: Under this key the figures stand beside the latest offsets of the queues. Ids of queues have a slash.
KEY = "headrace"


class Totals:
    """Adds up the events of completed micro-batches. Used by the planning process, and by the driver for its status.

    ``first_shuffles``: the shuffles that get their rows from sources. The watermark is the least behind them.
    """

    def __init__(self, first_shuffles: Iterable[str] = ()) -> None:
        self._first = frozenset(first_shuffles)
        self.batch_id = -1
        self._read: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self.skipped = 0
        self._dead_letters = 0
        self.late_rows = 0
        self._shards: dict[str, Mapping[str, int | None]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of the run directory. Only completed micro-batches count, each once."""
        if event["kind"] != "batch" or event["batch_id"] <= self.batch_id:
            return
        self.add(event["batch_id"], event["tasks"])

    def add(self, batch_id: int, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Add a completed micro-batch that was not added before."""
        self.batch_id = batch_id
        for task in tasks:
            for queue, records in task["records"].items():
                self._read[queue.partition("/")[0]] += records
            self._written.update(task["written"])
            self.skipped += task["skipped"]
            self._dead_letters += sum(task["dead_letters"].values())
            self.late_rows += sum(shard["late_rows"] or 0 for shard in task["shards"].values())
            self._shards.update(task["shards"])

    @property
    def watermark_us(self) -> int | None:
        """The least watermark behind the first shuffles; None when a shard has none."""
        marks = [each["watermark_us"] for at, each in self._shards.items() if at.partition("/")[0] in self._first]
        known = [mark for mark in marks if mark is not None]
        return min(known) if known and len(known) == len(marks) else None

    @property
    def state_rows(self) -> int:
        """How many rows the state of all shards has."""
        return sum(each["state_rows"] or 0 for each in self._shards.values())

    @property
    def shard_bytes(self) -> int:
        """How many bytes of rows came to the shard that got most of them, in the last micro-batch; 0: it is not known."""
        return max((each.get("entry_bytes") or 0 for each in self._shards.values()), default=0)

    def to_json(self, lag: Mapping[str, int]) -> dict[str, Any]:
        """Return a JSON object; ``JobFigures.from_json`` reads it. ``lag``: records left, per source."""
        return {
            "batchId": self.batch_id,
            "recordsRead": dict(self._read),
            "rowsWritten": dict(self._written),
            "rowsSkipped": self.skipped,
            "deadLetters": self._dead_letters,
            "lateRows": self.late_rows,
            "lag": dict(lag),
            "watermarkMicros": self.watermark_us,
            "stateRows": self.state_rows,
            "stateBytes": sum(each.get("state_bytes") or 0 for each in self._shards.values()),
        }
