"""``maxwell-json``: what Maxwell's daemon writes. https://maxwells-daemon.io/dataformat/. Fields as in Flink's format of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headrace.interfaces import settings as declared

from headrace_changes.codec import ChangeCodec
from headrace_changes.data_old import DELETE, EMPTIED, INSERT, NOTHING, UPDATE, DataOldEnvelope
from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import MOMENT, TEXT, TEXTS, ChangeEnvelope, MetadataField, plain_field
from headrace_changes.settings import TableSettings


class MaxwellEnvelope(DataOldEnvelope):
    """``type``, ``data`` and ``old`` (a row each), ``database``, ``table``, ``ts`` (seconds), ``primary_key_columns``."""

    operations: ClassVar[Mapping[str, int]] = {
        "insert": INSERT, "update": UPDATE, "delete": DELETE, "bootstrap-insert": INSERT, "bootstrap-start": NOTHING,
        "bootstrap-complete": NOTHING, "table-create": NOTHING, "table-alter": NOTHING, "database-create": NOTHING,
        "database-alter": NOTHING, "table-drop": EMPTIED, "database-drop": EMPTIED,
    }  # fmt: skip
    metadata: ClassVar[Mapping[str, MetadataField]] = {
        "database": plain_field(TEXT, "database"),
        "table": plain_field(TEXT, "table"),
        "primary-key-columns": plain_field(TEXTS, "primary_key_columns"),
        "ingestion-timestamp": plain_field(MOMENT, "ts", "s"),
    }
    database = "database"
    table = "table"

    def fields(self) -> Mapping[str, Any]:
        return {"type": str | None, "data": self.row | None, "old": self.old_row | None}

    def several(self, value: Any) -> Sequence[Any]:
        return () if value is None else (value,)


class MaxwellJsonCodec(ChangeCodec):
    """What Maxwell writes for each change of a row, and for the rows of a bootstrap."""

    Settings: ClassVar[type[declared.Settings]] = TableSettings
    envelope: ClassVar[type[ChangeEnvelope]] = MaxwellEnvelope
    wrapping = Wrapping(added=(b'{"data":', b',"type":"insert"}'), removed=(b'{"data":', b',"type":"delete"}'))
