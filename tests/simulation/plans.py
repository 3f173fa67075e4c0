"""Histories of jobs that nobody imagined: those of the differential generator (tests/differential/streams), with faults.

Their plans have windows, joins, aggregates, Top-N, OVER, patterns and functions with state, as verbs of the DSL or as a SQL text. A naive
interpreter, which knows nothing of batches, shards or faults, says what must come out of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.interfaces.sink import SinkSettings

from tests.differential.choices import Choices
from tests.differential.streams import running as plans
from tests.differential.streams.generator import make_plan
from tests.differential.streams.interpreter import interpret
from tests.differential.streams.plan import Plan
from tests.differential.streams.sql_generator import make_sql_plan
from tests.simulation.histories import Fault, Surroundings, fault_of
from tests.simulation.running import sink_options
from tests.simulation.servers import SINKS, Server, Table
from tests.simulation.starting import Outcome, Starts, run_starts

_POLL_US = 200
#: What these jobs do pass, most of them often.
_PLACES = (
    "open", "write", "write", "sync", "sync", "rename", "remove", "mkdir", "reader.after_poll", "reader.after_poll", "lane.after_process",
    "sink.before_insert", "sink.after_insert", "shard.after_process", "shard.after_save", "checkpoint.after_flush", "checkpoint.after_save",
    "out", "out.done", "s0",
)  # fmt: skip


@dataclass(frozen=True)
class PlanHistory(Surroundings):
    """One history. ``plan``: what the job's generator chose; a list can be shrunk."""

    seed: int
    plan: tuple[int, ...]
    dialect: str
    sink: str
    options: Mapping[str, Any]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{each.kind} at {each.place or 'seam'} {each.count}" for each in self.faults)
        return f"seed {self.seed}: {self.dialect}, {self.sink} sink, {dict(self.options)}, faults: {faults or 'none'}"


def plan_of(history: PlanHistory) -> Plan:
    """Return the plan of a history."""
    choices = Choices.of_list(history.plan)
    return make_plan(choices) if history.dialect == "dsl" else make_sql_plan(choices)


def plan_history_of(seed: int) -> PlanHistory:
    """Return the history of a seed."""
    random = Random(f"plan {seed}")
    dialect = random.choice(("dsl", "dsl", "sql"))
    choices = Choices(random.randint)
    (make_plan if dialect == "dsl" else make_sql_plan)(choices)
    options = {
        "max_batch_records": random.choice((1, 3, 7, 1000)),
        "checkpoint_interval": random.choice((0.001, 0.01, 0.05, 10.0)),
        "shards": random.choice((1, 1, 2, 3)),
        "batch_size": random.choice((2, 100)),
        "flush_interval": random.choice((0.001, 0.1, 1.0)),
        "max_cached_rows": random.choice((1, 3, 100_000)),
    }
    away: dict[str, tuple[tuple[int, int], ...]] = {}
    for server in ("s0", "out"):
        if random.random() < 0.15:
            begin = random.randrange(100_000)
            away[server] = ((begin, begin + random.randrange(2_000_000)),)
    return PlanHistory(
        seed, tuple(choices.made), dialect, random.choice(("transactional", "transactional", "keyed", "plain")), options,
        tuple(fault_of(random, _PLACES, seams_max=300) for _ in range(random.choice((0, 1, 2, 2, 3, 3, 4)))),
        preempt=random.choice((0.0, 0.02, 0.2)), lossy=random.choice((0.0, 0.0, 0.0, 0.03)), away=away,
        full_until_us=random.randrange(100_000) if random.random() < 0.1 else 0, journal=random.random() < 0.5,
        failing=random.choice((0.0, 0.0, 0.0, 0.0, 0.03)), slow=random.choice((0.0, 0.0, 0.0, 0.0, 0.1)),
    )  # fmt: skip


def run_plan(history: PlanHistory) -> Outcome:
    """Run a history."""
    return run_starts(lambda place: _Run(history, place))


class _Run(Starts):
    history: PlanHistory
    steps_max = 60_000

    def __init__(self, history: PlanHistory, place: str) -> None:
        super().__init__(history, place)
        self.last_us = -1  # all rows are there from the begin on
        self.plan = plan_of(history)
        self._expected = interpret(self.plan, sql=history.dialect == "sql")
        self.shards_change = self._expected.any_shards
        if not self._expected.any_shards:
            self._shards = 1
        self._models = {
            name: Counter(repr(plans.normal(row)) for row in rows) for name, rows in self._expected.rows.items()
        }
        self._server = Server(self.world, "s0")
        self._tables = {name: Table(self.world, name) for name in (*self.plan.outputs, "bad")}
        for server in (self._server, *self._tables.values()):
            server.away = list(history.away.get(server.name, ()))
            server.lossy = history.lossy
        for table in self._tables.values():
            table.text = lambda row: repr(plans.normal(dict(row)))

    def _kind(self, name: str) -> str:
        """Return which sink an output has: of rows that are taken back, one that takes each change once."""
        changes = name in self.plan.outputs and self.plan.outputs[name].changes
        return "transactional" if changes and self.history.sink == "keyed" else self.history.sink

    def job(self) -> Any:
        script = plans.Script(self.plan.arrivals, self.history.options["max_batch_records"])
        script.asked = lambda place: self._server.request(f"poll {place[0]} {place[1]}", _POLL_US)
        making = plans.job_of if self.history.dialect == "dsl" else plans.sql_job_of
        settings = SinkSettings(**sink_options(self.history.options))
        job, self._sinks = making(self.plan, script, lambda name: SINKS[self._kind(name)](self._tables[name], settings))
        return job

    # ------------------------------------------------------------------------------------------------- checks

    def look(self, *, final: bool) -> None:
        for name, table in self._tables.items():
            promised = self._kind(name) != "plain" and not self.doubled
            if self._kind(name) != "plain" and not self.written_behind:
                self.wrong += [f"{name}: {fault}" for fault in table.faults]
            if name != "bad" and not self._expected.fragile:
                changes = self.plan.outputs[name].changes
                self._compare(name, table.there(), promised=promised, changes=changes, final=final)
        letters = sum(self._tables["bad"].there().values())
        if not self._expected.fragile and final:
            dead = self._expected.dead
            if letters < dead or (self._kind("bad") != "plain" and not self.doubled and letters > dead):
                self.wrong.append(f"{letters} dead letters, {dead} expected")

    def _compare(self, name: str, there: Counter[str], *, promised: bool, changes: bool, final: bool) -> None:
        model = self._models[name]
        if not changes or (final and promised):
            wrong = there - model
            if not promised:
                wrong = Counter({text: count for text, count in wrong.items() if text not in model})
            if wrong:
                self.wrong.append(f"{name}: rows that must not be there: {dict(wrong)}")
        if final and (not changes or promised) and model - there:
            self.wrong.append(f"{name}: rows are missing: {dict(model - there)}")
