"""The property list of launchd, on macOS."""

from __future__ import annotations

import plistlib
from typing import Any

from headrace_server.service.description import RESTART_SECONDS, STOP_TIMEOUT_SECONDS, ServiceDescription

#: launchd reads no file of variables. The file and the command are arguments, so nothing of them is quoted.
READ_VARIABLES = 'if [ -f "$1" ]; then set -a; . "$1"; set +a; fi; shift; exec "$@"'


def label_of(name: str) -> str:
    """Return how launchd calls a service."""
    return name if name == "headrace" else f"headrace.{name}"


def property_list(description: ServiceDescription) -> bytes:
    """Return the property list as XML."""
    content: dict[str, Any] = {
        "Label": label_of(description.name),
        "ProgramArguments": [
            "/bin/sh", "-c", READ_VARIABLES, "headrace", str(description.environment_file), *description.command(),
        ],
        "WorkingDirectory": str(description.data),
        "EnvironmentVariables": {"TMPDIR": str(description.temporary)},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_SECONDS,
        "ExitTimeOut": STOP_TIMEOUT_SECONDS,
        # Otherwise launchd ends the server's child processes when the server ends.
        "AbandonProcessGroup": description.on_stop == "leave",
        "Umask": 0o077,
        "StandardOutPath": str(description.data / "server.log"),
        "StandardErrorPath": str(description.data / "server.log"),
    }  # fmt: skip
    if description.run_as is not None:
        content["UserName"] = description.run_as
    return plistlib.dumps(content)
