"""Healthy functions pass every check."""

from __future__ import annotations

from contract_samples.function_contracts import MeanContract, RatioContract, ShoutContract, WordsContract


class TestShout(ShoutContract):
    """Row by row."""


class TestRatio(RatioContract):
    """Vectorized."""


class TestWords(WordsContract):
    """A table function."""


class TestMean(MeanContract):
    """An aggregate function."""
