"""Jobs with every stateful verb: what the kept checkpoints of released formats hold, and what savepoints are tested with.

They read and write below the working directory, so that a stored job can be laid out anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
import polars as pl
from headrace.jobs.keyed import joined as joined_by
from headrace.jobs.keyed import shuffled
from headrace_sql.operators.first_rows import FirstRows
from headrace_sql.operators.match_operator import MatchRecognize, PatternPart
from headrace_sql.operators.over_aggregate import OverAggregate
from headrace_sql.operators.over_functions import OverCall
from headrace_sql.operators.temporal_join import TemporalJoin
from headrace_sql.operators.window_top_n import WindowTopN

from tests.conformance.stateful_inputs import ORDERS, SCHEMA

LATE = "4 s"


class Counted:
    """Counts rows per key, and tells the count every 20 s of event time while rows come."""

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["n"] = state.get("n", 0) + 1
        due = datetime.fromtimestamp((row["ts"].timestamp() // 20 + 1) * 20, UTC)
        timers.at_event_time(due)
        if state["n"] % 5 == 0:
            yield {"key": row["key"], "n": state["n"], "at": None}

    def on_timer(self, key: Any, time: datetime, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        yield {"key": key, "n": state["n"], "at": time}
        if state["n"] % 3 == 0:
            timers.at_event_time(time + timedelta(seconds=7))
            state["n"] += 1


def _most(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "n": one["n"] + 1, "v": max(one["v"], other["v"])}


def _over(events: hr.Stream) -> hr.Stream:
    calls = {
        "n": OverCall("COUNT", None, "ROWS", 4),
        "s": OverCall("SUM", "id", "RANGE", 20_000_000),
        "before": OverCall("LAG", "id", "ROWS", 0, 2),
    }
    return shuffled(events, ("key",))._append(OverAggregate(("key",), "ts", calls), "over")


def _match(events: hr.Stream) -> hr.Stream:
    spec = MatchRecognize(
        keys=("key",), on="ts", order=(), within_us=40_000_000, skip=("PAST LAST ROW", ""),
        pattern=(PatternPart("A", 1, 1), PatternPart("B", 1, 3), PatternPart("C", 1, 1)),
        definitions={
            "B": ("<", ("LAST", "B", "v", 0), ("LAST", "A", "v", 0)),
            "C": (">", ("LAST", "C", "v", 0), ("LAST", "A", "v", 0)),
        },
        measures={"first": ("LAST", "A", "id", 0), "last": ("LAST", "C", "id", 0)},
        types={"first": pl.Int64(), "last": pl.Int64()},
    )  # fmt: skip
    return shuffled(events, ("key",))._append(spec, "match")


def _best_of_windows(events: hr.Stream) -> hr.Stream:
    counts = events.key_by("key").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum(v)")
    spec = WindowTopN(("window_start", "window_end"), "window_end", 2, [("n", True), ("key", False)], rank="place")
    return shuffled(counts, ("window_start", "window_end"))._append(spec, "window_top_n")


def _with_changes(events: hr.Stream) -> hr.Stream:
    counts = events.key_by("key").agg(n="count(*)", last_id="max(id)")
    return counts.key_by("n").agg(k="count(*)", hi="max(last_id)", ids="count(distinct last_id)")


WINDOWED: Mapping[str, Callable[[hr.Stream], hr.Stream]] = {
    "tumbling": lambda e: (
        e.key_by("key").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum(v)", ids="count(distinct id)")
    ),
    "sliding": lambda e: e.key_by("key").window(hr.sliding("30 s", "10 s", on="ts")).agg(n="count(*)", l="last(id)"),
    "emitting": lambda e: (
        e.key_by("key")
        .window(hr.tumbling("20 s", on="ts"), emit=hr.emit(before="5 s", after="1 s", until="30 s"))
        .agg(n="count(*)", hi="max(v)")
    ),
    "session": lambda e: e.key_by("key").window(hr.session("8 s", on="ts")).agg(n="count(*)", f="first(id)"),
    "session-emitting": lambda e: (
        e.key_by("key").window(hr.session("8 s", on="ts"), emit=hr.emit(before="5 s", until="20 s")).agg(n="count(*)")
    ),
    "keyless": lambda e: e.window(hr.tumbling("15 s", on="ts")).agg(n="count(*)"),
    "twice": lambda e: (
        e.key_by("key")
        .window(hr.tumbling("10 s", on="ts"))
        .agg(n="count(*)")
        .window(hr.tumbling("40 s", on="window_start"))
        .agg(most="max(n)", keys="count(*)")
    ),
    "window-reduce": lambda e: (
        e.select("key", "ts", v="coalesce(v, 0.0)", n="1")
        .key_by("key")
        .window(hr.tumbling("10 s", on="ts"))
        .reduce(_most)
    ),
    "window-top-n": _best_of_windows,
    "over": _over,
    "match": _match,
    "process": lambda e: e.key_by("key").process(
        Counted(), schema={"key": "string", "n": "int64", "at": "timestamp"}, on="ts"
    ),
}
KEYED: Mapping[str, Callable[[hr.Stream], hr.Stream]] = {
    "aggregate": lambda e: e.key_by("key").agg(n="count(*)", s="sum(v)", a="avg(v)"),
    "changes": _with_changes,
    "distinct": lambda e: e.key_by("key").distinct(),
    "deduplicate": lambda e: e.key_by("key").deduplicate(keep="last"),
    "top-n": lambda e: e.key_by("key").top_n(3, by="v desc", rank="place"),
    "reduce": lambda e: e.select("key", v="coalesce(v, 0.0)", n="1").key_by("key").reduce(_most),
    "first-rows": lambda e: shuffled(e, ())._append(FirstRows(150, 20), "first_rows"),
}


def _temporal(left: hr.Stream, right: hr.Stream) -> hr.Stream:
    right = right.select("order", "at", place="key")
    assert left.schema is not None
    assert right.schema is not None
    spec = TemporalJoin(left.schema, right.schema, [("key", "place")], ("ts", "at"), "left")
    return joined_by(left, right, [("key", "place")], spec, "temporal")


JOINED: Mapping[str, Callable[[hr.Stream, hr.Stream], hr.Stream]] = {
    "join": lambda left, right: left.join(right, on="key", how="full", where="v > 2 OR order < 40"),
    "join-within": lambda left, right: left.join(right, on="key", how="left", within=("-5 s", "10 s"), time=("ts", "at")),
    "join-window": lambda left, right: left.join(
        right, on="key", how="full", window=hr.tumbling("10 s", on="ts"), time=("ts", "at")
    ),
    "join-temporal": _temporal,
}  # fmt: skip
VERBS = (*KEYED, *WINDOWED, *JOINED)


def job(*names: str, name: str = "verbs") -> hr.Job:
    """Return one job with these verbs, each with a sink of its own below ``out``."""
    pipe = hr.stream("formats", name)
    clicks = pipe.from_file("in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
    timed = clicks.watermark("ts", delay=LATE)
    made = [_to(build(clicks), verb) for verb, build in KEYED.items() if verb in names]
    made += [_to(build(timed), verb) for verb, build in WINDOWED.items() if verb in names]
    if set(names) & set(JOINED):
        orders = pipe.from_file("in/orders.ndjson", format="json", schema=ORDERS, name="orders").watermark("at")
        made += [_to(build(timed, orders), verb) for verb, build in JOINED.items() if verb in names]
    assert len(made) == len(names), f"unknown verbs among {names}"
    return made[0].also(*made[1:])


def _to(stream: hr.Stream, verb: str) -> hr.Job:
    written: hr.Job = stream.to_file(f"out/table-{verb}", format="json", changes="column", name=f"{verb}-file")
    return written
