"""What a format of changes is to the decoder: which fields its envelopes have, and which rows they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import polars as pl
from headrace.codecs.body_checks import REFUSALS
from headrace.codecs.json_columns import Built, JsonColumn, json_column
from headrace.codecs.text_columns import TimestampOptions, either
from msgspec.structs import astuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT, TEXTS, MOMENT = pl.String(), pl.List(pl.String()), pl.Datetime("us", "UTC")
#: The parsed values of envelopes by field, one per envelope; None: the envelope does not have the field.
Parsed = Mapping[str, list[Any]]


@dataclass(slots=True)
class Rows:
    """Rows that the envelopes of a batch give, in any order."""

    #: Per column of the row its parsed values. Rows of no columns have one that nobody reads.
    values: list[list[Any]]
    #: The place of each row in the batch: rows are put in this order.
    ranks: NDArray[np.int64]
    #: Which envelope a row comes from; it grows with ``ranks``.
    envelopes: NDArray[np.int64]
    #: One of ``ChangeKind`` per row.
    kinds: NDArray[np.int8]
    #: Envelopes that are bad, and why. They may have rows, which are left out.
    faults: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataField:
    """What can be asked of an envelope beside its rows."""

    data_type: pl.DataType
    #: The fields of the envelope that it is made of, and how msgspec reads them.
    fields: Mapping[str, Any]
    #: Makes the column, one value per envelope, and flags those whose value is bad.
    build: Callable[[Parsed], Built]


def plain_field(data_type: pl.DataType, name: str, unit: str = "ms") -> MetadataField:
    """Return the metadata that a field of the envelope is. ``unit``: of times that are whole numbers."""
    column = json_column(data_type, TimestampOptions(unit), name)
    return MetadataField(data_type, {name: column.annotation}, lambda parsed: column.build(parsed[name]))


def part_field(data_type: pl.DataType, name: str, part: str) -> MetadataField:
    """Return the metadata that a field of an object in the envelope is. The object is parsed again only where it is asked for."""
    column = json_column(data_type, TimestampOptions("ms"), f"{name}.{part}")
    holder = msgspec.defstruct("Holder", [("value", column.annotation, None)], rename={"value": part}, gc=False)
    decode = msgspec.json.Decoder(holder | None).decode

    def build(parsed: Parsed) -> Built:
        values: list[Any] = []
        refused: list[bool] = []
        for raw in parsed[name]:
            try:
                found = None if raw is None else decode(raw)
            except REFUSALS:
                values.append(None)
                refused.append(True)
            else:
                values.append(None if found is None else found.value)
                refused.append(False)
        series, bad = column.build(values)
        return series, either(bad, np.array(refused) if any(refused) else None)

    return MetadataField(data_type, {name: msgspec.Raw}, build)


def raw_field(name: str) -> MetadataField:
    """Return the metadata that a field of the envelope is, as JSON text."""

    def build(parsed: Parsed) -> Built:
        texts = [None if raw is None or (text := bytes(raw)) == b"null" else text.decode() for raw in parsed[name]]
        return pl.Series(texts, dtype=pl.String), None

    return MetadataField(TEXT, {name: msgspec.Raw}, build)


def texts_of_object(name: str) -> MetadataField:
    """Return the metadata that an object in the envelope is, as JSON text whose values are all texts: Flink's MAP of STRING to STRING."""
    decode = msgspec.json.Decoder(dict[str, Any] | None).decode

    def build(parsed: Parsed) -> Built:
        texts: list[str | None] = []
        refused: list[bool] = []
        for raw in parsed[name]:
            try:
                found = None if raw is None else decode(raw)
            except REFUSALS:
                texts.append(None)
                refused.append(True)
            else:
                texts.append(None if found is None else _json({key: _text(value) for key, value in found.items()}))
                refused.append(False)
        return pl.Series(texts, dtype=pl.String), np.array(refused) if any(refused) else None

    return MetadataField(TEXT, {name: msgspec.Raw}, build)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


class ChangeEnvelope(ABC):
    """A format's way to wrap rows. Made in each process that decodes."""

    #: Whether numbers and booleans of rows must not be written as texts.
    strict: ClassVar[bool] = True
    #: What can be asked for, by the names that Flink gives.
    metadata: ClassVar[Mapping[str, MetadataField]] = {}
    #: The metadata that names the database and the table of a change, if the format does.
    database: ClassVar[str | None] = None
    table: ClassVar[str | None] = None

    def __init__(self, row: type[msgspec.Struct], old_row: type[msgspec.Struct], *, upserts: bool) -> None:
        """``row``: a struct of the wanted columns. ``old_row``: the same, with ``UNSET`` for what is missing."""
        self.row, self.old_row = row, old_row
        self.width = len(row.__struct_fields__)
        #: Whether old rows of updates are not wanted.
        self.upserts = upserts

    def use(self, columns: Mapping[str, JsonColumn], settings: Any) -> None:
        """Get the columns of rows and the format's options. Called once, before ``fields``. The default needs neither."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Return the fields of the envelope that ``rows`` reads, and how msgspec reads them. Each may be missing."""

    @abstractmethod
    def rows(self, parsed: Parsed, wanted: NDArray[np.int64]) -> Rows:
        """Return the rows of the ``wanted`` envelopes."""

    def values(self, rows: Sequence[msgspec.Struct]) -> list[list[Any]]:
        """Return the values of rows by column."""
        flat = list(chain.from_iterable(map(astuple, rows)))
        return [flat[at :: self.width] for at in range(self.width)]


def codes_of(names: Sequence[Any], codes: Mapping[str, int], wanted: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the code of the operation of each wanted envelope, -1 for one that is not known."""
    if len(wanted) == len(names):
        return np.fromiter((codes.get(name, -1) for name in names), np.int8, len(names))
    return np.fromiter((codes.get(names[at], -1) for at in wanted.tolist()), np.int8, len(wanted))


def missing_rows(rows: Sequence[Any], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Flag which of the envelopes ``at`` have NULL there."""
    if len(at) == len(rows):
        return np.fromiter((row is None for row in rows), np.bool_, len(rows))
    return np.fromiter((rows[each] is None for each in at.tolist()), np.bool_, len(at))
