"""Healthy sources pass every check."""

from __future__ import annotations

from contract_samples.group_contracts import GroupLogContract
from contract_samples.source_contracts import ColumnLogContract, LogContract


class TestLogSource(LogContract):
    """A source of bodies, with gaps between its offsets."""


class TestColumnLogSource(ColumnLogContract):
    """A source of columns."""


class TestGroupLogSource(GroupLogContract):
    """Members that share the queues."""
