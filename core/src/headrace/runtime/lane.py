"""The lane: the chain of operators of one stage for one queue. It defines what happens to a row; backends only drive lanes.

A lane gets raw batches and system messages in order, and returns deliveries: batches, each for one sink. It is plain
Python and uses no backend and no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.flow import dead_letters
from headrace.flow.messages import (
    HEADER_COLUMNS,
    INDEX,
    OFFSET,
    WATERMARK,
    Batch,
    Queue,
    QueueAdded,
    QueueRemoved,
    RawBatch,
    SystemMessage,
    Watermark,
    picked,
)
from headrace.foundation import at_work
from headrace.foundation.errors import DataError, JobFailedError
from headrace.interfaces.meter import NodeMeter
from headrace.interfaces.operator import Operator, RejectedRows, StatefulOperator, renumber
from headrace.plan.graph import (
    Input,
    Node,
    OperatorNode,
    Plan,
    ShuffleNode,
    SinkNode,
    SourceNode,
    UnionNode,
    input_schema,
)
from headrace.runtime.batch_trials import Made, may_be_the_rows_fault, process_by_rows
from headrace.runtime.lane_figures import LaneFigures
from headrace.runtime.source_decoder import SourceDecoder
from headrace.runtime.waiting import until_answered

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
R = TypeVar("R")
#: Target of deliveries that are dead letters: they enter the plan again at its dead-letters node.
DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch and the id of the sink node (or DEAD_LETTERS) that it is for."""

    target: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class Shipment:
    """What a lane sends to a shuffle: rows, or a message about the lane's queue, which goes to every shard."""

    shuffle: str
    #: Which side of the shuffle: an index into ``ShuffleNode.sides``.
    side: int
    queue: Queue
    content: Batch | Watermark | QueueAdded | QueueRemoved


class Lane:
    """Drives the operators of one stage for one queue: from a root (a source, a shuffle, where dead letters begin) to
    the sinks and the next shuffles.

    Not thread-safe. ``process``, ``process_batch`` and ``on_system`` return deliveries for sinks; shipments for
    shuffles are fetched with ``take_shipments``. They may raise errors of operators that are not caused by the rows.
    """

    def __init__(self, plan: Plan, root: Node, queue: Queue, *, decode_columns: Sequence[str] | None = None) -> None:
        self.queue = queue
        self._plan = plan
        self._root = root
        self._nodes = plan.stage(root)
        self._stops_on_bad_records = plan.dead_letters_id is None
        self._operators: dict[str, Operator] = {}
        self._decoder: SourceDecoder | None = None
        self._shipments: list[Shipment] = []
        self._sequence = 0
        self._stamped = 0
        root_id = plan.id_of(root)
        self._figures = LaneFigures(plan.meter, root_id) if plan.meter.enabled else None
        if isinstance(root, SourceNode):
            columns = decode_columns if decode_columns is not None else plan.decode_columns()[root_id]
            self._decoder = SourceDecoder(root_id, root, columns)
        for node_id, node in self._nodes.items():
            if isinstance(node, OperatorNode):
                operator = self._operators[node_id] = node.spec.open(input_schema(node.input))
                if plan.meter.enabled:
                    operator.meter = NodeMeter(plan.meter, node_id)
        self._sink_columns: dict[str, list[str] | None] = {
            node_id: None if (schema := input_schema(node.input)) is None else list(schema)
            for node_id, node in self._nodes.items()
            if isinstance(node, SinkNode)
        }

    @property
    def stateful_operators(self) -> dict[str, StatefulOperator]:
        """The operators with state, by node id. The caller that drives the lane stores their state."""
        return {node_id: each for node_id, each in self._operators.items() if isinstance(each, StatefulOperator)}

    @property
    def operators(self) -> Mapping[str, Operator]:
        """The operators by node id, so that callers can read their sizes. Only the lane may call their other
        methods.
        """
        return self._operators

    def begin_entry(self, sequence: int) -> None:
        """Begin an entry: rows from stateful operators get this offset, and indexes from 0."""
        self._sequence, self._stamped = sequence, 0

    def process(self, raw: RawBatch) -> list[Delivery]:
        """Decode a raw batch and take it through the operators."""
        assert self._decoder is not None, "only the lane of a source takes raw batches"
        figures = self._figures
        begun = 0.0 if figures is None else figures.begin()
        batch, bad = self._decoder.decode(self.queue, raw)
        if figures is not None:
            figures.decoded(raw, batch.frame, begun)
        deliveries = self._dead_letters([bad]) if bad is not None else []
        deliveries += self._run(batch, None)
        if figures is not None:
            figures.through()
            figures.read(self.queue, raw, begun)
        return deliveries

    def process_batch(self, batch: Batch) -> list[Delivery]:
        """Take a decoded batch through the operators."""
        return self._counted(batch, None)

    def on_system(self, message: SystemMessage) -> list[Delivery]:
        """Pass a system message through the operators, each after the output of the operator before it."""
        return self._counted(None, message)

    def _counted(self, batch: Batch | None, message: SystemMessage | None) -> list[Delivery]:
        if self._figures is None:
            return self._run(batch, message)
        self._figures.begin()
        deliveries = self._run(batch, message)
        self._figures.through()
        return deliveries

    def take_shipments(self) -> list[Shipment]:
        """Return the shipments for shuffles since the last call, in order."""
        taken, self._shipments = self._shipments, []
        return taken

    def close(self) -> None:
        """Close the operators. May be called twice."""
        for operator in self._operators.values():
            operator.close()
        self._operators.clear()

    def _run(self, batch: Batch | None, message: SystemMessage | None) -> list[Delivery]:
        flowing: dict[tuple[int, str], list[Batch]] = {}
        marks: dict[int, Watermark] = {}
        deliveries: list[Delivery] = []
        if batch is not None:
            flowing[id(self._root), ""] = [batch]
        if isinstance(message, Watermark):
            marks[id(self._root)] = message
        for node_id, node in self._nodes.items():
            if node is self._root:
                continue
            if isinstance(node, OperatorNode):
                deliveries += self._operate(node_id, node, message, flowing, marks)
            elif isinstance(node, UnionNode):
                merged = self._merge(node, flowing)
                if merged is not None:
                    flowing[id(node), ""] = [merged]
                found = [marks[id(edge.node)] for edge in node.merged if id(edge.node) in marks]
                if found:
                    marks[id(node)] = min(found, key=lambda mark: mark.time_us)
            elif isinstance(node, ShuffleNode):
                self._ship(node_id, node, message, flowing, marks)
            elif isinstance(node, SinkNode):
                for arriving in flowing.get((id(node.input.node), node.input.output), ()):
                    if arriving.frame.height:
                        deliveries.append(Delivery(node_id, self._for_sink(node_id, arriving)))
        return deliveries

    def _operate(
        self,
        node_id: str,
        node: OperatorNode,
        message: SystemMessage | None,
        flowing: dict[tuple[int, str], list[Batch]],
        marks: dict[int, Watermark],
    ) -> list[Delivery]:
        operator = self._operators[node_id]
        made: list[Batch | RejectedRows | Watermark] = []
        mark = marks.get(id(node.input.node))
        came = flowing.get((id(node.input.node), node.input.output), [])
        begun = 0.0 if self._figures is None else self._figures.now()
        at_work.begin(self._plan.job_name, node_id, self.queue.id)
        try:
            for batch in came:
                if batch.frame.height:
                    made += self._made_by(node_id, operator, batch)
            for each in (message if not isinstance(message, Watermark) else None, mark):
                if each is not None:
                    made += self._asked(operator, operator.on_system, each)
        finally:
            at_work.end()
        if self._figures is not None and (came or made):
            self._figures.worked(node_id, came, (each for each in made if isinstance(each, Batch)), begun)
        rejected: list[Batch] = []
        for result in made:
            if isinstance(result, Watermark):
                mark = result
            elif isinstance(result, RejectedRows):
                errors = result.errors or ["DataError"] * len(result.reasons)
                rejected.append(
                    dead_letters.of_rows(self.queue, node_id, result.frame, list(result.reasons), list(errors))
                )
            else:
                given = self._stamped_batch(result) if isinstance(operator, StatefulOperator) else result
                flowing.setdefault((id(node), result.output), []).append(given)
        if mark is not None:
            marks[id(node)] = mark
        return self._dead_letters([_in_order(rejected)])

    def _made_by(self, node_id: str, operator: Operator, batch: Batch) -> list[Made]:
        """Return the output of an operator for a batch. If a row makes it raise an error, the batch is tried again in
        parts.
        """
        try:
            return list(self._asked(operator, operator.process, batch))
        except BaseException as error:
            if not may_be_the_rows_fault(error):
                raise
            if isinstance(operator, StatefulOperator):  # its state may have changed in part
                raise JobFailedError(
                    f"{node_id!r} failed on {batch.frame.height} rows: {type(error).__name__}: {error}",
                    job=self._plan.job_name,
                    plugin=node_id,
                    queue=self.queue.id,
                    offset=self._sequence,
                    hint="when the job is started again, it continues from the last checkpoint and processes the same rows again",
                ) from error
            return process_by_rows(partial(self._asked, operator, operator.process), batch, error)

    @staticmethod
    def _asked(operator: Operator, call: Callable[[T], Iterable[R]], given: T) -> Iterable[R]:
        """Call an operator. The call is repeated for an operator without state if a server that it uses is not
        available; operators with state do that themselves.
        """
        if isinstance(operator, StatefulOperator):
            return call(given)
        return until_answered(lambda: list(call(given)))

    def _stamped_batch(self, batch: Batch) -> Batch:
        """Give the rows of a stateful operator their position: the number of the entry as offset, and an index in the
        order of the rows.
        """
        import polars as pl

        begin, self._stamped = self._stamped, self._stamped + batch.frame.height
        place = entry_positions(self._sequence, begin, batch.frame.height)
        others = (column for column in batch.frame.get_columns() if column.name not in (OFFSET, INDEX))
        return batch.with_frame(pl.DataFrame([*place, *others]), batch.output)

    def _ship(
        self,
        node_id: str,
        node: ShuffleNode,
        message: SystemMessage | None,
        flowing: Mapping[tuple[int, str], list[Batch]],
        marks: Mapping[int, Watermark],
    ) -> None:
        for side, edge in enumerate(node.sides):
            if not self._comes_from_root(edge):
                continue
            for batch in flowing.get((id(edge.node), edge.output), ()):
                if batch.frame.height:
                    self._shipments.append(Shipment(node_id, side, self.queue, batch))
            mark = marks.get(id(edge.node))
            for told in (message if isinstance(message, QueueAdded | QueueRemoved) else None, mark):
                if told is not None:
                    self._shipments.append(Shipment(node_id, side, self.queue, told))

    def _dead_letters(self, batches: Iterable[Batch | None]) -> list[Delivery]:
        found = [batch for batch in batches if batch is not None and len(batch)]
        if found and self._stops_on_bad_records:
            first = found[0].frame.row(0, named=True)
            raise DataError(
                f"bad record at {first['origin']!r}: {first['reason']} (begins {first['preview']!r:.80})",
                job=self._plan.job_name,
                queue=self.queue.id,
                offset=first["offset"],
                hint="the job stops because of bad_records='stop', or because headrace-file, which keeps bad records in files, is not "
                "installed; to keep the job running, install it or route dead_letters() to a sink",
            )
        return [Delivery(DEAD_LETTERS, batch) for batch in found]

    def _merge(self, node: UnionNode, flowing: Mapping[tuple[int, str], list[Batch]]) -> Batch | None:
        """Merge the branches of this lane's queue, in the order of the records."""
        import polars as pl

        frames = [
            batch.frame
            for edge in node.merged
            for batch in flowing.get((id(edge.node), edge.output), ())
            if batch.frame.height
        ]
        if not frames:
            return None
        if node.schema is not None:
            # A header column that no verb behind the union needs may be missing in some branches.
            present = set.intersection(*(set(frame.columns) for frame in frames))
            columns = [name for name in node.schema if name in present]
            frames = [_with_columns(frame, columns) for frame in frames]
        own_branches = sum(1 for edge in node.merged if self._comes_from_root(edge))
        if own_branches <= 1:
            return Batch(self.queue, frames[0] if len(frames) == 1 else pl.concat(frames))
        merged = pl.concat(frames)
        # All that a stateful operator gives in an entry has one offset: the order of its rows is in the index.
        order = [OFFSET, INDEX] if merged[INDEX].max() else [OFFSET]
        return Batch(self.queue, renumber(merged.sort(order, maintain_order=True)))

    def _comes_from_root(self, edge: Input) -> bool:
        return self._plan.id_of(edge.node) in self._nodes

    def _for_sink(self, sink_id: str, batch: Batch) -> Batch:
        columns = self._sink_columns[sink_id]
        if columns is None:
            return Batch(self.queue, batch.frame.drop(WATERMARK, strict=False))
        return Batch(self.queue, _with_columns(batch.frame, columns, _HEADER_OF_SINKS))


def entry_positions(sequence: int, begin: int, count: int) -> tuple[pl.Series, pl.Series]:
    """Return the columns of the positions of rows: the number of an entry, and their indexes in it from ``begin`` on."""
    import numpy as np
    import polars as pl

    offsets = pl.Series(OFFSET, np.full(count, sequence, dtype=np.int64))
    return offsets, pl.Series(INDEX, np.arange(begin, begin + count, dtype=np.int32))


#: The column with the watermark is for the next stage, not for a sink.
_HEADER_OF_SINKS = tuple(name for name in HEADER_COLUMNS if name != WATERMARK)


def _with_columns(frame: pl.DataFrame, columns: Sequence[str], header: Sequence[str] = HEADER_COLUMNS) -> pl.DataFrame:
    """Return the present header columns and the named columns, in that order."""
    present = frame.columns
    wanted = [*(name for name in header if name in present), *columns]
    return frame if wanted == present else picked(frame, wanted)


def _in_order(batches: Sequence[Batch]) -> Batch | None:
    """Return dead letters of one origin as one batch in the order of the records: sinks rely on growing positions."""
    import polars as pl

    if len(batches) <= 1:
        return batches[0] if batches else None
    return batches[0].with_frame(pl.concat([batch.frame for batch in batches]).sort(OFFSET, INDEX))


def dead_letter_lane(plan: Plan, queue: Queue) -> Lane | None:
    """Return the lane that takes dead letters of a queue to their sinks, or None when they stop the job."""
    node_id = plan.dead_letters_id
    return None if node_id is None else Lane(plan, plan.nodes[node_id], queue)
