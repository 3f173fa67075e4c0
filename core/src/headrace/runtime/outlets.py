"""The end of a job in one process: the writers of its sinks, and the path of the dead letters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.flow.dead_letters import DeadLetterReason, ReasonCounts
from headrace.flow.messages import Batch, Queue, QueueRemoved, SystemMessage
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import DataError
from headrace.interfaces.metrics import DEAD_LETTERS as DEAD_LETTERS_METRIC
from headrace.interfaces.sink import Sink, TransactionalSink
from headrace.plan.dead_letter_places import dead_letter_places
from headrace.plan.graph import Plan
from headrace.runtime.lane import DEAD_LETTERS, Delivery, Lane, dead_letter_lane
from headrace.runtime.sink_writer import SinkWriter


class Outlets:
    """Gives the deliveries of lanes to the sinks. Every runtime has one in each process that writes.

    ``deliver``, ``on_system`` and ``close`` are called by one thread. Dead letters from a sink, possibly made in
    a flush thread, are stored before the rows behind them, so a crash in between cannot lose them.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Clock | None = None,
        auto_flush: bool = True,
        write_behind: bool = False,
        stopping: threading.Event | None = None,
    ) -> None:
        self._plan = plan
        self._lock = threading.RLock()
        self._dead_letter_lanes: dict[Queue, Lane] = {}
        #: Sinks that have all results of the keyed stages from an earlier run: the results of this run are dropped.
        self.known: Collection[str] = ()
        self._shuffles = frozenset(plan.shuffles)
        self.dead_letters = 0
        self.dead_letter_places = dead_letter_places(plan)
        self._reasons = ReasonCounts()
        self.dead_letters_by_queue: dict[str, int] = {}
        dead_letters_id = plan.dead_letters_id
        self._behind_dead_letters = (
            set() if dead_letters_id is None else set(plan.reachable(plan.nodes[dead_letters_id])) & set(plan.sinks)
        )
        self.writers: dict[str, SinkWriter] = {
            sink_id: SinkWriter(
                node.sink,
                sink_id,
                on_dead_letters=self._refused_by(sink_id),
                clock=clock or SystemClock(),
                auto_flush=auto_flush,
                write_behind=write_behind,
                stopping=stopping,
                meter=plan.meter,
            )
            for sink_id, node in plan.sinks.items()
        }

    def open(self) -> None:
        """Open every sink now rather than at its first row, so that a job with a wrong address fails at its start."""
        for sink_id, writer in self.writers.items():
            if sink_id not in self._behind_dead_letters:
                writer.open()

    def sinks_to_ask(self, *, flushed: bool = True) -> Mapping[str, Sink]:
        """Return the sinks that can be asked for their positions, opened. Raises as their ``open`` does.

        ``flushed``: their writers are flushed first, so that the positions of all queues can be asked for, also of
        those that are written already.
        """
        asked = {name: writer for name, writer in self.writers.items() if isinstance(writer.sink, TransactionalSink)}
        for writer in asked.values():
            writer.open()
            if flushed:
                writer.flush()
        return {name: writer.sink for name, writer in asked.items()}

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Give each batch to the writer of its sink. Blocks while a full cache is flushed: back-pressure."""
        for delivery in deliveries:
            is_result = delivery.batch.queue.source in self._shuffles
            if delivery.target in self.known and is_result:
                self.writers[delivery.target].counts.duplicates_dropped += len(delivery.batch)
            elif delivery.target == DEAD_LETTERS and self.known and is_result:
                self.dead_letters += len(delivery.batch)  # they were stored with the results of the earlier run
                self._count_dead_letters(delivery.batch)
            elif delivery.target == DEAD_LETTERS:
                self._deliver_dead_letters(delivery.batch)
            else:
                self.writers[delivery.target].write(delivery.batch)

    def on_system(self, message: SystemMessage) -> None:
        """Pass a system message to every writer: first those of the main flow, then those of the dead letters."""
        for behind in (False, True):
            for sink_id, writer in self.writers.items():
                if (sink_id in self._behind_dead_letters) == behind:
                    writer.on_system(message)
        if isinstance(message, QueueRemoved):
            for queue in [q for q in self._dead_letter_lanes if (q.source, q.name) == _place(message.queue)]:
                self._dead_letter_lanes.pop(queue).close()

    def discard(self, queue: Queue) -> None:
        """Drop a queue that another process has taken over, with its cached rows."""
        for writer in self.writers.values():
            writer.discard(queue)
        for origin in [q for q in self._dead_letter_lanes if (q.source, q.name) == _place(queue)]:
            self._dead_letter_lanes.pop(origin).close()

    def waiting_bytes(self) -> Mapping[str, int]:
        """Return the size in memory of the rows that wait for each sink."""
        return {sink_id: writer.waiting_bytes() for sink_id, writer in self.writers.items()}

    def flush(self) -> None:
        """Insert everything that waits, the rows of the dead letters last. On return it is stored."""
        for behind in (False, True):
            for sink_id, writer in self.writers.items():
                if (sink_id in self._behind_dead_letters) == behind:
                    writer.flush()

    def flush_stale(self) -> None:
        """Flush rows that have waited long enough: for runtimes without flush threads."""
        for writer in self.writers.values():
            writer.flush_stale()

    def close(self, *, flush: bool = True) -> None:
        """Close every writer; the first error is raised after all are closed."""
        errors: list[Exception] = []
        for behind in (False, True):
            for sink_id, writer in self.writers.items():
                if (sink_id in self._behind_dead_letters) == behind:
                    try:
                        writer.close(flush=flush and not errors)
                    except Exception as error:  # close the others first; raised below
                        errors.append(error)
        if errors:
            raise errors[0]

    def rows_written(self) -> Mapping[str, int]:
        """Return the rows inserted so far, per sink of the main flow."""
        return {
            sink_id: writer.counts.written
            for sink_id, writer in self.writers.items()
            if sink_id not in self._behind_dead_letters
        }

    def frequent_reasons(self) -> tuple[DeadLetterReason, ...]:
        """Return the most frequent reasons of dead letters."""
        with self._lock:
            return self._reasons.most_frequent()

    def take_reasons(self) -> tuple[DeadLetterReason, ...]:
        """Return the reasons of dead letters since the last call: for runtimes that add them up elsewhere."""
        with self._lock:
            return self._reasons.take()

    def rows_skipped(self) -> int:
        """Return how many rows the sinks of the main flow had stored before."""
        return sum(
            writer.counts.duplicates_dropped
            for sink_id, writer in self.writers.items()
            if sink_id not in self._behind_dead_letters
        )

    def _refused_by(self, sink_id: str) -> Callable[[Batch], None]:
        def refuse(batch: Batch) -> None:
            row = batch.frame.row(0, named=True)
            if sink_id in self._behind_dead_letters or self._plan.dead_letters_id is None:
                raise DataError(
                    f"sink {sink_id!r} refuses a row: {row['reason']}",
                    job=self._plan.job_name,
                    queue=row["queue"],
                    offset=row["offset"],
                    hint="dead letters of the job go to this sink itself: correct the row, or route dead_letters() to another sink",
                )
            self._deliver_dead_letters(batch, flush=True)

        return refuse

    def _deliver_dead_letters(self, batch: Batch, *, flush: bool = False) -> None:
        with self._lock:
            lane = self._dead_letter_lanes.get(batch.queue)
            if lane is None:
                lane = dead_letter_lane(self._plan, batch.queue)
                assert lane is not None, "a lane that stops on bad records delivers no dead letters"
                self._dead_letter_lanes[batch.queue] = lane
            self.dead_letters += len(batch)
            self._count_dead_letters(batch)
            self._reasons.add(batch.frame)
            origin = batch.queue.branched("").id
            self.dead_letters_by_queue[origin] = self.dead_letters_by_queue.get(origin, 0) + len(batch)
            for delivery in lane.process_batch(batch):
                writer = self.writers[delivery.target]
                writer.write(delivery.batch)
                if flush:
                    writer.flush()

    def _count_dead_letters(self, batch: Batch) -> None:
        if self._plan.meter.enabled:
            for (origin, error), count in Counter(batch.frame.select("origin", "error").iter_rows()).items():
                self._plan.meter.add(DEAD_LETTERS_METRIC, count, origin, error)


def _place(queue: Queue) -> tuple[str, str]:
    return (queue.source, queue.name)
