"""What headrace-protobuf offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "protobuf": "headrace_protobuf.codec:ProtobufCodec",
        "protobuf-confluent": "headrace_protobuf.confluent:ProtobufConfluentCodec",
    }
