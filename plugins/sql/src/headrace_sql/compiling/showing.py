"""SHOW, DESCRIBE and SET without a value: definitions and settings as rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import polars as pl
from headrace.foundation.errors import did_you_mean
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.catalog import Catalog
from headrace_sql.binding.function_names import all_names
from headrace_sql.binding.places import Place, parts_of, quoted
from headrace_sql.binding.scope import Relation, error_at
from headrace_sql.binding.tables import Table
from headrace_sql.reading.rendering import function_text, options_text, shown_option, table_text, view_text

_COLUMNS = {"name": pl.String(), "type": pl.String(), "null": pl.Boolean(), "key": pl.String(), "extras": pl.String(),
            "watermark": pl.String(), "comment": pl.String()}  # fmt: skip
_NAMES = {"CATALOGS": "catalog name", "DATABASES": "database name", "TABLES": "table name", "VIEWS": "view name",
          "FUNCTIONS": "function name", "USER FUNCTIONS": "function name", "MODULES": "module name"}  # fmt: skip


class Showing:
    """Runs the statements that show the definitions of a session."""

    def __init__(self, catalog: Catalog, text: str) -> None:
        self.catalog = catalog
        self.session = catalog.session
        self.text = text

    def show(self, node: exp.Expr) -> pl.DataFrame:
        """Return the answer to SHOW, and to SET alone."""
        kind = node.args["kind"]
        if kind == "OPTIONS":
            found = sorted(self.session.options.items())
            return pl.DataFrame(found, schema={"key": pl.String(), "value": pl.String()}, orient="row")
        if kind.startswith("CURRENT"):
            place = self.session.place
            value = place.catalog if kind == "CURRENT CATALOG" else place.database
            return pl.DataFrame({f"{kind.lower()} name": [value]})
        if kind.startswith("CREATE"):
            return pl.DataFrame({"result": [self._created(kind.removeprefix("CREATE "), node)]})
        if kind == "COLUMNS":
            frame = self.columns(node.args["this"])
            return frame.filter(pl.Series([self._wanted(node, name) for name in frame["name"]], dtype=pl.Boolean()))
        if kind == "FULL MODULES":
            return pl.DataFrame({"module name": ["core"], "used": [True]})
        names = [each for each in self._listed(kind, node) if self._wanted(node, each)]
        return pl.DataFrame({_NAMES[kind]: names}, schema={_NAMES[kind]: pl.String()})

    def _listed(self, kind: str, node: exp.Expr) -> Iterable[str]:
        inside = node.args.get("this")
        if kind == "CATALOGS":
            return sorted(self.session.catalogs)
        if kind == "DATABASES":
            name = inside.name if inside is not None else self.session.place.catalog
            return sorted(self._entry(name, inside).databases)
        if kind == "MODULES":
            return ["core"]
        if kind == "FUNCTIONS":
            return sorted({*all_names(), *(each.upper() for each in self.catalog.functions)})
        if kind == "USER FUNCTIONS":
            return sorted(self.catalog.functions)
        place = self.session.place
        if inside is not None:
            place = Place(inside.text("db") or place.catalog, inside.name)
        return self.names_in(place, inside, views_only=kind == "VIEWS")

    def names_in(self, place: Place, node: Any = None, *, views_only: bool = False) -> list[str]:
        """Return the names of the tables and views of a database; Flink's SHOW TABLES lists views too."""
        entry = self._entry(place.catalog, node)
        if place.database not in entry.databases:
            hint = did_you_mean(place.database, entry.databases, known="databases")
            raise error_at(node, self.text, f"catalog {place.catalog!r} has no database {place.database!r}", hint)
        known = self.session.views if views_only else [*self.session.tables, *self.session.views, *self.catalog.streams]
        found = {parts_of(key)[1] for key in known if parts_of(key)[0] == place}
        if entry.store is not None:
            dropped = {parts_of(key)[1] for key in self.session.dropped if parts_of(key)[0] == place}
            kept = set(entry.store.names(place.database, "view"))
            if not views_only:
                kept |= set(entry.store.names(place.database, "table"))
            found |= kept - dropped
        return sorted(found)

    def _entry(self, name: str, node: Any) -> Any:
        entry = self.session.catalogs.get(name)
        if entry is None:
            hint = did_you_mean(name, self.session.catalogs, known="catalogs")
            raise error_at(node, self.text, f"unknown catalog {name!r}", hint)
        return entry

    def _wanted(self, node: exp.Expr, name: str) -> bool:
        pattern = node.args.get("pattern")
        if pattern is None:
            return True
        flags = re.IGNORECASE if node.args.get("ignore_case") else 0
        return bool(re.fullmatch(_regular(pattern.name), name, flags)) != bool(node.args.get("negated"))

    def _created(self, kind: str, node: exp.Expr) -> str:
        named = node.args["this"]
        if kind == "CATALOG":
            entry = self._entry(named.name, named)
            comment = f"\nCOMMENT '{entry.comment}'" if entry.comment else ""
            return f"CREATE CATALOG {quoted(entry.name)}{comment}\n{options_text(sorted(entry.options.items()), shown=True)}"
        if kind == "FUNCTION":
            path = self.session.function_paths.get(named.name)
            if path is None:
                raise error_at(named, self.text, f"{named.name!r} is not a function of CREATE FUNCTION")
            return function_text(quoted(named.name), path)
        key = self._key(named)
        place, name = parts_of(key)
        whole = ".".join(quoted(each) for each in (*place, name))
        table, view = self.session.tables.get(key), self.session.views.get(key)
        if kind == "TABLE" and table is not None:
            return table_text(table.node, whole, shown=True)
        if kind == "VIEW" and view is not None:
            return view_text(whole, view.columns, view.written, temporary=key in self.session.temporary)
        what = "table" if table is not None else "view" if view is not None else "frame that Python has registered"
        raise error_at(named, self.text, f"{named.name!r} is a {what}")

    def _key(self, named: exp.Expr) -> str:
        key = self.catalog.key_of(named)
        found = self.catalog.find(key)
        if found is None:
            raise self.catalog.unknown(key, named, self.text)
        return found

    # ------------------------------------------------------------------------------------------------------ DESCRIBE

    def describe(self, node: exp.Expr) -> pl.DataFrame:
        """Return the answer to DESCRIBE."""
        kind, named = node.args["kind"], node.this
        if kind == "TABLE":
            return self.columns(named)
        if kind == "FUNCTION":
            return self._function(named)
        catalog = self._entry(
            named.name if kind == "CATALOG" else named.text("db") or self.session.place.catalog, named
        )
        rows = [("name", named.name)]
        described = catalog
        if kind == "CATALOG":
            rows.append(("type", catalog.options.get("type", "")))
        elif named.name not in catalog.databases:
            hint = did_you_mean(named.name, catalog.databases, known="databases")
            raise error_at(named, self.text, f"catalog {catalog.name!r} has no database {named.name!r}", hint)
        else:
            described = catalog.databases[named.name]
        rows.append(("comment", described.comment))
        if node.args.get("extended"):
            shown = sorted(described.options.items())
            rows += [(f"option:{key}", shown_option(key, value)) for key, value in shown if key != "type"]
        return pl.DataFrame(rows, schema={"info name": pl.String(), "info value": pl.String()}, orient="row")

    def _function(self, named: exp.Expr) -> pl.DataFrame:
        name = named.name
        found = self.catalog.functions.get(name.lower())
        if found is None:
            if name.upper() not in all_names():
                hint = did_you_mean(name, [*all_names(), *self.catalog.functions], known="functions")
                raise error_at(named, self.text, f"unknown function {name!r}", hint)
            rows = [("name", name.upper()), ("kind", "built in")]
        else:
            kind = type(found).__name__.removesuffix("Function").lower()
            rows = [("name", name), ("kind", kind), ("made of", self.session.function_paths.get(name, repr(found)))]
        return pl.DataFrame(rows, schema={"info name": pl.String(), "info value": pl.String()}, orient="row")

    def columns(self, named: exp.Expr) -> pl.DataFrame:
        """Return the columns of a table, a view or a registered frame, a row for each."""
        key = self._key(named)
        table = self.session.tables.get(key)
        if table is not None:
            rows = self._columns_of_table(table)
        else:
            relation = self.catalog.relation(key, named, self.text)
            rows = [(column.name, _type(relation, column), True, None, None, None, None) for column in relation.columns]
        frame = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
        return frame.drop("comment") if frame["comment"].is_null().all() else frame

    def _columns_of_table(self, table: Table) -> list[tuple[Any, ...]]:
        relation = self.catalog.described(table)
        known = {column.name: column for column in relation.columns}
        elements = {each.name: each for each in table.node.this.expressions if isinstance(each, exp.ColumnDef)}
        key = f"PRI({', '.join(table.primary_key)})"
        rows: list[tuple[Any, ...]] = []
        for name in table.order:
            element = elements[name]
            kinds = [each.args["kind"] for each in element.args.get("constraints") or ()]
            declared = element.args.get("kind")
            word = declared.sql(dialect="flink") if declared is not None else _type(relation, known[name])
            if known[name].time == "event":
                word += " *ROWTIME*"
            is_nullable = name not in table.primary_key and not any(
                isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null") for kind in kinds
            )
            comment = next((kind.this.name for kind in kinds if isinstance(kind, exp.CommentColumnConstraint)), None)
            extras = next((_extra(kind) for kind in kinds if _extra(kind)), None)
            watermark = (
                table.watermark[1].sql(dialect="flink") if table.watermark and table.watermark[0] == name else None
            )
            rows.append(
                (name, word, is_nullable, key if name in table.primary_key else None, extras, watermark, comment)
            )
        return rows


def _extra(kind: Any) -> str | None:
    if isinstance(kind, exp.ComputedColumnConstraint):
        return kind.sql(dialect="flink")
    return kind.sql(dialect="flink") if "Metadata" in type(kind).__name__ else None


def _type(relation: Relation, column: Any) -> str:
    if column.time == "processing":
        return "TIMESTAMP_LTZ(3) *PROCTIME*"
    kind = relation.schema[column.physical]
    word = types.declared_as(kind) or str(kind)
    return f"{word} *ROWTIME*" if column.time == "event" else word


def _regular(pattern: str) -> str:
    """Return a LIKE pattern as a regular expression."""
    made, escaped = "", False
    for each in pattern:
        if escaped:
            made, escaped = made + re.escape(each), False
        elif each == "\\":
            escaped = True
        else:
            made += ".*" if each == "%" else "." if each == "_" else re.escape(each)
    return made
