"""What is offered for what has been typed."""

from __future__ import annotations

import headrace as hr
import polars as pl
import pytest
from headrace_shell.completion import SqlCompleter
from headrace_sql import SqlSession
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

SESSION = SqlSession()


@pytest.fixture
def completer() -> SqlCompleter:
    SESSION.forget()
    hr.sql("CREATE TABLE orders (id BIGINT, amount INT) WITH ('connector' = 'datagen')", session=SESSION)
    hr.sql("CREATE VIEW other AS SELECT id AS order_id FROM orders", session=SESSION)
    hr.register("frame", pl.DataFrame({"column_a": [1]}), session=SESSION)
    return SqlCompleter(SESSION, [r"\d", r"\df", r"\timing"])


def offered(completer: SqlCompleter, text: str, behind: str = "") -> list[str]:
    document = Document(text + behind, len(text))
    return [each.text for each in completer.get_completions(document, CompleteEvent())]


def test_tables_behind_from(completer: SqlCompleter) -> None:
    assert offered(completer, "SELECT * FROM o") == ["orders", "other"]
    assert offered(completer, "SELECT * FROM orders AS a JOIN f") == ["frame"]
    assert sorted(offered(completer, "INSERT INTO ")) == ["frame", "orders", "other"]
    assert offered(completer, r"\d ot") == ["other"]


def test_columns_of_the_tables_that_are_named(completer: SqlCompleter) -> None:
    assert "amount" in offered(completer, "SELECT am", " FROM orders")
    assert offered(completer, "SELECT a.", " FROM orders AS a JOIN other AS b ON TRUE") == ["id", "amount"]
    assert offered(completer, "SELECT b.o", " FROM orders AS a JOIN other AS b ON TRUE") == ["order_id"]
    assert offered(completer, "SELECT frame.", " FROM frame") == ["column_a"]
    assert offered(completer, "SELECT x.", " FROM nowhere AS x") == []


def test_keywords_and_functions_in_the_case_that_is_typed(completer: SqlCompleter) -> None:
    assert "SELECT" in offered(completer, "SEL")
    assert "select" in offered(completer, "sel")
    assert "JSON_VALUE" in offered(completer, "SELECT JSON_V")
    assert "json_value" in offered(completer, "SELECT json_v")


def test_commands_and_options(completer: SqlCompleter) -> None:
    assert offered(completer, r"\d") == [r"\df"]
    assert offered(completer, r"\t") == [r"\timing"]
    assert "table.local-time-zone" in offered(completer, "SET 'table.lo")


def test_what_a_statement_changes_is_offered(completer: SqlCompleter) -> None:
    offered(completer, "SELECT o.", " FROM orders AS o")
    hr.sql("ALTER TABLE orders ADD colour STRING", session=SESSION)
    completer.known.forget()
    assert "colour" in offered(completer, "SELECT o.", " FROM orders AS o")
