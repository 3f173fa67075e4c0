"""Catalogs of the type ``jdbc``: the tables of a MySQL or MariaDB server, as they are there when a text names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret

from headrace_sql.binding.definition_stores import DefinitionStore, Kind
from headrace_sql.binding.places import quoted
from headrace_sql.reading.rendering import options_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_URL = re.compile(r"jdbc:(?:mysql|mariadb)://([^:/?]+)(?::(\d+))?/?(?:\?.*)?")
_OF_THE_SERVER = {"information_schema", "mysql", "performance_schema", "sys"}
_WHOLE_NUMBERS = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "MEDIUMINT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "YEAR": "INT",
}
_WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_TEXTS = ("CHAR", "TEXT", "ENUM", "SET", "JSON", "UUID", "INET")
_BYTES = ("BLOB", "BINARY")


class JdbcStore(DefinitionStore):
    """Reads the tables of a server by SQLAlchemy. Nothing is made there: a table is made by the server's own client."""

    read_only = "its tables are those of the server, and are made there"

    def __init__(self, url: str, user: str, password: str) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise OptionError(
                f"base-url {url!r} is not supported",
                option="base-url",
                hint="jdbc:mysql://host:port, without a database",
            )
        self._url = f"jdbc:mysql://{found[1]}:{found[2] or 3306}"
        self._host, self._port = found[1], int(found[2] or 3306)
        self._user, self._password = user, password
        self._engine: Engine | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> JdbcStore:
        """Return the store that the options of a CREATE CATALOG mean. Raises OptionError for a missing one."""
        for key in ("base-url", "default-database", "username", "password"):
            if not options.get(key):
                raise OptionError(f"a catalog of the type 'jdbc' needs {key!r}", option=key)
        return cls(options["base-url"], options["username"], options["password"])

    def databases(self) -> list[str]:
        return [each for each in self._inspector().get_schema_names() if each not in _OF_THE_SERVER]

    def names(self, database: str, kind: Kind) -> list[str]:
        if kind != "table":
            return []
        inspector = self._inspector()
        return sorted([*inspector.get_table_names(schema=database), *inspector.get_view_names(schema=database)])

    def definition(self, database: str, name: str, kind: Kind) -> str | None:
        if kind != "table" or name not in self.names(database, "table"):
            return None
        inspector = self._inspector()
        lines = []
        for column in inspector.get_columns(name, schema=database):
            required = "" if column.get("nullable", True) else " NOT NULL"
            lines.append(
                f"  {quoted(column['name'])} {_type(column['type'], f'{database}.{name}', column['name'])}{required}"
            )
        key = inspector.get_pk_constraint(name, schema=database).get("constrained_columns") or []
        if key:
            lines.append(f"  PRIMARY KEY ({', '.join(map(quoted, key))}) NOT ENFORCED")
        options = {
            "connector": "jdbc", "url": f"{self._url}/{database}", "table-name": name, "username": self._user,
            "password": self._password,
        }  # fmt: skip
        return f"CREATE TABLE {quoted(name)} (\n" + ",\n".join(lines) + f"\n)\n{options_text(options.items())}"

    def create_database(self, database: str) -> None:
        raise OptionError(self.read_only)

    def drop_database(self, database: str) -> None:
        raise OptionError(self.read_only)

    def put(self, database: str, name: str, kind: Kind, text: str) -> None:
        raise OptionError(self.read_only)

    def remove(self, database: str, name: str, kind: Kind) -> None:
        raise OptionError(self.read_only)

    def _inspector(self) -> Any:
        try:
            import sqlalchemy
        except ImportError as error:
            raise OptionError(
                "a catalog of the type 'jdbc' needs SQLAlchemy and PyMySQL", hint="pip install 'headrace-sql[jdbc]'"
            ) from error
        if self._engine is None:
            address = sqlalchemy.URL.create(
                "mysql+pymysql", self._user, Secret(self._password).reveal(), self._host, self._port
            )
            self._engine = sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)
        try:
            return sqlalchemy.inspect(self._engine)
        except sqlalchemy.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise OptionError(
                f"the server {self._host}:{self._port} of the catalog cannot be asked: {reason}"
            ) from None


def _type(kind: Any, table: str, column: str) -> str:
    """Return how a table here declares a column of the server's type, as in Flink's catalog of MySQL."""
    word = type(kind).__name__.upper()
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
        f"column {column!r} of {table} has the type {word}, which no table here has",
        hint="write CREATE TEMPORARY TABLE with the columns that you need",
    )
