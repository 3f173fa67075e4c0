"""What headrace-light offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_backends() -> Mapping[str, str]:
    return {"light": "headrace_light.backend:LightBackend"}


@hookimpl
def headrace_state_stores() -> Mapping[str, str]:
    return {"directory": "headrace_light.state_directory:DirectoryStateStore"}
