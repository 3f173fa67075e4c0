"""Other queries that must give the same rows do so in DuckDB, and something is found where headrace means another thing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.differential import dsl_family, sql_family
from tests.differential.choices import Choices
from tests.differential.comparing import row_of
from tests.differential.forms import FORMS, OWN_CONDITIONS, Form
from tests.differential.kinds import INT, KEY, TEXT_KEY
from tests.differential.oracle import run_duckdb
from tests.differential.rewriting import first_key, halved, number_of, other_key, replaced, with_other_keys
from tests.differential.tables import TAME, Table, TableColumn
from tests.differential.tree import Call, Column, From, Scan, Select, parts_of
from tests.differential.writing import written
from tests.effort import examples

SEEDS = range(examples(2500, least=1000))


def _rewritten() -> dict[str, list[Any]]:
    """Cases by the way in which they are rewritten, as far as DuckDB knows their functions."""
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        case = sql_family.generate(Choices.of_seed(seed))
        rewriting = case.rewriting
        if rewriting is None or any(
            isinstance(part, Call) and part.form in OWN_CONDITIONS
            for query in (rewriting.query, rewriting.base)
            for part in parts_of(query)
        ):
            continue
        found.setdefault(rewriting.how, []).append(case)
    return found


def test_rewritten_queries_give_the_same_in_duckdb() -> None:
    cases = _rewritten()
    assert set(cases) == {
        "rows in three", "where in three", "groups in three", "join in three", "flag", "counts", "twice",
    }  # fmt: skip
    for how, some in cases.items():
        for case in some[:8]:
            rewriting = case.rewriting
            rows = run_duckdb(case.tables, written(rewriting.query, "duckdb"))
            expected = run_duckdb(case.tables, written(rewriting.base or case.query, "duckdb"))
            if how == "counts":
                assert number_of(rows) == number_of(expected)
                continue
            if len(rewriting.query.columns) > len(case.query.columns):
                rows, wrong = halved(rows)
                assert not wrong
            assert rows == expected, sql_family.describe(case)


def test_a_not_that_takes_null_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were NULL true for NOT, rows of no value would be in two of three parts: of verbs, and of queries."""
    monkeypatch.setitem(FORMS, "not", Form("(NOT COALESCE({0}, FALSE))"))
    cases = (sql_family.generate(Choices.of_seed(seed)) for seed in range(1000))
    assert any(sql_family.check(case) for case in cases if case.rewriting and "in three" in case.rewriting.how)


def test_different_columns_of_one_expression_are_found() -> None:
    rows = Counter([row_of((1, "a", 1, "a")), row_of((None, "b", 2, "b"))])
    first, wrong = halved(rows)
    assert first == Counter([row_of((1, "a")), row_of((None, "b"))])
    assert "differ" in wrong


def test_another_number_of_rows_is_found() -> None:
    table = Table("t1", (TableColumn("k", INT),), ((1,), (2,), (None,)), (0, 0, 0))
    seeds = (sql_family.generate(Choices.of_seed(seed)) for seed in SEEDS)
    case = next(case for case in seeds if case.rewriting and case.rewriting.how == "counts")
    scan = From(Scan((Column(INT, 3, "k"),), "t1"), "a1")
    one, other = (
        replace(case.rewriting.base, source=scan, joins=(), where=where)
        for where in (None, Call(INT, 1, "is null", (Column(INT, 3, "k"),)))
    )
    wrong = replace(case, tables=(table,), rewriting=replace(case.rewriting, base=one, query=other))
    assert sql_family.check(wrong) == "WHERE leaves 3 rows, its condition is true for 1"


@pytest.mark.parametrize("kind", [KEY, TEXT_KEY])
def test_other_keys_are_in_the_same_order_and_come_back(kind: Any) -> None:
    keys = [None, *sorted(TAME[kind.name])]
    others = [other_key(key) for key in keys]
    assert all(one != other for one, other in zip(keys[1:], others[1:], strict=True))
    assert others[1:] == sorted(others[1:])
    assert [row_of([first_key(value)]) for (value,) in map(row_of, ([each] for each in others))] == [
        row_of([key]) for key in keys
    ]
    table = Table("t1", (TableColumn("k", kind), TableColumn("v", INT)), ((keys[1], 1),), (0,))
    assert with_other_keys(table).rows == ((others[1], 1),)


def test_a_part_is_replaced_where_it_stands_and_nowhere_else() -> None:
    column, same = Column(INT, 1, "k"), Column(INT, 1, "k")
    select = Select((column,), From(Scan((column,), "t1"), "a1"), (column, same))
    made = replaced(select, same, Column(INT, 1, "v"))
    assert [item.name for item in made.items] == ["k", "v"]
    assert replaced(select, Column(INT, 1, "k"), column) is select


def test_chains_of_verbs_are_told_in_sql_too() -> None:
    cases = [dsl_family.generate(Choices.of_seed(seed)) for seed in range(60)]
    assert {case.as_sql for case in cases} == {True, False}
    assert {bool(case.style.breaks) for case in cases} == {True, False}
    assert {case.other_keys for case in cases} == {True, False}
