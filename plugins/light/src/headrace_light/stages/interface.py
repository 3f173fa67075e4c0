"""What the engine asks of a job's keyed stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock
from headrace.interfaces.backend import QueueStatus
from headrace.interfaces.operator import Operator
from headrace.runtime.lane import Shipment
from headrace.runtime.outlets import Outlets
from headrace.runtime.patience import WaitFor

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.pauses import Pauses
from headrace_light.savepoint_requests import OpenSavepoint
from headrace_light.stages.order_log import Entry
from headrace_light.storing import Storing


@dataclass(frozen=True)
class Host:
    """What stages get from the engine that drives them.

    ``directory`` is where the checkpoint is; None: nothing is kept. ``outlets`` takes results. ``storing`` and
    ``retry_seconds`` say how long to wait for disks and servers. ``make_checkpoint`` makes a checkpoint of the whole process,
    at once.
    """

    clock: Clock
    directory: Path | None
    outlets: Outlets
    storing: Storing
    retry_seconds: float
    make_checkpoint: Callable[[], None]


@dataclass(frozen=True)
class Saving:
    """What stores the state of a checkpoint, as it was when this was made. ``store`` is called once, perhaps by another thread.

    It returns per shard the versions that its state consists of, each with its checksum; None: the checkpoint has no state.
    ``rows``: how many rows it stores, about.
    """

    store: Callable[[], Mapping[str, list[tuple[int, str]]] | None]
    rows: int


class Stages(ABC):
    """The keyed stages of one job in this process. Results go to the outlets at once.

    The engine calls ``replay`` or ``begin_at`` once before it reads, then the rest between two polls. Its thread makes all
    calls; only ``check_savepoint`` and the methods of the part "status" may be called from any thread.
    """

    #: Whether state and order of input are parts of this process's checkpoint. Then the positions of the checkpoint are those that
    #: count, not those that brokers have, and no consumer group may give queues to another process.
    in_checkpoint: ClassVar[bool]
    #: Whether the stages need the time of the clock about every second, also without input.
    needs_clock: ClassVar[bool]

    # ------------------------------------------------------------------------------------------ begin and end

    def open(self) -> None:
        """Connect to servers. Raises JobError; RetriableError when one is away: it is called again then."""

    @abstractmethod
    def replay(self, checkpoint: StoredCheckpoint, wait_for: WaitFor) -> Iterator[Entry]:
        """Take the state of a checkpoint; yield the entries since, which the engine is to do again in this order.

        What the stages are told before the next entry is requested belongs to this entry: it gets its number, and is not logged.
        Raises CheckpointError when something is missing, damaged or of another checkpoint.
        """

    def stand_behind_sinks(self, *, write: bool, wait_for: WaitFor) -> bool:
        """Check that no sink has results of entries that are still to come. Called once, after ``replay``, with opened sinks.

        ``write``: such results are accepted and written again. Returns whether a checkpoint must be made because of
        that. Raises CheckpointError.
        """
        return False

    @abstractmethod
    def begin_at(
        self, states: Iterable[tuple[str, int, bytes]], checkpoint_id: int, sequence: int, wait_for: WaitFor
    ) -> None:
        """Begin at a savepoint: with a state (shuffle, number of the shard, content) for each shard, which is stored at once.

        Entries get numbers after ``sequence``. The caller stores the checkpoint, and then calls ``saved``: nothing may be there before that
        needs the checkpoint, because a start that was killed is tried again.
        """

    def join(self, wait_for: WaitFor) -> None:
        """Become a member of the groups that divide shards among instances."""

    def leave(self) -> None:
        """Leave those groups, so that others take over at once. Called after the last checkpoint."""

    @abstractmethod
    def close(self) -> None:
        """Close everything. May be called twice, and after a failure at any moment."""

    # -------------------------------------------------------------------------------------------------- input

    @abstractmethod
    def log_read(self, queue: Queue, start: ReadPosition, end: ReadPosition) -> None:
        """A range of a queue was read, but not yet processed."""

    @abstractmethod
    def take(self, shipments: Iterable[Shipment]) -> None:
        """Take a lane's results of the range that was logged last."""

    @abstractmethod
    def add_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        """A queue of a source is read by this process from now on; ``shipments``: the first output of its lane."""

    @abstractmethod
    def remove_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        """A queue is not read any more by this process; ``shipments``: the last output of its lane."""

    def let_go_of_others(self, queues: Collection[Queue]) -> None:
        """Do not wait for queues of sources but for these: others have gone since the checkpoint. Called once, before anything is read."""

    @abstractmethod
    def skip_idle(self, queue: Queue) -> bool:
        """Do not wait for a queue until it has a record; return whether any shard was affected."""

    def wait_again(self, queue: Queue) -> None:
        """Wait again for a queue that was skipped by ``skip_idle``: it has records now, which are processed after the
        records of other queues.
        """

    @property
    def at_end(self) -> bool:
        """Whether the shards got the end of input, and no records came since."""
        return False

    def end_input(self) -> None:
        """A bounded run has read everything: close what waits for more input, unless that was done and no input came since."""

    # ------------------------------------------------------------------------------------------ between polls

    def discover(self) -> None:
        """Check which queues exist now, for shards that wait for all of them."""

    def poll(self) -> bool:
        """Take records that came from other instances through the shards; return whether there was any work."""
        return False

    def keep_up(self, *, idle: bool) -> None:
        """Do the periodic work that is due: ticks of the clock, memberships, sending. ``idle``: there was no input."""

    def rest(self, pauses: Pauses, otherwise: Callable[[], bool]) -> bool:
        """Wait for records if the stages can, else as ``otherwise`` does; return whether there was a wait."""
        return otherwise()

    # -------------------------------------------------------------------------------------------- checkpoints

    @property
    def sequence(self) -> int | None:
        """The number of the last entry, which goes into the checkpoint; None: there are no entries in it."""
        return None

    @property
    def shard_counts(self) -> Mapping[str, int]:
        """How many shards each shuffle has whose state is in the checkpoint."""
        return {}

    @property
    def changed(self) -> bool:
        """Whether a checkpoint would store something besides positions and ``sequence``."""
        return False

    def tick(self) -> None:
        """Give all shards the time of the clock. Called before a savepoint."""

    def check_savepoint(self) -> None:
        """Raise CheckpointError when no savepoints can be taken of these stages."""

    def flush(self) -> bool:
        """After the sinks were flushed, make data outside of the checkpoint durable; False: no checkpoint can be made now."""
        return True

    def begin_save(self, checkpoint_id: int, savepoints: Collection[OpenSavepoint], *, last: bool = False) -> Saving:
        """Return what stores the changes up to now, under the id of a checkpoint that is about to be made.

        All state is given to the savepoints at once.
        ``last``: the job is being stopped, so only what must be stored is stored now. Called when no other one is on its way.
        """
        return Saving(lambda: None, 0)

    def save(
        self, checkpoint_id: int, savepoints: Collection[OpenSavepoint], *, last: bool = False
    ) -> Mapping[str, list[tuple[int, str]]] | None:
        """Do what ``begin_save`` begins, at once."""
        return self.begin_save(checkpoint_id, savepoints, last=last).store()

    def begin_next_log(self, checkpoint_id: int) -> None:
        """What comes from now on is not in the checkpoint that is on its way, though the one before still counts."""

    def saved(self, checkpoint_id: int) -> None:
        """The checkpoint was made: older data is not needed any more."""

    # ------------------------------------------------------------------------------------------------- status

    def statuses(self) -> tuple[QueueStatus, ...]:
        """Return how far this instance is with its shards, where instances share them."""
        return ()

    def watermark_us(self) -> int | None:
        """Return the least watermark of the shards that have one."""
        return None

    def state_rows(self) -> int:
        """Return how many rows the operators remember."""
        return 0

    def operators(self) -> Iterable[tuple[str, Operator]]:
        """Return the operators behind shuffles in this process, each with its node id, to inspect their state."""
        return ()

    def late_rows(self) -> int:
        """Return how many rows came too late in this run."""
        return 0
