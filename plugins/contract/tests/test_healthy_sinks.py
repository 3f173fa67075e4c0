"""Healthy sinks pass every check."""

from __future__ import annotations

from contract_samples.sink_contracts import LedgerContract, LineContract, TableContract


class TestLineSink(LineContract):
    """At least once."""


class TestTableSink(TableContract):
    """Idempotent."""


class TestLedgerSink(LedgerContract):
    """Transactional."""
