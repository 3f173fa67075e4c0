"""What became of each instant of a schedule."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from headrace_server.schedules.tables import HISTORY, POSITIONS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class RunState(enum.StrEnum):
    """The life of an instant: ``due`` → ``starting`` → ``started``, or ``skipped``, ``missed``, ``failed``."""

    DUE = "due"  # waits for its start
    STARTING = "starting"  # the start was claimed; whether it was done, the starter knows
    STARTED = "started"
    SKIPPED = "skipped"  # because of the overlap policy
    MISSED = "missed"  # no server ran, and the catch-up policy leaves it out
    FAILED = "failed"  # the start was refused


@dataclass(frozen=True)
class HistoryEntry:
    """One instant."""

    job: str
    due: datetime
    state: RunState
    #: What the starter returned; None before the start.
    run: str | None
    changed: datetime
    reason: str


def to_milliseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND


def to_instant(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def entries(
    connection: sa.Connection,
    job: str | None = None,
    *states: RunState,
    newest_first: bool = False,
    count_max: int = 10_000,
) -> list[HistoryEntry]:
    """Return entries by their instant."""
    statement = sa.select(HISTORY).limit(count_max)
    order = (HISTORY.c.due_ms, HISTORY.c.job)
    statement = statement.order_by(*(each.desc() for each in order) if newest_first else order)
    if job is not None:
        statement = statement.where(HISTORY.c.job == job)
    if states:
        statement = statement.where(HISTORY.c.state.in_([str(state) for state in states]))
    return [
        HistoryEntry(
            row.job, to_instant(row.due_ms), RunState(row.state), row.run, to_instant(row.changed_ms), row.reason
        )
        for row in connection.execute(statement)
    ]


def add(connection: sa.Connection, entry: HistoryEntry, token: int) -> bool:
    """Add an instant, unless it is there: the clock may have been set back, or another schedule may have had it. Return whether it is new.

    Called with the lease of the schedules, so that nobody else adds it at the same time.
    """
    there = sa.select(HISTORY.c.due_ms).where(
        HISTORY.c.job == entry.job, HISTORY.c.due_ms == to_milliseconds(entry.due)
    )
    if connection.execute(there).first() is not None:
        return False
    connection.execute(
        sa.insert(HISTORY).values(
            job=entry.job,
            due_ms=to_milliseconds(entry.due),
            state=str(entry.state),
            token=token,
            run=entry.run,
            changed_ms=to_milliseconds(entry.changed),
            reason=entry.reason,
        )
    )
    return True


def change(connection: sa.Connection, entry: HistoryEntry, token: int, now: datetime, **values: Any) -> bool:
    """Change the state of an instant if it is still as the entry says. Return whether it was."""
    statement = sa.update(HISTORY).where(
        HISTORY.c.job == entry.job, HISTORY.c.due_ms == to_milliseconds(entry.due), HISTORY.c.state == str(entry.state)
    )
    texts = {name: str(value) if isinstance(value, RunState) else value for name, value in values.items()}
    changed = statement.values(token=token, changed_ms=to_milliseconds(now), **texts)
    return bool(connection.execute(changed).rowcount)


def position(connection: sa.Connection, job: str, definition: str) -> datetime | None:
    """Return up to where a schedule was worked off, or None for one that is new or was changed."""
    found = connection.execute(
        sa.select(POSITIONS.c.until_ms).where(POSITIONS.c.job == job, POSITIONS.c.definition == definition)
    ).scalar_one_or_none()
    return None if found is None else to_instant(found)


def set_position(connection: sa.Connection, job: str, definition: str, until: datetime) -> None:
    """Note up to where a schedule was worked off."""
    values = {"until_ms": to_milliseconds(until), "definition": definition}
    if not connection.execute(sa.update(POSITIONS).where(POSITIONS.c.job == job).values(values)).rowcount:
        connection.execute(sa.insert(POSITIONS).values(job=job, **values))


def remove_old(connection: sa.Connection, before: datetime) -> int:
    """Remove entries that are older and have come to their end; return how many."""
    open_states = [str(RunState.DUE), str(RunState.STARTING)]
    old = HISTORY.c.due_ms < to_milliseconds(before)
    return connection.execute(sa.delete(HISTORY).where(old, HISTORY.c.state.not_in(open_states))).rowcount
