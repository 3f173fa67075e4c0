"""How SQL texts write the options of MQTT tables."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions

SOURCE_TABLES: Mapping[str, TableOptions] = {"mqtt": TableOptions(format="json")}
SINK_TABLES: Mapping[str, TableOptions] = {
    "mqtt": TableOptions(options={"format": "format"}, unused={"sink.parallelism": OF_FLINKS_RUNTIME})
}
