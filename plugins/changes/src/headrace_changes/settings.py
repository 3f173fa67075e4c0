"""Options that all formats of changes have."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings, option


class ChangeSettings(Settings, frozen=True, kw_only=True):
    """Options of every format of changes."""

    changelog_mode: Annotated[
        Literal["all", "upsert"],
        option(
            "all: updates have their old row. upsert: the old row is not read, and the last row of each key is kept as state; the source "
            "needs a key."
        ),
    ] = "all"
    max_body_bytes: Annotated[
        int, option("The largest size of a body, in bytes. A larger body is a bad record and is not parsed.", ge=1)
    ] = 16 * 1024 * 1024
    timestamp_unit: Annotated[
        Literal["s", "ms", "us", "ns"],
        option("The unit of a timestamp that is a whole number; it counts from 1970-01-01 UTC."),
    ] = "ms"
    timestamp_format: Annotated[
        str | None,
        option("The layout of timestamps that are texts, in the format codes of strftime. Default: ISO 8601."),
    ] = None
    json_columns: Annotated[
        tuple[str, ...],
        option(
            "Columns of type string that hold a JSON value as text. They are written as this value, not as a string."
        ),
    ] = ()


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
                raise OptionError(f"{pattern!r} is no regular expression: {error}", option=name) from error
