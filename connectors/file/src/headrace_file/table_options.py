"""How SQL texts write the options of tables in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlparse

from headrace.interfaces.table_options import BLINK_FORMAT, OF_FLINKS_RUNTIME, TableOption, TableOptions


def _path(text: str) -> Mapping[str, Any]:
    if text.startswith("file:"):
        parsed = urlparse(text)
        text = unquote(parsed.path) or text
    return {"path": text}


_UNUSED = dict.fromkeys(
    (
        "sink.partition-commit.trigger",
        "sink.partition-commit.delay",
        "sink.partition-commit.policy.kind",
        "partition.time-extractor.timestamp-pattern",
        "sink.rolling-policy.rollover-interval",
        "sink.rolling-policy.check-interval",
        "sink.rolling-policy.file-size",
        "source.monitor-interval",
        "partition.time-extractor.kind",
        "sink.parallelism",
        "auto-compaction",
        "compaction.file-size",
        "compaction.parallelism",
        "sink.shuffle-by-partition.enable",
        "sink.partition-commit.success-file.name",
        "sink.partition-commit.watermark-time-zone",
        "partition.time-extractor.timestamp-formatter",
    ),
    OF_FLINKS_RUNTIME,
)
_BLINK: Mapping[str, TableOption] = {"filePath": _path, "path": _path, **BLINK_FORMAT}


def _default_name(text: str) -> Mapping[str, Any]:
    if text != "__DEFAULT_PARTITION__":
        raise ValueError(
            "__DEFAULT_PARTITION__ is the name of the directory for NULL; __HIVE_DEFAULT_PARTITION__ is read, too"
        )
    return {}


def _name_pattern(text: str) -> Mapping[str, Any]:
    raise ValueError(
        "no option: write a pattern in 'path', as in 'logs/*.json', and patterns of files to leave out in 'exclude'"
    )


def _divided(columns: Sequence[str]) -> Mapping[str, Any]:
    return {"partition_by": tuple(columns)}


def _within(options: Mapping[str, Any], values: Mapping[str, str | None]) -> Mapping[str, Any]:
    return {**options, "partition": dict(values)}


def _with_folders(columns: Sequence[str]) -> Mapping[str, Any]:
    return {"recursive": True}


SOURCE_TABLES: Mapping[str, TableOptions] = {
    "filesystem": TableOptions(
        {"path": _path, "partition.default-name": _default_name, "source.path.regex-pattern": _name_pattern},
        _UNUSED,
        format="json",
        with_partitions=_with_folders,
    ),
    "file": TableOptions(_BLINK, format="json", with_partitions=_with_folders),
}
#: A table reads what it has written: files of csv begin with a header, or do not, in both directions.
_DEFAULTS: Mapping[str, Any] = {"header": False}
SINK_TABLES: Mapping[str, TableOptions] = {
    "filesystem": TableOptions(
        {"path": _path, "partition.default-name": _default_name},
        _UNUSED,
        defaults=_DEFAULTS,
        with_partitions=_divided,
        within_partition=_within,
    ),
    "file": TableOptions(_BLINK, defaults=_DEFAULTS, with_partitions=_divided, within_partition=_within),
}
