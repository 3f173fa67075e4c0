"""Every operator with state keeps the contract. Those that work as another one here are of the slow runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import headrace as hr
import pytest
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.windows import Emit
from headrace_contract import StatefulOperatorContract
from headrace_stateful.aggregates.aggregate import Aggregate
from headrace_stateful.aggregates.distinct import Distinct
from headrace_stateful.aggregates.normalize_changes import NormalizeChanges
from headrace_stateful.aggregates.process import Process
from headrace_stateful.aggregates.reduce import Reduce
from headrace_stateful.aggregates.top_n import Deduplicate, TopN
from headrace_stateful.windows.window_aggregate import WindowAggregate

_BEGIN = datetime(2023, 11, 14, 22, 13, 10, tzinfo=UTC)


class OverClicks(StatefulOperatorContract):
    """Clicks of few users, out of order by some seconds: the contract's watermark rises by a second a row."""

    schema: ClassVar[Mapping[str, Any]] = {"user": "string", "ms": "int64", "ts": "timestamp"}

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        rows = []
        for number in range(first, first + count):
            chance = random.Random(number)
            rows.append(
                {
                    "user": None if number % 19 == 7 else f"u{chance.randrange(5)}",
                    "ms": None if number % 11 == 3 else chance.randrange(1000),
                    "ts": _BEGIN + timedelta(seconds=number + chance.uniform(0, 12)),
                }
            )
        return rows


@pytest.mark.slow
class TestTumbling(OverClicks):
    def make_spec(self) -> StatefulSpec:
        window = hr.tumbling("7 s", on="ts")
        return WindowAggregate(("user",), window, {"n": "count(*)", "s": "sum(ms)", "d": "count(distinct ms)"})


@pytest.mark.slow
class TestSliding(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return WindowAggregate(("user",), hr.sliding("12 s", "4 s", on="ts"), {"n": "count(*)", "hi": "max(ms)"})


class TestSession(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return WindowAggregate(("user",), hr.session("3 s", on="ts"), {"n": "count(*)", "a": "avg(ms)"})


@pytest.mark.slow
class TestEarlyAndLate(OverClicks):
    def make_spec(self) -> StatefulSpec:
        emit: Emit = hr.emit(before="0 s", after="0 s", until="20 s")
        return WindowAggregate(("user",), hr.tumbling("5 s", on="ts"), {"n": "count(*)"}, emit=emit)


class TestRunningAggregate(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return Aggregate(("user",), {"n": "count(*)", "s": "sum(ms)", "hi": "max(ms)"})


@pytest.mark.slow
class TestTimeToLive(OverClicks):
    """Restored behind, keys are forgotten when they come."""

    def make_spec(self) -> StatefulSpec:
        return Aggregate(("user",), {"n": "count(*)", "s": "sum(ms)"}, ttl="3 s")


class TestDistinct(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return Distinct(("user",))


@pytest.mark.slow
class TestTopN(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return TopN(("user",), 2, by="ms desc")


class TestRankedTopN(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return TopN(("user",), 3, by="ms desc nulls last, ts", rank="place")


@pytest.mark.slow
class TestLastOfEachKey(OverClicks):
    def make_spec(self) -> StatefulSpec:
        return Deduplicate(("user",), keep="last", by="ts")


@pytest.mark.slow
class TestReduce(OverClicks):
    def make_spec(self) -> StatefulSpec:
        def slower(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
            return other if (other["ms"] or 0) > (one["ms"] or 0) else one

        return Reduce(("user",), slower)


class TestProcess(OverClicks):
    """Counts the clicks of a user until five seconds after the last one."""

    def make_spec(self) -> StatefulSpec:
        def count(row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
            if "until" in state:
                timers.cancel_event_time(state["until"])
            state["n"] = state.get("n", 0) + 1
            state["until"] = max(row["ts"], state.get("until", row["ts"])) + timedelta(seconds=5)
            timers.at_event_time(state["until"])

        def ended(key: Any, time: datetime, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
            yield {"user": key, "n": state["n"], "ended": time}
            state.clear()

        count.on_timer = ended  # type: ignore[attr-defined]
        return Process(("user",), count, schema={"user": "string", "n": "int64", "ended": "timestamp"}, on="ts")


@pytest.mark.slow
class TestNormalizeChanges(OverClicks):
    """Updates without old rows, and deletes among them."""

    input_changes = hr.Changes(("user",), before_images=False)

    def make_kinds(self, first: int, count: int) -> list[int]:
        deleted = [random.Random(number).random() < 0.2 for number in range(first, first + count)]
        return [hr.ChangeKind.DELETE if gone else hr.ChangeKind.UPDATE_AFTER for gone in deleted]

    def make_spec(self) -> StatefulSpec:
        return NormalizeChanges(("user",))
