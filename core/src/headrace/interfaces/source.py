"""The interface of sources: a source lists its queues and opens a reader for each of them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.meter import NO_NODE_METER, NodeMeter
from headrace.interfaces.settings import Settings
from headrace.interfaces.table_options import TableOptions

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec
    from headrace.interfaces.topics import Topics


class Start(enum.Enum):
    """Where to start in a queue that is not in the checkpoint: EARLIEST is the first record that the queue still holds,
    LATEST the next record that comes.
    """

    EARLIEST = "earliest"
    LATEST = "latest"


EARLIEST = Start.EARLIEST
LATEST = Start.LATEST


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start at the first record whose time is ``time`` or later."""

    time: datetime


StartPosition = ReadPosition | Start | StartAt


class Reader(ABC):
    """Reads one queue, in order. Used by one thread at a time.

    The runtime calls ``poll`` as long as it needs records, and then ``close``. ``close`` may be called twice. It is not
    called if the process is killed.
    """

    @abstractmethod
    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        """Return the next records, at most ``max_records``, or None when none came within ``timeout``.

        With a time-out of zero it does not wait. Reading the same range again must give the same records and offsets:
        recovery and Spark's task retries depend on it. Raises RetriableError if the server is not available now, and
        BrokenQueueError if this queue cannot be read; records before a damaged place are given first.
        """

    @abstractmethod
    def seek(self, position: ReadPosition) -> None:
        """Let the next ``poll`` begin at ``position``, which the queue still holds."""

    @property
    @abstractmethod
    def position(self) -> ReadPosition:
        """The position at which the next ``poll`` begins: the offset of the next record, and the source's hint."""

    @property
    @abstractmethod
    def earliest(self) -> int:
        """The smallest offset that the queue still holds, or ``latest`` when it is empty."""

    @property
    @abstractmethod
    def latest(self) -> int:
        """The offset after the last record that the queue holds now. May ask the server; used for lag and bounded
        runs.
        """

    def position_after(self, max_records: int) -> ReadPosition:
        """Return where a read of at most ``max_records`` from ``position`` would end, without returning the records.

        A planner (Spark's driver) calls it to plan ranges. The default assumes that offsets have no gaps. A reader that
        needs a hint to find a position again overrides it.
        """
        return ReadPosition(min(self.latest, self.position.offset + max_records))

    def waypoints(self) -> Sequence[ReadPosition]:
        """Return positions in ascending order that this source has passed while it counted records of this queue.

        A planner that has counted the records of a queue passes them to the planner of its ranges. The default returns
        none; it is for readers that know where a range ends without reading records.
        """
        return ()

    def use_waypoints(self, positions: Sequence[ReadPosition]) -> None:
        """Receive what ``waypoints`` of another reader of this queue returned, so that ``position_after`` need not
        count again.
        """

    def skip_range(self, max_records: int) -> ReadPosition | None:
        """Skip the next records, at most ``max_records``, and return the position after them: another process reads
        them from a copy of the source.

        None, the default: the records are read here. Called by a runtime with several processes on one machine, for
        sources with ``read_by_workers``. The other process reads the range by ``seek`` and ``limit``. Implement it only
        if finding the end of a range is much less work than reading its records.
        """
        return None

    def limit(self, end: ReadPosition) -> None:
        """Receive the end of a planned range before it is read.

        Readers whose ranges are defined by offsets alone can ignore it.
        """

    def close(self) -> None:
        """Release the reader's resources, such as files and connections. May be called twice."""


class Source(ABC):
    """Where records come from: a set of queues that can change while the job runs.

    One object per source node of a job, made from validated options when the job is built. It must survive
    ``cloudpickle`` until the first call of ``queues`` or ``open``: connect there, not in ``__init__``. A runtime may
    use copies of it in several processes.
    """

    #: The declared options; ``from_<name>(**options)`` validates against it and passes an instance of it.
    Settings: ClassVar[type[Settings]] = Settings
    #: The options from which the object was made; None if it was made without options.
    settings: Any = None
    #: True if the source ends without being stopped (a table that is read once): once a queue is read up to ``latest``,
    #: no record follows. Event time then does not wait for this queue, also in runs without an end.
    bounded: bool = False
    #: True if a queue that is opened at EARLIEST may begin with other rows under the same offsets each time, as with a
    #: snapshot of a table that changes. Backends then store the position at which it begins before they read from it.
    begins_anew: bool = False
    #: Whether worker processes on the same machine may read ranges of its queues with copies of the source. The copies
    #: have all of its options. So such a source must have no secrets and no connections, and its readers implement
    #: ``skip_range``.
    read_by_workers: ClassVar[bool] = False
    #: False if only the process that has opened the source can read its queues, for example a source that listens. A
    #: backend that reads with copies in other processes refuses such a source at the start.
    read_by_copies: ClassVar[bool] = True
    #: The source guarantees that the time of a record (header ``time``) is at most this much before the time of any
    #: earlier record of its queue; None: no guarantee. ``SOURCE_WATERMARK()`` of SQL uses it.
    time_delay: timedelta | None = None
    #: Where queues without a checkpoint begin. The runtime opens queues that appear *during* a run at EARLIEST.
    start: Start | StartAt = EARLIEST
    #: The id of the source's node in its plan, set when the job is built: ``Queue.source`` of its queues.
    node_name: str = ""
    #: The name under which a job reads with this object, set when the job is built: ``namespace.pipeline``. A second
    #: source of the job that reads the same data has a number after it. Sources that share queues derive the default
    #: name of their group from it.
    reader_name: str = ""
    #: The header fields that the job uses, as columns or in an operator. A reader may leave other fields out if they
    #: cost time (``headers``, in some sources ``key`` or ``time``).
    header_fields: frozenset[str] = frozenset()
    #: Counts figures of the source, such as ``SOURCE_RENEWALS``. Set when the job is started, in the process that
    #: starts it.
    meter: NodeMeter = NO_NODE_METER
    #: How SQL texts write the options, by the connector's name in ``WITH ('connector' = …)``. Names other than the
    #: plug-in's own are offered by the hook ``headrace_connectors``.
    table_options: ClassVar[Mapping[str, TableOptions]] = {}

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        """Receive the format of the bodies and the columns to which they are decoded. Called when the job is built,
        before ``check``.

        For sources that split bytes into records by the format (files). Other sources can ignore it.
        """

    def use_run(self, *, until: Literal["end"] | None) -> None:
        """Receive whether the run ends with the input. Called by a backend in every process, before the first
        ``queues``.
        """

    def begin_listening(self) -> None:
        """Begin to accept records that others send, if the source listens. A backend may call it before it waits for
        sinks and brokers.

        So no record is lost while the job waits for a sink at its start. It is called after ``use_run`` and
        before ``queues``, and again after a RetriableError. Any other error ends the start.
        """

    def check(self) -> None:
        """Check everything that can be checked without a connection. Called when the job is built. Raises JobError."""

    def schema(self) -> Schema | None:
        """Return the columns when the source itself knows them (a table); None when a codec decodes bodies.

        Called when the job is built; it may connect.
        """
        return None

    def changes(self) -> SourceChanges | None:
        """Return how the rows describe changes of a table, for a source of changes; None, the default, means that rows
        are only added.

        Called when the job is built, after ``schema``; it may connect. If it is not None, the frames of readers have
        the column ``CHANGE``, and a record may give several rows (see ``RawBatch``).
        """
        return None

    def identity(self) -> Mapping[str, Any]:
        """Return what identifies the data that this source reads. If it changes, the stored state of verbs behind the
        source is refused.

        The default returns the required options. Values are JSON values, without secrets and without options that only
        say how data is fetched.
        """
        from headrace.interfaces.settings import identifying_options

        return identifying_options(self.settings)

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Receive the positions of the checkpoint. Called before the first ``queues``. For sources that track the
        identity of queues.
        """

    @abstractmethod
    def queues(self) -> Collection[Queue]:
        """Return the queues that exist now. Called repeatedly: differences become the messages QueueAdded and
        QueueRemoved.

        Names must be stable. Raises RetriableError if the server is not available, and JobError if a topic, table or
        file that was named does not exist.
        """

    @abstractmethod
    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader of the queue. Several queues may be open at once, in several threads.

        If the queue no longer holds a ReadPosition (retention), raise DataError with both offsets. Never skip records
        silently. If the queue cannot be read, raise BrokenQueueError: the other queues are still read.
        """

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Receive the positions of a checkpoint that is stored: the job will never read before them.

        Called for sources that are not a GroupSource, in a process that has opened queues (light) or in the planner
        (Spark). It is for sources that keep records until they are read: they may delete the records before these
        positions. Older savepoints may still need deleted records. The default does nothing. Raises RetriableError if
        the server does not answer; it is called again after the next checkpoint.
        """

    def close(self) -> None:
        """Close connections. May be called twice."""


class GroupListener(ABC):
    """Receives the assignments of a group source. The source calls it when queues are assigned or revoked, in the
    thread that called ``poll_group`` or ``poll``.
    """

    @abstractmethod
    def assigned(self, queues: Iterable[Queue]) -> None:
        """This instance reads these queues from now on. Raises RetriableError if reading cannot begin now; the source
        calls it again, from ``poll_group``.
        """

    @abstractmethod
    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        """These queues move to another instance. On return, a checkpoint covers the records read from them, unless they
        are ``lost`` already.
        """


class GroupSource(Source):
    """A source on a broker that shares queues among the instances of a job (a consumer group).

    Only runtimes of several instances (light) join the group; Spark assigns queues itself and calls
    ``queues``/``open``.
    """

    #: The names of options that concern only the group, not which records the queues have. Jobs of one process whose sources have
    #: equal options but for these may share what is read (``shared_reading`` of light).
    group_options: ClassVar[frozenset[str]] = frozenset({"group"})
    #: False: the runtime must not join the group, and the job reads all queues.
    joins_group: ClassVar[bool] = True

    @abstractmethod
    def join(self, listener: GroupListener) -> None:
        """Become a member of the group. The listener is called during ``poll_group`` or a reader's ``poll``. Raises
        RetriableError.
        """

    @abstractmethod
    def poll_group(self, timeout: timedelta) -> None:
        """Do the work of a group member, such as heartbeats and rebalances. The runtime calls it at least every second,
        also if nothing is read.

        It may wait up to ``timeout``, and returns earlier if something has happened. An idle runtime waits
        here, so a source that notices new records should return immediately.
        """

    @abstractmethod
    def leave(self) -> None:
        """Leave the group, so that other instances take over without waiting for a time-out."""

    def memberships(self) -> Collection[str]:
        """Return a name for each set of queues in whose group this source is a member, such as the group and a topic.

        A job is refused if two of its sources have a name in common: each of them would get only a part of the records.
        The default returns none, and nothing is checked.
        """
        return ()

    @abstractmethod
    def commit(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Store the positions of queues on the broker. Called after the checkpoint that contains them. Raises
        RetriableError.
        """

    @abstractmethod
    def committed(self, queue: Queue) -> ReadPosition | None:
        """Return the position that any instance has committed for the queue, or None."""

    def begins_with(self, queue: Queue) -> str | None:
        """Return a name for the set of queues that a group starts to read together, such as the queues of one topic.

        If a group starts at LATEST, it commits the start positions of all queues of the set before it reads the first
        of them. It does so as a member, for queues of other instances, too. So a queue of the set without a commit
        has appeared later, and is read from EARLIEST. None, the default: nothing is known about a queue without a
        commit. Each instance regards the queues that exist when it starts as old.
        """
        return None

    def topics(self) -> Topics | None:
        """Return an object that creates topics on the source's broker, with the source's connection options. The caller
        closes it.

        A runtime of several instances keeps shuffles and state in topics. None, the default: the broker has no topics
        for that.
        """
        return None
