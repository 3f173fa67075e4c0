"""What a format implements: a codec decodes whole batches of bodies to columns, and encodes rows to bodies."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Bodies, Queue, RawBatch
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.flow.schema import Schema


@dataclass(frozen=True, slots=True)
class BadBody:
    """A body that could not be decoded: its row number in the batch, and the reason."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The good rows as a frame, and which bodies they are made from (None: one row of each, in order).

    ``rows`` never decreases. If a body gives several rows, its number is in ``rows`` several times. A body that is in
    neither ``rows`` nor ``bad`` gives no row and is no error. The frame of a format of changes (``Codec.changes``) has
    ``CHANGE`` as its last column.
    """

    frame: pl.DataFrame
    rows: NDArray[np.int64] | None = None
    bad: Sequence[BadBody] = field(default_factory=tuple)


class SharedDecoding(ABC):
    """A batch whose bodies are decoded once for several jobs; a reader puts it beside the bodies (``RawBatch.decoding``)."""

    @abstractmethod
    def decoded(self, raw: RawBatch, columns: Sequence[str], own: Decoder) -> Decoded:
        """Return exactly what ``own.decode_records(raw)`` gives: the decoder of one job, to these columns.

        Called by the lane of each job, which may run in several threads. Raises what ``own`` raises.
        """


class Decoder(ABC):
    """Decodes batches of bodies to the columns it was made for.

    Made by ``Codec.decoder`` in each process that reads, one for each lane. The lane calls it for each batch that a
    reader returns; calls never overlap. Between two calls it may keep caches, but nothing on which a result depends.
    """

    @abstractmethod
    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies. It never raises because of the content of a body: a body that cannot be decoded is in
        ``bad``.

        Whether a body is good, and its values, depend on that body alone, never on its neighbours. Raises
        RetriableError when a server that it needs, such as a schema registry, is not available: the same call is
        repeated.
        """

    def decode_records(self, raw: RawBatch) -> Decoded:
        """Decode records of which ``bodies`` is given, with their keys and headers. Called by the lane for each batch.

        The default decodes the bodies alone. A format that reads keys or headers (``Codec.header_fields``) overrides
        it.
        """
        assert raw.bodies is not None
        return self.decode(raw.bodies)


@dataclass(frozen=True, slots=True)
class DecoderRequest:
    """What a faster decoder of a format must do. The function that ``headrace_decoders`` offers gets it when a decoder
    is made.
    """

    #: The columns, in their order.
    columns: Mapping[str, pl.DataType]
    #: The options of the format, of its own class ``Settings``.
    settings: Any
    #: Columns of texts that hold a JSON value as it is written.
    json_columns: frozenset[str]
    #: The decoder of the format itself. It defines the result: rows, and the reasons of bad bodies.
    plain: Decoder


class BodyFilter(ABC):
    """Selects the bodies of a source that must be decoded, by their bytes. An optimizer sets it on a source.

    It travels in the plan; in each process one is used by the lanes of all queues, which may be in several threads.
    """

    @abstractmethod
    def rows(self, queue: Queue, raw: RawBatch) -> NDArray[np.int64] | None:
        """Return the rows to decode, in order; None: all. Called before each batch is decoded, in the lane's thread.

        The other bodies give neither rows nor, if they are damaged, dead letters.
        """


@dataclass(frozen=True, slots=True)
class FormatFraming:
    """The properties of a format by which a source of files finds the borders of records: see ``Codec.framing``."""

    #: The largest body that the format decodes, in bytes; 0: it sets no limit.
    body_bytes_max: int = 0
    #: For formats whose records have fields: the character between fields, and the character around a field that holds
    #: delimiters or newlines.
    delimiter: str = ","
    quote: str | None = '"'
    #: The names of the fields in their order, if options of the format give them.
    fields: tuple[str, ...] = ()


class Encoder(ABC):
    """Encodes rows, one body for each row.

    Made by ``Codec.encoder`` in each process that writes. Sinks call it in ``batch_insert``; calls never overlap.
    """

    @abstractmethod
    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one body per row of ``frame``: user columns, and with ``Codec.encodes_changes`` perhaps the column
        ``CHANGE``.

        Raises DataError for a row that the format cannot hold, and RetriableError when a server that it needs is not
        available.
        """

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Return all bodies, each followed by a newline, as a file of records holds them."""
        return b"".join(body + b"\n" for body in self.encode(frame))


class Codec(ABC):
    """A format by name: json, csv, raw, … It gives decoders and encoders for a schema.

    Made from validated options when the job is built, one for each source or sink that names the format. It travels in
    the plan, so it must survive ``cloudpickle``. ``decoder`` and ``encoder`` must be implemented; a format that only
    reads raises OptionError in ``encoder``. They are called when the job is built, to check columns and types, and
    again in each process that reads or writes.
    """

    Settings: ClassVar[type[Settings]] = Settings
    #: Header fields that its decoders read beside the bodies: ``key``, ``time``, ``headers``.
    header_fields: frozenset[str] = frozenset()
    #: The ``metadata_types`` that are the same for all changes of a row, such as its table. All others are unknown for
    #: old rows.
    constant_metadata: frozenset[str] = frozenset()
    #: Whether its encoders write the kind of change of a row. Then a sink may give them the column ``CHANGE``; without
    #: that column rows are inserts.
    encodes_changes: ClassVar[bool] = False

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = settings if settings is not None else self.Settings()

    def default_schema(self) -> Schema | None:
        """Return the schema to use when the user gives none, or None when one must be given."""
        return None

    @classmethod
    def sigma_fields(cls) -> Mapping[str, str] | None:
        """Return the columns of the format by the fields of Sigma rules that they hold; None, the default: it does not
        tell. Called when a job with such rules is built: ``rules(…, sigma={"fields": "FORMAT"})``.
        """
        return None

    def framing(self) -> FormatFraming:
        """Return how a source of files finds the records of this format. Called when the job is built.

        The default takes the option ``max_body_bytes``, if the format declares one.
        """
        declares_limit = isinstance(self.settings, Settings) and "max_body_bytes" in self.settings.__struct_fields__
        return FormatFraming(body_bytes_max=self.settings.max_body_bytes if declares_limit else 0)

    def changes(self) -> SourceChanges | None:
        """Return how the decoded rows describe changes of a table; None, the default, means that rows are only added.

        If it is not None, decoded frames have the column ``CHANGE`` (Int8, values of ``ChangeKind``).
        """
        return None

    def use_key(self, schema: Schema, key: Sequence[str]) -> None:
        """Receive the key of the table whose changes are read. Called when the job is built, before the first decoder.
        Raises JobError.
        """

    def metadata_types(self) -> Mapping[str, pl.DataType]:
        """Return the metadata of a record that a job can have as columns, with their types: ``{"source.table":
        String}``.

        ``metadata={"table": "source.table"}`` of a job makes a column of it.
        """
        return {}

    def record_decoder(
        self, schema: Schema, columns: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None
    ) -> Decoder:
        """Return the decoder that a source uses. ``metadata``: the names of wanted columns, and which of
        ``metadata_types`` each holds.

        Its frames have ``columns``, then the columns of ``metadata`` in their order. The default is ``decoder``, for
        formats without metadata.
        """
        return self.decoder(schema, columns)

    @abstractmethod
    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder to ``columns`` (in that order; None: all of the schema).

        Raises OptionError for columns, or types of columns, that the format cannot give. Whether a body is bad must not
        depend on ``columns``, with one exception: columns that are not requested need not be checked.
        """

    @abstractmethod
    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. ``schema`` is None for a stream whose columns are not known when the job is built.

        Raises OptionError for columns whose types the format cannot hold, or if it needs to know the columns.
        """


def encodes_changes(format: str) -> bool:
    """Return whether the format of this name writes kinds of changes, so that a sink can accept changelogs; False for
    an unknown format.
    """
    from headrace.interfaces.registry import default_registry

    registry = default_registry()
    return registry.has("codec", format) and bool(registry.find("codec", format).encodes_changes)


def faster_decoder(
    format: str,
    columns: Mapping[str, pl.DataType],
    settings: Settings,
    json_columns: frozenset[str],
    plain: Decoder,
) -> Decoder:
    """Return the decoder that an installed plug-in offers in place of ``plain``, else ``plain``. Called by codecs that
    can be replaced.

    ``HEADRACE_DECODERS=plain`` in the environment leaves it at ``plain``.
    """
    from headrace.interfaces.registry import default_registry

    if os.environ.get("HEADRACE_DECODERS") == "plain" or not default_registry().has("decoder", format):
        return plain
    make = default_registry().find("decoder", format)
    return make(DecoderRequest(columns, settings, json_columns, plain)) or plain
