"""What a source is: queues, and readers that read one queue each."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.interfaces.settings import Settings
from headrace.interfaces.table_options import TableOptions

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec
    from headrace.interfaces.topics import Topics


class Start(enum.Enum):
    """Where to begin in a queue that no checkpoint knows."""

    EARLIEST = "earliest"
    LATEST = "latest"


EARLIEST = Start.EARLIEST
LATEST = Start.LATEST


@dataclass(frozen=True, slots=True)
class StartAt:
    """Begin with the first record whose time is ``time`` or later."""

    time: datetime


StartPosition = ReadPosition | Start | StartAt


class Reader(ABC):
    """Reads one queue, in order. Used by one thread at a time.

    The runtime calls ``poll`` until it wants no more and then ``close``; ``close`` may be called twice and may never
    come (the process can be killed).
    """

    @abstractmethod
    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        """Return the next records, at most ``max_records``, or None when none came within ``timeout``.

        A time-out of zero never waits. Reading the same range again gives the same records and offsets: recovery and
        Spark's task retries depend on it. Raises RetriableError when the server is away for the moment,
        BrokenQueueError when this queue cannot be read as it is; records before a damaged place are given first.
        """

    @abstractmethod
    def seek(self, position: ReadPosition) -> None:
        """Make ``position`` what the next ``poll`` begins with. It lies within what the queue still holds."""

    @property
    @abstractmethod
    def position(self) -> ReadPosition:
        """Where the next ``poll`` begins."""

    @property
    @abstractmethod
    def earliest(self) -> int:
        """The smallest offset that the queue still holds, or ``latest`` when it is empty."""

    @property
    @abstractmethod
    def latest(self) -> int:
        """The offset after the last record that the queue holds now. May ask the server; used for lag and bounded runs."""

    def position_after(self, max_records: int) -> ReadPosition:
        """Return where a read of at most ``max_records`` from ``position`` would end, without giving the records.

        A planner (Spark's driver) calls it to cut ranges. The default takes offsets to be without gaps; a reader that
        needs a hint to find a place again overrides it.
        """
        return ReadPosition(min(self.latest, self.position.offset + max_records))

    def limit(self, end: ReadPosition) -> None:
        """Take where a planned range ends, before it is read: for readers whose offsets alone do not tell.

        Readers for which a range is exact by its offsets need not look.
        """

    def close(self) -> None:
        """Give back what the reader holds. May be called twice."""


class Source(ABC):
    """Where records come from: a set of queues that can change while the job runs.

    One object per source node of a job, made from validated options when the job is built. It must survive
    ``cloudpickle`` until the first call of ``queues`` or ``open``: connect there, not in ``__init__``. A runtime may use
    copies of it in several processes.
    """

    #: The declared options; ``from_<name>(**options)`` validates against it and passes an instance of it.
    Settings: ClassVar[type[Settings]] = Settings
    #: The options that it was made from; None for a source that was made without.
    settings: Any = None
    #: True when the source comes to an end by itself (a table read once).
    bounded: bool = False
    #: Where queues without a checkpoint begin. The runtime opens queues that appear *during* a run at EARLIEST.
    start: Start | StartAt = EARLIEST
    #: The id of the source's node in its plan, set when the job is built: ``Queue.source`` of its queues.
    node_name: str = ""
    #: The header fields that the job wants, as columns or for an operator; those that cost something to give (``headers``,
    #: with some sources ``key`` or ``time``) may be left out otherwise.
    header_fields: frozenset[str] = frozenset()
    #: How SQL texts write the options, by the connector's name in ``WITH ('connector' = …)``. Names other than the plug-in's own are
    #: offered by the hook ``headrace_connectors``.
    table_options: ClassVar[Mapping[str, TableOptions]] = {}

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        """Take the format of the bodies and what they are decoded to. Called when the job is built, before ``check``.

        For sources whose framing depends on it (files); the others need not look.
        """

    def use_run(self, *, until: Literal["end"] | None) -> None:
        """Take whether the run ends with the input. Called by a backend in every process, before the first ``queues``."""

    def check(self) -> None:
        """Check what can be checked without the outside world. Called when the job is built. Raises JobError."""

    def schema(self) -> Schema | None:
        """Return the columns when the source itself knows them (a table); None when a codec decodes bodies.

        Called when the job is built; it may connect.
        """
        return None

    def identity(self) -> Mapping[str, Any]:
        """Return which data this is, by the options that say so: another one is another input for the states that it feeds.

        The default takes the options that must be given. Values are of JSON; no secrets, and nothing of how data is fetched.
        """
        from headrace.interfaces.settings import identifying_options

        return identifying_options(self.settings)

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Take what a checkpoint knows, before the first ``queues``. Sources that track identities override it."""

    @abstractmethod
    def queues(self) -> Collection[Queue]:
        """Return the queues that exist now. Called again and again: differences become queue added / removed.

        Names must be stable. Raises RetriableError when the server is away, JobError when what was named is not there.
        """

    @abstractmethod
    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader of the queue. Several queues may be open at once, in several threads.

        A ReadPosition that the queue no longer holds (retention) must raise DataError naming both offsets, never skip
        silently. A queue that cannot be read as it is raises BrokenQueueError: the others are read on.
        """

    def close(self) -> None:
        """Give back connections. May be called twice."""


class GroupListener(ABC):
    """What a runtime lets a group source call. All calls come on the thread that calls ``poll_group`` or ``poll``."""

    @abstractmethod
    def assigned(self, queues: Iterable[Queue]) -> None:
        """These queues are now ours to read."""

    @abstractmethod
    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        """These queues go to another instance. On return their work is checkpointed, unless they are ``lost`` already."""


class GroupSource(Source):
    """A source on a broker that shares queues among the instances of a job (a consumer group).

    Only runtimes of several instances (light) join the group; Spark assigns queues itself and calls ``queues``/``open``.
    """

    @abstractmethod
    def join(self, listener: GroupListener) -> None:
        """Become a member. Assignments come through the listener, from ``poll_group`` or a reader's ``poll``."""

    @abstractmethod
    def poll_group(self, timeout: timedelta) -> None:
        """Give the membership a chance to act: called at least every second by the runtime, also when nothing is read.

        It may wait up to ``timeout``, and returns earlier when something has happened: a runtime with nothing to do waits
        here, so a source that notices new records wakes it with them.
        """

    @abstractmethod
    def leave(self) -> None:
        """Leave the group so that others take over at once."""

    @abstractmethod
    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Tell the broker how far queues are done. Called after the checkpoint that covers it."""

    @abstractmethod
    def committed(self, queue: Queue) -> ReadPosition | None:
        """Return what was committed for the queue by any instance, or None."""

    def begins_with(self, queue: Queue) -> str | None:
        """Return a name for the queues that a group begins together, as those of one topic.

        A group that starts at LATEST then commits where all of them begin before it reads the first, as a member, for
        queues of other instances too; one of them without commit must have appeared since, and is read from EARLIEST.
        None, the default: nothing is known about a queue without commit, and each instance takes those that were there
        when it started for old.
        """
        return None

    def topics(self) -> Topics | None:
        """Return a way to make topics on the source's broker, with the source's connection options; the caller closes it.

        A runtime of several instances keeps shuffles and state there. None, the default: the broker cannot.
        """
        return None
