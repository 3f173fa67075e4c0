"""Options that all formats of changes have."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from headrace.codecs.json import JsonSettings
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import option


class ChangeSettings(JsonSettings, frozen=True, kw_only=True):
    """Options of every format of changes: those of JSON, and how updates are read."""

    changelog_mode: Annotated[
        Literal["all", "upsert"],
        option(
            "all: updates have their old row. upsert: the old row is not read, and the last row of each key is kept as state; the source "
            "needs a key."
        ),
    ] = "all"


class TableSettings(ChangeSettings, frozen=True, kw_only=True):
    """Options of formats that name database and table of each change."""

    database_include: Annotated[
        str | None,
        option("Regular expression for the whole name of a database. Changes of other databases are left out."),
    ] = None
    table_include: Annotated[
        str | None, option("Regular expression for the whole name of a table. Changes of other tables are left out.")
    ] = None

    def validate(self) -> None:
        for name in ("database_include", "table_include"):
            pattern = getattr(self, name)
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise OptionError(f"{pattern!r} is not a regular expression: {error}", option=name) from error
