"""Compares a new layout of the table in the log with the columns that are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.foundation.errors import JobError

from headrace_postgres.log.decoding import Relation
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.tables import TableColumn, numeric_digits

if TYPE_CHECKING:
    from headrace_postgres.change_reader import Described

#: Number of ``numeric`` in the catalog.
_NUMERIC = 1700
#: The present columns, by their numbers in the table.
ColumnsNow = Callable[[int], Mapping[int, str]]


#: What happened to a table whose number is another one.
ANOTHER = "was dropped and made anew, or another table has its name now"


def another_table(settings: PostgresChangesSettings, problem: str) -> JobError:
    """Return the error for a table that replaced the one that was followed: the log does not contain what happened to
    the rows of the old one.
    """
    return JobError(
        f"table {settings.database}.{settings.schema}.{settings.table} {problem}", plugin="postgres_changes", option="table",
        hint="empty the target and start with a new checkpoint: the job reads the whole table again",
    )  # fmt: skip


def check_relation(
    relation: Relation, described: Described, settings: PostgresChangesSettings, columns_now: ColumnsNow, queue: str
) -> None:
    """Raise JobError when the table was changed in a way that cannot be followed.

    Columns that were added are left out, and columns that were dropped are NULL from then on.
    """

    def refused(problem: str, hint: str) -> JobError:
        return JobError(
            f"table {settings.database}.{settings.schema}.{settings.table}: {problem}", plugin="postgres_changes",
            option="table", queue=queue, hint=hint,
        )  # fmt: skip

    if relation.number != described.table.number:
        raise another_table(settings, ANOTHER)
    if described.full and relation.identity != "f":
        raise refused(
            f"its REPLICA IDENTITY is now {relation.identity!r}, so the log does not contain old rows",
            "ALTER TABLE … REPLICA IDENTITY FULL, and start with a new checkpoint",
        )
    types = dict(zip(relation.columns, relation.types, strict=True))
    modifiers = dict(zip(relation.columns, relation.modifiers, strict=True))
    for name in described.table.identity_key if relation.identity == "i" else described.table.primary_key:
        if relation.identity != "f" and name not in types:
            raise refused(f"its key has lost the column {name!r}", "start with a new checkpoint")
    key = {column.name for column in described.key}
    if not described.full and relation.identity != "f" and relation.key != key:
        raise refused(
            f"old rows in the log have the columns {', '.join(sorted(relation.key)) or '(none)'}, and the key is {', '.join(sorted(key))}:"
            " its primary key or REPLICA IDENTITY was changed",
            "start with a new checkpoint",
        )
    now: Mapping[int, str] | None = None
    for name, column in described.wanted.items():
        if name in types:
            if types[name] != column.type_number or _digits_differ(column, modifiers[name]):
                raise refused(
                    f"the type of column {name!r} was changed",
                    "start with a new checkpoint, or leave the column out with columns=",
                )
            continue
        if now is None:
            now = columns_now(described.table.number)
        if now.get(column.number) not in (None, name):
            raise refused(
                f"column {name!r} was renamed to {now[column.number]!r}",
                "start with a new checkpoint, or leave the column out with columns=",
            )


def _digits_differ(column: TableColumn, modifier: int) -> bool:
    """Return whether a numeric has other digits now. Those of a domain, whose number is another one, are not in the log."""
    return column.type_number == _NUMERIC and numeric_digits(modifier) != (column.precision, column.scale)
