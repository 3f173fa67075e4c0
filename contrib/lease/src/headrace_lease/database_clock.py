"""The time of the database, as an SQL expression. All holders of leases are measured by this clock, not by their own
clocks.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

#: Dialects of SQLAlchemy whose clock is known here.
KNOWN_DIALECTS = ("sqlite", "mysql", "mariadb", "postgresql")


class DatabaseMilliseconds(FunctionElement[int]):
    """Milliseconds since the Unix epoch by the database's clock."""

    type = BigInteger()
    inherit_cache = True
    name = "database_milliseconds"


@compiles(DatabaseMilliseconds, "sqlite")
def _sqlite(element: DatabaseMilliseconds, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


# UTC, because a time zone with summer time has an ambiguous hour every year.
@compiles(DatabaseMilliseconds, "mysql")
@compiles(DatabaseMilliseconds, "mariadb")
def _mysql(element: DatabaseMilliseconds, compiler: SQLCompiler, **options: Any) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000)"


# now() would be the time at which the transaction began.
@compiles(DatabaseMilliseconds, "postgresql")
def _postgresql(element: DatabaseMilliseconds, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
