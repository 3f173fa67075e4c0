"""docs/connectors/mysql.md names the options as they are declared, and its statement makes the table of positions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_mysql import (
    MySQLChangesSettings,
    MySQLSinkSettings,
    MySQLSourceSettings,
    MySQLStateSettings,
    MySQLStateStore,
)
from mysql_world import Database

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "mysql.md"


def section(title: str) -> str:
    found = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.S)
    assert found is not None, title
    return found[1]


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
    inherited = {option.name for option in describe_options(SinkSettings)} if title == "Sink" else set()
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in inherited
    ]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section(title), re.M)
    assert rows == declared


def test_the_statement_for_administrators(database: Database) -> None:
    [statement] = re.findall(r"```sql\n(CREATE TABLE.*?)```", section("Sink"), re.S)
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
    [block] = re.findall(r"```sql\n(CREATE TABLE.*?)```", section("State store"), re.S)
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
