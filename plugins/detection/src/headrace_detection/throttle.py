"""``key_by("rule_id").throttle("5 min")``: the first row of each key immediately, then at most one in each interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, PlanError
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace.interfaces.windows import Duration, microseconds
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.slot_operator import TICK, SlotOperator
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns
from headrace_stateful.keys.ticks import CLOCK_TICK_SECONDS
from numpy.typing import NDArray

SUPPRESSED = "suppressed_count"
#: When the interval of the key ends; how many rows came in it that were not given.
_UNTIL = "__hr_until"
_WAITING = "__hr_waiting"


class Throttle(StateInColumns):
    """Gives the first row of a key immediately, and after that at most one row in each interval: ``key_by("rule_id").throttle("5 min")``.

    Rows that come within the interval are not given. If there were any when it ends, the last of them is, and the next interval
    begins. Each row has ``suppressed_count``: how many rows of its key before it were not given. So no row is lost from the count.
    Time is that of the clock when rows are taken in; at the end of a bounded run what waits is given. Raises OptionError for an
    interval that is none.
    """

    name: ClassVar[str] = "throttle"

    def __init__(self, keys: Sequence[str], interval: Duration) -> None:
        self.keys = tuple(keys)
        self.interval_us = microseconds(interval, "interval")
        if self.interval_us <= 0:
            raise OptionError(f"{interval!r} is not an interval", plugin="throttle", option="interval", hint='"5 min"')

    @property
    def tick_seconds(self) -> float | None:
        return CLOCK_TICK_SECONDS

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, self.keys)
        if SUPPRESSED in columns:
            raise PlanError(
                f"there is a column {SUPPRESSED!r} already", hint=f"rename({SUPPRESSED}='…') before throttle"
            )
        return Schema({**columns, SUPPRESSED: pl.Int64()}, json_columns=columns.json_columns)

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("throttle needs rows that are only added, but the rows of this stream change")
        return None

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, {}, self.keys, columns, adjustable={"interval_us": self.interval_us})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningThrottle(self, keyed_rows.known(schema))

    def describe(self) -> str:
        return f"one per {', '.join(self.keys) or 'all'} in {self.interval_us / 1_000_000:g} s"


class RunningThrottle(SlotOperator):
    """The running operator: it keeps the last row of each key whose interval has not ended."""

    def __init__(self, spec: Throttle, schema: Schema) -> None:
        self._keys = spec.keys
        self._interval_us = spec.interval_us
        self._columns = list(schema)
        self._others = [name for name in schema if name not in spec.keys]
        values = {name: schema[name] for name in self._others}
        numbers = {_UNTIL: pl.Int64(), _WAITING: pl.Int64()}
        super().__init__(keyed_rows.key_types(schema, spec.keys), {**values, **numbers}, None)

    @property
    def restores_behind(self) -> bool:
        return False  # each entry looks at the ends of all intervals

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        slots, new_rows = self._table.find_or_insert(keyed_rows.keys_of(frame, self._keys))
        changed, last, at = self._groups.of(slots)
        is_new = np.zeros(changed.size, dtype=bool)
        is_new[at[new_rows]] = True
        until = np.full(changed.size, self._now_us + self._interval_us, dtype=np.int64)
        waiting = np.bincount(at, minlength=changed.size) - is_new
        old = self._table.take(changed[~is_new])
        until[~is_new] = old[_UNTIL].to_numpy()
        waiting[~is_new] += old[_WAITING].to_numpy()
        self._table.put(changed, self._values(frame[last].select(self._others), until, waiting))
        if new_rows.size:
            given = frame[np.sort(new_rows)].with_columns(pl.lit(0, dtype=pl.Int64).alias(SUPPRESSED))
            header = [name for name in HEADER_COLUMNS if name in given.columns and name != WATERMARK]
            yield batch.with_frame(given.drop(header))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = max(self._now_us, message.time_us)
            yield from self._ended(self._table.slots_where_below(_UNTIL, self._now_us + 1))
        elif isinstance(message, EndOfInput):
            self._table.need_all()
            yield from self._ended(self._table.index.slots())

    def _ended(self, slots: NDArray[np.int64]) -> Iterable[Batch]:
        """End the intervals of keys: give the row that waits and begin the next interval, or forget the key."""
        values = self._table.take(slots)
        waits = values[_WAITING].to_numpy() > 0
        self._table.remove(slots[~waits])
        if not waits.any():
            return
        slots, values = slots[waits], values.filter(pl.Series(waits))
        order = np.argsort(values[_UNTIL].to_numpy(), kind="stable")
        slots, values = slots[order], values[order]
        until = np.full(slots.size, self._now_us + self._interval_us, dtype=np.int64)
        self._table.put(slots, self._values(values.select(self._others), until, np.zeros(slots.size, dtype=np.int64)))
        rows = pl.concat([self._table.keys(slots), values], how="horizontal").select(self._columns)
        yield Batch(Queue(""), rows.with_columns((values[_WAITING] - 1).alias(SUPPRESSED)))

    def _values(self, rows: pl.DataFrame, until: NDArray[np.int64], waiting: NDArray[np.int64]) -> pl.DataFrame:
        numbers = pl.DataFrame(
            {_UNTIL: until, _WAITING: waiting.astype(np.int64), TICK: np.full(until.size, self._now_us)}
        )
        return pl.concat([rows, numbers], how="horizontal") if rows.width else numbers
