"""The verbs over frames: what comes out, in which order, with which header, and what is rejected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypedDict

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, ROW, Batch, Queue
from headrace.flow.rows import pack_rows, unpack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import FunctionError, RetriableError
from headrace.interfaces.operator import OperatorSpec, RejectedRows
from headrace_columnar.verbs.batch_functions import MapBatches
from headrace_columnar.verbs.projection import Drop, Rename, Select, WithColumns
from headrace_columnar.verbs.row_functions import FlatMap, ForEach, Map
from headrace_columnar.verbs.selection import Filter, Split, Where

SCHEMA = Schema.of({"a": "int64", "b": "string"})
ROWS: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}, {"a": -4, "b": "z"}]


def batch(rows: list[dict[str, Any]] = ROWS, *, packed: bool = False, first: int = 10) -> Batch:
    header = pl.DataFrame({OFFSET: range(first, first + len(rows)), INDEX: pl.Series([0] * len(rows), dtype=pl.Int32)})
    columns = pl.DataFrame({ROW: pack_rows(rows)}) if packed else pl.DataFrame(rows, schema=dict(SCHEMA))
    return Batch(Queue("q"), pl.concat([header, columns], how="horizontal"))


class Outcome:
    """What an operator gave, sorted out."""

    def __init__(self, spec: OperatorSpec, given: Batch, schema: Schema | None = SCHEMA) -> None:
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.positions: dict[str, list[tuple[int, int]]] = {}
        self.rejected: list[tuple[int, str]] = []
        self.frames: list[pl.DataFrame] = []
        for result in spec.open(schema).process(given):
            if isinstance(result, RejectedRows):
                self.rejected += zip(result.frame[OFFSET].to_list(), result.reasons, strict=True)
                continue
            assert isinstance(result, Batch)
            self.frames.append(result.frame)
            self.positions.setdefault(result.output, []).extend(result.frame.select(OFFSET, INDEX).iter_rows())
            rows = unpack_rows(result.frame[ROW]) if ROW in result.frame.columns else result.user_frame().to_dicts()
            self.outputs.setdefault(result.output, []).extend(rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.outputs.get("", [])


def test_where_keeps_true_rows_only_and_their_header() -> None:
    found = Outcome(Where("a > 0"), batch())
    assert found.rows == [ROWS[0], ROWS[2]]
    assert found.positions[""] == [(10, 0), (12, 0)]
    assert Outcome(Where("NOT a > 0"), batch()).rows == [ROWS[3]]


def test_where_takes_polars_expressions() -> None:
    assert Outcome(Where(pl.col("a") < 0), batch()).rows == [ROWS[3]]


def test_a_row_whose_condition_fails_is_rejected_and_its_neighbours_kept() -> None:
    found = Outcome(Where("10 / (a - 1) < 6"), batch())
    assert [offset for offset, _ in found.rejected] == [10]
    assert found.rows == [ROWS[2], ROWS[3]]


def test_split_gives_each_row_to_the_first_branch() -> None:
    found = Outcome(Split(positive="a > 0", z="b = 'z' OR a = 1"), batch())
    assert found.outputs == {"positive": [ROWS[0], ROWS[2]], "z": [ROWS[3]], "rest": [ROWS[1]]}


def test_select_and_with_columns() -> None:
    assert Outcome(Select("b", c="a * 2"), batch()).rows[0] == {"b": "x", "c": 2}
    found = Outcome(WithColumns(a="a + 1", c="a"), batch())
    assert found.rows[0] == {"a": 2, "b": "x", "c": 1}
    assert found.frames[0].columns == [OFFSET, INDEX, "a", "b", "c"]


def test_select_of_constants_keeps_every_row() -> None:
    assert Outcome(Select(one="1"), batch()).rows == [{"one": 1}] * 4


def test_drop_and_rename() -> None:
    assert Outcome(Drop("a"), batch()).rows[0] == {"b": "x"}
    assert Outcome(Rename({"a": "b", "b": "a"}), batch()).rows[0] == {"b": 1, "a": "x"}


def test_filter_calls_a_function_of_the_row() -> None:
    found = Outcome(Filter(lambda row: row["a"] > 0), batch())
    assert found.rows == [ROWS[0], ROWS[2]]
    assert [offset for offset, _ in found.rejected] == [11]


def test_map_without_schema_keeps_each_row_as_it_was_made() -> None:
    found = Outcome(Map(lambda row: {"v": row["a"] if row["b"] else 1.5}), batch())
    assert found.rows == [{"v": 1}, {"v": None}, {"v": 1.5}, {"v": -4}]
    assert [type(row["v"]) for row in found.rows] == [int, type(None), float, int]


def test_map_drops_rows_for_none_and_rejects_what_is_no_row() -> None:
    found = Outcome(Map(lambda row: None if row["a"] == 1 else 5 if row["a"] == 3 else row), batch())
    assert found.positions[""] == [(11, 0), (13, 0)]
    assert found.rejected == [(12, "the function returned int, not a row (a dict)")]


def test_map_with_schema_is_checked() -> None:
    spec = Map(lambda row: {"n": row["a"] if row["b"] != "z" else "text"}, schema={"n": "int32", "m": "string"})
    found = Outcome(spec, batch())
    assert found.rows == [{"n": 1, "m": None}, {"n": None, "m": None}, {"n": 3, "m": None}]
    assert found.frames[0].schema["n"] == pl.Int32
    assert [offset for offset, _ in found.rejected] == [13]
    found = Outcome(Map(lambda row: {"other": 1}, schema={"n": "int32"}), batch())
    assert found.rows == []
    assert "'other'" in found.rejected[0][1]


class Typed(TypedDict):
    n: int
    s: str | None


@dataclasses.dataclass
class Data:
    n: int


def typed(row: dict[str, Any]) -> Typed | None:
    return {"n": len(row), "s": row["b"]}


def data(row: dict[str, Any]) -> Data:
    return Data(row["a"] or 0)


def test_return_annotations_are_schemas() -> None:
    assert Map(typed).output_schema(SCHEMA) == Schema.of({"n": "int64", "s": "string"})
    assert Outcome(Map(data), batch()).rows[0] == {"n": 1}


def test_flat_map_numbers_rows_of_a_record() -> None:
    def rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in range(abs(row["a"] or 0)):
            yield {"n": number}

    found = Outcome(FlatMap(rows), batch())
    assert found.positions[""] == [(10, 0), (12, 0), (12, 1), (12, 2), (13, 0), (13, 1), (13, 2), (13, 3)]
    assert Outcome(FlatMap(lambda row: row), batch()).rejected[0] == (
        10, "the function of flat_map returned dict, not an iterable of rows",
    )  # fmt: skip


def test_flat_map_takes_a_table_function() -> None:
    @hr.udtf(returns={"letter": "string", "place": "int64"})
    def letters(b: str | None) -> Iterator[Any]:
        for place, letter in enumerate((b or "") * 2):
            yield letter, place

    found = Outcome(FlatMap(letters), batch())
    assert found.rows[:2] == [{"letter": "x", "place": 0}, {"letter": "x", "place": 1}]
    assert found.rejected == []


def test_a_record_whose_function_fails_half_way_gives_no_row() -> None:
    def rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"n": 1}
        yield {"n": 1 // (row["a"] or 0)}

    found = Outcome(FlatMap(rows), batch())
    assert found.positions[""] == [(10, 0), (10, 1), (12, 0), (12, 1), (13, 0), (13, 1)]
    assert [offset for offset, _ in found.rejected] == [11]


def test_for_each_passes_rows_on() -> None:
    seen: list[Any] = []

    def look(row: dict[str, Any]) -> None:
        seen.append(row["a"])
        if row["a"] == 3:
            raise ValueError("three")

    found = Outcome(ForEach(look), batch())
    assert seen == [1, None, 3, -4]
    assert found.rows == [ROWS[0], ROWS[1], ROWS[3]]
    assert found.rejected == [(12, "three")]


@pytest.mark.parametrize("error", [RetriableError("service away"), MemoryError()])
@pytest.mark.parametrize("verb", [Map, ForEach])
def test_some_errors_of_user_code_are_not_the_rows_fault(verb: Any, error: Exception) -> None:
    def away(row: dict[str, Any]) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)):
        Outcome(verb(away), batch())


def test_map_batches_finds_the_rows_that_make_it_fail() -> None:
    def divide(frame: pl.DataFrame) -> pl.DataFrame:
        if (frame["a"] == 3).any():
            raise ValueError("three")
        return frame.select(n=pl.col("a") * 2)

    found = Outcome(MapBatches(divide, schema={"n": "int64"}), batch())
    assert found.rows == [{"n": 2}, {"n": None}, {"n": -8}]
    assert found.rejected == [(12, "three")]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda frame: frame.head(1), "1 rows for 4"),
        (lambda frame: frame.select("a"), "columns"),
        (lambda frame: 5, "not a polars frame"),
    ],
)
def test_map_batches_must_keep_places_and_columns(function: Any, message: str) -> None:
    with pytest.raises(FunctionError, match=message):
        Outcome(MapBatches(function), batch())


MIXED: list[dict[str, Any]] = [{"v": 1}, {"v": 2.5}, {"v": "text"}, {"v": None}, {"w": 1, "v": 7}, {"v": 40}]


def test_rows_of_unknown_columns_are_processed_shape_by_shape() -> None:
    found = Outcome(Where("v > 1"), batch(MIXED, packed=True), None)
    assert found.rows == [{"v": 2.5}, {"w": 1, "v": 7}, {"v": 40}]
    assert found.positions[""] == [(11, 0), (14, 0), (15, 0)]
    assert [offset for offset, _ in found.rejected] == [12]


def test_a_computed_column_has_the_type_of_its_row() -> None:
    found = Outcome(Select(twice="v * 2"), batch(MIXED, packed=True), None)
    assert [type(row["twice"]) for row in found.rows] == [int, float, type(None), int, int]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "spec",
    [Where("v > 1"), Select(x="v * 2"), WithColumns(x="v"), Split(big="v > 5"), Map(lambda row: {**row, "k": 1}),
     FlatMap(lambda row: [row, row]), Filter(lambda row: row["v"] > 1)],
    ids=lambda spec: spec.name,
)  # fmt: skip
def test_results_do_not_depend_on_which_rows_share_a_batch(spec: OperatorSpec, size: int) -> None:
    whole = Outcome(spec, batch(MIXED, packed=True), None)
    operator_results: dict[str, list[Any]] = {}
    rejected: list[int] = []
    for begin in range(0, len(MIXED), size):
        part = Outcome(spec, batch(MIXED[begin : begin + size], packed=True, first=10 + begin), None)
        for output, rows in part.outputs.items():
            operator_results.setdefault(output, []).extend(rows)
        rejected += [offset for offset, _ in part.rejected]
    assert operator_results == whole.outputs
    assert sorted(rejected) == sorted(offset for offset, _ in whole.rejected)
