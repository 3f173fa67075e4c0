"""Rows that are combined before they go to the keyed stages of the engine: it has fewer to take, and the workers do the rest.

Only where an operator gives the same rows in the same order with and without it. So it does not matter which rows were combined, and
input that is repeated after a crash, where none are, gives the same again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.flow.messages import COMBINED, Batch
from headrace.plan.graph import Plan
from headrace.runtime.combining import combining_before
from headrace.runtime.lane import Shipment


class CombinedRows:
    """Combines what lanes ship. One per process; used by one thread."""

    def __init__(self, plan: Plan) -> None:
        found = {name: combining_before(plan, node) for name, node in plan.shuffles.items()}
        self._combining = {name: each for name, each in found.items() if each is not None and each.keeps_order}

    def of(self, shipments: Iterable[Shipment]) -> list[Shipment]:
        """Return the shipments, with fewer rows where that is of use."""
        return [self._one(shipment) for shipment in shipments]

    def _one(self, shipment: Shipment) -> Shipment:
        combining, content = self._combining.get(shipment.shuffle), shipment.content
        if combining is None or not isinstance(content, Batch):
            return shipment
        frame = combining.combined(content.frame)
        if frame.get_column(COMBINED).null_count() == frame.height:  # as they came
            return shipment
        return replace(shipment, content=content.with_frame(frame, content.output))
