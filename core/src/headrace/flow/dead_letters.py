"""Bad records: the columns of a dead letter, and where dead letters go by default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.flow.messages import INDEX, OFFSET, TIME, Batch, Queue
from headrace.foundation.errors import HeadraceError

if TYPE_CHECKING:
    import polars as pl

    from headrace.flow.schema import Schema

#: Characters of the body that are shown as text.
PREVIEW_LENGTH = 200
_REASON_LENGTH_MAX = 200
#: Different reasons that are counted; the rarest are forgotten.
_REASONS_MAX = 500


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    """A reason for dead letters of a run: the node that refused the records, the kind of error, its text, and the number of records.

    Texts that differ only in numbers and in values in double quotes count as one reason. Such parts are shown as
    ``#`` and ``"…"``.
    """

    origin: str
    error: str
    reason: str
    count: int

    def __str__(self) -> str:
        return f"{self.count:,} × {self.origin}: {self.error}: {self.reason}"


class ReasonCounts:
    """Counts the reasons of dead letters. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, letters: pl.DataFrame) -> None:
        """Count the reasons of dead letters."""
        import polars as pl

        reason = (
            pl.col("reason").str.slice(0, 4 * _REASON_LENGTH_MAX)
            .str.replace_all(r'"[^"]*"', '"…"').str.replace_all(r"\b\d+\b", "#").str.slice(0, _REASON_LENGTH_MAX)
        )  # fmt: skip
        for origin, error, text, count in letters.group_by("origin", "error", reason).len().iter_rows():
            self._counts[origin, error, text] += count
        if len(self._counts) > 2 * _REASONS_MAX:
            self._counts = Counter(dict(self._counts.most_common(_REASONS_MAX)))

    def merge(self, reasons: Iterable[DeadLetterReason]) -> None:
        """Add what another process has counted."""
        for each in reasons:
            self._counts[each.origin, each.error, each.reason] += each.count

    def most_frequent(self, limit: int = 3) -> tuple[DeadLetterReason, ...]:
        """Return the most frequent reasons, the greatest count first."""
        ordered = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return tuple(DeadLetterReason(*key, count) for key, count in ordered[:limit])

    def take(self) -> tuple[DeadLetterReason, ...]:
        """Return all that was counted since the last call."""
        taken = self.most_frequent(_REASONS_MAX)
        self._counts.clear()
        return taken


def branch_of(origin: str) -> str:
    """Return the name of the branch of a queue in which a node's dead letters have their positions."""
    return f"dead-letters-{origin}"


def dead_letter_schema() -> Schema:
    """Return the columns of a dead letter.

    ``queue`` and ``offset`` say where the record came from, ``origin`` which node of the plan refused it, ``error`` the
    kind of error and ``reason`` its text. ``body`` holds the raw bytes when the record was not decoded yet, ``row`` the
    row as JSON when it was; ``preview`` is the begin of either as text.
    """
    from headrace.flow.schema import Schema

    return Schema.of(
        {
            "queue": "string",
            "offset": "int64",
            "index": "int32",
            "origin": "string",
            "error": "string",
            "reason": "string",
            "preview": "string",
            "row": "string",
            "body": "binary",
        }
    )


def of_bodies(
    queue: Queue, origin: str, offsets: Sequence[int], bodies: Sequence[bytes], reasons: Sequence[str]
) -> Batch:
    """Make dead letters of bodies that could not be decoded."""
    import polars as pl

    count = len(offsets)
    frame = pl.DataFrame(
        {
            "queue": [queue.id] * count,
            "offset": list(offsets),
            "index": [0] * count,
            "origin": [origin] * count,
            "error": ["DecodeError"] * count,
            "reason": list(reasons),
            "preview": [body[: 4 * PREVIEW_LENGTH].decode("utf-8", "replace")[:PREVIEW_LENGTH] for body in bodies],
            "row": [None] * count,
            "body": list(bodies),
        },
        schema=dict(dead_letter_schema()),
    )
    return _with_header(queue, origin, frame)


def of_queue(queue: Queue, origin: str, offset: int, error: Exception) -> Batch:
    """Make the dead letter for a queue that was set aside before the record ``offset``. It has neither body nor row."""
    import polars as pl

    letter = {
        "queue": queue.id, "offset": offset, "index": 0, "origin": origin, "error": type(error).__name__,
        "reason": error.message if isinstance(error, HeadraceError) else str(error), "preview": "", "row": None, "body": None,
    }  # fmt: skip
    # A separate branch: a record that is refused at this offset later is not a replay of this dead letter.
    return _with_header(queue, f"{origin}-broken", pl.DataFrame([letter], schema=dict(dead_letter_schema())))


def of_rows(queue: Queue, origin: str, rows: pl.DataFrame, reasons: Sequence[str], errors: Sequence[str]) -> Batch:
    """Make dead letters of rows (with header columns) that an operator or sink refused."""
    import polars as pl

    from headrace.flow.messages import HEADER_COLUMNS, ROW
    from headrace.flow.rows import unpack_rows

    user = rows.drop(HEADER_COLUMNS, strict=False)
    values = unpack_rows(rows[ROW]) if ROW in rows.columns else user.to_dicts()
    texts = [_row_as_json(row) for row in values]
    frame = pl.DataFrame(
        {
            "queue": [queue.id] * rows.height,
            "offset": rows[OFFSET],
            "index": rows[INDEX],
            "origin": [origin] * rows.height,
            "error": list(errors),
            "reason": list(reasons),
            "preview": [text[:PREVIEW_LENGTH] for text in texts],
            "row": texts,
            "body": [None] * rows.height,
        },
        schema=dict(dead_letter_schema()),
    )
    return _with_header(queue, origin, frame)


def _row_as_json(row: dict[str, object]) -> str:
    import msgspec

    return msgspec.json.encode(row, enc_hook=repr).decode("utf-8", "replace")


def _with_header(queue: Queue, origin: str, frame: pl.DataFrame) -> Batch:
    import polars as pl

    frame = frame.with_columns(
        pl.col("offset").alias(OFFSET),
        pl.col("index").alias(INDEX),
        pl.lit(None, dtype=pl.Datetime("us", "UTC")).alias(TIME),
    )
    # Each origin refuses records in the order of their offsets, but two origins need not agree: a branch of the queue
    # for each keeps positions growing, which is what sinks deduplicate by.
    return Batch(queue.branched(branch_of(origin)), frame)
