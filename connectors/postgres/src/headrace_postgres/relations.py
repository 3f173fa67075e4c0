"""What a new layout of the table in the log says of changes of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.foundation.errors import JobError

from headrace_postgres.log.decoding import Relation
from headrace_postgres.settings import PostgresChangesSettings

if TYPE_CHECKING:
    from headrace_postgres.change_reader import Described

#: What columns there are now, by their numbers in the table.
ColumnsNow = Callable[[int], Mapping[int, str]]


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

    if described.full and relation.identity != "f":
        raise refused(
            f"its REPLICA IDENTITY is now {relation.identity!r}, so the log lacks old rows",
            "ALTER TABLE … REPLICA IDENTITY FULL, and start with a new checkpoint",
        )
    types = dict(zip(relation.columns, relation.types, strict=True))
    for name in described.table.identity_key if relation.identity == "i" else described.table.primary_key:
        if relation.identity != "f" and name not in types:
            raise refused(f"its key has lost the column {name!r}", "start with a new checkpoint")
    now: Mapping[int, str] | None = None
    for name, column in described.wanted.items():
        if name in types:
            if types[name] != column.type_number:
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
