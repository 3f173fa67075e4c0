"""The tables of this room. Passwords, tokens and cookies are in them as hashes only."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()
#: Names differ in case, also on MySQL.
_NAME = sa.String(100).with_variant(mysql.VARCHAR(100, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
_DIGEST = sa.String(64)

USERS = sa.Table(
    "access_users",
    metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("password_hash", sa.String(255), nullable=False),
    sa.Column("role", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Float(53), nullable=False),
    mysql_engine="InnoDB",
)
TOKENS = sa.Table(
    "access_tokens",
    metadata,
    # The public half of a token, by which it is found and shown.
    sa.Column("id", sa.String(20), primary_key=True),
    sa.Column("digest", _DIGEST, nullable=False),
    sa.Column("name", _NAME, nullable=False),
    sa.Column("role", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Float(53), nullable=False),
    sa.Column("expires_at", sa.Float(53)),
    mysql_engine="InnoDB",
)
SESSIONS = sa.Table(
    "access_sessions",
    metadata,
    sa.Column("digest", _DIGEST, primary_key=True),
    # Who has logged in: a user's name, or the id of a token.
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("owner", _NAME, nullable=False, index=True),
    sa.Column("created_at", sa.Float(53), nullable=False),
    sa.Column("used_at", sa.Float(53), nullable=False),
    mysql_engine="InnoDB",
)
AUDIT = sa.Table(
    "access_audit",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float(53), nullable=False),
    sa.Column("who", _NAME, nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("action", sa.String(100), nullable=False),
    sa.Column("target", sa.String(500), nullable=False),
    sa.Column("difference", sa.Text().with_variant(mysql.MEDIUMTEXT, "mysql", "mariadb"), nullable=False),
    mysql_engine="InnoDB",
)
