"""Changes as rows, and rows as changes."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

CHANGES = pl.DataFrame(
    {
        "id": [1, 2, 1, 1, 2],
        "op": ["INSERT", "INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"],
        "v": [10, 20, 10, 11, 20],
    }
)


def test_there_and_back() -> None:
    hr.register("t", CHANGES)
    assert hr.sql("SELECT * FROM FROM_CHANGELOG(TABLE t)").collect().rows() == [(1, 11)]
    told = hr.sql(
        "CREATE VIEW c AS SELECT * FROM FROM_CHANGELOG(TABLE t); SELECT * FROM TO_CHANGELOG(TABLE c) AS x"
    ).collect()
    assert told.columns == ["op", "id", "v"]
    assert told.rows() == [(op, number, value) for number, op, value in CHANGES.rows()]


def test_a_join_that_changes_is_told_with_what_it_takes_back() -> None:
    hr.register("t", CHANGES)
    hr.register("u", pl.DataFrame({"k": [2], "name": ["two"]}))
    text = """
        CREATE VIEW c AS SELECT id, v FROM FROM_CHANGELOG(TABLE t);
        CREATE VIEW j AS SELECT c.id, c.v, u.name FROM c LEFT JOIN u ON c.id = u.k;
        SELECT * FROM FROM_CHANGELOG(TABLE told);
    """
    with pytest.raises(ExpressionError, match="unknown table 'told'"):
        hr.sql(text)
    text = text.replace(
        "SELECT * FROM FROM", "CREATE VIEW told AS SELECT * FROM TO_CHANGELOG(TABLE j); SELECT * FROM FROM"
    )
    assert hr.sql(text).collect().rows() == [(1, 11, None)]


def test_a_code_that_is_none_is_a_dead_letter_with_the_reason(tmp_path: Path) -> None:
    hr.register("t", pl.DataFrame({"id": [1, 2, 3], "op": ["INSERT", "upsert", None]}))
    job = hr.sql(
        "CREATE TABLE o (id INT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT id FROM FROM_CHANGELOG(TABLE t)"
    )
    report = job.run("light", show_progress=False, checkpoint=str(tmp_path))
    assert report.dead_letters == 2


def test_what_changes_cannot_be_taken_as_changes_again() -> None:
    hr.register("t", CHANGES)
    with pytest.raises(ExpressionError, match="only added"):
        hr.sql("CREATE VIEW c AS SELECT op, COUNT(*) AS n FROM t GROUP BY op; SELECT * FROM FROM_CHANGELOG(TABLE c)")


def test_a_column_called_op_is_the_users_when_rows_are_collected() -> None:
    hr.register("t", CHANGES)
    assert hr.sql("SELECT op, COUNT(*) AS n FROM t WHERE id = 2 GROUP BY op").collect().rows() == [
        ("INSERT", 1),
        ("DELETE", 1),
    ]
    told = hr.sql("SELECT op, COUNT(*) AS n FROM t WHERE v = 11 GROUP BY op").collect(changes=True)
    assert told.columns == ["op", "n", "op_2"]
    assert told.rows() == [("UPDATE_AFTER", 1, "+I")]
