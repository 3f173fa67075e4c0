"""The stages of a job without keyed verbs: they have no input, no state and nothing to wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.runtime.lane import Shipment
from headrace.runtime.patience import WaitFor

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.stages.interface import Stages
from headrace_light.stages.order_log import Entry


class NoStages(Stages):
    """Does nothing. Lanes of such a job ship nothing."""

    in_checkpoint: ClassVar[bool] = False
    needs_clock: ClassVar[bool] = False

    def replay(self, checkpoint: StoredCheckpoint, wait_for: WaitFor) -> Iterator[Entry]:
        return iter(())

    def begin_at(
        self, states: Iterable[tuple[str, int, bytes]], checkpoint_id: int, sequence: int, wait_for: WaitFor
    ) -> None:
        """A savepoint of such a job has no states."""

    def log_read(self, queue: Queue, start: ReadPosition, end: ReadPosition) -> None:
        """The position of the queue is all that counts."""

    def take(self, shipments: Iterable[Shipment]) -> None:
        """There are no shipments."""

    def add_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        """There are no shards to tell."""

    def remove_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        """There are no shards to tell."""

    def skip_idle(self, queue: Queue) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to close."""
