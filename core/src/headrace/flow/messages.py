"""What flows from source to sink: batches of records with their header, and system messages.

A batch is a polars frame of the user's columns plus header columns, which wrap every record from source to sink:

=================  ==================  ====================================================================
column             type                meaning
=================  ==================  ====================================================================
``__hr_offset``    Int64               the record's position in its queue; grows, never repeats
``__hr_index``     Int32               numbers the rows made from one record, from 0
``__hr_time``      Datetime(us, UTC)   the source's own time of the record, where it has one (optional)
``__hr_key``       Binary              the source's own key of the record, where it has one (optional)
``__hr_change``    Int8                the change kind, in batches whose results can change
``__hr_watermark`` Int64               the watermark before the row, microseconds since the Unix epoch, where there is one
``__hr_combined``  Int64               of how many rows a row was combined on its way to a shard; NULL: it is as it came (optional)
=================  ==================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

OFFSET = "__hr_offset"
INDEX = "__hr_index"
TIME = "__hr_time"
KEY = "__hr_key"
#: The whole row as MessagePack, in batches of a stream whose columns are not known when the job is built.
ROW = "__hr_row"
#: The change kind (see ``ChangeKind``), in batches whose results can change.
CHANGE = "__hr_change"
#: The watermark that held before the row: microseconds since the Unix epoch, NULL while there was none.
WATERMARK = "__hr_watermark"
#: Of how many rows a row was combined before a shuffle (see ``Combiner``), NULL for rows that are as they came.
COMBINED = "__hr_combined"
HEADER_COLUMNS = (OFFSET, INDEX, TIME, KEY, CHANGE, WATERMARK)


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One ordered shard of a source: a broker's queue, a partition, a file.

    ``name`` is stable over restarts. ``source`` is the name of the source's node in the job; a source leaves it empty
    and the runtime fills it in. ``branch`` is set for rows that leave the main flow of the queue (dead letters):
    a branch has the offsets of the queue, but sinks keep a separate position for it.
    """

    name: str
    source: str = ""
    branch: str = ""

    @property
    def id(self) -> str:
        """One string for the queue, unique in the job; the key under which sinks keep its greatest offset."""
        text = f"{self.source}/{self.name}" if self.source else self.name
        return f"{text}#{self.branch}" if self.branch else text

    def branched(self, branch: str) -> Queue:
        """Return the queue's branch of that name."""
        return replace(self, branch=branch)

    def __str__(self) -> str:
        return self.id


class Position(NamedTuple):
    """The position of one row in its queue. Compares as (offset, index)."""

    offset: int
    index: int = 0  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Where to read next in a queue: the offset of the next record, and a hint that helps the source to find it fast.

    Only the source reads ``hint`` (for a file: the byte position and the file's identity). It is made of JSON types,
    stored with the offset in checkpoints, and given back unchanged.
    """

    offset: int
    hint: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; ``from_json`` reads it."""
        return {"offset": self.offset, **({"hint": dict(self.hint)} if self.hint else {})}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ReadPosition:
        """Read what ``to_json`` returned. Raises KeyError, ValueError or TypeError for anything else."""
        return cls(int(value["offset"]), dict(value.get("hint", {})))


class Bodies(Sequence[bytes]):
    """Many message bodies in one buffer: body i is ``buffer[starts[i]:ends[i]]``.

    ``newline_separated`` promises that the bytes from ``starts[0]`` to ``ends[-1]`` are the bodies with exactly one
    newline between each two, so that they can be parsed in place. It promises nothing about newlines *inside* bodies.
    """

    __slots__ = ("buffer", "ends", "newline_separated", "starts")

    def __init__(
        self, buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], *, newline_separated: bool = False
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.newline_separated = newline_separated

    @classmethod
    def of(cls, bodies: Sequence[bytes]) -> Bodies:
        """Join bodies that came one by one."""
        import numpy as np

        lengths = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
        ends = np.cumsum(lengths + 1) - 1
        return cls(b"\n".join(bodies), ends - lengths, ends, newline_separated=True)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.buffer[self.starts[index] : self.ends[index]]

    def __iter__(self) -> Iterator[bytes]:
        if self.newline_separated:
            lines = self.joined().split(b"\n")
            if len(lines) == len(self):  # no body holds a newline itself
                return iter(lines)
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return (self.buffer[start:end] for start, end in places)

    def joined(self) -> bytes:
        """Return the bodies with one newline between each two, without a copy of each where that can be avoided."""
        if not len(self):
            return b""
        if self.newline_separated:
            return self.buffer[int(self.starts[0]) : int(self.ends[-1])]
        return b"\n".join(self)

    def take(self, rows: NDArray[np.int64]) -> Bodies:
        """Return the bodies at ``rows``, over the same buffer."""
        return Bodies(self.buffer, self.starts[rows], self.ends[rows])


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Consecutive records of one queue, returned by a reader: not yet decoded (``bodies``), or already in columns (``frame``).

    Exactly one of ``bodies`` and ``frame`` is given. Every other sequence has one entry per record. ``offsets`` grow and
    may have gaps. ``next_position`` is the position of the next read, even if the batch is empty.

    A source of changes (``Source.changes``) gives frames with the column ``CHANGE``. There a record may give several rows, such as the
    old and the new one of an update: all of them are in one batch and have the same offset.
    """

    offsets: NDArray[np.int64]
    next_position: ReadPosition
    bodies: Bodies | None = None
    frame: pl.DataFrame | None = None
    #: Microseconds since the Unix epoch.
    times: NDArray[np.int64] | None = None
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Mapping[str, bytes]] | None = None
    #: The names of the fields of all bodies, in their order, where the source knows them: from the header of a csv file.
    fields: tuple[str, ...] | None = None
    #: Decodes the bodies once for several jobs (``headrace.interfaces.codec.SharedDecoding``); None: the lane decodes them.
    decoding: Any = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The size of the bodies, or of the frame."""
        if self.frame is not None:
            return int(self.frame.estimated_size())
        return 0 if self.bodies is None else int((self.bodies.ends - self.bodies.starts).sum())

    def until(self, end: ReadPosition) -> RawBatch:
        """Return the batch without records at or after ``end``. A poll may return more than planned if offsets have gaps."""
        import numpy as np

        count = int(np.searchsorted(self.offsets, end.offset))
        if count == len(self):
            return self
        rows = np.arange(count, dtype=np.int64)
        return replace(
            self,
            offsets=self.offsets[:count],
            next_position=end,
            decoding=None,
            bodies=None if self.bodies is None else self.bodies.take(rows),
            frame=None if self.frame is None else self.frame.head(count),
            times=None if self.times is None else self.times[:count],
            keys=None if self.keys is None else self.keys[:count],
            headers=None if self.headers is None else self.headers[:count],
        )

    def of_rows(self, rows: NDArray[np.int64]) -> RawBatch:
        """Return a batch of bodies with only these of its records."""
        assert self.bodies is not None
        listed = rows.tolist()
        return replace(
            self,
            offsets=self.offsets[rows],
            decoding=None,
            bodies=self.bodies.take(rows),
            times=None if self.times is None else self.times[rows],
            keys=None if self.keys is None else [self.keys[row] for row in listed],
            headers=None if self.headers is None else [self.headers[row] for row in listed],
        )

    @classmethod
    def joined(cls, batches: Sequence[RawBatch]) -> RawBatch:
        """Return consecutive batches as one batch. Raises ValueError if their bodies have other fields."""
        import numpy as np

        if len(batches) == 1:
            return batches[0]
        first, last = batches[0], batches[-1]
        if any(batch.fields != first.fields for batch in batches):
            raise ValueError("batches whose bodies have different fields cannot be joined")
        frame = None
        if first.frame is not None:
            import polars as pl

            frame = pl.concat([batch.frame for batch in batches if batch.frame is not None])
        return cls(
            offsets=np.concatenate([batch.offsets for batch in batches]),
            next_position=last.next_position,
            bodies=None
            if first.bodies is None
            else Bodies.of([body for batch in batches for body in batch.bodies or ()]),
            frame=frame,
            times=None if first.times is None else np.concatenate([b.times for b in batches if b.times is not None]),
            keys=None if first.keys is None else [key for batch in batches for key in batch.keys or ()],
            headers=None if first.headers is None else [header for batch in batches for header in batch.headers or ()],
            fields=first.fields,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one queue: a polars frame with the user's columns and the header columns, ordered by (offset, index).

    All rows made from one record are in one batch. ``output`` names the operator's output to which the batch belongs;
    operators with a single output leave it empty.
    """

    queue: Queue
    frame: pl.DataFrame
    output: str = ""

    def __len__(self) -> int:
        return self.frame.height

    def with_frame(self, frame: pl.DataFrame, output: str = "") -> Batch:
        """Return a batch of the same queue with other rows."""
        return Batch(self.queue, frame, output)

    @property
    def first(self) -> Position:
        """Position of the first row. Raises IndexError when the batch is empty."""
        return position_of(self.frame, 0)

    @property
    def last(self) -> Position:
        """Position of the last row. Raises IndexError when the batch is empty."""
        return position_of(self.frame, -1)

    def user_frame(self) -> pl.DataFrame:
        """Return the rows without the header columns."""
        return self.frame.drop(HEADER_COLUMNS, strict=False)


def position_of(frame: pl.DataFrame, row: int) -> Position:
    """Return the position of a row. Raises IndexError when there is none."""
    # A polars query for this would take longer than the work on a small batch.
    return Position(frame.get_column(OFFSET)[row], frame.get_column(INDEX)[row])


def with_column(frame: pl.DataFrame, column: pl.Series) -> pl.DataFrame:
    """Return the frame with a column that is already made, in the place of one of that name or behind the others.

    As ``with_columns``, which runs a query for it.
    """
    if column.name in frame.columns:
        return frame.clone().replace_column(frame.get_column_index(column.name), column)
    return frame.hstack([column])


def picked(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the frame with these columns only, at least one, in this order.

    As ``select``, which runs a query for it. Raises ``ColumnNotFoundError`` as that does.
    """
    import polars as pl

    return pl.DataFrame([frame.get_column(name) for name in columns])


def of_rows(frame: pl.DataFrame, kept: pl.Series) -> pl.DataFrame:
    """Return the rows for which a column of Booleans is true.

    As ``filter``, which runs a query for it. Where all rows are kept, or none, as often in batches of few rows, there is nothing to copy.
    """
    count = kept.sum()
    return frame if count == frame.height else frame.filter(kept) if count else frame.clear()


def watermark_column(times_us: NDArray[np.int64]) -> pl.Series:
    """Return watermarks as a column: -2**63 means none yet and becomes NULL. Watermarks never decrease, so these come first."""
    import numpy as np
    import polars as pl

    unknown = int(np.searchsorted(times_us, -(2**63), side="right"))
    column = pl.Series(WATERMARK, times_us[unknown:])
    if not unknown:
        return column
    return pl.concat([pl.Series(WATERMARK, [None] * unknown, dtype=pl.Int64), column], rechunk=True)


def watermark_times(frame: pl.DataFrame) -> NDArray[np.int64]:
    """Return the watermark before each row, -2**63 where there is none: what ``watermark_column`` was given."""
    import numpy as np

    if WATERMARK not in frame.columns:
        return np.full(frame.height, -(2**63), dtype=np.int64)
    column = frame.get_column(WATERMARK)
    unknown = column.null_count()
    if not unknown:
        return column.to_numpy()
    if column.slice(0, unknown).null_count() == unknown:
        return np.concatenate([np.full(unknown, -(2**63), dtype=np.int64), column.slice(unknown).to_numpy()])
    return column.fill_null(-(2**63)).to_numpy()


class ChangeKind:
    """Values of the change column: how a row changes a result that was given before."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """This job (or this instance) reads the queue from now on. Comes before the queue's first batch."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """The queue was removed or moved to another instance. Comes after the queue's last batch. Keep nothing of the queue after it."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything before this message must become durable. After that, sources may forget the records before it."""

    id: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with an event time before ``time_us`` (microseconds since the Unix epoch) is expected from the queue."""

    queue: Queue
    time_us: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the clock when the input that follows was read: processing time. It is the same if the input is processed again."""

    time_us: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """There is no more input in this run. Windows, joins and timers that wait for time to pass must end now."""


SystemMessage = QueueAdded | QueueRemoved | Checkpoint | Watermark | Tick | EndOfInput
