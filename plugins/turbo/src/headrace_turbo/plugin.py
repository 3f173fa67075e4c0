"""What headrace-turbo offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_decoders() -> Mapping[str, str]:
    return {"json": "headrace_turbo.offer:faster_json_decoder"}


@hookimpl
def headrace_accelerators() -> Mapping[str, str]:
    return {
        "find_byte": "headrace_turbo.byte_search:faster_find_byte",
        "count_byte": "headrace_turbo.byte_search:faster_count_byte",
        "group_sums": "headrace_turbo.group_sums:faster_group_sums",
        "text_sums": "headrace_turbo.text_sums:faster_text_sums",
    }
