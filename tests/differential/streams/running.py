"""Running plans on headrace: rows arrive in the order of the plan, and what comes out is compared with what the interpreter says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import Annotated, Any, ClassVar

import headrace as hr
import numpy as np
import polars as pl
from headrace.flow.messages import ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import SystemClock
from headrace.interfaces.backend import JobHandle
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.registry import Registry, default_registry
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition
from headrace.jobs.job import PreparedJob, options_of
from headrace.testing import MemorySink
from headrace_light.backend import LightBackend
from headrace_sql import api
from headrace_sql.operators.range_reader import RangeReader

from tests.differential.streams import dsl, sql
from tests.differential.streams.plan import Arrival, Plan, Row, Table

POLARS = {
    "text": pl.String(), "int": pl.Int64(), "decimal": pl.Decimal(10, 2), "boolean": pl.Boolean(), "double": pl.Float64(),
    "time": pl.Datetime("us", "UTC"), "key": pl.Int64(), "text key": pl.String(),
}  # fmt: skip


#: A queue of a table.
Place = tuple[str, int]
#: How often each queue is asked in vain before the clock moves in a silence, and as often behind it.
_POLLS = 2
#: Longer than a queue is waited for.
_SILENCE_SECONDS = 90.0


class LeapingClock(SystemClock):
    """The machine's clock, which silences move forward."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def advance(self, seconds: float) -> None:
        self._ahead_seconds += seconds

    def now(self) -> float:
        return super().now() + self._ahead_seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_seconds


class Script:
    """The order in which rows arrive, over all sources of a job.

    ``batch``: how many at most come in one poll; ``until``: how many in all. ``silences``: before which of them nothing comes for long, by
    the script's own clock.
    """

    def __init__(
        self, arrivals: Sequence[Arrival], batch: int, *, until: int | None = None, silences: Collection[int] = ()
    ) -> None:
        self._batch = batch
        self.clock = LeapingClock()
        #: Those that are still to come, and how often each queue has been polled in this one.
        self._silences = set(silences)
        self._polls: Counter[Place] = Counter()
        #: Queues that have given nothing since a silence, and those of them that were asked in vain since another one has given rows. Light
        #: looks at them before it lets rows of another queue move event time on, and nothing has come there yet.
        self._silent: set[Place] = set()
        self._asked_since: set[Place] = set()
        self._ends_at_last = until is None
        counts: Counter[Place] = Counter()
        #: The place of each arrival, and the how manieth of its queue it is.
        self._arrivals: list[tuple[Place, int]] = []
        for each in arrivals[:until]:
            place = (each.table, each.queue)
            self._arrivals.append((place, counts[place]))
            counts[place] += 1
        self._totals = Counter((each.table, each.queue) for each in arrivals)
        #: How far each queue that is read has come, in the order in which they are polled. Rows of others never come.
        self.positions: dict[Place, int] = {}
        self._next = 0
        #: The last arrival that has come.
        self._came = -1
        self._ending = False
        #: Called before each poll; it may raise what a server that is away does.
        self.asked: Callable[[Place], None] = lambda place: None

    @property
    def exhausted(self) -> bool:
        """Whether all rows have come."""
        while self._next < len(self._arrivals):
            place, number = self._arrivals[self._next]
            if place in self.positions:
                if number >= self.positions[place]:
                    return False
                self._came = self._next
            self._next += 1
        return True

    def take(self, place: Place, most: int) -> int:
        """Return how many rows of a queue come now; 0: it is not its turn."""
        begin = self.positions[place]
        count = 0
        if self.exhausted or self._is_silent(place):
            return 0
        if place in self._silent and place not in self._asked_since:
            self._asked_since.add(place)
            return 0
        for at, (other, number) in enumerate(self._arrivals[self._next :], self._next):
            if count == min(self._batch, most) or other != place or number != begin + count or at in self._silences:
                break
            count += 1
        if count and self._silent:
            self._silent.discard(place)
            self._asked_since.clear()
        return count

    def _is_silent(self, place: Place) -> bool:
        """Whether nothing comes now: all queues are asked in vain before the clock moves, and behind it."""
        due = {at for at in self._silences if self._came < at <= self._next}
        if not due:
            return False
        before = self._fewest_polls()
        self._polls[place] += 1
        after = self._fewest_polls()
        if before < _POLLS == after:
            self.clock.advance(_SILENCE_SECONDS)
        if after == 2 * _POLLS:
            self._polls.clear()
            self._silences -= due
            self._silent = set(self.positions)
        return True

    def _fewest_polls(self) -> int:
        return min(self._polls[place] for place in self.positions)

    def ends(self, place: Place) -> bool:
        """Whether a queue has come to its end. A queue that has is not waited for, so all of them end in one round of polls."""
        if self._ends_at_last and self.exhausted:
            self._ending |= place == next(each for each, at in self.positions.items() if at <= self._totals[each])
        return self._ending


class ScriptedSource(Source):
    """A table of a plan. Its queues give their rows when it is their turn; without a script, when they are asked."""

    bounded = True

    def __init__(self, table: Table, arrivals: Iterable[Arrival], script: Script | None, *, zone: bool = True) -> None:
        self._table = table
        self._script = script
        types = {name: POLARS[kind] for name, kind in table.columns.items()}
        self._types = (
            types if zone else {n: pl.Datetime("ms") if isinstance(k, pl.Datetime) else k for n, k in types.items()}
        )
        mine = [each for each in arrivals if each.table == table.name]
        self._frames = [
            self._frame([each.row for each in mine if each.queue == queue]) for queue in range(table.queues)
        ]  # fmt: skip

    def _frame(self, rows: list[Row]) -> pl.DataFrame:
        columns = {name: [row[name] for row in rows] for name in self._types}
        return pl.DataFrame(
            [pl.Series(name, values, dtype=self._types[name]) for name, values in columns.items()]
        )  # fmt: skip

    def schema(self) -> Any:
        from headrace.flow.schema import Schema

        return Schema(self._types)

    def queues(self) -> Collection[Queue]:
        return [Queue(str(number)) for number in range(self._table.queues)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        number = int(queue.name)
        frame = self._frames[number]
        first = start.offset if isinstance(start, ReadPosition) else frame.height if start is LATEST else 0
        if self._script is None:
            return RangeReader(lambda begin, end: frame.slice(begin, end - begin), first, frame.height)
        return _ScriptedReader(frame, first, (self._table.name, number), self._script)


class _ScriptedReader(OffsetReader):
    """The last offset holds no row: it is there so that the queue ends when all of them do."""

    def __init__(self, frame: pl.DataFrame, first: int, place: Place, script: Script) -> None:
        self._frame, self._place, self._script = frame, place, script
        self._limit = 0
        script.positions[place] = first
        super().__init__(first)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        self._script.asked(self._place)
        begin, height = self._next, self._frame.height
        if begin < self._limit:  # what was read before a crash is read again
            count = min(max_records, self._limit - begin)
        else:
            count = self._script.take(self._place, max_records)
            if not count and begin == height and self._script.ends(self._place):
                count = 1
        if not count:
            return None
        self.seek(ReadPosition(begin + count))
        rows = self._frame[begin : self._next]
        return RawBatch(np.arange(begin, begin + rows.height, dtype=np.int64), ReadPosition(self._next), frame=rows)

    def limit(self, end: ReadPosition) -> None:
        self._limit = end.offset

    def seek(self, position: ReadPosition) -> None:
        self._next = self._script.positions[self._place] = position.offset

    @property
    def latest(self) -> int:
        return self._frame.height + 1


# ----------------------------------------------------------------------------------------- functions of the jobs


@hr.udaf(returns="int64", name="spread")
class Spread:
    """The greatest less the least value."""

    def create(self) -> list[int]:
        return []

    def add(self, state: list[int], value: int | None) -> list[int]:
        if value is None:
            return state
        return [min(state[0], value), max(state[1], value)] if state else [value, value]

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        if not state or not other:
            return state or other
        return [min(state[0], other[0]), max(state[1], other[1])]

    def result(self, state: list[int]) -> int | None:
        return state[1] - state[0] if state else None


@hr.udaf(returns="int64", name="square_sum")
class SquareSum:
    """A sum of squares modulo 97."""

    def create(self) -> dict[str, Any]:
        return {"sum": 0, "any": False}

    def add(self, state: dict[str, Any], value: int | None) -> dict[str, Any]:
        return state if value is None else {"sum": state["sum"] + value * value % 97, "any": True}

    def merge(self, state: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {"sum": state["sum"] + other["sum"], "any": state["any"] or other["any"]}

    def result(self, state: dict[str, Any]) -> int | None:
        return state["sum"] if state["any"] else None


def copies(column: str) -> Any:
    """Return the function behind ``plan.FlatMap``."""

    def copied(row: Row) -> Iterator[Row]:
        value = row[column]
        for number in range(1 if value is None else abs(value) % 3):
            yield {**row, "copy": number}

    return copied


def with_copy(stream: Any) -> dict[str, Any]:
    return {**dict(stream.schema), "copy": "int64"}


def counted(stream: Any, keys: tuple[str, ...], on: str, span: timedelta) -> Any:
    """Return a stream through the function behind ``plan.Counted``."""

    def taken(row: Row, state: dict[str, Any], timers: Any) -> Iterator[Row]:
        state["n"] = state.get("n", 0) + 1
        if row[on] is not None:
            timers.at_event_time(row[on] + span)
        if state["n"] % 3 == 0:
            yield {**{name: row[name] for name in keys}, "fired": None, "count": state["n"]}

    def fired(key: Any, time: datetime, state: dict[str, Any], timers: Any) -> Iterator[Row]:
        values = key if isinstance(key, tuple) else (key,)
        yield {**dict(zip(keys, values, strict=True)), "fired": time, "count": state["n"]}

    taken.on_timer = fired  # type: ignore[attr-defined]
    schema = {**{name: stream.schema[name] for name in keys}, "fired": "timestamp", "count": "int64"}
    return stream.key_by(*keys).process(taken, schema=schema, on=on)


# -------------------------------------------------------------------------------------------------------- running


@dataclass
class Result:
    """What came out: rows in the end by output, and what is wrong with the changes on the way."""

    rows: Mapping[str, list[Row]]
    faults: list[str]
    dead: int


def streams_of(text: str, table: Any) -> dict[str, Any]:
    """Return the streams of the outputs of a text of the DSL. ``table`` gives the stream of a table's name."""
    names = {
        "hr": hr,
        "timedelta": timedelta,
        "table": table,
        "copies": copies,
        "with_copy": with_copy,
        "counted": counted,
    }
    exec(text, names)  # our own text
    found: dict[str, Any] = names["outputs"]
    return found


#: By output: ``MemorySink`` on light.
Sinks = dict[str, Any]


def job_of(
    plan: Plan, script: Script | None, made_sink: Callable[[str], Any], text: str | None = None
) -> tuple[Any, Sinks]:
    """Return the job of a plan over its arrivals, and the sinks that it writes into; ``bad`` is that of the dead letters."""
    tables = {table.name: table for table in plan.tables}
    pipe = hr.stream("fuzz", "streams")
    text = dsl.text_of(plan) if text is None else text
    streams = streams_of(text, lambda name: pipe.from_(ScriptedSource(tables[name], plan.arrivals, script), name=name))
    return _written(streams, made_sink)


def _written(streams: dict[str, Any], made_sink: Callable[[str], Any]) -> tuple[Any, Sinks]:
    sinks = {name: made_sink(name) for name in (*streams, "bad")}
    streams["out"] = streams["out"].dead_letters(lambda letters: letters.to(sinks["bad"], name="bad"))
    jobs = [stream.to(sinks[name], name=name) for name, stream in streams.items()]
    return jobs[0].also(*jobs[1:]) if len(jobs) > 1 else jobs[0], sinks


class ArrivalsSettings(Settings, frozen=True, kw_only=True):
    """Options of the source ``arrivals``, which SQL texts of these tests name."""

    table: Annotated[str, hr.option("name of the table")]


class ArrivalsSource(ScriptedSource):
    """The tables of the plan that runs, as a source that SQL texts can name."""

    Settings: ClassVar[type[Settings]] = ArrivalsSettings
    #: The plan that runs, and its script.
    now: ClassVar[tuple[Plan, Script | None]]

    def __init__(self, settings: ArrivalsSettings) -> None:
        plan, script = self.now
        table = next(each for each in plan.tables if each.name == settings.table)
        super().__init__(table, plan.arrivals, script, zone=False)


class _Plugin:
    @hr.hookimpl
    def headrace_sources(self) -> dict[str, Any]:
        return {"arrivals": ArrivalsSource}


def _offered() -> None:
    _offer(default_registry())


@cache  # once each: other tests begin with a new one
def _offer(registry: Registry) -> None:
    registry.register(_Plugin(), "arrivals")


def text_of(plan: Plan, dialect: str) -> str:
    """Return a plan as a text: ``dsl`` or ``sql``."""
    if dialect == "dsl":
        return dsl.text_of(plan)
    tables = [sql.table_text(table, {"connector": "arrivals", "table": table.name}) for table in plan.tables]
    views, query = sql.views_of(plan)
    return ";\n".join([*tables, *views, query])


def sql_job_of(
    plan: Plan, script: Script | None, made_sink: Callable[[str], Any], text: str | None = None
) -> tuple[Any, Sinks]:
    """Return the job of a plan as a SQL text, like ``job_of``."""
    _offered()
    api.forget()
    ArrivalsSource.now = (plan, script)
    text = text_of(plan, "sql") if text is None else text
    job = hr.sql(text, functions=[Spread, SquareSum], namespace="fuzz", pipeline="streams")
    return _written({"out": next(iter(job.script.relations().values())).stream}, made_sink)


def run_sql(plan: Plan, *, batch: int = 1000, **options: Any) -> Result:
    """Run a plan as a SQL text on light."""
    return run(plan, batch=batch, making=sql_job_of, **options)


def run(plan: Plan, *, batch: int = 1000, making: Any = job_of, **options: Any) -> Result:
    """Run a plan on light and return what came out."""
    script = script_of(plan, batch)
    job, sinks = making(plan, script, lambda name: MemorySink())
    started(job, script, until="end", max_batch_records=batch, **options).wait()
    return result_of({name: [sink] for name, sink in sinks.items()})


def script_of(plan: Plan, batch: int, *, until: int | None = None) -> Script:
    """Return the order in which the rows of a plan arrive."""
    return Script(plan.arrivals, batch, until=until, silences=plan.silences)


def started(job: Any, script: Script, **options: Any) -> JobHandle:
    """Start a job on light by the clock of a script."""
    given, settings = options_of(LightBackend, "light", {"show_progress": False, **options})
    runner = LightBackend(settings, clock=script.clock)
    return PreparedJob(job.name, "light", job.plan(given), given, runner).start()


def run_text(plan: Plan, text: str, dialect: str, *, batch: int) -> Result:
    """Run a text over the tables and arrivals of a plan."""
    making = partial(job_of if dialect == "dsl" else sql_job_of, text=text)
    return run(plan, batch=batch, making=making)


def result_of(runs: Mapping[str, Sequence[MemorySink]]) -> Result:
    """Return what sinks came to: those of one run, or of several one after the other."""
    faults: list[str] = []
    rows = {name: _table(name, sinks, faults) for name, sinks in runs.items() if name != "bad"}
    return Result(rows, faults, sum(len(sink.rows) for sink in runs["bad"]))


def _table(name: str, sinks: Sequence[MemorySink], faults: list[str]) -> list[Row]:
    """Return the rows that changes come to; note where they take back what is not there, or where a key is there twice."""
    key = next((each.changes.key for each in sinks if each.changes is not None), None)
    there: Counter[str] = Counter()
    rows: dict[str, Row] = {}
    by_key: dict[str, int] = {}
    changes = [change for sink in sinks for change in zip(sink.rows, sink.kinds, strict=True)]
    for at, (row, kind) in enumerate(changes):
        shown = repr(normal(row))
        adds = kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)
        there[shown] += 1 if adds else -1
        rows[shown] = row
        if there[shown] < 0:
            faults.append(f"{name}: change {at} takes back a row that is not there: {shown}")
        if key:
            named = repr(normal({column: row[column] for column in key}))
            by_key[named] = by_key.get(named, 0) + (1 if adds else -1)
            if by_key[named] > 1:
                faults.append(f"{name}: with change {at} there are {by_key[named]} rows of key {named}")
    return [rows[shown] for shown, count in there.items() for _ in range(count)]


# ----------------------------------------------------------------------------------------------------- comparing


def normal(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return a row such that equal rows are equal in Python, whoever made them."""
    return tuple((name, _normal(value)) for name, value in sorted(row.items()))


def _normal(value: Any) -> Any:
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return plain.isoformat()
    if isinstance(value, Decimal):
        return str(value.normalize() + 0)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    if isinstance(value, dict):  # a row, or an entry of a map
        return tuple(_normal(each) for each in value.values())
    if isinstance(value, list | tuple):
        return tuple(_normal(each) for each in value)
    return value


def differences(expected: Mapping[str, list[Row]], found: Mapping[str, list[Row]]) -> list[str]:
    """Return what is missing and what is too much, by output."""
    told = []
    for name in sorted({*expected, *found}):
        want = Counter(normal(row) for row in expected.get(name, []))
        have = Counter(normal(row) for row in found.get(name, []))
        for sign, rows in (("missing", want - have), ("too much", have - want)):
            told += [f"{name}: {sign} ×{count}: {dict(row)}" for row, count in sorted(rows.items(), key=repr)[:4]]
    return told
