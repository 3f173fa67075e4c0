"""What can go wrong when a test server is prepared, started or stopped."""

from __future__ import annotations

from pathlib import Path


class TestServerError(Exception):
    """Base of everything that this package raises on purpose; the message says how to mend it."""

    __test__ = False  # the name starts with "Test", which pytest would otherwise try to collect


class MissingProgramError(TestServerError):
    """A program (Java, Maven, MariaDB) is not installed and cannot be installed from here."""


class MissingDownloadError(TestServerError):
    """What a server consists of cannot be fetched from here: there is no network, or a repository does not answer."""


class ServerStartError(TestServerError):
    """A server process ended, or was not ready in time; carries the end of its log."""

    def __init__(self, label: str, log: Path, reason: str) -> None:
        tail = log.read_text(errors="replace")[-6000:] if log.exists() else "(no log)"
        super().__init__(f"{label} did not start: {reason}. The end of {log}:\n{tail}")


class ExternalServerError(TestServerError):
    """Asked to stop or start a server that somebody else started (a HEADRACE_TEST_* variable names it)."""


class SharedServerError(TestServerError):
    """Asked to stop a server that other test processes are using as well."""
