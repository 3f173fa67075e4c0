"""Jobs written in another language: ``headrace.sql``, ``headrace.table`` and ``headrace.register``. The language is a
plug-in.
"""

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
    """A language in which jobs are written as texts, such as SQL. Offered by the hook ``headrace_languages``.

    An object is made for each call of ``headrace.sql``, ``table`` or ``register``, and by ``headrace run`` for a file
    with one of its ``suffixes``. The language itself keeps definitions that one text makes for later texts, such as
    tables, in a session.
    """

    #: Endings of the names of files that hold texts of the language, for the console.
    suffixes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def is_job(cls, content: bytes) -> bool:
        """Return whether a file with one of the suffixes is a job. Called by a server that scans a directory.

        Override it if other files have the suffix too, as with YAML. It must not raise for damaged files, and should
        import little.
        """
        return True

    @abstractmethod
    def job(self, source: str | os.PathLike[str], **options: Any) -> Job:
        """Return the job that a text or a file describes. Raises JobError with the place of an error in the text."""

    @abstractmethod
    def table(self, name: str, **options: Any) -> Stream:
        """Return a table or view that a text has defined as a stream. Raises JobError if there is none of that name."""

    @abstractmethod
    def register(self, name: str, data: Any, **options: Any) -> None:
        """Let texts read a frame or a stream under a name."""

    def lint(self, path: str, parameters: Mapping[str, str]) -> list[str]:
        """Return notices about a file that compiles: parts that have no effect, or are doubtful. Called by ``headrace
        lint``.
        """
        return []


def language(name: str = "sql") -> Language:
    """Return an installed language. Raises MissingPluginError saying what to install."""
    made: Language = default_registry().find("language", name)()
    return made


def sql(source: str | os.PathLike[str], **options: Any) -> Any:
    """Return the job of a SQL text or of a file whose name ends in ``.sql``; needs headrace-sql.

    Options are those of ``headrace_sql.api.sql``: ``functions``, ``dialect``, ``variables``, ``namespace``,
    ``pipeline``, ``session``, … The job has the methods of every job, and ``collect()``, which returns its rows. Raises
    JobError with the place in the text.
    """
    return language().job(source, **options)


def table(name: str, **options: Any) -> Stream:
    """Return a table or view that a SQL text has defined as a stream, for use in Python. ``session``: the session of
    that text.
    """
    return language().table(name, **options)


def register(name: str, data: Any, **options: Any) -> None:
    """Let SQL texts read a polars or pandas frame, or a stream, under a name. ``session``: the session of these texts."""
    language().register(name, data, **options)
