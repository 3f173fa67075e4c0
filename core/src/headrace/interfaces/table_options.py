"""How SQL texts write the options of a connector: ``WITH ('connector' = 'kafka', 'properties.group.id' = 'g')``.

A source or sink declares them in its ``table_options``. Options that texts write under the plug-in's own names need no
declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: How an option of a text is translated: to the name of an option of the plug-in, or by a function that makes options
#: from the text. The function raises ValueError for a wrong text; the message says which texts it accepts.
TableOption = str | Callable[[str], Mapping[str, Any]]


def _nothing(key: Sequence[str]) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class TableOptions:
    """The options of a table with one connector name, beside those by the plug-in's own names, with ``-`` or ``_``.

    Results of functions may have ``format`` and ``start``, too, as in ``stream.from_<name>(…, format=…, start=…)``.
    """

    options: Mapping[str, TableOption] = field(default_factory=dict)
    #: Options without an effect in headrace, each with the reason. A text with such an option gets a notice.
    unused: Mapping[str, str] = field(default_factory=dict)
    #: Prefixes of options in texts, with the option that collects them, such as ``{"properties.": "conf"}``.
    prefixes: Mapping[str, str] = field(default_factory=dict)
    #: For sources: the format of the bodies if the text names none; None: the source gives columns.
    format: str | None = None
    #: For sources: the option that gets the table's columns, as type names by column.
    columns_option: str | None = None
    #: For sinks: makes options from the table's PRIMARY KEY; options in the text have priority.
    with_key: Callable[[Sequence[str]], Mapping[str, Any]] = _nothing
    #: For sinks: whether tables must have a PRIMARY KEY.
    needs_key: bool = False
    #: Makes options from PARTITIONED BY, for a plug-in that has the partition columns in the names of its queues
    #: (``day=2024-01-31/part.json``) and not in its records; None: they are ordinary columns.
    with_partitions: Callable[[Sequence[str]], Mapping[str, Any]] | None = None
    #: For such a sink: makes the options for a single partition, from the options of the table and the texts of the
    #: partition's values.
    within_partition: Callable[[Mapping[str, Any], Mapping[str, str | None]], Mapping[str, Any]] | None = None
    #: For sources: whether its records are rows by key. Then headrace uses the format ``upsert`` with the options
    #: ``key_format``, ``key_prefix`` and ``value_fields_include``, and the format in the text is the format of the
    #: values.
    upserts: bool = False
    #: For sources: whether the keys of its records may hold columns. Then headrace uses the format ``keyed`` with the
    #: options ``key_columns``, ``key_format``, ``key_prefix`` and ``value_fields_include``.
    keyed: bool = False
    #: Why tables with this name cannot be used, in one sentence; None: they can.
    refused: str | None = None
    #: For sinks: options of the plug-in that apply if the text does not give them.
    defaults: Mapping[str, Any] = field(default_factory=dict)


def ignored(text: str) -> Mapping[str, Any]:
    """Accept an option without a notice, because it always applies here, or is only for the other direction."""
    return {}


def json_data(text: str) -> Mapping[str, Any]:
    """Accept Blink's ``isJsonData = 'true'``."""
    if text.lower() != "true":
        raise ValueError("only JSON data is supported")
    return {"format": "json"}


def no_json_array(text: str) -> Mapping[str, Any]:
    """Accept Blink's ``msgIsJsonArray = 'false'``."""
    if text.lower() != "false":
        raise ValueError("messages that are JSON arrays are not supported")
    return {}


#: How Blink's tables name the format of their bodies.
BLINK_FORMAT: Mapping[str, TableOption] = {
    "isJsonData": json_data,
    "msgIsJsonArray": no_json_array,
    "data_format": "format",
    "encoding": ignored,
}
#: Why an option of Flink's has no effect here.
OF_FLINKS_RUNTIME = "a matter of Flink's own runtime"
#: Options of tables with the connector ``jdbc`` that have no effect here, and why.
UNUSED_OF_JDBC: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "scan.partition.column",
            "scan.partition.num",
            "scan.partition.lower-bound",
            "scan.partition.upper-bound",
            "sink.buffer-flush.max-rows",
            "sink.buffer-flush.interval",
            "sink.max-retries",
            "sink.parallelism",
            "lookup.max-retries",
        ),
        OF_FLINKS_RUNTIME,
    ),
    **dict.fromkeys(
        (
            "lookup.cache",
            "lookup.cache.max-rows",
            "lookup.cache.caching-missing-key",
            "lookup.partial-cache.max-rows",
            "lookup.partial-cache.cache-missing-key",
            "lookup.partial-cache.caching-missing-key",
            "lookup.partial-cache.expire-after-access",
        ),
        "a table that rows are looked up in is kept as a whole, and read anew after lookup.cache.ttl",
    ),
}
