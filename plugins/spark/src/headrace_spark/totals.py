"""The figures of a run as the planner puts them into Spark's ``StreamingQueryProgress``. They are added up without the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

#: Under this key the figures stand beside the latest offsets of the queues. Ids of queues have a slash.
KEY = "headrace"


class Totals:
    """Adds up the events of completed micro-batches. Used by the planning process.

    ``first_shuffles``: the shuffles that get their rows from sources. The watermark is the least behind them.
    """

    def __init__(self, first_shuffles: Iterable[str] = ()) -> None:
        self._first = frozenset(first_shuffles)
        self._batch_id = -1
        self._read: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._skipped = 0
        self._dead_letters = 0
        self._late_rows = 0
        self._shards: dict[str, Mapping[str, int | None]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of the run directory. Only completed micro-batches count, each once."""
        if event["kind"] != "batch" or event["batch_id"] <= self._batch_id:
            return
        self._batch_id = event["batch_id"]
        for task in event["tasks"]:
            for queue, records in task["records"].items():
                self._read[queue.partition("/")[0]] += records
            self._written.update(task["written"])
            self._skipped += task["skipped"]
            self._dead_letters += sum(task["dead_letters"].values())
            self._late_rows += sum(shard["late_rows"] or 0 for shard in task["shards"].values())
            self._shards.update(task["shards"])

    def to_json(self, lag: Mapping[str, int]) -> dict[str, Any]:
        """Return a JSON object; ``JobFigures.from_json`` reads it. ``lag``: records left, per source."""
        marks = [each["watermark_us"] for at, each in self._shards.items() if at.partition("/")[0] in self._first]
        known = [mark for mark in marks if mark is not None]
        return {
            "batchId": self._batch_id,
            "recordsRead": dict(self._read),
            "rowsWritten": dict(self._written),
            "rowsSkipped": self._skipped,
            "deadLetters": self._dead_letters,
            "lateRows": self._late_rows,
            "lag": dict(lag),
            "watermarkMicros": min(known) if known and len(known) == len(marks) else None,
            "stateRows": sum(each["state_rows"] or 0 for each in self._shards.values()),
            "stateBytes": sum(each.get("state_bytes") or 0 for each in self._shards.values()),
        }
