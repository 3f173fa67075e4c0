"""Options of sinks into tables: which go together."""

from __future__ import annotations

from typing import Any

import pytest
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings
from headrace.interfaces.table_sink_options import ColumnNames, CreateTable, check_table_sink


class Sink(Settings, frozen=True, kw_only=True):
    table: str = "t"
    mode: str = "insert"
    columns: ColumnNames = None
    key: list[str] | None = None
    create_table: CreateTable = False
    offsets_table: str = "headrace_offsets"


@pytest.mark.parametrize(
    ("options", "wrong", "message"),
    [
        ({}, None, ""),
        ({"columns": {"a": "x", "b": "y"}}, None, ""),
        ({"key": ["id"], "create_table": True, "mode": "upsert"}, None, ""),
        ({"create_table": True}, None, ""),
        ({"key": ["id"]}, "key", "the option key has an effect only together with create_table"),
        ({"create_table": True, "mode": "upsert"}, "key", "mode 'upsert' needs a key"),
        ({"create_table": True, "mode": "upsert", "key": []}, "key", "mode 'upsert' needs a key"),
        ({"offsets_table": "t"}, "offsets_table", "must not be the table that the sink writes"),
        ({"columns": {"a": "x", "b": "x"}}, "columns", "two columns of the stream are mapped to 'x'"),
    ],
)
def test_options_that_go_together_and_others(options: dict[str, Any], wrong: str | None, message: str) -> None:
    settings = Sink(**options)
    if wrong is None:
        check_table_sink(settings, plugin="db")
        return
    with pytest.raises(OptionError, match=message) as found:
        check_table_sink(settings, plugin="db")
    assert (found.value.plugin, found.value.option) == ("db", wrong)


def test_names_that_the_database_takes_for_the_same() -> None:
    for options in ({"offsets_table": "T"}, {"columns": {"a": "x", "b": "X"}}):
        check_table_sink(Sink(**options), plugin="db")
        with pytest.raises(OptionError):
            check_table_sink(Sink(**options), plugin="db", folded=str.lower)


def test_a_key_of_a_table_that_exists() -> None:
    check_table_sink(Sink(key=["id"], mode="upsert"), plugin="db", key_of_existing=True)
