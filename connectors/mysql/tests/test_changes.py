"""Changelogs into a table: rows updated and deleted by key, in the transaction that stores the position."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import CHANGE, Batch, ChangeKind, Position
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.operator import Changes
from mysql_world import Database

from tests.sink_tests import batch, insert

SCHEMA = {"k": "string", "part": "int64", "n": "int64"}
INSERT, BEFORE, AFTER, DELETE = 0, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE


def changes(rows: list[tuple[int, Any, Any, int]], first: int) -> Batch:
    made = batch("q", [{"k": k, "part": part, "n": n} for _, k, part, n in rows], SCHEMA, first)
    kinds = pl.Series(CHANGE, [kind for kind, *_ in rows], dtype=pl.Int8)
    return made.with_frame(made.frame.with_columns(kinds))


def ready(database: Database, key: tuple[str, ...] | None, **options: Any) -> Any:
    sink = database.sink(SCHEMA, prepare=False, **options)
    sink.changes = Changes(key)
    sink.prepare(Schema.of(SCHEMA))
    sink.open()
    return sink


@pytest.mark.parametrize("mode", ["upsert", "replace"])
def test_rows_are_changed_and_deleted(database: Database, mode: str) -> None:
    database.execute("CREATE TABLE t (name VARCHAR(50), part INT, n INT, PRIMARY KEY (name, part))")
    sink = ready(database, ("k", "part"), table="t", mode=mode, columns={"k": "name"})
    insert(sink, changes([(INSERT, "a", 1, 1), (INSERT, "it's", 1, 2), (INSERT, "a", 2, 3)], 0))
    assert database.execute("SELECT * FROM t ORDER BY n") == [("a", 1, 1), ("it's", 1, 2), ("a", 2, 3)]
    more = [
        (BEFORE, "a", 1, 1), (AFTER, "a", 1, 10),
        (DELETE, "it's", 1, 2),
        (INSERT, "b", 1, 5), (DELETE, "b", 1, 5),
        (DELETE, "a", 2, 3), (INSERT, "a", 2, 30),
    ]  # fmt: skip
    insert(sink, changes(more, 3), Position(2))
    assert database.execute("SELECT * FROM t ORDER BY n") == [("a", 1, 10), ("a", 2, 30)]
    insert(sink, changes([(DELETE, "a", 2, 30)], 10), Position(9))
    assert database.execute("SELECT * FROM t") == [("a", 1, 10)]
    assert sink.last_offset(changes([(0, "", 0, 0)], 0).queue) == Position(10)
    sink.close()


def test_texts_of_a_created_key_are_compared_byte_by_byte(database: Database) -> None:
    """Blanks at the end too: the row of 'a ' does not take the place of that of 'a'."""
    keys = ["a", "a ", "A", "\u00e4", "a\u0308", "a\t", "ss", "\u00df"]
    sink = database.sink(SCHEMA, prepare=False, mode="upsert", create_table=True, key=["k"])
    sink.changes = Changes(("k",))
    sink.prepare(Schema.of(SCHEMA))
    sink.open()
    insert(sink, changes([(INSERT, key, 1, at) for at, key in enumerate(keys)], 0))
    assert database.execute("SELECT k, n FROM t ORDER BY n") == [(key, at) for at, key in enumerate(keys)]
    insert(sink, changes([(DELETE, "a ", 1, 1)], 8), Position(7))
    assert database.execute("SELECT k FROM t ORDER BY n") == [(key,) for key in keys if key != "a "]
    sink.close()


def test_null_in_a_unique_key(database: Database) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(50), part INT, n INT, UNIQUE KEY (k, part))")
    sink = ready(database, ("k", "part"), table="t", mode="upsert")
    insert(sink, changes([(INSERT, None, 1, 1), (INSERT, "a", None, 2), (INSERT, "a", 1, 3)], 0))
    insert(sink, changes([(DELETE, None, 1, 1), (DELETE, "a", None, 2)], 3), Position(2))
    assert database.execute("SELECT * FROM t") == [("a", 1, 3)]
    sink.close()


def test_a_table_with_another_key_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(50) PRIMARY KEY, part INT, n INT)")
    with pytest.raises(JobError, match="the stream is a changelog with the key k, part, but the table") as caught:
        ready(database, ("k", "part"), table="t", mode="upsert")
    assert "unique key of exactly these columns: (k, part)" in str(caught.value)


def test_rows_can_only_be_added_by_insert(database: Database) -> None:
    assert database.sink(SCHEMA, prepare=False, table="t").accepts == "append"
    assert database.sink(SCHEMA, prepare=False, table="t", mode="upsert").accepts == "upsert"
