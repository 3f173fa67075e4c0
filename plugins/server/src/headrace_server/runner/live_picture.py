"""The picture of a running job: its plan, with records per second and lag on the edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.foundation.clock import Clock, SystemClock
from headrace.interfaces.metrics import NODE_DURATION, NODE_INPUT_ROWS, QUEUE_LAG, SINK_ROWS, SOURCE_RECORDS, Snapshot
from headrace.plan.explain import describe_nodes
from headrace.plan.graph import Plan
from headrace_console.picture import EdgeFigures, plan_as_svg

#: Rates are those of at least this time: shorter ones jump with every batch.
_WINDOW_MIN_SECONDS = 2.0
#: A node that is at work for this share of the time is the one that the others wait for.
_BUSY_SHARE = 0.8
#: A source is slow when its rate needs longer than this for what waits in its queues.
_CATCH_UP_SECONDS = 30.0


@dataclass(frozen=True)
class _Look:
    seconds: float
    rows: Mapping[str, float]
    work_seconds: Mapping[str, float]
    lags: Mapping[str, float]


class LivePicture:
    """Draws one job again and again. Asked by the server, in the threads of the runner's socket; not thread-safe by itself."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._before: _Look | None = None
        self._last: _Look | None = None

    def draw(self, plan: Plan, snapshot: Snapshot | None) -> str:
        """Return the picture as SVG. Rates are those since an earlier picture, so the first one has none."""
        figures: dict[tuple[str, str], EdgeFigures] = {}
        if snapshot is not None:
            now = self._look(snapshot)
            if self._last is None or now.seconds - self._last.seconds >= _WINDOW_MIN_SECONDS:
                self._before, self._last = self._last, now
            figures = self._figures(plan, now)
        return plan_as_svg(plan, figures=figures)

    def _look(self, snapshot: Snapshot) -> _Look:
        rows: dict[str, float] = defaultdict(float)
        work: dict[str, float] = defaultdict(float)
        lags: dict[str, float] = defaultdict(float)
        totals = {SOURCE_RECORDS.name: rows, NODE_INPUT_ROWS.name: rows, SINK_ROWS.name: rows}
        for family in snapshot.families:
            into = totals.get(family.metric.name)
            into = work if family.metric.name == NODE_DURATION.name else into
            into = lags if family.metric.name == QUEUE_LAG.name else into
            if into is not None:
                for series in family.series:
                    into[series.labels[0]] += series.value
        return _Look(self._clock.monotonic(), rows, work, lags)

    def _figures(self, plan: Plan, now: _Look) -> dict[tuple[str, str], EdgeFigures]:
        made: dict[tuple[str, str], EdgeFigures] = {}
        for node_id, node in describe_nodes(plan).items():
            for parent, _ in node.inputs:
                # What came to the node; one that does not count is given what its parent gave.
                counted = node_id if node_id in now.rows else parent if parent in plan.sources else None
                rate = self._rate(counted, now)
                texts = [] if rate is None else [f"{_shown(rate)}/s"]
                slow = self._busy_share(node_id, now) > _BUSY_SHARE
                lag = now.lags.get(parent)
                if lag is not None:
                    texts.append(f"lag {lag:,.0f}")
                    slow = slow or (rate is not None and lag > rate * _CATCH_UP_SECONDS)
                if texts:
                    made[parent, node_id] = EdgeFigures("  ·  ".join(texts), slow)
        return made

    def _rate(self, node_id: str | None, now: _Look) -> float | None:
        before = self._before if self._before is not None else self._last
        if node_id is None or before is None or now.seconds <= before.seconds:
            return None
        grown = now.rows.get(node_id, 0.0) - before.rows.get(node_id, 0.0)
        return max(0.0, grown) / (now.seconds - before.seconds)

    def _busy_share(self, node_id: str, now: _Look) -> float:
        before = self._before if self._before is not None else self._last
        if before is None or now.seconds <= before.seconds:
            return 0.0
        worked = now.work_seconds.get(node_id, 0.0) - before.work_seconds.get(node_id, 0.0)
        return worked / (now.seconds - before.seconds)


def _shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
