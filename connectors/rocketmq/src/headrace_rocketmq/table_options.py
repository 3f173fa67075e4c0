"""How SQL texts write the options of RocketMQ tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.interfaces.table_options import BLINK_FORMAT, TableOption, TableOptions, ignored


def _name_servers(text: str) -> Mapping[str, Any]:
    return {"name_servers": text.replace(",", ";")}


_CONNECTION: Mapping[str, TableOption] = {
    "topic": "topic",
    "namesrvAddr": _name_servers,
    "nameServerAddress": _name_servers,
    "endpoint": _name_servers,
    "accessKey": "access_key",
    "accessId": "access_key",
    "secretKey": "secret_key",
    **BLINK_FORMAT,
}
_SOURCE = TableOptions(
    {**_CONNECTION, "groupName": "group", "consumerGroup": "group", "tag": "tags"},
    format="json",
)
_SINK = TableOptions({**_CONNECTION, "tag": "tag", "groupName": ignored, "producerGroup": ignored})

SOURCE_TABLES: Mapping[str, TableOptions] = {"rocketmq": _SOURCE, "metaq": _SOURCE}
SINK_TABLES: Mapping[str, TableOptions] = {"rocketmq": _SINK, "metaq": _SINK}
