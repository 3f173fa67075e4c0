"""Healthy operators pass every check."""

from __future__ import annotations

from contract_samples.operator_contracts import EvenContract, RepeatContract, ScaleContract


class TestScale(ScaleContract):
    """One row for each, or a rejection."""


class TestEven(EvenContract):
    """Two outputs."""


class TestRepeat(RepeatContract):
    """Packed rows."""
