"""Bodies of many schemas to one frame: those of one id are decoded together, by the schema that the registry has for it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from headrace.flow.messages import Bodies
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import BadBody, Decoded, Decoder
from numpy.typing import NDArray

from headrace_avro.conversions import TypeMismatchError
from headrace_avro.decoder import RecordDecoder
from headrace_avro.registry import SchemaRegistry
from headrace_avro.registry_settings import FORMAT, ConfluentSettings
from headrace_avro.schemas import AvroType, parse_schema

_PREFIX_BYTES = 5
#: An id that the registry does not know is asked for again after so many seconds.
_UNKNOWN_SECONDS = 60.0
_UNKNOWN_MAX = 10_000


class ConfluentDecoder(Decoder):
    """Decodes bodies with ids of schemas. Raises RetriableError while a schema is needed and the registry is away.

    ``wanted`` is the reader's schema; None: fields become columns by their names.
    """

    def __init__(
        self,
        settings: ConfluentSettings,
        wanted: AvroType | None,
        columns: Mapping[str, pl.DataType],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._columns = dict(columns)
        self._monotonic = monotonic
        self._registry: SchemaRegistry | None = None
        #: What decodes the bodies of an id, or why they cannot be decoded.
        self._known: dict[int, _OfOneSchema | str] = {}
        self._unknown: OrderedDict[int, float] = OrderedDict()

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        ids, framed = _ids_of(bodies)
        reasons = {int(row): _not_framed(bodies[row]) for row in np.flatnonzero(~framed)}
        frames: list[pl.DataFrame] = []
        places: list[NDArray[np.int64]] = []
        for schema_id in np.unique(ids[framed]).tolist():
            rows = np.flatnonzero(framed & (ids == schema_id))
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                reasons.update(dict.fromkeys(rows.tolist(), decoder))
                continue
            decoded = decoder.decode(Bodies(bodies.buffer, bodies.starts[rows] + _PREFIX_BYTES, bodies.ends[rows]))
            frames.append(decoded.frame)
            places.append(rows if decoded.rows is None else rows[decoded.rows])
            reasons.update({int(rows[bad.row]): bad.reason for bad in decoded.bad})
        if len(frames) == 1 and len(places[0]) == len(bodies):
            return Decoded(frames[0])
        bad = [BadBody(row, reasons[row]) for row in sorted(reasons)]
        if not frames:
            return Decoded(pl.DataFrame(schema=self._columns), np.zeros(0, dtype=np.int64), bad)
        every = np.concatenate(places)
        order = np.argsort(every, kind="stable")
        # Rows without columns have a height all the same.
        frame = pl.concat(frames)[order] if self._columns else pl.DataFrame(height=len(every))
        return Decoded(frame, every[order], bad)

    def _decoder(self, schema_id: int) -> _OfOneSchema | str:
        if schema_id in self._known:
            return self._known[schema_id]
        now = self._monotonic()
        if now - self._unknown.get(schema_id, -_UNKNOWN_SECONDS) < _UNKNOWN_SECONDS:
            return _unknown(schema_id)
        if self._registry is None:
            self._registry = SchemaRegistry(self._settings)
        found = self._registry.by_id(schema_id)
        if found is None:
            self._unknown[schema_id] = now
            if len(self._unknown) > _UNKNOWN_MAX:
                self._unknown.popitem(last=False)
            return _unknown(schema_id)
        made: _OfOneSchema | str
        if found.kind != "AVRO":
            made = f"schema {schema_id} of the registry is of type {found.kind}, not Avro"
        else:
            try:
                written = parse_schema(found.text, plugin=FORMAT, option="registry_url", references=found.references)
                made = _OfOneSchema(written, self._wanted, self._columns, self._settings.max_body_bytes)
            except OptionError as error:
                made = f"schema {schema_id} of the registry: {error.message}"
            except TypeMismatchError as error:
                made = f"schema {schema_id} of the registry: {error}"
        self._known[schema_id] = made
        return made


class _OfOneSchema:
    """Decodes the bodies of one schema. Columns that it does not have are NULL where there is no reader's schema."""

    def __init__(
        self, written: AvroType, wanted: AvroType | None, columns: Mapping[str, pl.DataType], max_body_bytes: int
    ) -> None:
        reader = written if wanted is None else wanted
        present = columns if wanted is not None else {n: kind for n, kind in columns.items() if written.field(n)}
        self._decoder = RecordDecoder(written, reader, present, max_body_bytes)
        self._columns = columns if len(present) < len(columns) else None

    def decode(self, bodies: Bodies) -> Decoded:
        decoded = self._decoder.decode(bodies)
        if self._columns is None:
            return decoded
        frame = decoded.frame
        made = [
            frame[name] if name in frame.columns else pl.repeat(None, frame.height, dtype=kind, eager=True).alias(name)
            for name, kind in self._columns.items()
        ]
        return Decoded(pl.DataFrame(made), decoded.rows, decoded.bad)


def _ids_of(bodies: Bodies) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ids that stand before the records, and which bodies have one."""
    framed = bodies.ends - bodies.starts >= _PREFIX_BYTES
    ids = np.zeros(len(bodies), dtype=np.int64)
    every = np.frombuffer(bodies.buffer, dtype=np.uint8)
    rows = np.flatnonzero(framed)
    starts = bodies.starts[rows]
    framed[rows] = every[starts] == 0
    for place in range(1, _PREFIX_BYTES):
        ids[rows] = (ids[rows] << 8) | every[starts + place]
    return ids, framed


def _not_framed(body: bytes) -> str:
    if len(body) < _PREFIX_BYTES:
        return f"the body has {len(body)} bytes: a byte 0 and the id of a schema are 5"
    return f"the body begins with the byte {body[0]}, not with 0 and the id of a schema"


def _unknown(schema_id: int) -> str:
    return f"the schema registry does not know the id {schema_id}"
