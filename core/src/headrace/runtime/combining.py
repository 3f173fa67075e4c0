"""Rows that are combined before they are sent to shards: fewer rows are hashed, encoded and sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.flow.messages import COMBINED
from headrace.interfaces.operator import Combiner, StatefulSpec
from headrace.plan.graph import Node, OperatorNode, Plan, ShuffleNode, UnionNode, input_schema

if TYPE_CHECKING:
    import polars as pl

#: If more rows than this part of them are left, combining costs more than it saves.
_WORTH_IT_MAX = 0.6
#: So many times rows are then sent as they are, before it is tried again.
_LEFT_OUT = 15


class Combining:
    """The combiner of a shuffle, and whether it is of use. One per process and shuffle; not thread-safe."""

    def __init__(self, combiner: Combiner) -> None:
        self._combiner = combiner
        self._left_out = 0

    @property
    def keeps_order(self) -> bool:
        """See ``Combiner.keeps_order``."""
        return self._combiner.keeps_order

    def combined(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to send for rows of one queue: see ``Combiner.combine``."""
        import polars as pl

        if self._left_out:
            self._left_out -= 1
            return frame.with_columns(pl.lit(None, dtype=pl.Int64).alias(COMBINED))
        made = self._combiner.combine(frame)
        if made.height > frame.height * _WORTH_IT_MAX:
            self._left_out = _LEFT_OUT
        return made


def combining_before(plan: Plan, shuffle: ShuffleNode) -> Combining | None:
    """Return how rows are combined before a shuffle; None if the operator behind it does not let them be."""
    takers = [node for _, node, _ in plan.consumers(shuffle)]
    if len(shuffle.sides) != 1 or len(takers) != 1:
        return None
    (taker,) = takers
    if not isinstance(taker, OperatorNode) or not isinstance(taker.spec, StatefulSpec):
        return None
    if any(edge.output for _, _, edge in plan.consumers(taker)):
        return None  # late rows are wanted as they came
    if _meet_again(shuffle.sides[0].node):
        return None
    combiner = taker.spec.combiner(input_schema(taker.input))
    return None if combiner is None else Combining(combiner)


def _meet_again(node: Node) -> bool:
    """Return whether branches of one source or shuffle come together before a node.

    Each may have its own watermark. Then the watermarks of the rows go up and down, and lateness depends on each row.
    """
    if isinstance(node, UnionNode):
        roots = [root for edge in node.merged for root in _roots(edge.node)]
        if len(roots) > len(set(roots)):
            return True
    if isinstance(node, ShuffleNode):
        return False
    return any(_meet_again(edge.node) for edge in node.inputs)


def _roots(node: Node) -> set[int]:
    """Return the sources and shuffles that a node gets rows from, by identity."""
    if isinstance(node, ShuffleNode) or not node.inputs:
        return {id(node)}
    return set().union(*(_roots(edge.node) for edge in node.inputs))
