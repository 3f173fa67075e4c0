"""Joins and changelogs as jobs on the light backend: what the verbs make, and what comes out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, OptionError, PlanError
from headrace.interfaces.operator import Changes
from headrace.jobs.dsl import Pipeline, Stream
from headrace.plan.graph import OperatorNode
from headrace.testing import MemorySink, MemorySource
from headrace_file import FileSink, FileSinkSettings

ORDERS = {"id": "int64", "customer": "int64", "amount": "int64", "ts": "timestamp"}
CUSTOMERS = {"customer": "int64", "name": "string"}
ORDER_ROWS = [{"id": n, "customer": n % 3, "amount": n * 10, "ts": f"2026-01-01T00:00:{n:02d}Z"} for n in range(12)]
CUSTOMER_ROWS = [{"customer": 0, "name": "Zoe"}, {"customer": 1, "name": "Uma"}, {"customer": 7, "name": "Sven"}]


def memory(rows: Sequence[Mapping[str, Any]], queues: int = 2) -> MemorySource:
    lines = [json.dumps(row).encode() for row in rows]
    return MemorySource({f"q{number}": lines[number::queues] for number in range(queues)})


def orders(p: Pipeline, name: str = "orders") -> Stream:
    return p.from_(memory(ORDER_ROWS), format="json", schema=ORDERS, name=name)


def customers(p: Pipeline) -> Stream:
    return p.from_(memory(CUSTOMER_ROWS), format="json", schema=CUSTOMERS, name="customers")


def table(build: Callable[[Pipeline], Stream]) -> Counter[str]:
    """Run a job and return its result after all changes."""
    sink = MemorySink()
    build(hr.stream("test", "job")).to(sink).run("light")
    return Counter(json.dumps(row, default=str) for row in sink.table())


def rows_of(build: Callable[[Pipeline], Stream], *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(json.loads(row)[name] for name in columns) for row in table(build).elements()), key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_every_kind_of_join(how: str) -> None:
    found = rows_of(lambda p: orders(p).select("id", "customer").join(customers(p), "customer", how=how), "id")
    with_customer = [(row["id"],) for row in ORDER_ROWS if row["customer"] in (0, 1)]
    without = [(row["id"],) for row in ORDER_ROWS if row["customer"] == 2]
    wanted = {
        "inner": with_customer, "left": with_customer + without, "right": [*with_customer, (None,)],
        "full": [*with_customer, *without, (None,)], "semi": with_customer, "anti": without,
    }  # fmt: skip
    assert found == sorted(wanted[how], key=repr)


def test_keys_of_other_names_and_a_condition() -> None:
    def build(p: Pipeline) -> Stream:
        people = customers(p).rename(customer="number")
        return orders(p).join(people, {"customer": "number"}, where="amount > 50 AND name <> 'Zoe'")

    assert rows_of(build, "id", "number", "name") == [(10, 1, "Uma"), (7, 1, "Uma")]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_column_may_stand_in_several_pairs(how: str) -> None:
    def build(p: Pipeline) -> Stream:
        twice = customers(p).with_columns(again="CASE WHEN customer = 1 THEN 5 ELSE customer END")
        pairs = [("customer", "customer"), ("customer", "again"), ("customer", "customer")]
        return orders(p).select("id", "customer").join(twice, pairs, how=how, where="id <> 3 OR id IS NULL")

    meets = [(row["id"],) for row in ORDER_ROWS if row["customer"] == 0 and row["id"] != 3]
    without = [(row["id"],) for row in ORDER_ROWS if (row["id"],) not in meets]
    wanted = {
        "inner": meets, "left": meets + without, "right": [*meets, (None,), (None,)],
        "full": [*meets, *without, (None,), (None,)], "semi": meets, "anti": without,
    }  # fmt: skip
    assert rows_of(build, "id") == sorted(wanted[how], key=repr)


def test_within_a_time_bound() -> None:
    found = rows_of(
        lambda p: orders(p, "a").join(orders(p, "b"), "customer", within=("-3 s", "-1 s"), time="ts"), "id", "id_right"
    )
    assert found == sorted(((n, n - 3) for n in range(3, 12)), key=repr)


def test_in_the_same_window() -> None:
    found = rows_of(
        lambda p: orders(p, "a").join(orders(p, "b"), "customer", window=hr.tumbling("6 s", on="ts")),
        "id", "id_right", "window_start",
    )  # fmt: skip
    pairs = [(a, b) for a in range(12) for b in range(12) if a % 3 == b % 3 and a // 6 == b // 6]
    assert found == sorted(((a, b, f"2026-01-01 00:00:{a // 6 * 6:02d}+00:00") for a, b in pairs), key=repr)


def test_changes_through_several_operators() -> None:
    """Customers by how many orders they have: counts of counts, joined with the names, the best first."""

    def build(p: Pipeline) -> Stream:
        counts = orders(p).where("id <> 11").key_by("customer").agg(n="count(*)", most="max(amount)")
        return counts.join(customers(p), "customer").key_by().top_n(1, by="n desc, most desc", rank="place")

    assert rows_of(build, "customer", "n", "name", "place") == [(1, 4, "Uma", 1)]
    found = rows_of(
        lambda p: orders(p).where("id <> 11").key_by("customer").agg(n="count(*)").key_by("n").agg(k="count(*)"),
        "n",
        "k",
    )
    assert found == [(3, 1), (4, 2)]


def test_keys_of_results() -> None:
    p = hr.stream("test", "job")
    per_customer = orders(p).key_by("customer").agg(n="count(*)")
    names = customers(p).key_by("customer").agg(name="last(name)")
    by_id = orders(p, "more").key_by("id").agg(customer="last(customer)")
    for stream, key in (
        (per_customer, ("customer",)),
        (per_customer.join(names, "customer", how="left"), ("customer",)),
        (by_id.join(names, "customer"), ("id", "customer")),
        (by_id.join(names, "customer", how="full"), None),
        (by_id.join(names, "customer", how="anti"), ("id", "customer")),
        (orders(p, "others").join(customers(p), "customer", how="left"), None),
        (orders(p, "others").join(customers(p), "customer", how="left", key="id"), ("id",)),
        (by_id.key_by("customer").top_n(3, by="id"), ("id", "customer")),
        (by_id.key_by("customer").top_n(3, by="id", rank="place"), ("customer", "place")),
    ):
        sink = MemorySink()
        stream.to(sink).plan()
        assert sink.changes == Changes(key)
    sink = MemorySink()
    orders(p, "all").join(customers(p), "customer").to(sink).plan()
    assert sink.changes is None


def test_changes_are_refused_where_they_cannot_be_taken(tmp_path: Path) -> None:
    p = hr.stream("test", "job")
    counts = orders(p).key_by("customer").agg(n="count(*)", ts="max(ts)")
    with pytest.raises(PlanError, match="changes earlier results"):
        counts.to(FileSink(FileSinkSettings.of({"path": str(tmp_path)}))).plan()
    with pytest.raises(PlanError, match="the rows of one side change"):
        counts.join(orders(p, "b"), "customer", within=("0 s", "1 s"), time="ts").to(MemorySink()).plan()
    with pytest.raises(PlanError, match="cannot retract rows"):
        counts.key_by("n").reduce(lambda a, b: a).to(MemorySink()).plan()


@pytest.mark.parametrize("before", [(), ("id",)])
def test_an_expression_that_only_replaces_a_column_is_no_key(before: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match=r"'customer \+ 1 AS customer' does not name a new column"):
        orders(hr.stream("test", "job")).key_by(*before, "customer + 1 AS customer")


def test_what_is_wrong_with_a_join_is_said_when_it_is_built() -> None:
    p = hr.stream("test", "job")
    left, right = orders(p), customers(p)
    with pytest.raises(PlanError, match="unknown column 'custmer'"):
        left.join(right, "custmer")
    with pytest.raises(PlanError, match="are never equal"):
        left.join(right, {"customer": "name"})
    with pytest.raises(OptionError, match="unknown kind of join 'outer'"):
        left.join(right, "customer", how="outer")
    with pytest.raises(OptionError, match="the event-time column is missing"):
        left.join(right, "customer", within=("0 s", "1 s"))
    with pytest.raises(OptionError, match="is not a range"):
        left.join(right, "customer", within=("5 s", "1 s"), time="ts")
    with pytest.raises(OptionError, match="session windows cannot be joined"):
        left.join(right, "customer", window=hr.session("1 s", on="ts"))
    with pytest.raises(ExpressionError, match="nmae"):
        left.join(right, "customer", where="nmae = 'x'")
    with pytest.raises(PlanError, match="two columns after the join are called 'name'"):
        right.join(customers(p), "customer", suffix="")


def test_late_rows_of_a_window_join() -> None:
    rows = [{"k": 1, "n": n, "ts": f"2026-01-01T00:00:{n:02d}Z"} for n in (1, 30, 2)]
    schema = {"k": "int64", "n": "int64", "ts": "timestamp"}
    p = hr.stream("test", "job")
    left = p.from_(memory(rows, 1), format="json", schema=schema, name="left")
    right = p.from_(memory(rows, 1), format="json", schema=schema, name="right")
    joined = left.join(right, "k", window=hr.tumbling("10 s", on="ts"))
    node = joined.edge.node
    assert isinstance(node, OperatorNode)
    assert node.spec.outputs == ("", "late")
    sink = MemorySink()
    joined.late().to(sink).run("light")
    # How far the other side was when the late row came is chance; that a row of 2 s is the only one to be late is not.
    assert {row["n"] or row["n_right"] for row in sink.rows} <= {2}


def test_a_row_without_a_time_is_in_no_window_of_a_join_and_goes_to_the_dead_letters() -> None:
    rows: list[dict[str, Any]] = [{"k": 1, "n": 1, "ts": "2026-01-01T00:00:01Z"}, {"k": 1, "n": 2, "ts": None}]
    schema = {"k": "int64", "n": "int64", "ts": "timestamp"}
    p = hr.stream("test", "job")
    left, right = (p.from_(memory(rows, 1), format="json", schema=schema, name=name) for name in ("left", "right"))
    bad, sink = MemorySink(), MemorySink()
    joined = left.join(right, "k", how="full", window=hr.tumbling("10 s", on="ts"))
    joined.dead_letters(lambda letters: letters.to(bad)).to(sink).run("light")
    assert [(row["n"], row["n_right"]) for row in sink.rows] == [(1, 1)]
    assert [json.loads(row["row"])["n"] for row in bad.rows] == [2, 2]
    assert {row["reason"] for row in bad.rows} == {"no time in column 'ts': the row belongs to no window"}


def test_a_result_and_a_part_of_it_are_united_in_the_order_of_the_result() -> None:
    rows = [{"id": n, "customer": 1, "amount": n, "ts": f"2026-01-01T00:00:{n * 10:02d}Z"} for n in range(3)]

    def build(p: Pipeline) -> Stream:
        source = p.from_(memory(rows, 1), format="json", schema=ORDERS, name="orders")
        windows = source.key_by("customer").window(hr.tumbling("10 s", on="ts")).agg(n="sum(amount)")
        return windows.union(windows.where("n >= 0")).key_by("customer").agg(order="collect(n)")

    assert rows_of(build, "order") == [([0, 0, 1, 1, 2, 2],)]


def test_an_aggregate_must_not_be_called_like_a_key() -> None:
    with pytest.raises(PlanError, match="two columns of the result are called 'customer'"):
        orders(hr.stream("test", "job")).key_by("customer").agg(customer="count(*)")


def test_late_rows_are_only_added_also_where_the_results_change(tmp_path: Path) -> None:
    rows = [
        {"customer": 1, "window_start": 0, "window_end": 0, "ts": f"2026-01-01T00:00:{n:02d}Z"} for n in (1, 30, 2, 3)
    ]
    schema = {"customer": "int64", "window_start": "int64", "window_end": "int64", "ts": "timestamp"}
    source = hr.stream("test", "job").from_(memory(rows, 1), format="json", schema=schema, name="rows")
    emit = hr.emit(before="1 s")
    late = source.key_by("customer").window(hr.tumbling("10 s", on="ts"), emit=emit).agg(n="count(*)").late()
    sink = MemorySink()
    # A sink that takes added rows only takes them, and they have no key by which one would replace another.
    late.to_file(str(tmp_path / "late"), format="json").also(late.to(sink)).run("light")
    assert sink.changes is None
    assert [row["ts"].second for row in sink.rows] == [2, 3]
