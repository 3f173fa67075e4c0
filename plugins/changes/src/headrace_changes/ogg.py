"""``ogg-json``: the output of the JSON formatter of Oracle GoldenGate. Fields as in Flink's format of that name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.interfaces import settings as declared

from headrace_changes.before_after import CREATE, DELETE, TRUNCATE, UPDATE, BeforeAfterEnvelope
from headrace_changes.codec import ChangeCodec
from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import MOMENT, TEXT, TEXTS, ChangeEnvelope, MetadataField, plain_field
from headrace_changes.settings import TableSettings


class OggEnvelope(BeforeAfterEnvelope):
    """``op_type``, ``before``, ``after``, ``table``, ``op_ts``, ``current_ts``."""

    operation = "op_type"
    operations: ClassVar[Mapping[str, int]] = {"I": CREATE, "U": UPDATE, "D": DELETE, "T": TRUNCATE}
    no_before = "let GoldenGate log old rows (LOGALLSUPCOLS), or read with changelog_mode='upsert'"
    metadata: ClassVar[Mapping[str, MetadataField]] = {
        "table": plain_field(TEXT, "table"),
        "primary-keys": plain_field(TEXTS, "primary_keys"),
        "ingestion-timestamp": plain_field(MOMENT, "current_ts", "us"),
        "event-timestamp": plain_field(MOMENT, "op_ts", "us"),
    }
    table = "table"


class OggJsonCodec(ChangeCodec):
    """What Oracle GoldenGate writes for each change of a row. ``table`` is called SCHEMA.TABLE there."""

    Settings: ClassVar[type[declared.Settings]] = TableSettings
    envelope: ClassVar[type[ChangeEnvelope]] = OggEnvelope
    wrapping = Wrapping(
        added=(b'{"before":null,"after":', b',"op_type":"I"}'), removed=(b'{"before":', b',"after":null,"op_type":"D"}')
    )
