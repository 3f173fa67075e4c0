"""What headrace-avro offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"avro": "headrace_avro.container_files:AvroFileSource"}


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {"avro": "headrace_avro.codec:AvroCodec", "avro-confluent": "headrace_avro.confluent:AvroConfluentCodec"}
