"""Which versions of headrace can use a registry: an old server beside a new one, a new one on what an old one has made.

A new version adds tables, and columns that may be empty; it changes and removes none. So servers of both versions can run together, and
``SCHEMA`` need not grow. If a change cannot be made in this way, ``SCHEMA`` grows and ``OLDEST_BESIDE`` becomes the same: then servers
that know less are refused, each with the reason, instead of reading rows wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.foundation.errors import OptionError
from sqlalchemy import Connection, Engine, inspect, select, update
from sqlalchemy.exc import IntegrityError

from headrace_server.registry.tables import common_settings, servers

#: What this version writes and understands.
SCHEMA = 1
#: Servers that understand less cannot use a registry that this version uses.
OLDEST_BESIDE = 1
_NEEDED = "schema_needed"
_NEEDED_BY = "schema_needed_by"


def check_schema(engine: Engine, version: str) -> None:
    """Refuse a registry that a later version of headrace uses in a way that this one does not know. Raises OptionError.

    Called before anything is read or made.
    """
    if not inspect(engine).has_table(common_settings.name):
        return
    with engine.connect() as connection:
        needed = int(_read(connection, _NEEDED) or 0)
        by = _read(connection, _NEEDED_BY)
    if needed > SCHEMA:
        raise OptionError(
            f"headrace {by} uses this registry, and headrace {version} cannot read what the newer version has stored",
            option="registry",
            hint="upgrade headrace on this server; to go back instead, restore a backup of the registry from before the upgrade",
        )


def claim_schema(engine: Engine, version: str, alive: Iterable[str]) -> None:
    """Note what servers must understand from now on. ``alive``: names of the other servers that run now.

    Raises OptionError if one of them understands less: both would read rows wrongly.
    """
    with engine.begin() as connection:
        names = set(alive)
        query = select(servers.c.name, servers.c.version, servers.c.schema)
        found = [row for row in connection.execute(query) if row.name in names]
        # A version that does not say which schema it understands is from before that was noted.
        old = [row for row in found if (row.schema or 1) < OLDEST_BESIDE]
        if old:
            raise OptionError(
                f"the server {old[0].name!r} with headrace {old[0].version} runs on this registry, and cannot run together with headrace "
                f"{version}",
                option="registry",
                hint="stop the servers with the older headrace first; this server then starts their jobs",
            )
        if int(_read(connection, _NEEDED) or 0) >= OLDEST_BESIDE:
            return
    for name, value in ((_NEEDED_BY, version), (_NEEDED, str(OLDEST_BESIDE))):
        _write(engine, name, value)


def _read(connection: Connection, name: str) -> str | None:
    return connection.execute(select(common_settings.c.value).where(common_settings.c.name == name)).scalar()


def _write(engine: Engine, name: str, value: str) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(common_settings.insert().values(name=name, value=value))
    except IntegrityError:
        with engine.begin() as connection:
            connection.execute(update(common_settings).where(common_settings.c.name == name).values(value=value))
