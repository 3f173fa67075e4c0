"""Operators whose state is stored by ``frozen`` alone."""

from __future__ import annotations

from abc import abstractmethod

from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.operator import StatefulOperator


class FrozenOperator(StatefulOperator):
    """Base of operators that have ``frozen``: ``delta`` and ``snapshot`` are the bytes that it makes, made at once."""

    def delta(self) -> bytes:
        return self.frozen(whole=False).make()

    def snapshot(self) -> bytes:
        return self.frozen(whole=True).make()

    @abstractmethod
    def frozen(self, *, whole: bool) -> FrozenState:
        """See StatefulOperator. The state counts as stored when this returns: the next delta builds on it."""
