"""Which databases and tables changes are read of, where a topic has those of several."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from headrace.codecs.body_checks import other_rows
from headrace.codecs.json_objects import JsonObjects
from headrace.flow.messages import Bodies

from headrace_changes.envelopes import ChangeEnvelope, MetadataField, Parsed
from headrace_changes.fields import EnvelopeFields
from headrace_changes.settings import ChangeSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WantedTables:
    """Finds the envelopes of the tables that the options name."""

    def __init__(self, envelope: type[ChangeEnvelope], settings: ChangeSettings, payload_field: str | None) -> None:
        asked = (("database_include", envelope.database), ("table_include", envelope.table))
        self._patterns: list[tuple[MetadataField, re.Pattern[str]]] = [
            (envelope.metadata[what], re.compile(pattern))
            for option, what in asked
            if what is not None and (pattern := getattr(settings, option, None)) is not None
        ]
        named = {name: kind for field in self.fields for name, kind in field.fields.items()}
        self._fields = EnvelopeFields(named, payload_field)
        self._objects = JsonObjects(self._fields.struct, settings.max_body_bytes) if named else None

    @property
    def fields(self) -> list[MetadataField]:
        """What of an envelope says of which table it is; empty where all tables are wanted."""
        return [field for field, _ in self._patterns]

    def wanted(self, parsed: Parsed, envelopes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of the ``envelopes`` that are of wanted tables."""
        for field, pattern in self._patterns:
            names, _ = field.build(parsed)
            fits = {name: name is not None and pattern.fullmatch(name) is not None for name in names.unique()}
            kept = np.fromiter((fits[name] for name in names), np.bool_, len(names))
            envelopes = envelopes[kept[envelopes]]
        return envelopes

    def without_others(self, bodies: Bodies, refused: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the refused bodies without those of other tables: their columns may be called alike and have other types."""
        if self._objects is None:
            return refused
        values, good = self._objects.parse(bodies.take(refused))
        parsed, faults = self._fields.parsed(values, len(good))
        named = other_rows(len(good), np.array(list(faults), dtype=np.int64))
        others = np.setdiff1d(named, self.wanted(parsed, named))
        return np.delete(refused, good[others])
