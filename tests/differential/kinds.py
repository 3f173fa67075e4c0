"""The types of columns: what they are called in headrace, in Flink's SQL and in DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Kind:
    """A type. ``digits`` and ``scale`` are of decimals, ``element`` is of arrays and of the values of a map, ``fields`` are of rows.

    The keys of maps are texts. To DuckDB a map is what it is to headrace: an array of entries.
    """

    name: str
    digits: int = 0
    scale: int = 0
    element: Kind | None = None
    fields: tuple[tuple[str, Kind], ...] = ()

    @property
    def nested(self) -> bool:
        return self.name in ("array", "row", "map")

    @property
    def entries(self) -> Kind:
        """The type of a map as an array of entries."""
        assert self.element is not None
        return Kind("array", element=Kind("row", fields=(("key", STRING), ("value", self.element))))

    @property
    def number(self) -> bool:
        return self.name in ("int", "bigint", "double", "decimal")

    @property
    def whole(self) -> bool:
        return self.name in ("int", "bigint")

    def __str__(self) -> str:
        return self.headrace

    @property
    def headrace(self) -> str:
        """The type's name in a schema of the Python DSL."""
        if self.name == "decimal":
            return f"decimal({self.digits}, {self.scale})"
        if self.name == "array":
            return f"array<{self.element}>"
        if self.name == "row":
            return f"struct<{', '.join(f'{name}: {kind.headrace}' for name, kind in self.fields)}>"
        if self.name == "map":
            return self.entries.headrace
        return {
            "int": "int32",
            "bigint": "int64",
            "double": "float64",
            "timestamp": "timestamp_ntz",
            "bytes": "binary",
            "key": "int32",
            "tinyint": "int8",
            "smallint": "int16",
            "float": "float32",
            "text key": "string",
        }.get(self.name, self.name)

    @property
    def flink(self) -> str:
        """The type's name in SQL texts of headrace."""
        if self.name == "decimal":
            return f"DECIMAL({self.digits}, {self.scale})"
        if self.name == "array":
            assert self.element is not None
            return f"ARRAY<{self.element.flink}>"
        if self.name == "row":
            return f"ROW<{', '.join(f'`{name}` {kind.flink}' for name, kind in self.fields)}>"
        if self.name == "map":
            assert self.element is not None
            return f"MAP<STRING, {self.element.flink}>"
        return {"timestamp": "TIMESTAMP(3)", "key": "INT", "text key": "STRING"}.get(self.name, self.name.upper())

    @property
    def duckdb(self) -> str:
        """The type's name in DuckDB."""
        if self.name == "decimal":
            return f"DECIMAL({self.digits}, {self.scale})"
        if self.name == "array":
            assert self.element is not None
            return f"{self.element.duckdb}[]"
        if self.name == "row":
            return f"STRUCT({', '.join(_quoted(name) + ' ' + kind.duckdb for name, kind in self.fields)})"
        if self.name == "map":
            return self.entries.duckdb
        return {"string": "VARCHAR", "bytes": "BLOB", "key": "INTEGER", "text key": "VARCHAR"}.get(
            self.name, self.name.upper()
        )

    @property
    def polars(self) -> pl.DataType:
        """The type in a polars frame."""
        if self.name == "decimal":
            return pl.Decimal(self.digits, self.scale)
        if self.name == "array":
            assert self.element is not None
            return pl.List(self.element.polars)
        if self.name == "row":
            return pl.Struct({name: kind.polars for name, kind in self.fields})
        if self.name == "map":
            return self.entries.polars
        made: dict[str, pl.DataType] = {
            "boolean": pl.Boolean(), "int": pl.Int32(), "bigint": pl.Int64(), "double": pl.Float64(), "string": pl.String(),
            "date": pl.Date(), "timestamp": pl.Datetime("us"), "bytes": pl.Binary(), "key": pl.Int32(), "text key": pl.String(),
            "tinyint": pl.Int8(), "smallint": pl.Int16(), "float": pl.Float32(), "time": pl.Time(),
        }  # fmt: skip
        return made[self.name]


def _quoted(name: str) -> str:
    return f'"{name}"'


BOOLEAN, INT, BIGINT, DOUBLE, STRING = Kind("boolean"), Kind("int"), Kind("bigint"), Kind("double"), Kind("string")
DATE, TIMESTAMP, BYTES = Kind("date"), Kind("timestamp"), Kind("bytes")
DECIMAL = Kind("decimal", 10, 2)
TINYINT, SMALLINT, FLOAT, TIME = Kind("tinyint"), Kind("smallint"), Kind("float"), Kind("time")
INTS, TEXTS = Kind("array", element=INT), Kind("array", element=STRING)
ROW = Kind("row", fields=(("x", INT), ("y", STRING), ("z", Kind("array", element=INT))))
MAP = Kind("map", element=INT)
#: Keys that are joined, grouped, counted, ordered and compared with each other, and nothing else: others in the same order would do, too.
KEY, TEXT_KEY = Kind("key"), Kind("text key")
