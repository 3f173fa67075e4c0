"""What a codec is: whole batches of bodies to columns and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Bodies, Queue, RawBatch
from headrace.interfaces.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.flow.schema import Schema


@dataclass(frozen=True, slots=True)
class BadBody:
    """A body that could not be decoded: its row in the batch and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The good rows as a frame, and which rows of the input they are (None: all of them, in order)."""

    frame: pl.DataFrame
    rows: NDArray[np.int64] | None = None
    bad: Sequence[BadBody] = field(default_factory=tuple)


class Decoder(ABC):
    """Decodes batches to the columns it was made for. Used by one thread at a time."""

    @abstractmethod
    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies. Never raises for what a body holds: such a body is in ``bad``.

        Whether a body is good, and its values, depend on that body alone, never on its neighbours.
        """


class BodyFilter(ABC):
    """Tells which bodies of a source are worth decoding, by looking at their bytes. Put on a source by an optimizer.

    It travels in the plan; in each process one is used by the lanes of all queues, which may be in several threads.
    """

    @abstractmethod
    def rows(self, queue: Queue, raw: RawBatch) -> NDArray[np.int64] | None:
        """Return the rows to decode, in order; None: all. Called before each batch is decoded, in the lane's thread.

        The others leave no trace: neither rows nor, where they are damaged, dead letters.
        """


class Encoder(ABC):
    """Encodes rows, one body per row. Used by one thread at a time."""

    @abstractmethod
    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one body per row of ``frame`` (user columns only)."""

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Return all bodies, each ended by a newline: what a file of records holds."""
        return b"".join(body + b"\n" for body in self.encode(frame))


class Codec(ABC):
    """A format by name: json, csv, raw, … Made from options; gives decoders and encoders for a schema."""

    Settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = settings if settings is not None else self.Settings()

    def default_schema(self) -> Schema | None:
        """Return the schema to use when the user gives none, or None when one must be given."""
        return None

    @abstractmethod
    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder to ``columns`` (in that order; None: all of the schema)."""

    @abstractmethod
    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. ``schema`` is None for a stream whose columns are not known when the job is built."""
