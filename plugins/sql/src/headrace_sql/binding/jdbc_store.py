"""Catalogs of the type ``jdbc``: the tables of a MySQL, MariaDB or PostgreSQL server, as they are there when a text names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret

from headrace_sql.binding.definition_stores import DefinitionStore, Kind
from headrace_sql.binding.places import quoted
from headrace_sql.reading.rendering import options_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_URL = re.compile(r"jdbc:(mysql|mariadb|postgresql)://([^:/?]+)(?::(\d+))?/?")
_OF_THE_SERVER = {"information_schema", "mysql", "performance_schema", "sys", "pg_catalog", "pg_toast"}
_PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432}
#: The schema of tables that are named without one.
_PUBLIC = "public"
_WHOLE_NUMBERS = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "MEDIUMINT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "YEAR": "INT",
}
_WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_DIGITS_MAX = 38
#: All others are texts.
_POSTGRESQL = {
    "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT", "OID": "BIGINT", "REAL": "FLOAT", "DOUBLE_PRECISION": "DOUBLE",
    "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN", "BYTEA": "BYTES", "DATE": "DATE",
}  # fmt: skip
_TEXTS = ("CHAR", "TEXT", "ENUM", "SET", "JSON", "UUID", "INET")
_BYTES = ("BLOB", "BINARY")


class JdbcStore(DefinitionStore):
    """Reads the tables of a server by SQLAlchemy. Nothing is made there: a table is made by the server's own client."""

    read_only = "its tables are those of the server, and are made there"

    def __init__(self, url: str, user: str, password: str, default_database: str = "") -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise OptionError(
                f"base-url {url.partition('?')[0]!r} is not supported"
                + (", nor are its parameters" if "?" in url else ""),
                option="base-url",
                hint="jdbc:mysql://host:port or jdbc:postgresql://host:port, without a database and parameters",
            )
        #: PostgreSQL's databases have schemas, and each connection has one database; to MySQL a database is a schema.
        self._has_schemas = found[1] == "postgresql"
        self._host, self._port = found[2], int(found[3] or _PORTS[found[1]])
        self._url = f"jdbc:{'postgresql' if self._has_schemas else 'mysql'}://{self._host}:{self._port}"
        self._user, self._password, self._default = user, password, default_database
        self._engines: dict[str, Engine] = {}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> JdbcStore:
        """Return the store that the options of a CREATE CATALOG mean. Raises OptionError for a missing one."""
        for key in ("base-url", "default-database", "username", "password"):
            if not options.get(key):
                raise OptionError(f"a catalog of the type 'jdbc' needs {key!r}", option=key)
        return cls(options["base-url"], options["username"], options["password"], options["default-database"])

    def databases(self) -> list[str]:
        if self._has_schemas:
            return self._postgresql_databases()
        return [each for each in self._inspector("").get_schema_names() if each not in _OF_THE_SERVER]

    def names(self, database: str, kind: Kind) -> list[str]:
        """Return the names of tables and views. Those of PostgreSQL's other schemas than ``public`` are ``schema.table``, as in Flink."""
        if kind != "table":
            return []
        inspector = self._inspector(database)
        if not self._has_schemas:
            return sorted([*inspector.get_table_names(schema=database), *inspector.get_view_names(schema=database)])
        found = []
        for schema in inspector.get_schema_names():
            if schema not in _OF_THE_SERVER:
                prefix = "" if schema == _PUBLIC else f"{schema}."
                tables = [*inspector.get_table_names(schema=schema), *inspector.get_view_names(schema=schema)]
                found += [prefix + name for name in [*tables, *inspector.get_materialized_view_names(schema=schema)]]
        return sorted(found)

    def definition(self, database: str, name: str, kind: Kind) -> str | None:
        plain = name.removeprefix(f"{_PUBLIC}.") if self._has_schemas else name
        if kind != "table" or plain not in self.names(database, "table"):
            return None
        schema, table = database, plain
        if self._has_schemas:
            schema, _, table = plain.rpartition(".") if "." in plain else (_PUBLIC, "", plain)
        inspector = self._inspector(database)
        lines = []
        for column in inspector.get_columns(table, schema=schema):
            required = "" if column.get("nullable", True) else " NOT NULL"
            kind_here = _type(column["type"], f"{database}.{name}", column["name"], postgresql=self._has_schemas)
            lines.append(f"  {quoted(column['name'])} {kind_here}{required}")
        key = inspector.get_pk_constraint(table, schema=schema).get("constrained_columns") or []
        if key:
            lines.append(f"  PRIMARY KEY ({', '.join(map(quoted, key))}) NOT ENFORCED")
        options = {
            "connector": "jdbc", "url": f"{self._url}/{database}", "table-name": self._table_name(schema, table),
            "username": self._user, "password": self._password,
        }  # fmt: skip
        return f"CREATE TABLE {quoted(name)} (\n" + ",\n".join(lines) + f"\n)\n{options_text(options.items())}"

    def _table_name(self, schema: str, table: str) -> str:
        """Return the connector's options that name the table."""
        if not self._has_schemas:
            return table
        return ".".join('"' + each.replace('"', '""') + '"' for each in (schema, table))

    def create_database(self, database: str) -> None:
        raise OptionError(self.read_only)

    def drop_database(self, database: str) -> None:
        raise OptionError(self.read_only)

    def put(self, database: str, name: str, kind: Kind, text: str) -> None:
        raise OptionError(self.read_only)

    def remove(self, database: str, name: str, kind: Kind) -> None:
        raise OptionError(self.read_only)

    def _postgresql_databases(self) -> list[str]:
        sqlalchemy = _sqlalchemy()
        with self._asking(), self._engine(self._default).connect() as connection:
            found = connection.execute(
                sqlalchemy.text("SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1")
            )
            return [str(name) for (name,) in found]

    def _inspector(self, database: str) -> Any:
        engine = self._engine(database)
        with self._asking():
            return _sqlalchemy().inspect(engine)

    def _engine(self, database: str) -> Engine:
        sqlalchemy = _sqlalchemy()
        key = database if self._has_schemas else ""
        if key not in self._engines:
            address = sqlalchemy.URL.create(
                "postgresql+psycopg" if self._has_schemas else "mysql+pymysql", self._user, Secret(self._password).reveal(),
                self._host, self._port, database=key or None,
            )  # fmt: skip
            self._engines[key] = sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)
        return self._engines[key]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn errors of the server into OptionError, without the secrets of the address."""
        try:
            yield
        except _sqlalchemy().exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise OptionError(f"the server {self._host}:{self._port} of the catalog cannot be read: {reason}") from None


def _sqlalchemy() -> Any:
    """Return the library, which only catalogs of this type need. Raises OptionError if it is not installed."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise OptionError(
            "a catalog of the type 'jdbc' needs SQLAlchemy, and PyMySQL or psycopg",
            hint="pip install 'headrace-sql[jdbc]'",
        ) from error
    return sqlalchemy


def _type(kind: Any, table: str, column: str, *, postgresql: bool = False) -> str:
    """Return how a table here declares a column of the server's type, as in Flink's catalogs of MySQL and PostgreSQL."""
    word = type(kind).__name__.upper()
    if postgresql:
        return _postgresql_type(kind, word)
    if word == "TINYINT" and getattr(kind, "display_width", None) == 1:
        return "BOOLEAN"
    if word in _WHOLE_NUMBERS:
        narrow = _WHOLE_NUMBERS[word]
        return _WIDER[narrow] if getattr(kind, "unsigned", False) else narrow
    if word in ("DECIMAL", "NUMERIC"):
        precision = min(38, kind.precision or 10)
        return f"DECIMAL({precision}, {min(kind.scale or 0, precision)})"
    if word in ("FLOAT", "DOUBLE", "REAL"):
        return "FLOAT" if word == "FLOAT" else "DOUBLE"
    if word in ("DATE", "TIME"):
        return word
    if word in ("DATETIME", "TIMESTAMP"):
        return f"TIMESTAMP({getattr(kind, 'fsp', None) or 0})"
    if word == "BIT":
        return "BOOLEAN" if getattr(kind, "length", 1) in (None, 1) else "BYTES"
    if any(each in word for each in _BYTES):
        return "BYTES"
    if any(each in word for each in _TEXTS):
        return "STRING"
    raise OptionError(
        f"column {column!r} of {table} has the type {word}, which headrace does not support",
        hint="write CREATE TEMPORARY TABLE with the columns that you need",
    )


def _postgresql_type(kind: Any, word: str) -> str:
    """Return the type that the connector gives. What it reads as text (JSON, UUID, arrays, enumerations) is STRING."""
    if word == "DOMAIN":
        return _postgresql_type(kind.data_type, type(kind.data_type).__name__.upper())
    if word in ("NUMERIC", "DECIMAL"):
        # One without digits has any, and is read as text.
        fits = kind.precision and kind.precision <= _DIGITS_MAX and 0 <= (kind.scale or 0) <= kind.precision
        return f"DECIMAL({kind.precision}, {kind.scale or 0})" if fits else "STRING"
    if word in ("TIMESTAMP", "TIME"):
        digits = 6 if kind.precision is None else kind.precision
        if word == "TIME":
            return "STRING" if kind.timezone else "TIME"
        return f"TIMESTAMP_LTZ({digits})" if kind.timezone else f"TIMESTAMP({digits})"
    return _POSTGRESQL.get(word, "STRING")
