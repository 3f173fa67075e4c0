"""The contracts of the sample operators, as their author would write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import headrace as hr
from headrace_contract import OperatorContract

from contract_samples.operators import Even, Repeat, Scale


class ScaleContract(OperatorContract):
    """One row for each, or a rejection."""

    schema: ClassVar[Any] = {"price": "float64", "name": "string", "tags": "array<string>"}
    rows_out = "one"

    def make_spec(self) -> hr.OperatorSpec:
        return Scale("price")

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        rows = super().make_rows(first, count)
        for number, row in enumerate(rows):
            if number % 11 == 5:
                row["price"] = -1.0 * number
            if all(value is None for value in row.values()):
                row["name"] = "not all is NULL"
        return rows

    def bad_row(self) -> dict[str, Any]:
        return {"price": -3.0, "name": "x", "tags": None}

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"cost": "float64"}


class EvenContract(OperatorContract):
    """At most one row for each, in two outputs."""

    schema: ClassVar[Any] = {"number": "int64", "name": "string"}
    rows_out = "at most one"

    def make_spec(self) -> hr.OperatorSpec:
        return Even()


class RepeatContract(OperatorContract):
    """Any number of packed rows."""

    schema: ClassVar[Any] = {"number": "int64"}

    def make_spec(self) -> hr.OperatorSpec:
        return Repeat()
