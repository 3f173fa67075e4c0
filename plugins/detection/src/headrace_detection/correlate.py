"""``stream.rules(…).correlate("rules/*.yml", on="ts")``: correlation rules of Sigma over the rows that rules have matched.

Events wait until the watermark has reached their time, and are then looked at in the order of their times. So the alerts are the
same however records of several queues are mixed. A late event (its time is before the watermark) is left out and counted.
While nothing at all comes, the watermark does not rise: then events are looked at when they have waited for ``idle_timeout``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.interfaces.windows import Duration, microseconds
from headrace.jobs.dsl import Stream
from headrace.jobs.keyed import shuffled, with_watermark
from headrace_rules.loading import RulesInput
from headrace_rules.sigma_fields import SigmaOptions
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.frozen_operator import FrozenOperator
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.shares import Reached, log_share, snapshots
from headrace_stateful.keys.slots import KeySlots
from headrace_stateful.keys.state_bytes import pack, unpack
from headrace_stateful.keys.state_columns import kept_columns
from headrace_stateful.keys.ticks import CLOCK_TICK_SECONDS
from headrace_stateful.keys.watermark import event_times_us

from headrace_detection.correlation_events import ADDED, KEY, MASK, VALUE, VERSION, CorrelationEvents
from headrace_detection.correlations import RULE, Correlation, CorrelationsInput, load_correlations
from headrace_detection.silence import IDLE_PARTS, Silence
from headrace_detection.sliding_windows import Events, Found, Integers, looked_at

OUTPUTS = ("first", "all")
KEYS = (VERSION, KEY)
NEVER = -(2**63)
IDLE_TIMEOUT = "1 min"
_TEXTS = pl.List(pl.String())
_TIME = pl.Datetime("us", "UTC")
#: What an alert has beside the columns of its last event.
_GIVEN: Mapping[str, pl.DataType] = {
    "rule_id": pl.String(), "rule_severity": pl.String(), "rule_labels": _TEXTS, KEY: pl.String(),
    "correlation_count": pl.Int64(), "correlation_events": pl.Int64(), "correlation_start": _TIME,
}  # fmt: skip
#: Marks of rows: the event time; whether the condition was true at the event.
_AT = "time"
_FULFILLED = "fulfilled"


class Correlate(StatefulSpec):
    """Correlates the rows that rules have matched: ``stream.rules("rules/*.yml").correlate("rules/*.yml", on="ts")``.

    ``correlations``: files, patterns or directories of YAML, or a list of such and of documents. ``rules``: where the rules are
    that they name, if they are not in the same files. ``on``: the column of event time; ``late``: the delay of its watermark, where
    the stream has none. ``sigma``: its ``fields`` say which column a field is. ``output``: ``"first"`` gives an alert when the
    condition becomes true for a group, ``"all"`` one for each event at which it is true. ``idle_timeout``: if no event
    came for so long by the clock, the waiting events are looked at, and later events with earlier times are late. None:
    they wait for the watermark without a limit.

    An alert has the columns of the event with which the window ends, and ``rule_id``, ``rule_severity`` and ``rule_labels`` of
    the correlation, ``correlation_key`` (the group, as JSON), ``correlation_count`` (the number that the condition is on),
    ``correlation_events`` and ``correlation_start`` (how many events the window has, and the time of the first of them).

    Raises RulesError for wrong correlations, with file and place, and other JobErrors for wrong options, when the job is built.
    """

    name: ClassVar[str] = "correlate"
    is_composed: ClassVar[bool] = True
    keys = KEYS

    def __init__(
        self,
        correlations: Sequence[Correlation],
        *,
        on: str,
        output: str = "first",
        idle_timeout: Duration | None = IDLE_TIMEOUT,
    ) -> None:
        if output not in OUTPUTS:
            hint = did_you_mean(str(output), OUTPUTS, known="outputs")
            raise OptionError(f"unknown output {output!r}", plugin="correlate", option="output", hint=hint)
        self.correlations = tuple(correlations)
        self.on = on
        self.output = output
        self.idle_timeout_us = None if idle_timeout is None else microseconds(idle_timeout, "idle_timeout")
        if self.idle_timeout_us is not None and self.idle_timeout_us <= 0:
            hint = 'such as "1 min", or None: wait for the watermark'
            raise OptionError(
                f"{idle_timeout!r} is not a duration", plugin="correlate", option="idle_timeout", hint=hint
            )

    @classmethod
    def of_stream(
        cls,
        stream: Stream,
        correlations: CorrelationsInput,
        *,
        on: str,
        rules: RulesInput | None = None,
        late: Duration | None = None,
        output: str = "first",
        sigma: Mapping[str, Any] | SigmaOptions | None = None,
        idle_timeout: Duration | None = IDLE_TIMEOUT,
    ) -> Stream:
        found = load_correlations(correlations, rules, SigmaOptions.of(sigma))
        spec = cls(found, on=on, output=output, idle_timeout=idle_timeout)
        events = with_watermark(stream, on, late).apply(CorrelationEvents(found, on=on))
        return shuffled(events, KEYS).apply(spec)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        kept = {name: kind for name, kind in columns.items() if name not in ADDED}
        for name in _GIVEN:
            if name in kept:
                raise PlanError(f"there is a column {name!r} already", hint=f"rename({name}='…') before correlate")
        return Schema({**kept, **_GIVEN})

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("correlate needs rows that are only added, but the rows of this stream change")
        return None

    def definition(self, schema: Schema | None) -> StateDefinition:
        settings = {"on": quoted(self.on), "output": self.output}
        columns = kept_columns(keyed_rows.known(schema))
        adjustable = {"idle_timeout_us": self.idle_timeout_us}
        return StateDefinition(self.name, settings, self.keys, columns, adjustable=adjustable)

    @property
    def tick_seconds(self) -> float | None:
        if self.idle_timeout_us is None:
            return None
        return max(CLOCK_TICK_SECONDS, self.idle_timeout_us / 1_000_000 / IDLE_PARTS)

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningCorrelate(self, keyed_rows.known(schema))

    def describe(self) -> str:
        rules = sum(one.kind == RULE for one in self.correlations)
        alone = f", {rules} rules of their own" if rules else ""
        return f"{len(self.correlations) - rules} correlations{alone} on {self.on}, {self.output}"


class RunningCorrelate(FrozenOperator):
    """The running operator. Whole rows wait for the watermark; of those that were looked at only what windows need is kept."""

    def __init__(self, spec: Correlate, schema: Schema) -> None:
        self._spec = spec
        self._correlations = spec.correlations
        self._columns = list(schema)
        self._waiting = RowLog(dict(schema), KEYS, (_AT,))
        self._kept = RowLog(dict(ADDED), KEYS, (_AT, _FULFILLED))
        self._key_types = {name: schema[name] for name in KEYS}
        self._groups = keyed_rows.SlotGroups()
        self._numbers = {one.version: number for number, one in enumerate(spec.correlations)}
        self._shown = pl.DataFrame(
            [(one.id, one.severity, list(one.labels)) for one in spec.correlations],
            schema={name: _GIVEN[name] for name in ("rule_id", "rule_severity", "rule_labels")},
            orient="row",
        )
        self._reached_us = self._reached_written = NEVER
        self._silence = Silence(spec.idle_timeout_us)
        self._late = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        marks = np.maximum.accumulate(np.maximum(watermark_times(frame), self._reached_us))
        times = event_times_us(frame[self._spec.on])
        in_time = np.flatnonzero(times >= marks)
        self._late += times.size - in_time.size
        self._waiting.append(frame.select(self._columns)[in_time], **{_AT: times[in_time]})
        self._silence.end()
        yield from self._given(batch.queue, int(marks[-1]))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Watermark):
            self._silence.end()
            yield from self._given(message.queue, message.time_us)
        elif isinstance(message, EndOfInput) or (
            isinstance(message, Tick) and len(self._waiting) and self._silence.is_over(message.time_us)
        ):
            yield from self._all_given()

    def late_rows(self) -> int:
        return self._late

    def state_rows(self) -> int:
        return len(self._waiting) + len(self._kept)

    # ------------------------------------------------------------------------------------------------ the windows

    def _all_given(self) -> Iterable[Batch]:
        """Look at all events that wait: none is expected before them any more."""
        self._silence.end()
        times = self._waiting.mark(_AT, self._waiting.places())
        if times.size:
            yield from self._given(Queue(""), int(times.max()) + 1)

    def _given(self, queue: Queue, watermark_us: int) -> Iterable[Batch]:
        """Look at the events before a watermark, and forget those that no window needs any more."""
        self._reached_us = max(self._reached_us, watermark_us)
        places = self._waiting.places_where_below(_AT, self._reached_us)
        if places.size:
            rows, times = self._waiting.take(places), self._waiting.mark(_AT, places)
            self._waiting.remove(places)
            self._waiting.tidy()
            alerts = self._looked_at(rows, times)
            if alerts.height:
                yield Batch(queue, alerts)
        self._forget()

    def _looked_at(self, rows: pl.DataFrame, times: Integers) -> pl.DataFrame:
        """Return the alerts of events, in the order of their times, and keep what later windows need of them."""
        which = self._which(rows[VERSION])
        order = np.argsort(times, kind="stable")
        order = order[which[order] >= 0]
        rows, times, which = rows[order], times[order], which[order]
        if rows.is_empty():
            return self._alerts(rows, times, which, which, which, times)
        slots, _ = KeySlots(self._key_types).find_or_insert(rows.select(KEYS))
        _, last, groups = self._groups.of(slots)
        at, places = self._kept.find(rows.select(KEYS)[last], KEYS)
        old = self._kept.take(places)
        both = pl.concat([old, rows.select(old.columns)])
        events = Events(
            np.concatenate([at, groups]),
            np.concatenate([self._kept.mark(_AT, places), times]),
            np.concatenate([which[last][at], which]),
            both[MASK].to_numpy(),
            both[VALUE],
            np.concatenate([self._kept.mark(_FULFILLED, places), np.zeros(times.size, dtype=np.int64)]) > 0,
            np.arange(both.height) >= places.size,
        )
        sequence = np.lexsort((np.arange(both.height), events.times, events.groups))
        found = looked_at(_in_sequence(events, sequence), self._correlations)
        back = np.empty_like(sequence)
        back[sequence] = np.arange(sequence.size)
        mine = back[places.size :]
        kept = np.flatnonzero(np.array([one.kind != RULE for one in self._correlations])[which])
        self._kept.append(
            rows.select(list(ADDED))[kept],
            **{_AT: times[kept], _FULFILLED: found.fulfilled[mine][kept].astype(np.int64)},
        )
        return self._picked(rows, times, which, found, mine, events.times[sequence])

    def _picked(
        self, rows: pl.DataFrame, times: Integers, which: Integers, found: Found, mine: Integers, all_times: Integers
    ) -> pl.DataFrame:
        given = np.flatnonzero((found.is_first if self._spec.output == "first" else found.fulfilled)[mine])
        places = mine[given]
        begins = found.begins[places]
        return self._alerts(
            rows[given], times[given], which[given], found.counts[places], places - begins + 1, all_times[begins]
        )

    def _alerts(
        self, rows: pl.DataFrame, times: Integers, which: Integers, counts: Integers, events: Integers, starts: Integers
    ) -> pl.DataFrame:
        alone = pl.Series(np.array([one.kind == RULE for one in self._correlations], dtype=bool)[which])
        numbers = pl.DataFrame({
            "correlation_count": counts, "correlation_events": events,
            "correlation_start": pl.Series(starts, dtype=pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        })  # fmt: skip
        key = rows.select(KEY)
        if alone.any():
            numbers = numbers.select(pl.when(~alone).then(pl.all()))
            key = key.select(pl.when(~alone).then(pl.all()))
        user = rows.select([name for name in rows.columns if name not in ADDED])
        made = pl.concat([user, self._shown[which], key, numbers], how="horizontal")
        # An alert has the time of its event: later verbs must not treat it as late.
        return made.with_columns(pl.Series(WATERMARK, times, dtype=pl.Int64))

    def _which(self, versions: pl.Series) -> Integers:
        """Return the places of correlations; -1 for one that is not of the job any more."""
        found: Integers = versions.replace_strict(self._numbers, default=-1, return_dtype=pl.Int64).to_numpy()
        return found

    def _forget(self) -> None:
        places = self._kept.places()
        if not places.size:
            return
        spans = np.array([*(one.span_us for one in self._correlations), -1], dtype=np.int64)
        which = self._which(self._kept.take(places, [VERSION])[VERSION])
        gone = (self._kept.mark(_AT, places) < self._reached_us - spans[which]) | (which < 0)
        self._kept.remove(places[gone])
        self._kept.tidy()

    # ---------------------------------------------------------------------------------------------------- state

    def frozen(self, *, whole: bool) -> FrozenState:
        parts = {"waiting": self._waiting.frozen(whole=whole), "kept": self._kept.frozen(whole=whole)}
        has_rows = any(rows for _, rows in parts.values())
        unchanged = self._reached_us == self._reached_written and not self._silence.has_changed
        if not has_rows and not whole and unchanged:
            return FrozenState.of(b"")
        self._reached_written = self._reached_us
        values = {"reached_us": self._reached_us, **self._silence.stored()}
        return keyed_rows.frozen_parts(parts, values, whole=whole)

    def apply(self, state: bytes) -> None:
        _, frames, values = unpack(state)
        self._reached_us = self._reached_written = int(values["reached_us"])
        self._silence.restore(values)
        self._waiting.apply(keyed_rows.part("waiting", frames))
        self._kept.apply(keyed_rows.part("kept", frames))

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        found = snapshots(states)
        reached = Reached()
        made = {}
        for name in ("waiting", "kept"):
            logs = [frames[f"{name}.added"] for frames, _ in found]
            made[f"{name}.added"] = log_share(logs, [share.holds(log) for log in logs])
        for frames, values in found:
            reached.add(int(values["reached_us"]), frames["waiting.added"][RowLog.mark_column(_AT)])
        return pack("snapshot", made, {"reached_us": reached.time_us()})


def _in_sequence(events: Events, sequence: Integers) -> Events:
    return Events(
        events.groups[sequence], events.times[sequence], events.which[sequence], events.masks[sequence],
        events.values.gather(sequence), events.fulfilled[sequence], events.is_new[sequence],
    )  # fmt: skip
