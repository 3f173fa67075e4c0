"""How cases of streams are run: with other keys, and in the other language."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.differential.choices import Choices
from tests.differential.rewriting import other_key
from tests.differential.streams import running
from tests.differential.streams.family import StreamCase, _case, run
from tests.differential.streams.interpreter import interpret
from tests.differential.streams.plan import (
    Aggregate,
    Arrival,
    Grouped,
    Plan,
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
