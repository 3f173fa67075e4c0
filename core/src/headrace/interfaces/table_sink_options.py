"""Shared options of sinks that write tables of databases, and the check that they fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import option

ColumnNames = Annotated[
    dict[str, str] | None, option("column of the table by column of the stream, for columns with different names")
]
CreateTable = Annotated[bool, option("whether to create the table from the stream's columns if it does not exist")]


class TableSinkSettings(Protocol):
    """Settings of a sink that writes a table and keeps the positions of queues in another one."""

    @property
    def table(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str] | None: ...
    @property
    def key(self) -> Sequence[str] | None: ...
    @property
    def create_table(self) -> bool: ...
    @property
    def offsets_table(self) -> str: ...


def check_table_sink(
    settings: TableSinkSettings,
    *,
    plugin: str,
    folded: Callable[[str], str] = str,
    key_of_existing: bool = False,
) -> None:
    """Raise OptionError when options of a sink into a table do not go together. Called by ``Settings.validate``.

    Args:
        settings: The sink's.
        plugin: Named in errors.
        folded: Maps names that the database treats as the same name to one text, for example ``str.lower``.
        key_of_existing: Whether ``key`` has a meaning for a table that exists, too.
    """
    if settings.key is not None and not settings.create_table and not key_of_existing:
        raise OptionError(
            "the option key has an effect only together with create_table", plugin=plugin, option="key",
            hint="an existing table has its keys; remove the option, or add create_table=True",
        )  # fmt: skip
    if settings.create_table and settings.mode != "insert" and not settings.key:
        raise OptionError(
            f"mode {settings.mode!r} needs a key, and the new table would have none", plugin=plugin, option="key",
            hint="name the columns that are the primary key: key=['id']",
        )  # fmt: skip
    if folded(settings.offsets_table) == folded(settings.table):
        raise OptionError(
            "offsets_table must not be the table that the sink writes", plugin=plugin, option="offsets_table"
        )
    seen = set()
    for name in (settings.columns or {}).values():
        if folded(name) in seen:
            raise OptionError(f"two columns of the stream are mapped to {name!r}", plugin=plugin, option="columns")
        seen.add(folded(name))
