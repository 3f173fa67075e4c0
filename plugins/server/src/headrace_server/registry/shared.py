"""Records that servers of one registry share: which server has which unit, the state of its jobs, and the files of versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, RowMapping, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headrace_server.registry.records import JobStatusRecord, RunnerNote, ServerRecord, UnitRecord
from headrace_server.registry.tables import (
    common_settings,
    job_statuses,
    jobs,
    operations,
    runs,
    servers,
    units,
    version_files,
)

#: Below the smallest packet that servers of MySQL take by default.
_PART_BYTES = 512 * 1024
_OUTCOMES = msgspec.json.Decoder(dict[str, tuple[str, str | None]])


class SharedTables:
    """These tables of a registry. May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # ------------------------------------------------------------------------------------------------------ servers

    def servers(self) -> list[ServerRecord]:
        """Return all servers by name, also those that have ended."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(servers).order_by(servers.c.name)).mappings()
            return [msgspec.convert(_plain(row), ServerRecord) for row in rows]

    def change_server(self, name: str, **values: Any) -> None:
        """Change columns of a server."""
        with self.engine.begin() as connection:
            connection.execute(update(servers).where(servers.c.name == name).values(**values))

    # -------------------------------------------------------------------------------------------------------- units

    def units(self) -> dict[str, UnitRecord]:
        """Return which server has which unit."""
        with self.engine.connect() as connection:
            return {row["unit"]: _unit(row) for row in connection.execute(select(units)).mappings()}

    def add_units(self, names: Iterable[str]) -> None:
        """Add units that are new, without a server."""
        for name in names:
            try:
                with self.engine.begin() as connection:
                    connection.execute(insert(units).values(unit=name, epoch=0, busy=False))
            except IntegrityError:  # another server has added it at the same moment
                continue

    def remove_units(self, names: Iterable[str]) -> None:
        """Remove units that have no jobs any more."""
        with self.engine.begin() as connection:
            for name in names:
                connection.execute(delete(units).where(units.c.unit == name))

    def assign(self, connection: Connection, unit: UnitRecord, server: str | None) -> bool:
        """Give a unit to another server, if it is still as it was read. Return whether it was."""
        chosen = (units.c.unit == unit.unit) & (units.c.epoch == unit.epoch)
        changed = update(units).where(chosen).values(server=server, epoch=unit.epoch + 1, busy=False)
        return bool(connection.execute(changed).rowcount)

    def change_unit(self, name: str, server: str, **values: Any) -> None:
        """Change columns of a unit, if the server has it."""
        with self.engine.begin() as connection:
            chosen = (units.c.unit == name) & (units.c.server == server)
            connection.execute(update(units).where(chosen).values(**values))

    def has(self, name: str, server: str) -> bool:
        """Return whether a server has a unit now."""
        query = select(units.c.server).where(units.c.unit == name)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar() == server

    def take_runs(self, unit: str, server: str, socket: str) -> None:
        """Note that another server looks after the process with this socket."""
        chosen = (runs.c.unit == unit) & (runs.c.socket == socket) & runs.c.ended_seconds.is_(None)
        with self.engine.begin() as connection:
            connection.execute(update(runs).where(chosen).values(server=server))

    # --------------------------------------------------------------------------------------------------------- jobs

    def offer(self, job: str, version: int) -> None:
        """Note that the server of a job shall roll out a version."""
        with self.engine.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.name == job).values(offered_version=version))

    def take_offer(self, job: str, version: int) -> None:
        """Note that an offer was carried out, if no newer one was made since."""
        chosen = (jobs.c.name == job) & (jobs.c.offered_version == version)
        with self.engine.begin() as connection:
            connection.execute(update(jobs).where(chosen).values(offered_version=None))

    def statuses(self) -> dict[str, tuple[str, JobStatusRecord]]:
        """Return the reports of servers about their jobs: by job, the server and its report."""
        with self.engine.connect() as connection:
            return {
                row["job"]: (row["server"], msgspec.json.decode(row["status"], type=JobStatusRecord))
                for row in connection.execute(select(job_statuses)).mappings()
            }

    def put_statuses(self, server: str, found: Mapping[str, bytes]) -> None:
        """Store a server's report about jobs, as JSON."""
        with self.engine.begin() as connection:
            for job, status in sorted(found.items()):
                values = {"server": server, "status": status.decode()}
                changed = update(job_statuses).where(job_statuses.c.job == job).values(**values)
                if not connection.execute(changed).rowcount and not _is_there(connection, job):
                    connection.execute(insert(job_statuses).values(job=job, **values))

    def abandon_operations(self, server: str, reason: str, ended_seconds: float) -> None:
        """End the operations of a server that has died."""
        chosen = (operations.c.state == "running") & (operations.c.server == server)
        values = {"state": "failed", "step": "failed", "error": reason, "ended_seconds": ended_seconds}
        with self.engine.begin() as connection:
            connection.execute(update(operations).where(chosen).values(**values))

    # ------------------------------------------------------------------------------------------------ files, settings

    def store_files(self, job: str, number: int, contents: Mapping[str, bytes]) -> None:
        """Store the files of a version. Those of an earlier try are replaced."""
        chosen = (version_files.c.job == job) & (version_files.c.number == number)
        with self.engine.begin() as connection:
            connection.execute(delete(version_files).where(chosen))
        for index, (name, content) in enumerate(sorted(contents.items())):
            for part, begin in enumerate(range(0, len(content) or 1, _PART_BYTES)):
                values = {"job": job, "number": number, "file": index, "part": part, "name": name}
                with self.engine.begin() as connection:
                    piece = content[begin : begin + _PART_BYTES]
                    connection.execute(insert(version_files).values(**values, content=piece))

    def files(self, job: str, number: int) -> dict[str, bytes]:
        """Return the files of a version; empty if the registry does not have them."""
        chosen = (version_files.c.job == job) & (version_files.c.number == number)
        query = select(version_files).where(chosen).order_by(version_files.c.file, version_files.c.part)
        found: dict[str, bytes] = {}
        with self.engine.connect() as connection:
            for row in connection.execute(query).mappings():
                found[row["name"]] = found.get(row["name"], b"") + row["content"]
        return found

    def common(self, name: str, value: str) -> str:
        """Return a setting that all servers have in common. The first server that asks decides: its ``value`` is stored."""
        query = select(common_settings.c.value).where(common_settings.c.name == name)
        try:
            with self.engine.begin() as connection:
                found = connection.execute(query).scalar()
                if found is None:
                    connection.execute(insert(common_settings).values(name=name, value=value))
                    return value
                return str(found)
        except IntegrityError:  # another server was first
            with self.engine.connect() as connection:
                return str(connection.execute(query).scalar())


def note_runner(connection: Connection, unit: str, note: RunnerNote) -> None:
    """Store which process has a unit. Called by the process itself, in a transaction that its lease guards."""
    values = {"runner": msgspec.json.encode(note).decode(), "outcomes": None}
    connection.execute(update(units).where(units.c.unit == unit).values(**values))


def note_outcomes(connection: Connection, unit: str, outcomes: Mapping[str, tuple[str, str | None]]) -> None:
    """Store how jobs have ended. Called by their process, in a transaction that its lease guards."""
    values = {"outcomes": msgspec.json.encode(outcomes).decode().replace("\\u0000", "")}
    connection.execute(update(units).where(units.c.unit == unit).values(**values))


def server_of(connection: Connection, unit: str) -> tuple[str | None, str | None]:
    """Return which server has a unit, and the machine of that server. Called by the unit's process."""
    with_machine = select(units.c.server, servers.c.machine).outerjoin(servers, servers.c.name == units.c.server)
    row = connection.execute(with_machine.where(units.c.unit == unit)).one_or_none()
    return (None, None) if row is None else (row.server, row.machine)


def _unit(row: RowMapping) -> UnitRecord:
    values = _plain(row)
    runner, outcomes = values["runner"], values["outcomes"]
    values["runner"] = None if runner is None else msgspec.json.decode(runner, type=RunnerNote)
    values["outcomes"] = {} if outcomes is None else _OUTCOMES.decode(outcomes)
    return UnitRecord(**values)


def _is_there(connection: Connection, job: str) -> bool:
    # MySQL counts rows that were changed: an update to the same values counts none.
    return connection.execute(select(job_statuses.c.job).where(job_statuses.c.job == job)).first() is not None


def _plain(row: RowMapping) -> dict[str, Any]:
    """Return a row with names that are plain texts: SQLAlchemy's own are a subclass, which msgspec refuses."""
    return {str(name): value for name, value in row.items()}
