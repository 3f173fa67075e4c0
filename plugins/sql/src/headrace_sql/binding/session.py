"""Sessions: the definitions that SQL texts share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from headrace_sql.binding.places import DEFAULT_PLACE, CatalogEntry, Place, first_catalog

if TYPE_CHECKING:
    # Whoever names a session only, a plug-in of the console say, is not to wait for polars.
    import polars as pl
    from headrace.jobs.dsl import Stream


def _first_catalogs() -> dict[str, CatalogEntry]:
    made = first_catalog()
    return {made.name: made}


@dataclass(eq=False)
class SqlSession:
    """The tables, views, functions, frames and streams that the texts of a session know, its catalogs and its options.

    Pass it to ``hr.sql``, ``hr.table`` and ``hr.register``. What a text defines is known to the later texts of its session, and to
    no others. A session is not for several threads at once.

    Calls without a session share the default session of the process. There a text that is a job, with an INSERT or a SELECT, keeps
    what it defines to itself: jobs do not see each other's tables. Texts that only define, and ``hr.register``, serve all later ones.
    """

    frames: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False)
    streams: dict[str, Stream] = field(default_factory=dict, repr=False)
    tables: dict[str, Any] = field(default_factory=dict, repr=False)
    views: dict[str, Any] = field(default_factory=dict, repr=False)
    functions: dict[str, Any] = field(default_factory=dict, repr=False)
    #: Names that jobs of the default session have kept to themselves.
    kept: set[str] = field(default_factory=set, repr=False)
    #: What functions were made of, by name: for SHOW CREATE FUNCTION.
    function_paths: dict[str, str] = field(default_factory=dict, repr=False)
    catalogs: dict[str, CatalogEntry] = field(default_factory=_first_catalogs, repr=False)
    #: Where names without a database lie.
    place: Place = DEFAULT_PLACE
    #: Options that SET has given.
    options: dict[str, str] = field(default_factory=dict, repr=False)
    #: Keys of temporary tables and views, and the permanent ones that they hide.
    temporary: set[str] = field(default_factory=set, repr=False)
    hidden: dict[str, Any] = field(default_factory=dict, repr=False)
    #: Keys of definitions that a catalog stores: they are read again for each text.
    read: set[str] = field(default_factory=set, repr=False)
    #: Keys of definitions that a catalog stores and that this text has dropped.
    dropped: set[str] = field(default_factory=set, repr=False)
    #: What is to be written to catalogs when the whole text at hand has been found right.
    to_write: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def copy(self) -> SqlSession:
        """Return a copy of the session for one text. Its changes reach the session only when the session takes them over."""
        made = SqlSession()
        for each in fields(self):
            value = getattr(self, each.name)
            setattr(made, each.name, value if isinstance(value, tuple) else type(value)(value))
        for key in self.read:
            for known in (made.tables, made.views):
                known.pop(key, None)
        made.read, made.dropped, made.to_write = set(), set(), []
        made.catalogs = {name: entry.copy() for name, entry in self.catalogs.items()}
        return made

    def take(self, other: SqlSession) -> None:
        """Take over the changes that a text made in its copy, and write those that catalogs store. Raises OptionError if that fails."""
        for write in other.to_write:
            write()
        other.to_write.clear()
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def keep_to_itself(self, names: Collection[str]) -> None:
        """Note names that a text has defined for itself alone."""
        self.kept.update(names)

    def register(self, name: str, data: pl.DataFrame | Stream, *, is_stream: bool) -> None:
        """Register a frame or a stream under a name; it replaces an earlier one."""
        self.frames.pop(name, None)
        self.streams.pop(name, None)
        known: dict[str, Any] = self.streams if is_stream else self.frames
        known[name] = data

    def forget(self) -> None:
        """Forget everything."""
        fresh = SqlSession()
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))
