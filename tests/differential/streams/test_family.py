"""How cases of streams are run: with other keys, and in the other language."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.differential.choices import Choices
from tests.differential.rewriting import other_key
from tests.differential.streams import running
from tests.differential.streams.family import StreamCase, _case, check, run
from tests.differential.streams.interpreter import interpret
from tests.differential.streams.plan import (
    Aggregate,
    Arrival,
    Grouped,
    Match,
    Plan,
    Select,
    Source,
    Table,
    Union,
    Where,
    Window,
    Windowed,
)

T = datetime(2024, 1, 1)


def test_cases_of_each_kind_are_made() -> None:
    streams = [_case(Choices.of_seed(seed), "dsl") for seed in range(150)]
    texts = [_case(Choices.of_seed(seed), "sql") for seed in range(150)]
    assert {case.other_keys for case in streams} == {case.other_keys for case in texts} == {True, False}
    assert {case.dialect for case in texts} == {"sql", "dsl"}
    assert (
        {bool(case.plan.silences) for case in streams} == {bool(case.plan.silences) for case in texts} == {True, False}
    )
    matches = [node for case in texts for node in case.plan.nodes() if isinstance(node, Match)]
    assert {node.within is None for node in matches} == {True, False}
    values = [
        each[0]
        for case in (*streams, *texts)
        for node in case.plan.of_type(Select)
        for each in node.expressions.values()
    ]
    assert {"row", "map", "array"} <= set(values)
    assert any(
        len(node.merged) == 3 and all(isinstance(each, Where) for each in node.merged)
        for case in (*streams, *texts)
        for node in case.plan.of_type(Union)
        if isinstance(node, Union)
    )


def test_keys_of_results_are_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    case = StreamCase(Plan((), (), {}), "dsl", other_keys=True)
    columns = {"g": "key", "ts": "time"}
    table = Table("t0", columns, 1, timedelta())
    source = Source(columns, table, times=("ts",))
    grouped = Grouped({"g": "key", "n": "int"}, source, ("g",), {"n": Aggregate("count", None)}, changes=True)
    arrivals = tuple(Arrival("t0", 0, {"g": key, "ts": T}) for key in (3, None, 3))
    plan = Plan((table,), arrivals, {"out": grouped})
    seen: list[object] = []
    made = running.job_of

    def watched(plan: Plan, *given: Any, **options: Any) -> Any:
        seen.extend(arrival.row["g"] for arrival in plan.arrivals)
        return made(plan, *given, **options)

    monkeypatch.setattr(running, "job_of", watched)
    found = run(replace(case, plan=plan, way="once", options={}), interpret(plan))
    assert seen == [other_key(3), None, other_key(3)]
    assert sorted(found.rows["out"], key=repr) == [{"g": 3, "n": 2}, {"g": None, "n": 1}]


def test_rows_of_another_verb_that_are_late_for_one_of_several_windows_depend_on_shards() -> None:
    columns = {"k": "text", "ts": "time"}
    table = Table("t0", columns, 1, timedelta())
    source = Source(columns, table, times=("ts",))
    second = timedelta(seconds=1)
    count = {"n": Aggregate("count", None)}
    bounds = {"window_start": "time", "window_end": "time"}
    session = Windowed(
        {"k": "text", **bounds, "n": "int"}, source, ("k",), Window("session", second, second, timedelta(), "ts"), count,
        times=("window_start", "window_end"),
    )  # fmt: skip
    sliding = Window("sliding", 2 * second, second / 2, timedelta(), "window_start")
    plan = Plan(
        (table,),
        tuple(Arrival("t0", 0, {"k": key, "ts": T + at * second}) for key, at in (("a", 0), ("b", 5), ("b", 9))),
        {"out": Windowed({**bounds, "m": "int"}, session, (), sliding, {"m": Aggregate("count", None)})},
    )
    assert not interpret(plan).any_shards


def test_a_pattern_over_rows_of_which_one_has_no_time() -> None:
    """The matches are those of the rows in the order of time; the row without one is a dead letter."""
    columns = {"k": "text", "g": "int", "v": "int", "ts": "time"}
    table = Table("t0", columns, 1, timedelta(minutes=1))
    source = Source(columns, table, times=("ts",))
    came = [(0, 1, 1), (1, 2, 3), (1, 3, 2), (2, 4, 4), (0, 5, None), (0, 6, 6), (2, 7, 7), (0, 8, 8), (0, 9, 9)]
    arrivals = tuple(
        Arrival("t0", 0, {"k": "a", "g": g, "v": v, "ts": None if second is None else T + timedelta(seconds=second)})
        for g, v, second in came
    )
    measures = {"begin": ("first", "A", "v"), "middle": ("last", "B", "v"), "n": ("count", "B", "v")}
    given = {"k": "text", "begin": "int", "middle": "int", "n": "int"}
    pattern = (("A", 1, 1), ("B", 0, None), ("C", 1, 1))
    taken = {"A": (0,), "B": (1,), "C": (2,)}
    plan = Plan((table,), arrivals, {"out": Match(given, source, ("k",), "ts", "g", pattern, taken, measures, False)})
    outcome = interpret(plan, sql=True)
    assert outcome.rows["out"] == [
        {"k": "a", "begin": 1, "middle": 2, "n": 2},
        {"k": "a", "begin": 6, "middle": None, "n": 0},
    ]
    assert outcome.dead == 1
    for batch in (1, 7):
        assert check(StreamCase(plan, "sql", batch=batch)) is None
