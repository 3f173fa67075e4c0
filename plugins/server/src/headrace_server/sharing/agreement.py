"""What the servers of one registry must have in common, checked when one joins."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from headrace.foundation.errors import OptionError
from sqlalchemy import Engine

from headrace_server.registry.shared import SharedTables
from headrace_server.sharing.machines import machine_id

#: Long enough for a restart of the database, short enough that jobs of a dead machine run elsewhere within 15 s.
DEFAULT_LEASE_DURATION = timedelta(seconds=8)
_SHORTEST, _LONGEST = timedelta(seconds=3), timedelta(minutes=10)


def check_agreement(
    tables: SharedTables, engine: Engine, *, shared: Path | None, shared_id: str | None, lease_duration: timedelta
) -> None:
    """Compare a server's options with those of the first server of the registry. Raises OptionError with the difference."""
    if not _SHORTEST <= lease_duration <= _LONGEST:
        raise OptionError("must be between 3 s and 10 min", option="lease_duration")
    if engine.dialect.name == "sqlite":
        machine = tables.common("machine", machine_id())
        if machine != machine_id():
            raise OptionError(
                "the registry is a SQLite file that servers of another machine use: locks of files do not hold between machines",
                option="registry",
                hint="use MySQL, MariaDB or PostgreSQL for servers on several machines",
            )
    milliseconds = str(lease_duration // timedelta(milliseconds=1))
    first = tables.common("lease_duration_ms", milliseconds)
    if first != milliseconds:
        raise OptionError(
            f"the first server of the registry has {int(first) / 1000:g} s",
            option="lease_duration",
            hint="give each server the same value",
        )
    known = tables.common("shared", shared_id or "")
    if known != (shared_id or ""):
        raise OptionError(
            _difference(known, shared), option="shared",
            hint="give each server of a registry the same directory, or none; to change it, start with a new registry",
        )  # fmt: skip


def _difference(known: str, shared: Path | None) -> str:
    if not known:
        return "the servers of this registry share no directory"
    if shared is None:
        return "the servers of this registry share a directory, and this one was given none"
    return f"{shared} is not the directory that the other servers of this registry share"
