"""The definition of an output: by which job its rows are made. Outputs store it, so rows of another job are never taken
for repeated rows.

A sink that keeps positions drops rows at or before them. That is right when the same job is run again. For an edited
job it is wrong, because its new rows would be lost. A backend passes every sink its definition before anything is read
(``tell_outputs``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.interfaces.state_definition import Difference, Verdict, difference_table

if TYPE_CHECKING:
    from headrace.flow.messages import Queue, ReadPosition

REPLACE_HINT = "replace_output=True (--replace-output) removes what is there first, where the output can; or name another place or writer"


@dataclass(frozen=True, slots=True)
class InputRead:
    """The input of a run without a checkpoint, from its beginning to its end: identifies the input.

    Records are identified by queue and offset. ``digest`` is a hash of the place of each queue's first and last record,
    and of the number of shards.
    """

    queues: int
    records: int
    digest: str

    @classmethod
    def of(cls, ranges: Mapping[Queue, tuple[ReadPosition, int]], shards: Mapping[str, int]) -> InputRead:
        """Return the range that was read of each queue: from a position to before an offset."""
        listed = [[queue.source, queue.name, begin.to_json(), end] for queue, (begin, end) in sorted(ranges.items())]
        records = sum(end - begin.offset for begin, end in ranges.values())
        return cls(len(listed), records, digest_of({"queues": listed, "shards": dict(shards)}))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; ``from_json`` reads it."""
        return {"queues": self.queues, "records": self.records, "digest": self.digest}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> InputRead | None:
        """Read what ``to_json`` gave. Raises KeyError, ValueError or TypeError when it is something else."""
        return None if value is None else cls(int(value["queues"]), int(value["records"]), str(value["digest"]))

    def __str__(self) -> str:
        return f"{self.records:,} records of {self.queues:,} queue{'' if self.queues == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class OutputDefinition:
    """The definition of one output's rows, and how this start of the job relates to stored rows; for ``Sink.adopt``.

    ``definition`` has JSON values; ``digest`` identifies it. ``continued``: the job continues from a checkpoint, and
    this is the digest under which that checkpoint wrote to this output; None: the job starts without a checkpoint.
    ``elsewhere`` returns whether consumer groups store the positions, so that an edited job continues too; it may raise
    RetriableError. ``repeats_results``: the job has keyed stages and starts without a checkpoint, so it gives all its
    results again, under new positions. ``replace``: existing rows must be removed first.
    """

    definition: Mapping[str, Any]
    digest: str
    continued: str | None = None
    repeats_results: bool = False
    replace: bool = False
    elsewhere: Callable[[], bool] = bool

    def goes_on(self, stored_digest: str, earlier: Collection[str] = ()) -> bool:
        """Return whether the stored rows of an output are this job's own.

        ``earlier``: digests under which the same checkpoint wrote there before. A start that failed after ``adopt`` has
        left its own digest as the newest one.
        """
        return (
            stored_digest == self.digest
            or (self.continued is not None and self.continued in {stored_digest, *earlier})
            or self.elsewhere()
        )

    def difference_from(self, stored: Mapping[str, Any]) -> str:
        """Return how this definition differs from the one that an output has stored, as lines of a table."""
        one, other = _flat(stored), _flat(self.definition)
        found = [
            Difference(name, one.get(name), other.get(name), Verdict.REFUSED)
            for name in sorted({*one, *other})
            if one.get(name) != other.get(name)
        ]
        return difference_table(found)


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that identify a definition: equal definitions have equal digits."""
    text = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as texts by their paths."""
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for name, each in value.items():
            found |= _flat(each, f"{prefix}.{name}" if prefix else str(name))
        return found
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        found = {}
        for place, each in enumerate(value):
            found |= _flat(each, f"{prefix}.{place + 1}")
        return found
    texts = [value] if isinstance(value, str) else value
    is_text = isinstance(texts, list | tuple) and all(isinstance(each, str) for each in texts)
    text = " and ".join(texts) if is_text else json.dumps(value, default=str)
    return {prefix.removeprefix("rows.of.").removeprefix("states."): text} if value not in (None, [], {}) else {}
