"""``upsert``: topics whose last record of a key is its row, and where a record without a value deletes it: compacted topics.

Flink's connector ``upsert-kafka`` is this format over a topic of Kafka. It works for every source that gives keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, Bodies, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.codec import BadBody, Codec, Decoded, Decoder, Encoder
from headrace.interfaces.settings import option

from headrace_changes.key_and_value import KeyAndValueDecoder, KeyAndValueSettings, named_in_key, places, taken

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMAT = "upsert"


class UpsertSettings(KeyAndValueSettings, frozen=True, kw_only=True):
    """Options of the format ``upsert``."""

    value_fields_include: Annotated[
        Literal["all", "except_key"],
        option(
            "Whether values hold the key columns too. They are read from the key in both cases; with all, from the value where a "
            "record has no key."
        ),
    ] = "all"


class UpsertCodec(Codec):
    """Rows by key: key columns from the record's key, the others from its value; no value deletes the row of the key."""

    Settings: ClassVar[type[declared.Settings]] = UpsertSettings
    header_fields = frozenset({"key"})

    def __init__(self, settings: UpsertSettings | None = None) -> None:
        self._options = settings if settings is not None else UpsertSettings()
        super().__init__(self._options)
        self._key: tuple[str, ...] = ()
        self._key_codec, self._value_codec = self._options.codecs(_FORMAT)

    def changes(self) -> SourceChanges:
        return SourceChanges(before_images=False)

    def use_key(self, schema: Schema, key: Sequence[str]) -> None:
        self._key = tuple(named_in_key(key, self._options.key_prefix, _FORMAT))

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError if the formats of key and value cannot handle these columns."""
        from headrace.codecs.text_columns import check_columns

        options, wanted = self._options, check_columns(schema, columns, _FORMAT)
        both = options.value_fields_include == "all"
        values = schema.part(name for name in schema if both or name not in self._key)
        inner = named_in_key(self._key, options.key_prefix, _FORMAT)
        keys = schema.part(self._key, inner)
        return UpsertDecoder(
            wanted,
            inner,
            self._key_codec.decoder(keys) if self._key else None,
            self._value_codec.decoder(values, [name for name in values if name in wanted or name in self._key]),
            {name: schema[name] for name in schema},
            key_in_value=both,
        )

    def encoder(self, schema: Schema | None) -> Encoder:
        """Raise OptionError: a sink that has keys writes rows by key with the format of its values."""
        raise OptionError(
            "upsert can only be read", plugin=_FORMAT, option="format",
            hint="a sink with a key writes rows by key: to_kafka(…, key='id', format='json')",
        )  # fmt: skip


class UpsertDecoder(KeyAndValueDecoder):
    """Gives the change that each record is, too: a record without a value deletes the row of its key."""

    def __init__(
        self,
        columns: Sequence[str],
        key: Mapping[str, str],
        key_decoder: Decoder | None,
        value_decoder: Decoder,
        types: Mapping[str, pl.DataType],
        *,
        key_in_value: bool,
    ) -> None:
        """``key``: the key columns, and their names in the key. ``types``: of all columns."""
        super().__init__(columns, key, key_decoder, value_decoder, types)
        self._key_in_value = key_in_value

    def _decoded(self, bodies: Bodies, keys: Sequence[bytes | None]) -> Decoded:
        count = len(bodies)
        has_value = bodies.ends > bodies.starts
        has_key = np.fromiter((key is not None for key in keys), np.bool_, count)
        faults: dict[int, str] = {}
        key_frame, key_places = self._keys(keys, has_key, faults)
        valued = np.flatnonzero(has_value)
        given = self._value_decoder.decode(bodies if len(valued) == count else bodies.take(valued))
        value_places = places(count, valued if given.rows is None else valued[given.rows])
        for each in given.bad:
            faults.setdefault(int(valued[each.row]), each.reason)
        from_value = ~has_key & has_value if self._key_in_value else np.zeros(count, dtype=bool)
        for row in np.flatnonzero(~has_key & ~from_value).tolist():
            faults.setdefault(row, "the record has no key, so that it cannot be said which row it is")
        good = np.ones(count, dtype=bool)
        good[list(faults)] = False
        good &= ((key_places >= 0) | from_value) & ((value_places >= 0) | ~has_value)
        rows = np.flatnonzero(good)
        kinds = np.where(has_value[rows], ChangeKind.UPDATE_AFTER, ChangeKind.DELETE).astype(np.int8)
        made = [
            self._column(name, rows, key_frame, key_places, given.frame, value_places).alias(name)
            for name in self._columns
        ]
        frame = pl.DataFrame([*made, pl.Series(CHANGE, kinds, dtype=pl.Int8)])
        return Decoded(frame, rows, [BadBody(row, faults[row]) for row in sorted(faults)])

    def _column(
        self,
        name: str,
        rows: NDArray[np.int64],
        keys: pl.DataFrame,
        key_places: NDArray[np.int64],
        values: pl.DataFrame,
        value_places: NDArray[np.int64],
    ) -> pl.Series:
        found = super()._column(name, rows, keys, key_places, values, value_places)
        if name not in self._key or not self._key_in_value or not (key_places[rows] < 0).any():
            return found
        return taken(values[name], np.where(key_places[rows] < 0, value_places[rows], -1)).zip_with(
            pl.Series(key_places[rows] < 0), found
        )
