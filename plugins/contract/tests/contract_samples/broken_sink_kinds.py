"""The contracts of broken sinks, by the kind of the sink; broken_sink_*.py have the sinks."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import headrace as hr
import msgspec
from headrace_contract import Moment

from contract_samples.broken import Fault
from contract_samples.sink_contracts import LedgerContract, LineContract, TableContract
from contract_samples.sinks import LineSink, TableSink

S = TypeVar("S", bound=hr.Sink)


class Line(Fault, LineContract):
    """The contract of a broken LineSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> LineSink:
        return with_small_batches(super().make_sink())


class Table(Fault, TableContract):
    """The contract of a broken TableSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> TableSink:
        return with_small_batches(super().make_sink())


class Ledger(Fault, LedgerContract):
    """The contract of a broken LedgerSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> TableSink:
        return with_small_batches(super().make_sink())


def with_small_batches(sink: S) -> S:
    """Return the sink with a batch_size that makes the check of full batches quick."""
    sink.settings = msgspec.structs.replace(sink.settings, batch_size=600)
    return sink
