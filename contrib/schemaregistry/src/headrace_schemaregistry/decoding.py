"""Decodes bodies with different schemas into one frame: the bodies of one schema id are decoded together, by a decoder
that the format makes for the schema.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import Bodies
from headrace.foundation.errors import RetriableError
from headrace.interfaces.codec import BadBody, Decoded, Decoder
from numpy.typing import NDArray

from headrace_schemaregistry.client import CONNECTIONS_MAX, RegisteredSchema, SchemaRegistry
from headrace_schemaregistry.settings import RegistrySettings

PREFIX_BYTES = 5
#: The registry is asked again for an unknown id after the first number of seconds. The pause is doubled each time, up
#: to the second number.
_PAUSE_FIRST_SECONDS, _PAUSE_MAX_SECONDS = 1.0, 60.0
#: The longest of these pauses while a queue waits for an id.
_PAUSE_WAITING_SECONDS = 4.0
_UNKNOWN_MAX = 10_000
#: Kinds of schemas as messages call them.
_SHOWN = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


class UnusableSchemaError(Exception):
    """A schema of the registry cannot be used, for the reason that the message gives. Its bodies are bad records."""


@dataclass(slots=True)
class _Unknown:
    """An id that the registry does not know: when it was first requested, when it is requested next, and the pause
    after that.
    """

    since: float
    again: float
    pause: float = _PAUSE_FIRST_SECONDS


class RegisteredDecoder(Decoder):
    """Decodes bodies that have a byte 0 and the id of a schema (4 bytes) before them.

    ``kind`` is the registry's name for a kind of schemas; a schema of another kind cannot be used.

    Raises RetriableError while a schema is needed and the registry does not answer, or does not know it yet
    (``unknown_id_wait``).
    """

    #: None: ``decoder_of`` gets schemas of any kind.
    kind: ClassVar[str | None] = None

    def __init__(
        self,
        settings: RegistrySettings,
        columns: Mapping[str, pl.DataType],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._columns = dict(columns)
        self._monotonic = monotonic
        self._registry: SchemaRegistry | None = None
        #: The decoder for the bodies of an id, or the reason why they cannot be decoded.
        self._known: dict[int, Decoder | str] = {}
        self._unknown: OrderedDict[int, _Unknown] = OrderedDict()

    @abstractmethod
    def decoder_of(self, schema_id: int, schema: RegisteredSchema) -> Decoder:
        """Return the decoder of the bodies of a schema, which get no id, to the columns. Called once for each id.

        Raises UnusableSchemaError; its message is put after "schema 7 of the registry".
        """

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        ids, framed = ids_of(bodies)
        reasons = {int(row): _not_framed(bodies[row]) for row in np.flatnonzero(~framed)}
        frames: list[pl.DataFrame] = []
        places: list[NDArray[np.int64]] = []
        wanted = np.unique(ids[framed]).tolist()
        self._look_up([schema_id for schema_id in wanted if schema_id not in self._known])
        for schema_id in wanted:
            rows = np.flatnonzero(framed & (ids == schema_id))
            decoder = self._known.get(schema_id, f"the schema registry does not know the id {schema_id}")
            if isinstance(decoder, str):
                reasons.update(dict.fromkeys(rows.tolist(), decoder))
                continue
            decoded = decoder.decode(Bodies(bodies.buffer, bodies.starts[rows] + PREFIX_BYTES, bodies.ends[rows]))
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
        # A frame without columns has a height, too.
        frame = pl.concat(frames)[order] if self._columns else pl.DataFrame(height=len(every))
        return Decoded(frame, every[order], bad)

    def _look_up(self, ids: Sequence[int]) -> None:
        """Request schemas, several at once. Ids that were unknown a short time ago are left out."""
        now = self._monotonic()
        due = [one for one in ids if one not in self._unknown or self._unknown[one].again <= now]
        if self._registry is None and due:
            self._registry = SchemaRegistry(self._settings)
        for schema_id, found in zip(due, self._asked(due), strict=True):
            if found is None:
                self._note_unknown(schema_id, now)
                continue
            self._unknown.pop(schema_id, None)
            try:
                if self.kind not in (None, found.kind):
                    raise UnusableSchemaError(f" is of type {found.kind}, not {_SHOWN.get(self.kind, self.kind)}")
                self._known[schema_id] = self.decoder_of(schema_id, found)
            except UnusableSchemaError as error:
                self._known[schema_id] = f"schema {schema_id} of the registry{error}"
        wait = self._settings.unknown_id_wait.total_seconds()
        for schema_id in ids:
            unknown = self._unknown.get(schema_id)
            if unknown is not None and now - unknown.since < wait:
                raise RetriableError(
                    f"the schema registry does not know the id {schema_id}",
                    plugin=self._settings.format_name,
                    option="unknown_id_wait",
                    hint=f"the job waits {wait:g} s for it; register the schema, or shorten the wait",
                )

    def _asked(self, ids: Sequence[int]) -> Sequence[RegisteredSchema | None]:
        if not ids:
            return []
        assert self._registry is not None
        if len(ids) == 1:
            return [self._registry.by_id(ids[0])]
        with ThreadPoolExecutor(min(len(ids), CONNECTIONS_MAX), thread_name_prefix="headrace registry") as pool:
            return list(pool.map(self._registry.by_id, ids))

    def _note_unknown(self, schema_id: int, now: float) -> None:
        found = self._unknown.get(schema_id)
        if found is None:
            self._unknown[schema_id] = _Unknown(now, now + _PAUSE_FIRST_SECONDS)
            if len(self._unknown) > _UNKNOWN_MAX:
                self._unknown.popitem(last=False)
            return
        waits = now - found.since < self._settings.unknown_id_wait.total_seconds()
        found.pause = min(2 * found.pause, _PAUSE_WAITING_SECONDS if waits else _PAUSE_MAX_SECONDS)
        found.again = now + found.pause


def ids_of(bodies: Bodies) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the schema ids of the bodies, and which bodies have one."""
    framed = bodies.ends - bodies.starts >= PREFIX_BYTES
    ids = np.zeros(len(bodies), dtype=np.int64)
    every = np.frombuffer(bodies.buffer, dtype=np.uint8)
    rows = np.flatnonzero(framed)
    starts = bodies.starts[rows]
    framed[rows] = every[starts] == 0
    for place in range(1, PREFIX_BYTES):
        ids[rows] = (ids[rows] << 8) | every[starts + place]
    return ids, framed


def _not_framed(body: bytes) -> str:
    if len(body) < PREFIX_BYTES:
        return f"the body has {len(body)} bytes: a byte 0 and the id of a schema are 5"
    return f"the body begins with the byte {body[0]}, not with 0 and the id of a schema"
