"""Catalogs and databases: where definitions lie, and the keys by which they are known.

A name in the default database of the default catalog is its own key. Others have the key ```catalog`.`database`.`name```.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace_sql.binding.definition_stores import DefinitionStore

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"
_PARTS = re.compile(r"`((?:[^`]|``)*)`\.`((?:[^`]|``)*)`\.`((?:[^`]|``)*)`")


class Place(NamedTuple):
    """A database of a catalog."""

    catalog: str
    database: str

    def key(self, name: str) -> str:
        """Return the key of a name that lies here."""
        if self == DEFAULT_PLACE:
            return name
        return ".".join(quoted(each) for each in (*self, name))


DEFAULT_PLACE = Place(DEFAULT_CATALOG, DEFAULT_DATABASE)


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def parts_of(key: str) -> tuple[Place, str]:
    """Return where a key lies, and the name there."""
    found = _PARTS.fullmatch(key)
    if found is None:
        return DEFAULT_PLACE, key
    catalog, database, name = (each.replace("``", "`") for each in found.groups())
    return Place(catalog, database), name


def label_of(key: str) -> str:
    """Return a key as the name of a node of the plan."""
    place, name = parts_of(key)
    return name if place == DEFAULT_PLACE else "_".join((*place, name))


def full_place(current: Place, parts: Sequence[str]) -> Place:
    """Return the place that the words in front of a name mean: none, a database, or a catalog and a database."""
    if not parts:
        return current
    return Place(current.catalog, parts[0]) if len(parts) == 1 else Place(parts[0], parts[1])


@dataclass
class DatabaseEntry:
    """What is known of a database."""

    comment: str = ""
    options: dict[str, str] = field(default_factory=dict)


@dataclass
class CatalogEntry:
    """What is known of a catalog. With a ``store`` its databases and definitions are kept there, else in the session."""

    name: str
    options: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    databases: dict[str, DatabaseEntry] = field(default_factory=dict)
    default_database: str = DEFAULT_DATABASE
    store: DefinitionStore | None = None

    def copy(self) -> CatalogEntry:
        databases = {name: DatabaseEntry(each.comment, dict(each.options)) for name, each in self.databases.items()}
        if self.store is not None:
            databases = {name: databases.get(name, DatabaseEntry()) for name in self._kept_databases(databases)}
        return CatalogEntry(self.name, dict(self.options), self.comment, databases, self.default_database, self.store)

    def _kept_databases(self, known: dict[str, DatabaseEntry]) -> list[str]:
        """Return the databases that the store has now. A server is asked when one of its tables is named, not for each text."""
        assert self.store is not None
        return list(known) if self.store.read_only else self.store.databases()


def first_catalog() -> CatalogEntry:
    """Return the catalog that every session begins with."""
    return CatalogEntry(DEFAULT_CATALOG, {"type": "generic_in_memory"}, databases={DEFAULT_DATABASE: DatabaseEntry()})
