"""What headrace-changes offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "debezium-json": "headrace_changes.debezium:DebeziumJsonCodec",
        "canal-json": "headrace_changes.canal:CanalJsonCodec",
        "maxwell-json": "headrace_changes.maxwell:MaxwellJsonCodec",
        "ogg-json": "headrace_changes.ogg:OggJsonCodec",
        "changelog-json": "headrace_changes.changelog:ChangelogJsonCodec",
        "keyed": "headrace_changes.keyed:KeyedCodec",
        "upsert": "headrace_changes.upsert:UpsertCodec",
    }
