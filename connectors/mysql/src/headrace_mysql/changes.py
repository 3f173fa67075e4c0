"""Statements that delete rows by their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace_mysql.connection import listed, quoted
from headrace_mysql.literals import row_texts, statements
from headrace_mysql.tables import TableColumn

if TYPE_CHECKING:
    import polars as pl


def delete_statements(
    table: str,
    target: Callable[[str], str],
    keys: pl.DataFrame,
    columns: Mapping[str, TableColumn],
    bytes_max: int,
    packet_bytes_max: int,
) -> list[str]:
    """Return statements that delete the rows with these keys. NULL in a key is compared as a value."""
    import polars as pl

    has_null = keys.select(pl.any_horizontal(pl.all().is_null()).alias("null")).to_series()
    texts: list[str] = []
    plain = keys.filter(~has_null)
    names = [target(name) for name in keys.columns]
    if plain.height:
        prefix = f"DELETE FROM {quoted(table)} WHERE ({listed(names)}) IN ("  # noqa: S608
        texts += statements(prefix, row_texts(plain, columns), ")", bytes_max, packet_bytes_max)
    odd = keys.filter(has_null)
    values = [row_texts(odd.select(name), columns).to_list() for name in odd.columns] if odd.height else []
    for row in zip(*values, strict=True):
        condition = " AND ".join(f"{quoted(name)} <=> {value}" for name, value in zip(names, row, strict=True))
        texts.append(f"DELETE FROM {quoted(table)} WHERE {condition}")  # noqa: S608
    return texts
