"""How SQL texts write the options of a connector: ``WITH ('connector' = 'kafka', 'properties.group.id' = 'g')``.

A source or sink declares it in its ``table_options``; texts that use the plug-in's own names for its options need nothing declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: What an option of a text becomes: an option of the plug-in by its name, or the options that a function makes of the text. The
#: function raises ValueError, saying what it takes, for a text that it cannot use.
TableOption = str | Callable[[str], Mapping[str, Any]]


def _nothing(key: Sequence[str]) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class TableOptions:
    """The options of a table with one connector name, beside those by the plug-in's own names, with ``-`` or ``_``.

    Results of functions may have ``format`` and ``start``, too, as in ``stream.from_<name>(…, format=…, start=…)``.
    """

    options: Mapping[str, TableOption] = field(default_factory=dict)
    #: Options that texts have and that mean nothing here, and why: a text that has one gets a notice.
    unused: Mapping[str, str] = field(default_factory=dict)
    #: Options of the plug-in that hold several, by how their names begin in texts: ``{"properties.": "conf"}``.
    prefixes: Mapping[str, str] = field(default_factory=dict)
    #: Of a source: the format of its bodies where the text names none; None: it gives columns.
    format: str | None = None
    #: Of a source: the option that takes the table's columns, as type names by column.
    columns_option: str | None = None
    #: Of a sink: the options that follow from the table's PRIMARY KEY, where the text does not give them.
    with_key: Callable[[Sequence[str]], Mapping[str, Any]] = _nothing
    #: Of a sink: whether its tables must have a PRIMARY KEY.
    needs_key: bool = False
    #: The options that follow from PARTITIONED BY, of a plug-in that has the partition columns in the names of its queues, as in
    #: ``day=2024-01-31/part.json``, and not in its records; None: they are columns like any other.
    with_partitions: Callable[[Sequence[str]], Mapping[str, Any]] | None = None
    #: Of such a sink: its options for one partition alone, given those of the table and the texts of the partition's values.
    within_partition: Callable[[Mapping[str, Any], Mapping[str, str | None]], Mapping[str, Any]] | None = None
    #: Of a source: whether its records are rows by key (the format ``upsert``), and the format of the text that of their values. Then the
    #: options ``key_format``, ``key_prefix`` and ``value_fields_include`` go to that format.
    upserts: bool = False
    #: Of a source: whether columns can be in the keys of its records (the format ``keyed``). Then the options ``key_columns``,
    #: ``key_format``, ``key_prefix`` and ``value_fields_include`` say which, and go to that format.
    keyed: bool = False
    #: Why tables with this name cannot be used, in one sentence; None: they can.
    refused: str | None = None
    #: Of a sink: options of the plug-in that a table has where the text does not give them.
    defaults: Mapping[str, Any] = field(default_factory=dict)


def ignored(text: str) -> Mapping[str, Any]:
    """Accept an option that holds anyway, or that is only for the other direction, without a notice."""
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
