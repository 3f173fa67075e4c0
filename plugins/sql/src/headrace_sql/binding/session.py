"""Sessions: what SQL texts know of each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Whoever names a session only, a plug-in of the console say, is not to wait for polars.
    import polars as pl
    from headrace.jobs.dsl import Stream


@dataclass(eq=False)
class SqlSession:
    """The tables, views, functions, frames and streams that the texts of a session know.

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

    def define(self, own: Iterable[str], tables: Mapping[str, Any], views: Mapping[str, Any]) -> None:
        """Take the tables and views that a text defines, by the names ``own``, in place of what had these names."""
        for name in own:
            for known in (self.frames, self.streams, self.tables, self.views):
                known.pop(name, None)
            self.kept.discard(name)
            if name in tables:
                self.tables[name] = tables[name]
            else:
                self.views[name] = views[name]

    def register(self, name: str, data: pl.DataFrame | Stream, *, is_stream: bool) -> None:
        """Take a frame or a stream under a name, in place of what was registered under it."""
        self.frames.pop(name, None)
        self.streams.pop(name, None)
        known: dict[str, Any] = self.streams if is_stream else self.frames
        known[name] = data

    def forget(self) -> None:
        """Forget everything."""
        for known in (self.frames, self.streams, self.tables, self.views, self.functions, self.kept):
            known.clear()
