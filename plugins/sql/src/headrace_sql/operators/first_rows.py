"""LIMIT without ORDER BY: the rows that come first, by arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from headrace.flow.messages import Batch
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import StateDefinition
from headrace_stateful.keys.state_bytes import pack, unpack


class FirstRows(StatefulSpec):
    """The ``n`` rows that come first, those before them that ``skipped`` says left out. Which these are is a matter of arrival."""

    name: ClassVar[str] = "first_rows"
    keys: Sequence[str] = ()

    def __init__(self, n: int, skipped: int = 0) -> None:
        self.n = n
        self.skipped = skipped

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("LIMIT without ORDER BY needs rows that are only added", hint="add ORDER BY")
        return None

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningFirstRows(self)

    def definition(self, schema: Schema | None) -> StateDefinition:
        return StateDefinition(self.name, {"rows": self.n, "skipped": self.skipped})

    def describe(self) -> str:
        return f"{self.n}" + (f" behind {self.skipped}" if self.skipped else "")


class RunningFirstRows(StatefulOperator):
    """The running operator. State: how many rows have come."""

    def __init__(self, spec: FirstRows) -> None:
        self._spec = spec
        self._seen = 0
        self._changed = False

    def process(self, batch: Batch) -> Iterable[Batch]:
        spec, frame = self._spec, batch.frame
        begin = max(spec.skipped - self._seen, 0)
        end = min(spec.skipped + spec.n - self._seen, frame.height)
        if self._seen < spec.skipped + spec.n:
            self._seen = min(self._seen + frame.height, spec.skipped + spec.n)
            self._changed = True
        if begin < end:
            yield batch.with_frame(frame[begin:end])

    def delta(self) -> bytes:
        return self.snapshot() if self._changed else b""

    def snapshot(self) -> bytes:
        self._changed = False
        return pack("snapshot", {}, {"seen": self._seen})

    def apply(self, state: bytes) -> None:
        self._seen = int(unpack(state)[2]["seen"])
        self._changed = False

    def state_rows(self) -> int:
        return 0
