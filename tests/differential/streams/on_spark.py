"""Streaming jobs on Spark, compared with the naive interpreter.

Spark takes the rows of a micro-batch queue by queue, so the order over several queues is not that of the plan. A case is compared where
every order gives the same: as it is, else with all rows of a table in one queue, else with these in the order of their times.
"""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.differential.on_spark import KeptSink, kept_in
from tests.differential.streams import running
from tests.differential.streams.interpreter import Outcome, interpret
from tests.differential.streams.plan import Arrival, Plan, Row


def result_in(directory: Path, names: Iterable[str]) -> running.Result:
    """Return what sinks have kept. A row may be taken back only behind the change of its queue that gave it."""
    faults: list[str] = []
    rows = {name: _table(name, directory, faults) for name in names if name != "bad"}
    return running.Result(rows, faults, sum(len(kept.rows) for kept in kept_in(directory, "bad")))


def _table(name: str, directory: Path, faults: list[str]) -> list[Row]:
    there: Counter[str] = Counter()
    of_queue: Counter[tuple[str, str]] = Counter()
    by_key: Counter[str] = Counter()
    rows: dict[str, Row] = {}
    for kept in kept_in(directory, name):
        for row, sign in zip(kept.rows, kept.signs, strict=True):
            shown = repr(running.normal(row))
            rows[shown] = row
            there[shown] += sign
            of_queue[kept.queue, shown] += sign
            if of_queue[kept.queue, shown] < 0:
                faults.append(f"{name}: a row is taken back that is not there: {shown}")
            if kept.key:
                by_key[repr(running.normal({column: row[column] for column in kept.key}))] += sign
    faults += [f"{name}: in the end there are {count} rows of key {key}" for key, count in by_key.items() if count > 1]
    return [rows[shown] for shown, count in there.items() for _ in range(count)]


# ------------------------------------------------------------------------------------------------ what is compared


def comparable(plan: Plan, *, sql: bool) -> tuple[Plan, Outcome | None]:
    """Return a plan of which every order of queues gives the same, and what it gives; None: there is none, it is only run."""
    for each in (plan, _in_one_queue(plan), _in_time(_in_one_queue(plan))):
        outcomes = [interpret(replace(each, arrivals=arrivals), sql=sql) for arrivals in _orders(each)]
        first = outcomes[0]
        if not any(other.fragile or _differ(first, other) for other in outcomes):
            return each, first
    return plan, None


def _differ(one: Outcome, other: Outcome) -> bool:
    return one.dead != other.dead or bool(running.differences(one.rows, other.rows))


def _in_one_queue(plan: Plan) -> Plan:
    """Return a plan whose tables have one queue each: there the order of rows is that of the plan."""
    tables = {id(table): replace(table, queues=1) for table in plan.tables}
    arrivals = tuple(replace(each, queue=0) for each in plan.arrivals)
    made: Plan = copy.deepcopy(replace(plan, arrivals=arrivals), dict(tables))  # the tree with other tables
    return made


def _in_time(plan: Plan) -> Plan:
    """Return a plan in which no row is behind another one."""
    timed = [each for each in plan.arrivals if each.row["ts"] is not None]
    ordered = iter(sorted(timed, key=lambda each: each.row["ts"]))
    arrivals = tuple(each if each.row["ts"] is None else next(ordered) for each in plan.arrivals)
    return replace(plan, arrivals=arrivals)


def _orders(plan: Plan) -> Iterator[tuple[Arrival, ...]]:
    """Yield the arrivals in several orders; within each queue it is always the same."""
    yield plan.arrivals
    queues: dict[tuple[str, int], list[Arrival]] = {}
    for each in plan.arrivals:
        queues.setdefault((each.table, each.queue), []).append(each)
    if len(queues) < 2:
        return
    places = sorted(queues)
    for order in (places, places[::-1]):
        yield tuple(each for place in order for each in queues[place])
        for size in (1, 4):
            yield tuple(_in_turn({place: queues[place] for place in order}, size))


def _in_turn(queues: Mapping[Any, list[Arrival]], size: int) -> Iterator[Arrival]:
    for begin in range(0, max(map(len, queues.values())), size):
        for rows in queues.values():
            yield from rows[begin : begin + size]


# -------------------------------------------------------------------------------------------------------- running


def run(plan: Plan, dialect: str, *, batch: int, shards: int) -> running.Result:
    """Run a plan on Spark in the session of this process. With small batches it takes several micro-batches."""
    making = running.job_of if dialect == "dsl" else running.sql_job_of
    with tempfile.TemporaryDirectory() as place:
        job, sinks = making(plan, None, partial(KeptSink, Path(place)))
        options = {"shards": shards} if job.plan().shuffles else {}
        if batch < 1000:
            options["max_micro_batch_records"] = max(5, len(plan.arrivals) // 3)
        job.run("spark", show_progress=False, max_batch_records=batch, **options)
        return result_in(Path(place), sinks)
