"""``key_by("k").process(function, schema=…)``: a Python function per row, with state and timers of the row's key.

For what has no verb. The function is called for one row after the other and yields (or returns) any number of rows, dicts of the
columns of ``schema``::

    def visits(row, state, timers):
        state["n"] = state.get("n", 0) + 1
        timers.at_event_time(row["ts"] + timedelta(minutes=30))

    def ended(key, time, state, timers):
        yield {"user": key, "visits": state.pop("n", 0), "ended": time}

    visits.on_timer = ended
    stream.key_by("user").process(visits, schema={"user": "string", "visits": "int64", "ended": "timestamp"}, on="ts")

Instead of a function there may be an object, or a class that is made without arguments, with the methods ``process`` and
``on_timer``; it must not keep anything in itself, since it is shared by keys and lost with the process.

- ``state`` is a dict of texts to MessagePack types, dates, times, decimals, lists and dicts. What the call leaves in it is kept; an
  empty one is forgotten. Tuples and sets come back as lists.
- ``timers.at_event_time(time)`` calls ``on_timer(key, time, state, timers)`` once the watermark has reached that time;
  ``timers.at_processing_time(time)`` when the clock has. Times are datetimes (without time zone: UTC). The same time counts once
  per key. ``cancel_event_time``, ``cancel_processing_time`` take it back. ``timers.watermark`` and ``timers.now`` tell the time.
- ``key`` is the value of the key, or a tuple where it has several columns.

If the call for a row raises, or returns a value that does not fit, the row goes to the dead letters, and state and
timers stay as they were before it. A timer whose call raises stops the job. At the end of a bounded run the event-time
timers that are set are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import (
    HEADER_COLUMNS,
    WATERMARK,
    Batch,
    EndOfInput,
    Queue,
    SystemMessage,
    Tick,
    Watermark,
    watermark_times,
)
from headrace.flow.rows import pack_row, unpack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, DataError, FunctionError, HeadraceError, PlanError
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.runtime.waiting import until_answered

from headrace_stateful.aggregates.reduce import function_name
from headrace_stateful.joins.join_shape import NEVER, nullable
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.parted_table import PartedTable
from headrace_stateful.keys.shares import Reached, Renumbering, joined, numbers, renumbered, snapshots, table_share
from headrace_stateful.keys.slots import SlotTable
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns
from headrace_stateful.keys.ticks import CLOCK_TICK_SECONDS
from headrace_stateful.keys.timers import EVENT, PROCESSING, TimerQueue
from headrace_stateful.keys.typed_rows import RowTypes

_STATE = "__hr_state"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = pack_row({})


class Process(StateInColumns):
    """Runs a function with state and timers; see the module. What it gives are rows that are only added."""

    name = "process"
    maps_state = True

    def __init__(self, keys: Sequence[str], function: Any, *, schema: Mapping[str, Any], on: str | None = None) -> None:
        self.keys = tuple(keys)
        self.function = function() if isinstance(function, type) else function
        self.schema = Schema.of(schema)
        self.on = on
        _calls_of(self.function)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys if self.on is None else [*self.keys, self.on])
        return self.schema

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError(
                "a function with state needs rows that are only added, but the rows of this stream change",
                hint="use it before the aggregation or join, or use results that are final",
            )
        return None

    def definition(self, schema: Schema | None) -> StateDefinition:
        settings = {"function": function_name(self.function), "on": None if self.on is None else quoted(self.on)}
        columns = kept_columns(keyed_rows.known(schema), self.keys)
        return StateDefinition(self.name, settings, self.keys, columns)

    @property
    def tick_seconds(self) -> float | None:
        return CLOCK_TICK_SECONDS if hasattr(self.function, "on_timer") else None

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningProcess(self.keys, keyed_rows.known(schema), self.function, self.schema)

    def describe(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


class Timers:
    """What a function sets timers with, and tells the time by. Valid during the call."""

    def __init__(self, watermark_us: int, now_us: int) -> None:
        self._watermark_us = watermark_us
        self._now_us = now_us
        #: (kind, time, set or taken back), in order.
        self.asked: list[tuple[int, int, bool]] = []

    @property
    def watermark(self) -> datetime | None:
        """The watermark before the row (for a timer: the one that called it); None while there is none."""
        return None if self._watermark_us == NEVER else _datetime(self._watermark_us)

    @property
    def now(self) -> datetime:
        """The clock when the row was taken in; the same when it is replayed."""
        return _datetime(self._now_us)

    def at_event_time(self, time: datetime) -> None:
        self.asked.append((EVENT, _microseconds(time), True))

    def at_processing_time(self, time: datetime) -> None:
        self.asked.append((PROCESSING, _microseconds(time), True))

    def cancel_event_time(self, time: datetime) -> None:
        self.asked.append((EVENT, _microseconds(time), False))

    def cancel_processing_time(self, time: datetime) -> None:
        self.asked.append((PROCESSING, _microseconds(time), False))


class RunningProcess(FrozenOperator, PartedTable):
    """The running operator."""

    def __init__(self, keys: tuple[str, ...], schema: Schema, function: Any, output: Schema) -> None:
        self._keys = keys
        self._on_row, self._on_timer = _calls_of(function)
        self._types = RowTypes(output)
        self._table = SlotTable(keyed_rows.key_types(schema, keys), {_STATE: pl.Binary()})
        self._timers = TimerQueue()
        self._now_us = 0
        #: The greatest watermark that timers were called for, or that was given with a row.
        self._reached_us = NEVER
        self._reached_written = NEVER
        # While a batch or message is worked on:
        self._states: dict[int, bytes] = {}
        self._given: list[dict[str, Any]] = []
        self._marks: list[int] = []

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        slots, new_rows = self._table.find_or_insert(keyed_rows.keys_of(frame, self._keys))
        fresh = slots[new_rows]
        self._states = dict.fromkeys(fresh.tolist(), _NOTHING)
        self._load(np.setdiff1d(slots, fresh))
        rows = frame.drop(HEADER_COLUMNS, strict=False).to_dicts()
        failures: dict[int, Exception] = {}
        marks = np.maximum(watermark_times(frame), self._reached_us).tolist()
        for place, (row, slot, mark) in enumerate(zip(rows, slots.tolist(), marks, strict=True)):
            self._fire(EVENT, mark)
            self._reached_us = mark
            try:
                until_answered(partial(self._on_row_of, row, slot, mark))
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
                failures[place] = error
        yield from self._results(batch.queue, with_watermark=WATERMARK in frame.columns)
        if failures:
            errors = list(failures.values())
            yield RejectedRows(
                frame[list(failures)], [str(each) for each in errors], [type(each).__name__ for each in errors]
            )

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            self._fire(PROCESSING, message.time_us)
            yield from self._results(Queue(""), with_watermark=True)
        elif isinstance(message, Watermark):
            self._fire(EVENT, message.time_us)
            self._reached_us = max(self._reached_us, message.time_us)
            yield from self._results(message.queue, with_watermark=True)
        elif isinstance(message, EndOfInput):
            last = self._timers.last(EVENT)
            if last is not None:
                # Timers that are set for later stay: a timer that sets itself again would have no end.
                self._fire(EVENT, last)
                self._reached_us = max(self._reached_us, last)
                yield from self._results(Queue(""), with_watermark=True)

    # ------------------------------------------------------------------------------------------------ the calls

    def _fire(self, kind: int, until_us: int) -> None:
        for slot, time_us in self._timers.due(kind, until_us):
            self._table.need_slot(slot)
            if slot not in self._states:
                self._load(np.array([slot]))
            keys = self._table.keys(np.array([slot])).row(0)
            key = keys[0] if len(keys) == 1 else keys
            mark = self._reached_us
            if kind == EVENT:
                mark = self._reached_us = max(time_us - 1, self._reached_us)
            if self._on_timer is None:
                continue
            try:
                until_answered(partial(self._call, self._on_timer, (key, _datetime(time_us)), slot, mark))
            except (HeadraceError, MemoryError):
                raise
            except Exception as error:
                raise DataError(
                    f"on_timer failed for the key {key!r} at {_datetime(time_us)}: {type(error).__name__}: {error}"
                ) from error

    def _on_row_of(self, row: dict[str, Any], slot: int, mark: int) -> None:
        self._call(self._on_row, (dict(row),), slot, mark)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], slot: int, mark: int) -> None:
        """Call a user's function; its changes count only if all of them can be stored."""
        state = unpack_rows([self._states[slot]])[0]
        timers = Timers(mark, self._now_us)
        results = function(*arguments, state, timers)
        if results is None:
            results = ()
        elif isinstance(results, Mapping) or not isinstance(results, Iterable):
            raise DataError(f"the function returned {type(results).__name__}, not an iterable of rows")
        rows = [self._types.checked(row) for row in results]
        self._states[slot] = pack_row(state)
        for kind, time_us, is_set in timers.asked:
            self._timers.change(slot, kind, time_us, is_set=is_set)
        self._given += rows
        self._marks += [mark] * len(rows)

    def _load(self, slots: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._states.update(zip(slots.tolist(), self._table.take(slots)[_STATE].to_list(), strict=True))

    def _results(self, queue: Queue, *, with_watermark: bool) -> Iterable[Batch]:
        """Restore the states, and return the argument."""
        kept = {slot: state for slot, state in self._states.items() if state != _NOTHING or self._timers.has(slot)}
        gone = [slot for slot in self._states if slot not in kept]
        self._table.put(
            np.fromiter(kept, dtype=np.int64, count=len(kept)),
            pl.DataFrame({_STATE: pl.Series(list(kept.values()), dtype=pl.Binary)}),
        )
        self._table.remove(np.array(gone, dtype=np.int64))
        self._states = {}
        rows, marks = self._given, self._marks
        self._given, self._marks = [], []
        if rows:
            frame = self._types.frame(rows)
            if with_watermark:
                frame = frame.with_columns(nullable(WATERMARK, np.array(marks, dtype=np.int64)))
            yield Batch(queue, frame)

    # ---------------------------------------------------------------------------------------------------- state

    def frozen(self, *, whole: bool) -> FrozenState:
        parts = {"keys": self._table.frozen(whole=whole), "timers": self._timers.frozen(whole=whole)}
        has_rows = any(rows for _, rows in parts.values())
        if not has_rows and not whole and self._reached_us == self._reached_written:
            return FrozenState.of(b"")
        self._reached_written = self._reached_us
        values = {"reached_us": self._reached_us}
        return keyed_rows.frozen_parts(parts, values, whole=whole, drop=self._table.drop_frozen)

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._reached_us = self._reached_written = int(values["reached_us"])
        self._table.apply(keyed_rows.part("keys", frames))
        self._timers.apply(keyed_rows.part("timers", frames))

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found = snapshots(states)
        rows, slots = table_share([keyed_rows.part("keys", frames) for frames, _ in found], share)
        reached = Reached()
        order, timers = Renumbering(), []
        for (frames, values), new in zip(found, slots, strict=True):
            own = keyed_rows.part("timers", frames)["added"]
            reached.add(int(values["reached_us"]), own.filter(pl.col("kind") == EVENT)["time"])
            own = renumbered(own, "slot", new.to(numbers(own, "slot"))).filter(pl.col("slot") >= 0).sort("number")
            old = numbers(own, "number")
            timers.append(renumbered(own, "number", order.of(old).to(old)))
        return pack("snapshot", {"keys.set": rows, "timers.added": joined(timers)}, {"reached_us": reached.time_us()})

    @property
    def restores_behind(self) -> bool:
        return True

    def _common(self, *, whole: bool) -> tuple[Mapping[str, pl.DataFrame], Mapping[str, Any]]:
        self._reached_written = self._reached_us
        return self._timers.snapshot() if whole else self._timers.delta(), {"reached_us": self._reached_us}

    def _apply_common(self, frames: Mapping[str, pl.DataFrame], values: Mapping[str, Any]) -> None:
        self._reached_us = self._reached_written = int(values["reached_us"])
        self._timers.apply(frames)

    def state_rows(self) -> int:
        return len(self._table)


def _calls_of(function: Any) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return the functions that are called per row and per timer. Raises FunctionError."""
    on_row = getattr(function, "process", function)
    on_timer = getattr(function, "on_timer", None)
    for what, call, names in (
        ("process", on_row, "row, state, timers"),
        ("on_timer", on_timer, "key, time, state, timers"),
    ):
        if call is None:
            continue
        if not callable(call):
            raise FunctionError(f"{call!r} is not a function", hint=f"def {what}({names}): …")
        try:
            inspect.signature(call).bind(*names.split(", "))
        except TypeError as error:
            raise FunctionError(
                f"{what} does not accept the arguments that headrace passes: {error}", hint=f"def {what}({names}): …"
            ) from error
    return on_row, on_timer


def _datetime(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _microseconds(time: datetime) -> int:
    if not isinstance(time, datetime):
        raise DataError(f"a timer needs a datetime, not {time!r}")
    return (time - _EPOCH if time.tzinfo else time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
