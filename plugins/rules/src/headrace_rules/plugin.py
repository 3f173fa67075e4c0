"""What headrace-rules offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.hookspecs import hookimpl


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"rules": "headrace_rules.verb:Rules"}
