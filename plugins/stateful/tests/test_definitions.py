"""The definitions of states: what differs in them, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import headrace as hr
import pytest
from headrace.interfaces.state_definition import (
    DefinedState,
    Verdict,
    definitions_from_json,
    definitions_to_json,
    difference_table,
    differences,
    is_wider,
    verdict_of,
)
from headrace.plan.graph import Plan

SCHEMA = {"k": "string", "i": "int32", "v": "int64", "w": "int64", "ts": "timestamp"}
RIGHT = {"k2": "string", "rate": "int64", "ts2": "timestamp"}
Build = Callable[[Any], Any]


def defined(build: Build, schema: dict[str, str] | None = None, **source: Any) -> DefinedState:
    """Return the definition of the last stateful verb that ``build`` puts on a stream of ``SCHEMA``."""
    stream = hr.stream("shop", "sums").from_file(
        "in/*.ndjson", format="json", schema=schema or SCHEMA, name="in", **source
    )
    plan: Plan = build(stream).to_print().plan()
    definitions = definitions_from_json(json.loads(json.dumps(definitions_to_json(plan.state_definitions))))
    found = list(plan.state_definitions.values())[-1]
    assert list(definitions.values())[-1].to_json() == found.to_json()
    return found


def verdict(before: Build, after: Build, schema: dict[str, str] | None = None) -> Verdict:
    return verdict_of(differences(defined(before), defined(after, schema)))


def right() -> Any:
    return hr.stream("shop", "sums").from_file("rates.ndjson", format="json", schema=RIGHT, name="rates")


def add(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "v": one["v"] + other["v"]}


def greatest(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one if one["v"] > other["v"] else other


def first(row: Any, state: Any, timers: Any) -> None: ...


def second(row: Any, state: Any, timers: Any) -> None: ...


TUMBLING = hr.tumbling("10 s", on="ts")
SAME = {
    "white space and case": (lambda s: s.key_by("k").agg(n="max( v+1 )"), lambda s: s.key_by("k").agg(n='MAX("v" + 1)')),
    "needless brackets": (lambda s: s.key_by("k").agg(n="sum(v * (w))"), lambda s: s.key_by("k").agg(n="sum((v * w))")),
    "names of results": (lambda s: s.key_by("k").agg(n="max(v)"), lambda s: s.key_by("k").agg(other="max(v)")),
    "an expression over what is kept": (
        lambda s: s.key_by("k").agg(n="max(v) - min(v)"),
        lambda s: s.key_by("k").agg(n="max(v) + min(v)"),
    ),
    "two filters or one": (
        lambda s: s.where("v > 1 AND w > 2").key_by("k").agg(n="max(v)"),
        lambda s: s.where("(w > 2)").where("v>1").key_by("k").agg(n="max(v)"),
    ),
    "a column that is not read": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.with_columns(x="v * 2").key_by("k").agg(n="max(v)"),
    ),
    "a select that changes nothing": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.select("v", "k").key_by("k").agg(n="max(v)"),
    ),
    "what comes behind": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.key_by("k").agg(n="max(v)").where("n > 3"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_means_the_same_has_one_definition(name: str) -> None:
    before, after = SAME[name]

    assert differences(defined(before), defined(after)) == []
    assert defined(before).digest() == defined(after).digest()


COMPATIBLE = {
    "ttl": (
        lambda s: s.key_by("k").ttl("1 h").agg(n="max(v)"),
        lambda s: s.key_by("k").ttl("2 h").agg(n="max(v)"),
        Verdict.COMPATIBLE,
    ),
    "order of aggregates": (
        lambda s: s.key_by("k").agg(a="max(v)", b="min(v)"),
        lambda s: s.key_by("k").agg(b="min(v)", a="max(v)"),
        Verdict.ADAPTED,
    ),
    "an aggregate less": (
        lambda s: s.key_by("k").agg(a="max(v)", b="min(v)"),
        lambda s: s.key_by("k").agg(b="min(v)"),
        Verdict.ADAPTED,
    ),
    "an aggregate more": (
        lambda s: s.key_by("k").window(TUMBLING).agg(a="max(v)"),
        lambda s: s.key_by("k").window(TUMBLING).agg(a="max(v)", b="min(w)"),
        Verdict.IF_EMPTY,
    ),
    "an aggregate more of what is kept": (
        lambda s: s.key_by("k").agg(a="sum(v)"),
        lambda s: s.key_by("k").agg(a="sum(v)", mean="sum(v) / count(v)", n="count(v)"),
        Verdict.SAME,
    ),
    "a filter": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.where("v > 1").key_by("k").agg(n="max(v)"),
        Verdict.INPUT,
    ),
    "another filter": (
        lambda s: s.where("v > 2").key_by("k").agg(n="max(v)"),
        lambda s: s.where("v > 1").key_by("k").agg(n="max(v)"),
        Verdict.INPUT,
    ),
    "a projection of what is read": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.with_columns(v="v * 2").key_by("k").agg(n="max(v)"),
        Verdict.INPUT,
    ),
    "a function in front": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.map(add, schema=SCHEMA).key_by("k").agg(n="max(v)"),
        Verdict.INPUT,
    ),
    "the delay of the watermark": (
        lambda s: s.key_by("k").window(TUMBLING, late="1 s").agg(n="max(v)"),
        lambda s: s.key_by("k").window(TUMBLING, late="2 s").agg(n="max(v)"),
        Verdict.INPUT,
    ),
    "a union": (
        lambda s: s.key_by("k").agg(n="max(v)"),
        lambda s: s.select("k", "v").union(right().select(k="k2", v="rate")).key_by("k").agg(n="max(v)"),
        Verdict.INPUT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPATIBLE)
def test_what_can_go_on(name: str) -> None:
    before, after, expected = COMPATIBLE[name]

    assert verdict(before, after) is expected


REFUSED = {
    "aggregate: key": (lambda s: s.key_by("k").agg(n="count(*)"), lambda s: s.key_by("w").agg(n="count(*)")),
    "aggregate: an expression that is the key": (
        lambda s: s.key_by(x="lower(k)").agg(n="count(*)"), lambda s: s.key_by(x="upper(k)").agg(n="count(*)")),
    "aggregate: one key more": (lambda s: s.key_by("k").agg(n="count(*)"), lambda s: s.key_by("k", "w").agg(n="count(*)")),
    "aggregate: another verb": (lambda s: s.key_by("k").agg(n="count(*)"), lambda s: s.key_by("k").distinct()),
    "window: size": (
        lambda s: s.key_by("k").window(TUMBLING).agg(n="count(*)"),
        lambda s: s.key_by("k").window(hr.tumbling("20 s", on="ts")).agg(n="count(*)")),
    "window: kind": (
        lambda s: s.key_by("k").window(TUMBLING).agg(n="count(*)"),
        lambda s: s.key_by("k").window(hr.session("10 s", on="ts")).agg(n="count(*)")),
    "window: emit": (
        lambda s: s.key_by("k").window(TUMBLING).agg(n="count(*)"),
        lambda s: s.key_by("k").window(TUMBLING, emit=hr.emit(until="1 s")).agg(n="count(*)")),
    "window: none": (
        lambda s: s.key_by("k").window(TUMBLING).agg(n="count(*)"), lambda s: s.key_by("k").agg(n="count(*)")),
    "reduce: function": (lambda s: s.key_by("k").reduce(add), lambda s: s.key_by("k").reduce(greatest)),
    "reduce: columns": (
        lambda s: s.key_by("k").reduce(add, schema={"v": "int64"}),
        lambda s: s.key_by("k").reduce(add, schema={"v": "int64", "w": "int64"})),
    "window reduce: function": (
        lambda s: s.key_by("k").window(TUMBLING).reduce(add), lambda s: s.key_by("k").window(TUMBLING).reduce(greatest)),
    "distinct: key": (lambda s: s.key_by("k").distinct(), lambda s: s.key_by("v").distinct()),
    "top_n: n": (lambda s: s.key_by("k").top_n(2, by="v desc"), lambda s: s.key_by("k").top_n(3, by="v desc")),
    "top_n: order": (lambda s: s.key_by("k").top_n(2, by="v desc"), lambda s: s.key_by("k").top_n(2, by="v")),
    "top_n: a column more": (
        lambda s: s.select("k", "v").key_by("k").top_n(2, by="v"), lambda s: s.select("k", "v", "w").key_by("k").top_n(2, by="v")),
    "deduplicate: which": (
        lambda s: s.key_by("k").deduplicate(keep="first"), lambda s: s.key_by("k").deduplicate(keep="last")),
    "join: how": (
        lambda s: s.join(right(), on={"k": "k2"}), lambda s: s.join(right(), on={"k": "k2"}, how="left")),
    "join: key": (
        lambda s: s.join(right(), on={"v": "rate"}), lambda s: s.join(right(), on={"w": "rate"})),
    "join: condition": (
        lambda s: s.join(right(), on={"k": "k2"}, where="v > rate"), lambda s: s.join(right(), on={"k": "k2"}, where="v < rate")),
    "join: bound": (
        lambda s: s.join(right(), on={"k": "k2"}, within=("-1 s", "1 s"), time=("ts", "ts2")),
        lambda s: s.join(right(), on={"k": "k2"}, within=("-2 s", "1 s"), time=("ts", "ts2"))),
    "join: a column of the other side": (
        lambda s: s.join(right().select("k2", "rate"), on={"k": "k2"}), lambda s: s.join(right(), on={"k": "k2"})),
    "process: function": (
        lambda s: s.key_by("k").process(first, schema={"k": "string"}), lambda s: s.key_by("k").process(second, schema={"k": "string"})),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_go_on(name: str) -> None:
    before, after = REFUSED[name]

    assert verdict(before, after) is Verdict.REFUSED
    assert verdict(after, before) is Verdict.REFUSED


def test_a_wider_type_goes_on_and_a_narrower_one_does_not() -> None:
    def build(stream: Any) -> Any:
        return stream.key_by("i").agg(a="max(i)", n="count(*)")

    wider = {**SCHEMA, "i": "int64"}

    assert verdict(build, build, wider) is Verdict.ADAPTED
    assert verdict_of(differences(defined(build, wider), defined(build))) is Verdict.REFUSED
    assert is_wider("uint16", "int32")
    assert is_wider("decimal(10, 2)", "decimal(20, 2)")
    assert not is_wider("decimal(10, 2)", "decimal(20, 3)")
    assert not is_wider("float32", "float64")  # 0.1 is another number then


def test_the_table_shows_where_long_texts_differ() -> None:
    before = defined(
        lambda s: s.where("k IN (" + ", ".join(f"'{n}'" for n in range(200)) + ")").key_by("k").agg(n="max(v)")
    )
    after = defined(
        lambda s: s.where("k IN (" + ", ".join(f"'{n}'" for n in range(199)) + ", 'x')").key_by("k").agg(n="max(v)")
    )

    table = difference_table(differences(before, after))

    assert "'199')" in table
    assert "'x')" in table
    assert max(map(len, table.splitlines())) < 200
