"""Where catalogs keep definitions beyond a session: a directory of SQL texts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from headrace.foundation.durable_files import sync_directory, write_durably
from headrace.foundation.errors import OptionError

Kind = Literal["table", "view", "function"]
KINDS: tuple[Kind, ...] = ("table", "view", "function")


class DefinitionStore(ABC):
    """The definitions of a catalog. Each is a text: the statement that makes it, with its name alone.

    Statements read it while a text is compiled, and write it only when the whole text has been found right.
    """

    #: Why it cannot be written; empty if it can.
    read_only: str = ""

    @abstractmethod
    def databases(self) -> list[str]:
        """Return the names of the databases."""

    @abstractmethod
    def names(self, database: str, kind: Kind) -> list[str]:
        """Return the names of all objects of a kind in a database."""

    @abstractmethod
    def definition(self, database: str, name: str, kind: Kind) -> str | None:
        """Return the text of a definition; None when there is none."""

    @abstractmethod
    def create_database(self, database: str) -> None:
        """Make a database. Raises OptionError where that fails."""

    @abstractmethod
    def drop_database(self, database: str) -> None:
        """Remove a database with all that it has."""

    @abstractmethod
    def put(self, database: str, name: str, kind: Kind, text: str) -> None:
        """Keep a definition, in place of one of this name and kind."""

    @abstractmethod
    def remove(self, database: str, name: str, kind: Kind) -> None:
        """Forget a definition, if it is there."""


class FileStore(DefinitionStore):
    """Definitions as files ``DATABASE/NAME.KIND.sql`` of a directory. Several processes may use one; the last writer wins."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"the directory {path} of the catalog cannot be made: {error}", option="path") from error

    @classmethod
    def of(cls, options: Mapping[str, str]) -> FileStore:
        """Return the store that the options of a CREATE CATALOG mean. Raises OptionError without a directory."""
        path = options.get("path")
        if not path:
            raise OptionError("a catalog of files needs a directory", option="path", hint="'path' = '…'")
        return cls(path)

    def databases(self) -> list[str]:
        return sorted(unquote(each.name) for each in self._root.iterdir() if each.is_dir())

    def names(self, database: str, kind: Kind) -> list[str]:
        place = self._place(database)
        found = place.glob(f"*.{kind}.sql") if place.is_dir() else ()
        return sorted(unquote(each.name.removesuffix(f".{kind}.sql")) for each in found)

    def definition(self, database: str, name: str, kind: Kind) -> str | None:
        try:
            return self._file(database, name, kind).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def create_database(self, database: str) -> None:
        self._place(database).mkdir(exist_ok=True)
        sync_directory(self._root)

    def drop_database(self, database: str) -> None:
        place = self._place(database)
        for kind in KINDS:
            for name in self.names(database, kind):
                self.remove(database, name, kind)
        if place.is_dir():
            place.rmdir()

    def put(self, database: str, name: str, kind: Kind, text: str) -> None:
        target = self._file(database, name, kind)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        write_durably(beside, text.encode())
        beside.replace(target)
        sync_directory(target.parent)

    def remove(self, database: str, name: str, kind: Kind) -> None:
        self._file(database, name, kind).unlink(missing_ok=True)

    def _place(self, database: str) -> Path:
        return self._root / _safe(database)

    def _file(self, database: str, name: str, kind: Kind) -> Path:
        return self._place(database) / f"{_safe(name)}.{kind}.sql"


def _safe(name: str) -> str:
    """Return a name as one of a file: without separators, and never ``.`` or ``..``."""
    return quote(name, safe=" ").replace(".", "%2E")
