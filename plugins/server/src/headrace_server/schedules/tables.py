"""The tables of this room."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()
_JOB = sa.String(200).with_variant(mysql.VARCHAR(200, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")

#: How far each schedule is.
POSITIONS = sa.Table(
    "schedule_positions",
    metadata,
    sa.Column("job", _JOB, primary_key=True),
    # The schedule of the position: a changed schedule starts with a new position.
    sa.Column("definition", sa.String(500), nullable=False),
    # Instants up to this one, in milliseconds since the Unix epoch, are in the history or do not count.
    sa.Column("until_ms", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)
#: One row for each instant of a schedule that was due.
HISTORY = sa.Table(
    "schedule_history",
    metadata,
    sa.Column("job", _JOB, primary_key=True),
    sa.Column("due_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    # The token of the lease under which the state was written.
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("run", sa.String(100)),
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.String(500), nullable=False),
    mysql_engine="InnoDB",
)
