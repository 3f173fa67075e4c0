"""The audit log: each change, its author and its content."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from headrace.foundation.clock import Clock
from headrace.foundation.secrecy import is_secret_name

from headrace_server.access.roles import Principal
from headrace_server.access.secret_places import without_secrets
from headrace_server.access.tables import AUDIT

logger = logging.getLogger(__name__)
_DIFFERENCE_LENGTH_MAX = 1_000_000
_ACTION_LENGTH_MAX = 100
_TARGET_LENGTH_MAX = 500


@dataclass(frozen=True)
class AuditEntry:
    """One change."""

    number: int
    #: Seconds since the Unix epoch by the server's clock.
    at: float
    who: str
    role: str
    action: str
    target: str
    difference: str


class AuditLog:
    """Keeps changes in the server's database. There is no method that changes or removes an entry.

    Does not guarantee that a person with rights on the database leaves the entries as they are.
    """

    def __init__(self, engine: sa.Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def record(
        self,
        principal: Principal,
        action: str,
        target: str,
        *,
        before: Any = None,
        after: Any = None,
        secrets: Iterable[str] = (),
        transaction: sa.Connection | None = None,
    ) -> None:
        """Keep one change. Texts are compared line by line, other values as JSON; secrets are masked.

        Give the ``transaction`` of the change itself, if it is in this database: then both are stored or none. Else call it
        before the change is made. ``secrets`` are values that must not show. Raises what SQLAlchemy raises: a change that cannot be
        recorded must not be made.
        """
        values = list(secrets)
        row = {
            "at": self._clock.now(),
            "who": principal.name,
            "role": principal.role.name.lower(),
            "action": one_line(action)[:_ACTION_LENGTH_MAX],
            "target": one_line(without_secrets(target, values))[:_TARGET_LENGTH_MAX],
            "difference": difference(before, after, values),
        }
        statement = sa.insert(AUDIT).values(**row)
        if transaction is not None:
            transaction.execute(statement)
        else:
            with self._engine.begin() as own:
                own.execute(statement)
        logger.info("%s (%s): %s %s", row["who"], row["role"], row["action"], row["target"])

    def entries(
        self, *, target: str | None = None, before: int | None = None, count_max: int = 100
    ) -> list[AuditEntry]:
        """Return entries, newest first; ``before`` is the number of the last one of the page before."""
        statement = sa.select(AUDIT).order_by(AUDIT.c.number.desc()).limit(count_max)
        if target is not None:
            statement = statement.where(AUDIT.c.target == target)
        if before is not None:
            statement = statement.where(AUDIT.c.number < before)
        with self._engine.connect() as connection:
            return [AuditEntry(**row._mapping) for row in connection.execute(statement)]


def one_line(text: str) -> str:
    """Return a text with control characters escaped, so that it cannot make a second line in a log or colour a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def difference(before: Any, after: Any, secrets: Iterable[str] = ()) -> str:
    """Return the changes as a unified diff with secrets masked; the values of names such as ``password`` never appear."""
    values = list(secrets)
    old, new = (without_secrets(_shown(each), values).splitlines() for each in (before, after))
    text = "\n".join(difflib.unified_diff(old, new, "before", "after", lineterm="", n=2))
    if not text and before != after:
        return "only secrets have changed"
    return text if len(text) <= _DIFFERENCE_LENGTH_MAX else f"{text[:_DIFFERENCE_LENGTH_MAX]}\n… (cut)"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return "\n".join(one_line(line) for line in value.splitlines())
    return json.dumps(_masked_values(value), indent=1, sort_keys=True, ensure_ascii=False, default=str)


def _masked_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        # A place such as ${VARIABLE} is no secret, and people want to see that it has changed.
        return {
            str(name): "***" if is_secret_name(str(name)) and not _is_place(each) else _masked_values(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked_values(each) for each in value]
    return value


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("${") and value.endswith("}") and value.count("{") == 1
