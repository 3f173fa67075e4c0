"""NOT NULL and the lengths of texts, of the columns of a sink's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql.operators.constraints import Constraints, Limits, Policy
from hypothesis import given
from hypothesis import strategies as st

ROWS = [
    {"id": 1, "code": "abc", "tags": ["x", None], "place": {"city": "Ulm", "zip": None}},
    {"id": None, "code": "a", "tags": ["long"], "place": {"city": "Rome", "zip": "00100"}},
    {"id": 3, "code": None, "tags": [], "place": None},
]
OUT = """
CREATE TABLE t (id INT, code STRING, tags ARRAY<STRING>, place ROW<city STRING, zip STRING>)
  WITH ('connector' = 'filesystem', 'path' = '{place}/in.ndjson', 'format' = 'json');
CREATE TABLE o ({columns}) WITH ('connector' = 'file', 'path' = '{place}/out', 'format' = 'json');
{options}
INSERT INTO o SELECT {selected} FROM t;
"""


def written(place: Path, columns: str, selected: str, **options: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows that are written, and the reasons of dead letters."""
    (place / "in.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    sets = "".join(f"SET 'table.exec.sink.{key.replace('_', '-')}' = '{value}';\n" for key, value in options.items())
    job = hr.sql(OUT.format(place=place, columns=columns, selected=selected, options=sets))
    report = job.run("light", show_progress=False, checkpoint=str(place / "checkpoint"))
    rows = [
        json.loads(line) for each in sorted((place / "out").glob("part-*")) for line in each.read_text().splitlines()
    ]
    letters = sorted((place / "checkpoint" / "dead-letters").glob("part-*"))
    dead = [line for each in letters for line in each.read_text().splitlines()]
    assert report.dead_letters == len(dead)
    return rows, dead


def test_a_null_where_none_may_be_is_a_dead_letter(tmp_path: Path) -> None:
    rows, dead = written(tmp_path, "id INT NOT NULL, code STRING", "id, code")
    assert [row["id"] for row in rows] == [1, 3]
    assert len(dead) == 1


def test_the_primary_key_takes_no_null(tmp_path: Path) -> None:
    rows, dead = written(tmp_path, "id INT PRIMARY KEY NOT ENFORCED, code STRING", "id, code")
    assert [row["id"] for row in rows] == [1, 3]
    assert len(dead) == 1


def test_rows_with_null_are_dropped_if_the_text_says_so(tmp_path: Path) -> None:
    rows, dead = written(tmp_path, "id INT NOT NULL", "id", not_null_enforcer="drop")
    assert ([row["id"] for row in rows], dead) == ([1, 3], [])


def test_lengths_are_not_looked_at_by_default(tmp_path: Path) -> None:
    rows, dead = written(tmp_path, "code CHAR(2)", "code")
    assert ([row["code"] for row in rows], dead) == (["abc", "a", None], [])


def test_texts_are_cut_and_filled_up(tmp_path: Path) -> None:
    rows, dead = written(
        tmp_path, "a CHAR(2), b VARCHAR(2), p ROW<city CHAR(4), zip VARCHAR(3)>", "code, code, place",
        type_length_enforcer="TRIM_PAD", nested_constraint_enforcer="ROWS",
    )  # fmt: skip
    assert dead == []
    assert rows == [
        {"a": "ab", "b": "ab", "p": {"city": "Ulm ", "zip": None}},
        {"a": "a ", "b": "a", "p": {"city": "Rome", "zip": "001"}},
        {"a": None, "b": None, "p": None},
    ]


def test_a_text_of_another_length_is_a_dead_letter(tmp_path: Path) -> None:
    rows, dead = written(tmp_path, "a CHAR(3)", "code", type_length_enforcer="ERROR")
    assert ([row["a"] for row in rows], len(dead)) == (["abc", None], 1)


@pytest.mark.parametrize(
    ("depth", "kept"), [("IGNORE", [1, None, 3]), ("ROWS", [None, 3]), ("ROWS_AND_COLLECTIONS", [3])]
)
def test_values_within_values_are_checked_where_the_text_says_so(depth: str, kept: list[Any], tmp_path: Path) -> None:
    columns = "id INT, p ROW<city STRING, zip STRING NOT NULL>, tags ARRAY<VARCHAR(2) NOT NULL>"
    rows, _ = written(
        tmp_path, columns, "id, place, tags", nested_constraint_enforcer=depth, type_length_enforcer="ERROR"
    )
    assert [row["id"] for row in rows] == kept


def test_values_in_arrays_cannot_be_cut(tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match="TRIM_PAD does not go with"):
        written(
            tmp_path, "id INT", "id", type_length_enforcer="TRIM_PAD", nested_constraint_enforcer="ROWS_AND_COLLECTIONS"
        )
    with pytest.raises(ExpressionError, match="is not known"):
        written(tmp_path, "id INT", "id", type_length_enforcer="PAD")


def test_reasons_name_the_value() -> None:
    from headrace.flow.messages import Batch, Queue
    from headrace.interfaces.operator import RejectedRows

    limits = Limits(inner=(("b", Limits(inner=(("", Limits(not_null=True)),))),))
    frame = pl.DataFrame({"a": [{"b": [1, None]}, {"b": [1]}, {"b": None}, None]})
    spec = Constraints({"a": limits}, Policy())
    found = list(spec.open(None).process(Batch(Queue("q"), frame)))
    assert isinstance(found[0], RejectedRows)
    assert found[0].reasons == ["column a.b[…] is NOT NULL, but the value is NULL"]
    assert isinstance(found[1], Batch)
    assert found[1].frame.height == 3


@given(st.lists(st.none() | st.binary(max_size=4)), st.lists(st.none() | st.text(max_size=4)))
def test_lengths_as_python_counts_them(some_bytes: list[bytes | None], texts: list[str | None]) -> None:
    from headrace.flow.messages import Batch, Queue

    size = min(len(some_bytes), len(texts))
    frame = pl.DataFrame(
        {"b": some_bytes[:size], "vb": some_bytes[:size], "c": texts[:size], "vc": texts[:size]},
        schema={"b": pl.Binary, "vb": pl.Binary, "c": pl.String, "vc": pl.String},
    )
    limits = {
        "b": Limits(text=("BINARY", 2)), "vb": Limits(text=("VARBINARY", 2)), "c": Limits(text=("CHAR", 2)),
        "vc": Limits(text=("VARCHAR", 2)),
    }  # fmt: skip
    made = list(Constraints(limits, Policy(lengths="TRIM_PAD")).open(None).process(Batch(Queue("q"), frame)))
    wanted = [
        (None if b is None else b.ljust(2, b"\0")[:2], None if b is None else b[:2],
         None if c is None else c.ljust(2)[:2], None if c is None else c[:2])
        for b, c in zip(some_bytes[:size], texts[:size], strict=True)
    ]  # fmt: skip
    assert [row for batch in made if isinstance(batch, Batch) for row in batch.frame.rows()] == wanted
