"""Functions of SQL texts: every form is taken by headrace, and what differs is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential import function_family
from tests.differential.function_family import COLUMNS, FORMS, Case, check
from tests.differential.kinds import INT
from tests.differential.running import run_sql
from tests.differential.tables import Table, TableColumn


def _table(form: str, *rows: tuple[Any, ...]) -> Table:
    names = [name for name in COLUMNS if "{" + name + "}" in form]
    columns = (TableColumn("id", INT), *(TableColumn(name, COLUMNS[name][0]) for name in names))
    return Table("t1", columns, rows, (0,) * len(rows))


def test_every_form_is_taken() -> None:
    """A form that is refused would fail in every way alike, and show nothing."""
    for form in FORMS:
        found = run_sql([_table(form)], f"SELECT id, {function_family._by_column(form)} AS z FROM t1")  # our own text
        assert not found.rows, form


def test_another_constant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("CHR({i})", _table("CHR({i})", (0, 97), (1, None)), 1, (0, 1))
    assert check(case) is None
    constant = function_family._constant
    monkeypatch.setattr(
        function_family, "_constant", lambda table, form, row: "b" if row == 0 else constant(table, form, row)
    )
    assert check(case) == "row 0 by column: 'a', as constants: 'b'"


def test_a_row_that_fails_does_so_in_every_way() -> None:
    form = "CAST({s} AS INT)"
    case = Case(form, _table(form, (0, "7"), (1, "x"), (2, None)), 2, (0, 1, 2))
    assert check(case) is None
    assert list(function_family._outcomes(case.table, "CAST(s AS INT)", 10).values()) == [7, "fails", None]
