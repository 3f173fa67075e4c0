"""Records with columns in the key and in the value: decoding both apart, and putting the columns together.

The formats ``upsert`` and ``keyed`` are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import polars as pl
from headrace.flow.messages import Bodies, RawBatch
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import BadBody, Codec, Decoded, Decoder
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, option

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeyAndValueSettings(Settings, frozen=True, kw_only=True):
    """The options of the formats of keys and values."""

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

    def codecs(self, plugin: str) -> tuple[Codec, Codec]:
        """Return those of the keys and of the values. Raises OptionError for one whose rows change themselves."""
        return (
            _codec(self.key_format, self.key_options, plugin, "key_format"),
            _codec(self.value_format, self.value_options, plugin, "value_format"),
        )


class KeyAndValueDecoder(Decoder):
    """Decodes keys and values apart, and puts their columns together. A record without a key has NULL in the key's columns."""

    def __init__(
        self,
        columns: Sequence[str],
        key: Mapping[str, str],
        key_decoder: Decoder | None,
        value_decoder: Decoder,
        types: Mapping[str, pl.DataType],
    ) -> None:
        """``key``: the key columns, and their names in the key. ``types``: of all columns."""
        self._columns = list(columns)
        self._key = dict(key)
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._types = types

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode values of records without keys."""
        return self._decoded(bodies, [None] * len(bodies))

    def decode_records(self, raw: RawBatch) -> Decoded:
        assert raw.bodies is not None
        return self._decoded(raw.bodies, [None] * len(raw) if raw.keys is None else raw.keys)

    def _decoded(self, bodies: Bodies, keys: Sequence[bytes | None]) -> Decoded:
        count = len(bodies)
        has_key = np.fromiter((key is not None for key in keys), np.bool_, count)
        faults: dict[int, str] = {}
        key_frame, key_places = self._keys(keys, has_key, faults)
        given = self._value_decoder.decode(bodies)
        value_places = places(count, np.arange(count) if given.rows is None else given.rows)
        for each in given.bad:
            faults.setdefault(each.row, each.reason)
        good = value_places >= 0
        good[list(faults)] = False
        rows = np.flatnonzero(good)
        made = [
            self._column(name, rows, key_frame, key_places, given.frame, value_places).alias(name)
            for name in self._columns
        ]
        return Decoded(pl.DataFrame(made), rows, [BadBody(row, faults[row]) for row in sorted(faults)])

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
        return decoded.frame, places(len(keys), keyed if decoded.rows is None else keyed[decoded.rows])

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
            return taken(values[name], value_places[rows])
        return taken(keys[self._key[name]], key_places[rows])


def _codec(name: str, options: Mapping[str, Any], plugin: str, option: str) -> Codec:
    found = default_registry().find("codec", name)
    codec: Codec = found(found.Settings.of(options, plugin=name))
    if codec.changes() is not None:
        raise OptionError(
            f"{name!r} contains the kind of each change itself",
            plugin=plugin,
            option=option,
            hint=f"read the topic with format={name!r}",
        )
    return codec


def named_in_key(columns: Sequence[str], prefix: str, plugin: str) -> dict[str, str]:
    """Return what key columns are called in the key. Raises OptionError for one that does not begin with the prefix."""
    for name in columns:
        if not name.startswith(prefix) or name == prefix:
            raise OptionError(
                f"the key column {name!r} does not begin with {prefix!r}", plugin=plugin, option="key_prefix"
            )
    return {name: name.removeprefix(prefix) for name in columns}


def places(count: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in a frame of these rows each of ``count`` records is, -1 for those that are not in it."""
    places = np.full(count, -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return places


def taken(column: pl.Series, places: NDArray[np.int64]) -> pl.Series:
    """Return the values at places, NULL for -1."""
    if not (places < 0).any():
        return column[places]
    return column.extend_constant(None, 1)[np.where(places < 0, len(column), places)]
