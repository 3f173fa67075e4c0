"""Jobs from texts in another language: ``headrace.sql``, and what goes with it. The language itself is a plug-in."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.interfaces.registry import default_registry

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream
    from headrace.jobs.job import Job


class Language(ABC):
    """A language for jobs. What its texts know of each other is the language's own affair."""

    #: Endings of the names of files that hold texts of the language, for the console.
    suffixes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def is_job(cls, content: bytes) -> bool:
        """Return whether a file with one of the suffixes is a job, for a server that looks through a directory.

        Override it if other files have the suffix too, as YAML has. It should answer for damaged files also, and not load much.
        """
        return True

    @abstractmethod
    def job(self, source: str | os.PathLike[str], **options: Any) -> Job:
        """Return the job of a text, or of a file. Raises JobError for what is wrong with it."""

    @abstractmethod
    def table(self, name: str, **options: Any) -> Stream:
        """Return what a text has defined under a name as a stream. Raises JobError when there is none."""

    @abstractmethod
    def register(self, name: str, data: Any, **options: Any) -> None:
        """Let texts read a frame or a stream under a name."""

    def lint(self, path: str, parameters: Mapping[str, str]) -> list[str]:
        """Return what a person should know of the text in a file that compiles: parts without effect, doubtful ones."""
        return []


def language(name: str = "sql") -> Language:
    """Return an installed language. Raises MissingPluginError saying what to install."""
    made: Language = default_registry().find("language", name)()
    return made


def sql(source: str | os.PathLike[str], **options: Any) -> Any:
    """Return the job of a SQL text or of a file whose name ends in ``.sql``; needs headrace-sql.

    Options are those of ``headrace_sql.api.sql``: ``functions``, ``dialect``, ``variables``, ``namespace``, ``pipeline``, ``session``, …
    The job has all that jobs have, and ``collect()``, which gives its rows. Raises JobError with the place in the text.
    """
    return language().job(source, **options)


def table(name: str, **options: Any) -> Stream:
    """Return a table or view that a SQL text has defined as a stream, to go on with in Python. ``session``: whose texts."""
    return language().table(name, **options)


def register(name: str, data: Any, **options: Any) -> None:
    """Let SQL texts read a polars or pandas frame, or a stream, under a name. ``session``: whose texts."""
    language().register(name, data, **options)
