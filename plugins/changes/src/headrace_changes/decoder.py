"""Bodies of a format of changes to rows with their kinds: envelopes parsed in C, then whole columns made of the rows in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
from headrace.codecs.body_checks import other_rows
from headrace.codecs.json_columns import JsonColumn, object_type
from headrace.codecs.json_objects import JsonObjects
from headrace.flow.messages import CHANGE, Bodies
from headrace.flow.schema import type_name
from headrace.interfaces.codec import BadBody, Decoded, Decoder

from headrace_changes.envelopes import ChangeEnvelope, Parsed, Rows
from headrace_changes.fields import EnvelopeFields
from headrace_changes.reasons import ChangeReasons
from headrace_changes.settings import ChangeSettings
from headrace_changes.tables import WantedTables

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ChangeDecoder(Decoder):
    """Decodes bodies that are envelopes of one format. An empty body, which is a tombstone, says nothing."""

    def __init__(
        self,
        envelope: type[ChangeEnvelope],
        columns: Mapping[str, JsonColumn],
        metadata: Mapping[str, str],
        settings: ChangeSettings,
        payload_field: str | None,
    ) -> None:
        self._columns = columns
        upserts = settings.changelog_mode == "upsert"
        self._envelope = envelope(object_type(columns), object_type(columns, msgspec.UNSET), upserts=upserts)
        self._envelope.use(columns, settings)
        self._metadata = {name: envelope.metadata[what] for name, what in metadata.items()}
        self._tables = WantedTables(envelope, settings, payload_field)
        fields = dict(self._envelope.fields())
        for field in (*self._metadata.values(), *self._tables.fields):
            fields |= field.fields
        self._fields = EnvelopeFields(fields, payload_field)
        self._objects = JsonObjects(self._fields.struct, settings.max_body_bytes, strict=envelope.strict)
        self._reasons = ChangeReasons(self._objects.decode, settings.max_body_bytes)

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        spoken = np.flatnonzero(bodies.ends > bodies.starts)
        values, good = self._objects.parse(bodies if len(spoken) == len(bodies) else bodies.take(spoken))
        numbers = spoken[good]
        parsed, faults = self._fields.parsed(values, len(good))
        wanted = self._tables.wanted(parsed, other_rows(len(good), np.array(list(faults), dtype=np.int64)))
        rows = self._envelope.rows(parsed, wanted)
        rows.faults |= faults
        frame, envelopes = self._frame(parsed, rows)
        reasons = {int(numbers[at]): reason for at, reason in rows.faults.items()}
        if len(good) < len(spoken):
            for row in self._tables.without_others(bodies, np.setdiff1d(spoken, numbers)).tolist():
                reasons[row] = self._reasons.reason(bodies[row])
        return Decoded(frame, numbers[envelopes], [BadBody(row, reasons[row]) for row in sorted(reasons)])

    def _frame(self, parsed: Parsed, rows: Rows) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Return the good rows in their order, and which envelope each is from. Adds to the faults what has bad values."""
        series, masks = _built(self._columns, rows.values)
        for place, (name, column) in enumerate(self._columns.items()):
            for row in np.flatnonzero(masks[name]).tolist() if name in masks else ():
                reason = self._reasons.value(name, column.data_type, rows.values[place][row])
                rows.faults.setdefault(int(rows.envelopes[row]), reason)
        added = []
        for name, field in self._metadata.items():
            made, bad = field.build(parsed)
            added.append(made.alias(name))
            for at in np.intersect1d(np.flatnonzero(bad), rows.envelopes).tolist() if bad is not None else ():
                rows.faults.setdefault(at, f"metadata column {name!r} cannot be read as {type_name(field.data_type)}")
        order = np.argsort(rows.ranks, kind="stable")
        if rows.faults:
            order = order[~np.isin(rows.envelopes[order], list(rows.faults))]
        envelopes = rows.envelopes[order]
        columns = [*(each[order] for each in series), *(each[envelopes] for each in added)]
        return pl.DataFrame([*columns, pl.Series(CHANGE, rows.kinds[order], dtype=pl.Int8)]), envelopes


def _built(
    columns: Mapping[str, JsonColumn], values: Sequence[list[Any]]
) -> tuple[list[pl.Series], dict[str, NDArray[np.bool_]]]:
    """Return the columns of rows, and of each column with bad values which these are."""
    series: list[pl.Series] = []
    masks: dict[str, NDArray[np.bool_]] = {}
    for (name, column), found in zip(
        columns.items(), values, strict=False
    ):  # rows of no columns have one that is not read
        built, bad = column.build(found)
        series.append(built.alias(name))
        if bad is not None:
            masks[name] = bad
    return series, masks
