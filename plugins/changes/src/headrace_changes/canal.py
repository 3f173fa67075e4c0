"""``canal-json``: the flat messages of Alibaba's Canal (https://github.com/alibaba/canal). Fields and options as in Flink's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headrace.interfaces import settings as declared

from headrace_changes.codec import ChangeCodec
from headrace_changes.data_old import DELETE, EMPTIED, INSERT, NOTHING, UPDATE, DataOldEnvelope
from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import MOMENT, TEXT, TEXTS, ChangeEnvelope, MetadataField, plain_field, texts_of_object
from headrace_changes.settings import TableSettings


class CanalEnvelope(DataOldEnvelope):
    """``type``, ``data`` and ``old``: arrays of rows whose values are texts. ``es`` is the time of the change, ``ts`` that of Canal."""

    strict = False
    operations: ClassVar[Mapping[str, int]] = {
        "INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE, "CREATE": NOTHING, "ALTER": NOTHING, "QUERY": NOTHING,
        "CINDEX": NOTHING, "DINDEX": NOTHING, "TRUNCATE": EMPTIED, "ERASE": EMPTIED, "RENAME": EMPTIED,
    }  # fmt: skip
    metadata: ClassVar[Mapping[str, MetadataField]] = {
        "database": plain_field(TEXT, "database"),
        "table": plain_field(TEXT, "table"),
        "sql-type": texts_of_object("sqlType"),
        "pk-names": plain_field(TEXTS, "pkNames"),
        "ingestion-timestamp": plain_field(MOMENT, "ts"),
        "event-timestamp": plain_field(MOMENT, "es"),
    }
    database = "database"
    table = "table"

    def fields(self) -> Mapping[str, Any]:
        return {"type": str | None, "data": list[self.row | None] | None, "old": list[self.old_row | None] | None}  # type: ignore[name-defined]

    def several(self, value: Any) -> Sequence[Any]:
        return value or ()


class CanalJsonCodec(ChangeCodec):
    """What Canal writes for each change: several rows in one body, their values as texts."""

    Settings: ClassVar[type[declared.Settings]] = TableSettings
    envelope: ClassVar[type[ChangeEnvelope]] = CanalEnvelope
    wrapping = Wrapping(added=(b'{"data":[', b'],"type":"INSERT"}'), removed=(b'{"data":[', b'],"type":"DELETE"}'))
