"""After how long windows no longer wait for a table without records: an option of the table, or of SET for all tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME

from headrace_sql.binding.tables import Table
from headrace_sql.reading.durations import duration_us

#: The option of SET.
IDLE_TIMEOUT = "table.exec.source.idle-timeout"
_OF_TABLE = "scan.watermark.idle-timeout"
#: Options that any table may have, and why they have no effect here; None: they mean something.
WATERMARK_OPTIONS: Mapping[str, str | None] = {
    _OF_TABLE: None,
    "scan.watermark.emit.strategy": OF_FLINKS_RUNTIME,
    "scan.watermark.emit.on-event.gap": OF_FLINKS_RUNTIME,
    "scan.watermark.alignment.group": OF_FLINKS_RUNTIME,
    "scan.watermark.alignment.max-drift": OF_FLINKS_RUNTIME,
    "scan.watermark.alignment.update-interval": OF_FLINKS_RUNTIME,
}


def idle_timeout(table: Table, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the argument of ``watermark`` that a text gives for a table, if it gives one: None for 0, which is Flink's word for never.

    ``options``: those of SET. Raises ExpressionError or OptionError for a value that is not a length of time.
    """
    length = table.length_us(_OF_TABLE)
    if length is None and IDLE_TIMEOUT in options:
        length = duration_us(options[IDLE_TIMEOUT], IDLE_TIMEOUT)
    if length is None:
        return {}
    return {"idle_timeout": timedelta(microseconds=length) if length else None}
