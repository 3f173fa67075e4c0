"""ALTER: a definition replaced by a changed one, under its name or a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from headrace_sql.binding.places import parts_of
from headrace_sql.binding.tables import Table
from headrace_sql.compiling.definitions import Definitions
from headrace_sql.compiling.table_forms import altered
from headrace_sql.reading import nodes


def alter(definitions: Definitions, node: exp.Expr) -> None:
    """Take ALTER of anything."""
    kind = node.args["kind"]
    if kind == "FUNCTION":
        definitions.alter_function(node)
    elif kind in ("CATALOG", "DATABASE"):
        definitions.alter_place(node)
    else:
        _alter_relation(definitions, node, kind)


def _alter_relation(definitions: Definitions, node: exp.Expr, kind: str) -> None:
    named = node.this
    catalog, session = definitions.catalog, definitions.session
    key = catalog.find(catalog.key_of(named))
    if key is None:
        if node.args.get("exists"):
            return
        raise catalog.unknown(catalog.key_of(named), named, definitions.text)
    known: dict[str, Any] = session.views if kind == "VIEW" else session.tables
    if key not in known:
        what = "view" if key in session.views else "table" if key in session.tables else "frame of Python"
        raise definitions.error(named, f"{named.name!r} is a {what}")
    before = known[key]
    if node.args["action"] == "RENAME TO":
        _rename(definitions, node, key, before)
        return
    if kind == "VIEW":
        query = node.args["query"]
        written = query.meta.get(nodes.WRITTEN, "")
        made = replace(before, query=query, text=definitions.text, columns=(), place=session.place, written=written)
    else:
        made = definitions.read_again(altered(before, node, definitions.text), key)
    definitions.put(key, made)
    definitions.keep_again(key)


def _rename(definitions: Definitions, node: exp.Expr, key: str, before: Any) -> None:
    target = node.args["target"]
    place, _ = parts_of(key)
    if target.text("db") and definitions.place_of(target) != place:
        raise definitions.error(
            target, "a definition cannot be renamed into another database", "write only the new name"
        )
    new_key = place.key(target.name)
    if definitions.catalog.find(new_key) == new_key:
        raise definitions.error(target, f"there is {target.name!r} already", "DROP it first")
    is_temporary = key in definitions.session.temporary
    definitions.remove(key, "view" if key in definitions.session.views else "table")
    if is_temporary:
        definitions.session.temporary.add(new_key)
    definitions.own.add(new_key)
    if isinstance(before, Table):
        statement = before.node.copy()
        statement.this.set("this", exp.Table(this=exp.to_identifier(target.name, quoted=True)))
        assert isinstance(statement, exp.Create)
        definitions.put(new_key, definitions.read_again(statement, new_key))
    else:
        definitions.put(new_key, replace(before, name=target.name))
    definitions.keep_again(new_key)
