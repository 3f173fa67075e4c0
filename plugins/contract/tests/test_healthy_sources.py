"""Healthy sources pass every check."""

from __future__ import annotations

from contract_samples.source_contracts import ColumnLogContract, LogContract


class TestLogSource(LogContract):
    """A source of bodies, with gaps between its offsets."""


class TestColumnLogSource(ColumnLogContract):
    """A source of columns."""
