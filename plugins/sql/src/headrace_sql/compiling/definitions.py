"""CREATE and DROP, USE, and the definitions of catalogs and databases: what statements change of the session at hand.

Everything changes a copy of the session. What catalogs keep is written when the whole text has been found right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.foundation.errors import OptionError, did_you_mean
from sqlglot import exp

from headrace_sql.binding.catalog import Catalog, View, view_of
from headrace_sql.binding.definition_stores import KINDS, DefinitionStore, FileStore, Kind
from headrace_sql.binding.jdbc_store import JdbcStore
from headrace_sql.binding.places import (
    DEFAULT_CATALOG,
    DEFAULT_DATABASE,
    CatalogEntry,
    DatabaseEntry,
    Place,
    parts_of,
    quoted,
)
from headrace_sql.binding.scope import Relation, error_at
from headrace_sql.binding.tables import Table, read_table
from headrace_sql.compiling.table_forms import as_query, like_table
from headrace_sql.reading.parsing import parse
from headrace_sql.reading.rendering import function_text, table_text, view_text

#: What makes the store of a catalog, by its type; None for catalogs that live in a session.
STORES: Mapping[str, Callable[[Mapping[str, str]], DefinitionStore] | None] = {
    "generic_in_memory": None,
    "file": FileStore.of,
    "jdbc": JdbcStore.of,
}
#: The options of each type, beside ``type``.
STORE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "generic_in_memory": ("default-database",),
    "file": ("default-database", "path"),
    "jdbc": ("default-database", "base-url", "username", "password"),
}


class Definitions:
    """What the statements of one text define."""

    def __init__(self, catalog: Catalog, text: str) -> None:
        self.catalog = catalog
        self.session = catalog.session
        self.text = text
        #: The keys of the tables and views that the text defines itself.
        self.own: set[str] = set()
        self._own_functions: set[str] = set()

    def error(self, node: Any, message: str, hint: str | None = None) -> Exception:
        return error_at(node, self.text, message, hint)

    # ----------------------------------------------------------------------------------------------- tables and views

    def create(self, node: exp.Create, query: Callable[[exp.Expr], Relation]) -> tuple[str, Relation, list[str]] | None:
        """Take CREATE TABLE or VIEW. ``query`` compiles one.

        Returns the insert of a CREATE TABLE … AS: the key of the table, the rows, and the columns that they fill.
        """
        named = node.this.this if isinstance(node.this, exp.Schema) else node.this
        place = self.place_of(named)
        key = place.key(named.name)
        temporary = bool(node.args.get("temporary"))
        if not self._is_free(node, named, key, place, temporary=temporary):
            return None
        if node.args["kind"] == "VIEW":
            view = view_of(node, self.text, self.session.place)
            self._define(key, view, temporary=temporary)
            self._keep(key, "view", lambda: self._kept_view(named, view, place))
            return None
        relation: Relation | None = None
        filled: list[str] = []
        like = node.args.get("like")
        if like is not None:
            made = like_table(self._table_of(like.this), node, self.text)
            table = self.read_again(made, key)
        elif node.expression is not None:
            relation = query(node.expression)
            made, filled = as_query(node, relation, self.text)
            table = self.read_again(made, key)
        else:
            table = read_table(node, self.text, key)
        self._define(key, table, temporary=temporary)
        self._keep(key, "table", lambda: table_text(table.node, quoted(table.name)))
        return None if relation is None else (key, relation, filled)

    def read_again(self, node: exp.Create, key: str) -> Table:
        """Return the table of a statement that was made from others, with its own text for error messages."""
        name = (node.this.this if isinstance(node.this, exp.Schema) else node.this).name
        text = table_text(node, quoted(name))
        [statement] = parse(text, "flink")[0]
        assert isinstance(statement, exp.Create)
        statement.set("temporary", node.args.get("temporary"))
        if not isinstance(statement.this, exp.Schema):
            statement.set("this", exp.Schema(this=statement.this, expressions=[]))
        return read_table(statement, text, key)

    def place_of(self, node: exp.Expr) -> Place:
        """Return where a name is to lie. Raises ExpressionError when there is no such database."""
        place = self.catalog.place_of(node)
        entry = self.entry_of(place.catalog, node)
        if place.database not in entry.databases:
            hint = did_you_mean(place.database, entry.databases, known="databases")
            raise self.error(node, f"catalog {place.catalog!r} has no database {place.database!r}", hint)
        return place

    def entry_of(self, name: str, node: exp.Expr) -> CatalogEntry:
        """Return the properties of a catalog. Raises ExpressionError for an unknown one."""
        entry = self.session.catalogs.get(name)
        if entry is None:
            hint = did_you_mean(name, self.session.catalogs, known="catalogs")
            raise self.error(node, f"unknown catalog {name!r}", hint)
        return entry

    def _is_free(self, node: exp.Create, named: exp.Expr, key: str, place: Place, *, temporary: bool) -> bool:
        """Return whether a definition is to be made; false with IF NOT EXISTS where there is one. Raises for one too many."""
        exists = bool(node.args.get("exists"))
        if key in self.own and (key in self.session.temporary) == temporary:
            if exists:
                return False
            raise self.error(named, f"{named.name!r} is defined twice")
        is_kept = self.session.catalogs[place.catalog].store is not None and not temporary
        known = self.catalog.find(key) == key
        if known and exists and (key in self.session.temporary) == temporary:
            return False
        if known and is_kept and key not in self.session.temporary:
            raise self.error(
                named, f"catalog {place.catalog!r} has {named.name!r} already",
                "DROP it first, or write IF NOT EXISTS",
            )  # fmt: skip
        return True

    def _define(self, key: str, made: Table | View, *, temporary: bool) -> None:
        session = self.session
        before = session.tables.get(key) or session.views.get(key)
        is_over = temporary and before is not None and key not in session.temporary
        hidden = before if is_over else session.hidden.get(key)
        if not temporary and key in session.temporary:
            session.hidden[key] = made  # the temporary one stays in front of it
            return
        self.own.add(key)
        self.catalog.forget(key)
        if temporary:
            session.temporary.add(key)
            if hidden is not None:
                session.hidden[key] = hidden
        self.put(key, made)

    def put(self, key: str, made: Table | View) -> None:
        """Let a key mean a table or view."""
        self.catalog.forget(key)
        self.session.dropped.discard(key)
        if isinstance(made, Table):
            self.session.tables[key] = made
        else:
            self.session.views[key] = made

    def _table_of(self, node: exp.Expr) -> Table:
        found = self.catalog.find(self.catalog.key_of(node))
        if found is None:
            raise self.catalog.unknown(self.catalog.key_of(node), node, self.text)
        if found not in self.session.tables:
            raise self.error(node, f"{node.name!r} is not a table", "LIKE copies the definition of a CREATE TABLE")
        made: Table = self.session.tables[found]
        return made

    def _kept_view(self, named: exp.Expr, view: View, place: Place) -> str:
        if self.session.place != place:
            raise self.error(
                named, "a view that is stored in a catalog can use only tables of its own database",
                f"USE {quoted(place.catalog)}.{quoted(place.database)} first",
            )  # fmt: skip
        return view_text(quoted(view.name), view.columns, view.written)

    def _keep(self, key: str, kind: Kind, text: Callable[[], str]) -> None:
        """Have a definition written to where its catalog keeps such, if it does and the definition is not temporary."""
        place, name = parts_of(key)
        store = self.session.catalogs[place.catalog].store
        if store is None or key in self.session.temporary:
            return
        if store.read_only:
            raise OptionError(f"catalog {place.catalog!r}: {store.read_only}", hint="CREATE TEMPORARY …")
        self.session.read.add(key)
        self.session.to_write.append(partial(store.put, place.database, name, kind, text()))

    def keep_again(self, key: str) -> None:
        """Have a table or view that was altered written to where its catalog keeps it."""
        made = self.session.tables.get(key)
        if made is not None:
            self._keep(key, "table", lambda: table_text(made.node, quoted(made.name)))
            return
        view = self.session.views[key]
        self._keep(key, "view", lambda: view_text(quoted(view.name), view.columns, view.written))

    # -------------------------------------------------------------------------------------------------------- DROP

    def drop(self, node: exp.Expr) -> None:
        """Take DROP of anything."""
        kind = node.args["kind"]
        if kind == "FUNCTION":
            self._drop_function(node)
        elif kind == "CATALOG":
            self._drop_catalog(node)
        elif kind == "DATABASE":
            self._drop_database(node)
        else:
            self._drop_table(node, kind)

    def _drop_table(self, node: exp.Expr, kind: str) -> None:
        named, temporary = node.this, bool(node.args.get("temporary"))
        key = self.catalog.key_of(named)
        found = self.catalog.find(key)
        what = "view" if kind == "VIEW" else "table"
        is_frame = found is not None and found in self.catalog.streams
        known = self.session.views if kind == "VIEW" else self.session.tables
        if found is None or not (is_frame or found in known):
            if node.args.get("exists"):
                return
            if found is not None:
                other = "table" if kind == "VIEW" else "view"
                raise self.error(named, f"{named.name!r} is a {other}", f"DROP {other.upper()} {named.name}")
            raise self.catalog.unknown(key, named, self.text)
        if temporary and not is_frame and found not in self.session.temporary:
            if node.args.get("exists"):
                return
            raise self.error(named, f"there is no temporary {what} {named.name!r}", f"DROP {kind} {named.name}")
        if not temporary and found in self.session.temporary:
            raise self.error(
                named, f"a temporary {what} {named.name!r} hides a permanent one of the same name",
                f"DROP TEMPORARY {kind} {named.name} first",
            )  # fmt: skip
        self.remove(found, "view" if kind == "VIEW" else "table")

    def remove(self, key: str, kind: Kind) -> None:
        """Forget a table, a view or a registered frame; a permanent one that it stood in front of is known again."""
        session = self.session
        was_temporary = key in session.temporary
        self.catalog.forget(key)
        session.temporary.discard(key)
        self.own.discard(key)
        place, name = parts_of(key)
        store = session.catalogs[place.catalog].store
        if was_temporary:
            hidden = session.hidden.pop(key, None)
            if hidden is not None:
                self.put(key, hidden)
        elif store is not None:
            if store.read_only:
                raise OptionError(f"catalog {place.catalog!r}: {store.read_only}")
            session.dropped.add(key)
            session.to_write.append(partial(store.remove, place.database, name, kind))

    def _drop_function(self, node: exp.Expr) -> None:
        name = node.this.name.lower()
        known = {each.lower(): each for each in self.session.functions}
        if name not in known:
            if node.args.get("exists"):
                return
            hint = did_you_mean(node.this.name, self.session.functions, known="functions of CREATE FUNCTION")
            raise self.error(node.this, f"unknown function {node.this.name!r}", hint)
        self.session.functions.pop(known[name])
        self.session.function_paths.pop(known[name], None)
        self.catalog.remove_function(name)
        self._own_functions.discard(name)
        place = self.place_of(node.this)
        store = self.session.catalogs[place.catalog].store
        if store is not None and not store.read_only and not node.args.get("temporary"):
            self.session.to_write.append(partial(store.remove, place.database, known[name], "function"))

    # --------------------------------------------------------------------------------------------------- functions

    def create_function(self, node: exp.Create) -> None:
        """Take CREATE FUNCTION."""
        name = node.this.name
        if name.lower() in self._own_functions:
            if node.args.get("exists"):
                return
            raise self.error(node.this, f"function {name!r} is defined twice")
        if node.args.get("exists") and name.lower() in {each.lower() for each in self.session.functions}:
            return
        self._take_function(node.this, node.args["expression"], node.args.get("language"))
        place = self.place_of(node.this)
        store = self.session.catalogs[place.catalog].store
        if store is not None and not node.args.get("temporary"):
            if store.read_only:
                raise OptionError(f"catalog {place.catalog!r}: {store.read_only}", hint="CREATE TEMPORARY FUNCTION …")
            text = function_text(quoted(name), node.args["expression"].name)
            self.session.to_write.append(partial(store.put, place.database, name, "function", text))

    def alter_function(self, node: exp.Expr) -> None:
        """Take ALTER FUNCTION f AS 'x'."""
        name = node.this.name
        if name.lower() not in {each.lower() for each in self.session.functions}:
            if node.args.get("exists"):
                return
            hint = did_you_mean(name, self.session.functions, known="functions of CREATE FUNCTION")
            raise self.error(node.this, f"unknown function {name!r}", hint)
        self._take_function(node.this, node.args["value"], node.args.get("language"))

    def _take_function(self, named: exp.Expr, path: exp.Expr, language: str | None) -> None:
        made = self.catalog.create_function(named.name, path, language, self.text)
        self._own_functions.add(named.name.lower())
        self.session.functions[named.name] = made
        self.session.function_paths[named.name] = path.name

    def take_kept_functions(self) -> None:
        """Let the functions that the current database keeps be called."""
        entry = self.session.catalogs.get(self.session.place.catalog)
        if entry is None or entry.store is None:
            return
        for name in entry.store.names(self.session.place.database, "function"):
            kept = entry.store.definition(self.session.place.database, name, "function")
            if kept is None or name in self.session.functions:
                continue
            [node] = parse(kept, "flink")[0]
            made = self.catalog.create_function(name, node.args["expression"], "PYTHON", kept)
            self.session.functions[name] = made
            self.session.function_paths[name] = node.args["expression"].name

    # -------------------------------------------------------------------------------------- catalogs and databases

    def use(self, node: exp.Expr) -> None:
        """Take USE CATALOG and USE."""
        if node.args["kind"] == "CATALOG":
            entry = self.entry_of(node.this.name, node.this)
            self.session.place = Place(entry.name, entry.default_database)
        else:
            words = [node.this.text("db"), node.this.name]
            catalog = words[0] or self.session.place.catalog
            entry = self.entry_of(catalog, node.this)
            if words[1] not in entry.databases:
                hint = did_you_mean(words[1], entry.databases, known="databases")
                raise self.error(node.this, f"catalog {catalog!r} has no database {words[1]!r}", hint)
            self.session.place = Place(catalog, words[1])
        self.take_kept_functions()

    def create_place(self, node: exp.Expr) -> None:
        """Take CREATE CATALOG and CREATE DATABASE."""
        options = {each.this.name: each.args["value"].name for each in node.args.get("options") or ()}
        comment = node.args["comment"].name if node.args.get("comment") is not None else ""
        if node.args["kind"] == "DATABASE":
            entry = self.entry_of(node.this.text("db") or self.session.place.catalog, node.this)
            if node.this.name in entry.databases:
                if node.args.get("exists"):
                    return
                raise self.error(node.this, f"catalog {entry.name!r} has a database {node.this.name!r} already")
            if entry.store is not None:
                if entry.store.read_only:
                    raise OptionError(f"catalog {entry.name!r}: {entry.store.read_only}")
                self.session.to_write.append(partial(entry.store.create_database, node.this.name))
            entry.databases[node.this.name] = DatabaseEntry(comment, options)
            return
        name = node.this.name
        if name in self.session.catalogs:
            if node.args.get("exists"):
                return
            raise self.error(node.this, f"there is a catalog {name!r} already")
        self.session.catalogs[name] = self._new_catalog(node, name, options, comment)

    def _new_catalog(self, node: exp.Expr, name: str, options: dict[str, str], comment: str) -> CatalogEntry:
        kind = options.get("type")
        if kind is None:
            raise self.error(node.this, f"catalog {name!r} has no type", "WITH ('type' = 'generic_in_memory')")
        if kind not in STORES:
            raise self.error(
                node.this, f"a catalog of the type {kind!r} is not supported", did_you_mean(kind, STORES, known="types")
            )
        for key in options:
            if key != "type" and key not in STORE_OPTIONS[kind]:
                hint = did_you_mean(key, ("type", *STORE_OPTIONS[kind]), known="options")
                raise self.error(node.this, f"catalogs of the type {kind!r} have no option {key!r}", hint)
        make = STORES[kind]
        default = options.get("default-database", DEFAULT_DATABASE if kind != "generic_in_memory" else "default")
        try:
            store = make(options) if make is not None else None
            if store is None:
                return CatalogEntry(name, options, comment, {default: DatabaseEntry()}, default)
            databases = {each: DatabaseEntry() for each in store.databases()}
            if default not in databases:
                if store.read_only:
                    raise OptionError(f"there is no database {default!r}", hint=f"databases: {', '.join(databases)}")
                store.create_database(default)
                databases[default] = DatabaseEntry()
        except OptionError as error:
            raise self.error(node.this, f"catalog {name!r}: {error.message}", error.hint) from error
        return CatalogEntry(name, options, comment, databases, default, store)

    def alter_place(self, node: exp.Expr) -> None:
        """Take ALTER CATALOG and ALTER DATABASE: their options and comments."""
        changed = {
            each.this.name: each.args["value"].name for each in node.args.get("options") or () if each.this != each
        }
        entry: CatalogEntry | DatabaseEntry
        if node.args["kind"] == "CATALOG":
            entry = self.entry_of(node.this.name, node.this)
        else:
            catalog = self.entry_of(node.this.text("db") or self.session.place.catalog, node.this)
            if node.this.name not in catalog.databases:
                hint = did_you_mean(node.this.name, catalog.databases, known="databases")
                raise self.error(node.this, f"catalog {catalog.name!r} has no database {node.this.name!r}", hint)
            entry = catalog.databases[node.this.name]
        if node.args["action"] == "COMMENT":
            entry.comment = node.args["value"].name
        elif node.args["action"] == "SET":
            self._set_options(node, entry, changed)
        else:
            for each in node.args["options"]:
                entry.options.pop(each.name, None)

    def _set_options(self, node: exp.Expr, entry: CatalogEntry | DatabaseEntry, changed: dict[str, str]) -> None:
        if isinstance(entry, CatalogEntry):
            refused = set(changed) - {"default-database"}
            if refused:
                raise self.error(
                    node.this,
                    f"option {sorted(refused)[0]!r} of a catalog cannot be changed",
                    "DROP it, and CREATE it again",
                )
            entry.default_database = changed.get("default-database", entry.default_database)
        entry.options.update(changed)

    def _drop_catalog(self, node: exp.Expr) -> None:
        name = node.this.name
        if name not in self.session.catalogs:
            if node.args.get("exists"):
                return
            self.entry_of(name, node.this)
        if name == self.session.place.catalog or name == DEFAULT_CATALOG:
            what = "the one that is used" if name == self.session.place.catalog else "the first one of every session"
            raise self.error(node.this, f"catalog {name!r} is {what}", "USE CATALOG another one first")
        del self.session.catalogs[name]
        self._forget_where(lambda place: place.catalog == name)

    def _drop_database(self, node: exp.Expr) -> None:
        catalog, name = node.this.text("db") or self.session.place.catalog, node.this.name
        entry = self.entry_of(catalog, node.this)
        if name not in entry.databases:
            if node.args.get("exists"):
                return
            hint = did_you_mean(name, entry.databases, known="databases")
            raise self.error(node.this, f"catalog {catalog!r} has no database {name!r}", hint)
        place = Place(catalog, name)
        if place == self.session.place:
            raise self.error(node.this, f"database {name!r} is the one that is used", "USE another one first")
        has = [key for key in self.catalog.names() if parts_of(key)[0] == place]
        if entry.store is not None:
            kept = {place.key(each) for kind in KINDS for each in entry.store.names(name, kind)}
            has += list(kept - self.session.dropped)
        if has and not node.args.get("cascade"):
            raise self.error(
                node.this, f"database {name!r} is not empty", "DROP DATABASE … CASCADE drops everything in it"
            )
        del entry.databases[name]
        self._forget_where(lambda each: each == place)
        if entry.store is not None:
            if entry.store.read_only:
                raise OptionError(f"catalog {catalog!r}: {entry.store.read_only}")
            self.session.to_write.append(partial(entry.store.drop_database, name))

    def _forget_where(self, lies: Callable[[Place], bool]) -> None:
        for key in [key for key in self.catalog.names() if lies(parts_of(key)[0])]:
            self.catalog.forget(key)
            self.session.temporary.discard(key)
            self.session.hidden.pop(key, None)
            self.own.discard(key)
