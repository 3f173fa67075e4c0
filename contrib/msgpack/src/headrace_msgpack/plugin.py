"""What headrace-msgpack offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {"msgpack": "headrace_msgpack.codec:MsgpackCodec", "cbor": "headrace_msgpack.codec:CborCodec"}
