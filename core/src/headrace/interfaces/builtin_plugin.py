"""The plug-in of core itself: formats that every connector needs, and secrets in files. It uses the same hooks as
other plug-ins.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "json": "headrace.codecs.json:JsonCodec",
        "csv": "headrace.codecs.csv:CsvCodec",
        "raw": "headrace.codecs.raw:RawCodec",
    }


@hookimpl
def headrace_secret_stores() -> Mapping[str, str]:
    return {"file": "headrace.foundation.secret_files:read_secret_file"}
