"""docs/connectors/mysql.md names the options as they are declared, and its statement makes the table of positions."""

from __future__ import annotations

import re

import pytest
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import SinkSettings
from headrace_mysql import (
    MySQLChangesSettings,
    MySQLSinkSettings,
    MySQLSourceSettings,
    MySQLStateSettings,
    MySQLStateStore,
)
from mysql_world import Database

from tests.pages import DOCS, declared_options, section, tabled_options

PAGE = DOCS / "connectors" / "mysql.md"


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("Source", MySQLSourceSettings),
        ("Changes", MySQLChangesSettings),
        ("Sink", MySQLSinkSettings),
        ("State store", MySQLStateSettings),
    ],
)
def test_options(title: str, settings: type[Settings]) -> None:
    declared = declared_options(settings, SinkSettings if title == "Sink" else None)
    rows = tabled_options(section(PAGE, title))
    assert rows == declared


def test_the_statement_for_administrators(database: Database) -> None:
    [statement] = re.findall(r"```sql\n(CREATE TABLE.*?)```", section(PAGE, "Sink"), re.S)
    database.execute(statement)
    sink = database.sink({"id": "int64"}, create_table=True)
    sink.close()
    assert [name for (name,) in database.execute("SHOW TABLES")] == ["headrace_offsets", "t"]
    [(_, by_hand)] = database.execute("SHOW CREATE TABLE headrace_offsets")
    database.execute("DROP TABLE headrace_offsets")
    database.sink({"id": "int64"}).close()
    [(_, by_sink)] = database.execute("SHOW CREATE TABLE headrace_offsets")
    assert by_hand == by_sink


def test_the_statements_for_state(database: Database) -> None:
    [block] = re.findall(r"```sql\n(CREATE TABLE.*?)```", section(PAGE, "State store"), re.S)
    for statement in filter(str.strip, block.split(";")):
        database.execute(statement)

    def shown() -> list[str]:
        names = ("headrace_state", "headrace_state_shards")
        return [database.execute(f"SHOW CREATE TABLE {name}")[0][1] for name in names]

    by_hand = shown()
    database.execute("DROP TABLE headrace_state, headrace_state_shards")
    given = {name: value for name, value in database.options().items() if name != "table"}
    store = MySQLStateStore(MySQLStateSettings.of({**given, "job": "j"}, plugin="mysql"))
    assert list(store.load("a/0")) == []
    store.close()
    assert shown() == by_hand
