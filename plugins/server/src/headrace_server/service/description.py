"""What a service runs, whatever service manager runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.foundation.errors import OptionError

#: How long the service manager waits for the server to end before it kills it. The server waits for its jobs (75 s by default) and for a
#: roll-out that has begun.
STOP_TIMEOUT_SECONDS = 180
#: Between a failure and the next start. A database of the registry may be away for hours, so there is no last try.
RESTART_SECONDS = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class ServiceDescription:
    """A server as a service. All paths are absolute. Raises OptionError for what no service manager can take."""

    name: str
    python: str
    jobs: Path
    data: Path
    #: Variables for the server, one ``NAME=VALUE`` a line. It need not exist.
    environment_file: Path
    #: What happens to jobs when the server ends: ``leave`` lets their processes continue while the server is upgraded.
    on_stop: Literal["stop", "leave"] = "leave"
    #: Further options of ``headrace serve``.
    options: Sequence[str] = ()
    #: Directories into which jobs write, beside those of the server.
    writable: Sequence[Path] = ()
    #: The user of a system service; None: a service of the user who installs it.
    run_as: str | None = None
    #: Whether the service manager takes rights away from the server and its jobs.
    sandbox: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise OptionError(
                f"{self.name!r} is not a name of a service", option="name", hint="letters, digits, dashes, underscores"
            )
        if self.run_as is not None and not _NAME.fullmatch(self.run_as):
            raise OptionError(f"{self.run_as!r} is not a name of a user", option="run_as")
        if self.run_as in ("root", "0"):
            raise OptionError(
                "the service must not run as root, because jobs are code",
                option="run_as",
                hint="create a user for the service: useradd --system",
            )
        paths = {"jobs": self.jobs, "data": self.data, "environment_file": self.environment_file}
        for option, path in (*paths.items(), *(("writable", each) for each in self.writable)):
            _check(str(path), option)
            if not path.is_absolute():
                raise OptionError(f"{path} is not an absolute path", option=option)
        for text in (self.python, *self.options):
            _check(text, "options")

    @property
    def temporary(self) -> Path:
        """Return the directory that the service has as ``/tmp``."""
        return self.data / "tmp"

    def command(self) -> list[str]:
        """Return the command of the server."""
        return [
            self.python, "-m", "headrace_console.command", "serve",
            "--jobs", str(self.jobs), "--data", str(self.data), "--on-stop", self.on_stop, *self.options,
        ]  # fmt: skip


def _check(text: str, option: str) -> None:
    """Refuse text that cannot be written in one line of a text file."""
    if _CONTROL.search(text) or text.endswith("\\"):
        raise OptionError(
            f"{text!r} has control characters, or a backslash at its end", option=option, hint="choose another path"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise OptionError(f"{text!r} is not UTF-8", option=option, hint="choose another path") from None
