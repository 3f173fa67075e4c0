"""``upsert``: topics whose last record of a key is its row, and where a record without a value deletes it: compacted topics.

Flink's connector ``upsert-kafka`` is this format over a topic of Kafka. It works for every source that gives keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, Bodies, ChangeKind, RawBatch
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.codec import BadBody, Codec, Decoded, Decoder, Encoder
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, option

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMAT = "upsert"


class UpsertSettings(Settings, frozen=True, kw_only=True):
    """Options of the format ``upsert``."""

    value_format: Annotated[str, option("Format of the values: json, csv, raw, or any installed format of rows.")] = (
        "json"
    )
    value_options: Annotated[dict[str, Any], option("Options of the values' format.")] = msgspec.field(
        default_factory=dict
    )
    key_format: Annotated[
        str, option("Format of the keys. raw: the key is the text of one column, as the sinks of headrace write it.")
    ] = "raw"
    key_options: Annotated[dict[str, Any], option("Options of the keys' format.")] = msgspec.field(default_factory=dict)
    key_prefix: Annotated[
        str, option("What the names of the key columns begin with here, and not in the records' keys.")
    ] = ""
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
        self._value_codec = _codec(self._options.value_format, self._options.value_options, "value_format")
        self._key_codec = _codec(self._options.key_format, self._options.key_options, "key_format")

    def changes(self) -> SourceChanges:
        return SourceChanges(before_images=False)

    def use_key(self, schema: Schema, key: Sequence[str]) -> None:
        prefix = self._options.key_prefix
        for name in key:
            if not name.startswith(prefix) or name == prefix:
                raise OptionError(
                    f"the key column {name!r} does not begin with {prefix!r}", plugin=_FORMAT, option="key_prefix"
                )
        self._key = tuple(key)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for what the formats of key and value cannot do with these columns."""
        options, wanted = self._options, list(schema if columns is None else columns)
        for name in wanted:
            if name not in schema:
                raise OptionError(
                    f"column {name!r} is not in the schema",
                    plugin=_FORMAT,
                    hint=did_you_mean(name, schema, known="columns"),
                )
        both = options.value_fields_include == "all"
        values = _part(schema, [name for name in schema if both or name not in self._key])
        inner = {name: name.removeprefix(options.key_prefix) for name in self._key}
        keys = Schema(
            {inner[name]: schema[name] for name in self._key},
            json_columns=[inner[name] for name in self._key if name in schema.json_columns],
        )
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
            "upsert is a format for reading", plugin=_FORMAT, option="format",
            hint="a sink writes rows by key when it is given the key: to_kafka(…, key='id', format='json')",
        )  # fmt: skip


class UpsertDecoder(Decoder):
    """Decodes keys and values apart, and puts their columns together."""

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
        """``key``: the key columns, and what they are called in the key. ``types``: of all columns."""
        self._columns = list(columns)
        self._key = dict(key)
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._types = types
        self._key_in_value = key_in_value

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode values of records without keys."""
        return self._decoded(bodies, [None] * len(bodies))

    def decode_records(self, raw: RawBatch) -> Decoded:
        assert raw.bodies is not None
        return self._decoded(raw.bodies, [None] * len(raw) if raw.keys is None else raw.keys)

    def _decoded(self, bodies: Bodies, keys: Sequence[bytes | None]) -> Decoded:
        count = len(bodies)
        has_value = bodies.ends > bodies.starts
        has_key = np.fromiter((key is not None for key in keys), np.bool_, count)
        faults: dict[int, str] = {}
        key_frame, key_places = self._keys(keys, has_key, faults)
        valued = np.flatnonzero(has_value)
        given = self._value_decoder.decode(bodies if len(valued) == count else bodies.take(valued))
        value_places = _places(count, valued if given.rows is None else valued[given.rows])
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

    def _keys(
        self, keys: Sequence[bytes | None], has_key: NDArray[np.bool_], faults: dict[int, str]
    ) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Return the decoded keys, and where that of each record is, -1 where it has none."""
        keyed = np.flatnonzero(has_key)
        if self._key_decoder is None or not len(keyed):
            names = {inner: self._types[name] for name, inner in self._key.items()}
            return pl.DataFrame(schema=names), np.full(len(keys), -1, dtype=np.int64)
        decoded = self._key_decoder.decode(Bodies.of([key for key in keys if key is not None]))
        for each in decoded.bad:
            faults[int(keyed[each.row])] = f"the key: {each.reason}"
        return decoded.frame, _places(len(keys), keyed if decoded.rows is None else keyed[decoded.rows])

    def _column(
        self,
        name: str,
        rows: NDArray[np.int64],
        keys: pl.DataFrame,
        key_places: NDArray[np.int64],
        values: pl.DataFrame,
        value_places: NDArray[np.int64],
    ) -> pl.Series:
        if name not in self._key:
            return _taken(values[name], value_places[rows])
        of_key = _taken(keys[self._key[name]], key_places[rows])
        if not self._key_in_value or not (key_places[rows] < 0).any():
            return of_key
        return _taken(values[name], np.where(key_places[rows] < 0, value_places[rows], -1)).zip_with(
            pl.Series(key_places[rows] < 0), of_key
        )


def _codec(name: str, options: Mapping[str, Any], option: str) -> Codec:
    """Return the codec of keys or values. Raises OptionError for one whose rows change themselves."""
    found = default_registry().find("codec", name)
    codec: Codec = found(found.Settings.of(options, plugin=name))
    if codec.changes() is not None:
        raise OptionError(
            f"{name!r} says itself what changes",
            plugin=_FORMAT,
            option=option,
            hint=f"read the topic with format={name!r}",
        )
    return codec


def _part(schema: Schema, names: Sequence[str]) -> Schema:
    return Schema(
        {name: schema[name] for name in names}, json_columns=[name for name in names if name in schema.json_columns]
    )


def _places(count: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in a frame of these rows each of ``count`` records is, -1 for those that are not in it."""
    places = np.full(count, -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return places


def _taken(column: pl.Series, places: NDArray[np.int64]) -> pl.Series:
    """Return the values at places, NULL for -1."""
    if not (places < 0).any():
        return column[places]
    return column.extend_constant(None, 1)[np.where(places < 0, len(column), places)]
