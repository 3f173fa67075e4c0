"""The interface of operators, which transform the rows between source and sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Batch, Queue, SystemMessage, Watermark
from headrace.foundation.errors import CheckpointError, PlanError
from headrace.interfaces.meter import NO_NODE_METER, NodeMeter

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.flow.schema import Schema
    from headrace.interfaces.frozen_state import FrozenState
    from headrace.interfaces.key_shares import KeyShare
    from headrace.interfaces.local_store import Epoch, LocalTable
    from headrace.interfaces.mapped_memory import MappedMemory
    from headrace.interfaces.state_definition import StateDefinition
    from headrace.interfaces.state_parts import Restore
    from headrace.jobs.dsl import Stream


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rows that an operator could not process. They go to the dead letters with the reason.

    ``frame`` holds the rows as they came in (with header columns), ``reasons`` one text per row.
    """

    frame: pl.DataFrame
    reasons: Sequence[str]
    errors: Sequence[str] = field(default_factory=tuple)


class Operator(ABC):
    """A running operator: one object per lane (per queue, or per shard behind a shuffle). Made by
    ``OperatorSpec.open``.

    The lane calls ``process`` for each batch and ``on_system`` for each system message, in order and in one thread at a
    time. The output must depend only on the input rows and their order, not on the clock, on batch borders or on other
    queues: after a crash, rows are processed again, and must give the same rows under the same positions.
    """

    #: Counts figures of the operator's own (hook ``headrace_metrics``). The lane sets it before the first batch.
    meter: NodeMeter = NO_NODE_METER

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        """Process a batch. Return batches of the same queue, with rows still ordered by (offset, index).

        An operator that makes several rows from one numbers them again (``renumber``). It returns rows that it cannot
        process as RejectedRows. If it raises an error that is not headrace's own, the batch is tried again in halves,
        and rows that fail alone are rejected. If the operator has state, the job stops instead. A Watermark is passed
        on to the operators behind this one, after the rows.
        """

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        """Process a system message and return the output that it causes. The message is passed on after that.

        If the output has a ``Watermark``, this one is passed on instead of the message. An operator that will still
        give earlier rows returns an earlier watermark.
        """
        return ()

    def close(self) -> None:
        """Called once when the lane ends. Never called when the process is killed."""


class StatefulOperator(Operator):
    """A running operator with state: one per shard, behind a shuffle.

    The output of an entry (see ``headrace.runtime.shard``) must depend only on the input so far and its order. Then
    an entry that is processed again from a restored state gives the same rows. Its batches have the user columns and,
    where they apply, ``CHANGE`` and ``WATERMARK``. The lane adds offset and index.
    """

    @abstractmethod
    def delta(self) -> bytes:
        """Return what has changed since the last ``delta``, ``snapshot`` or ``apply``; ``b""`` if nothing has.

        Called at checkpoints, between entries. Later output must not depend on when it is called.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the whole state. Deltas made later build on it."""

    def frozen(self, *, whole: bool) -> FrozenState:
        """Return an object that can make the bytes of ``snapshot`` (``whole``) or ``delta`` later, as they would be
        now.

        Called in place of these methods, so that another thread can make the bytes while the operator continues. The
        default makes the bytes immediately.
        """
        from headrace.interfaces.frozen_state import FrozenState

        return FrozenState.of(self.snapshot() if whole else self.delta())

    @abstractmethod
    def apply(self, state: bytes) -> None:
        """Load a snapshot or a delta that an operator of the same spec made, in their order.

        Called on a new operator. It is also called after ``delta``, with the deltas that another copy of the operator
        has made since then.

        Raises CheckpointError when the bytes are of a newer format or damaged.
        """

    @abstractmethod
    def state_rows(self) -> int:
        """Return how many rows (keys, groups, waiting rows) the state contains now. Called for the status of the job."""

    def late_rows(self) -> int:
        """Return the number of late rows so far in this process."""
        return 0

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        """Return the state of one new shard from the states of all old shards. Called for a start with another number
        of shards.

        ``states`` are the snapshots of the old shards, all at the same position in the input; each key is in one of
        them. ``share`` selects the rows of the new shard. The result is given to ``apply`` of a new operator of the
        same spec. Called on an operator that is used for nothing else. Numbers that are counted per shard (an order
        of arrival) must be counted again. A time that the shards have reached must be the same in all, or exact for
        each key.

        Raises CheckpointError if the states cannot be divided; the default does. Then the job can start only with as
        many shards as before.
        """
        raise CheckpointError(
            f"{type(self).__name__} cannot divide its state by key, which another number of shards needs",
            hint="start with as many shards as before; the author of the operator can add StatefulOperator.share_of()",
        )


class MappedOperator(StatefulOperator):
    """A stateful operator that can keep large parts of its state in mapped files
    (``headrace.interfaces.mapped_memory``).

    Its output and its stored state are the same as without mapped files. It uses the checkpoint in the same way,
    because the files disappear with the process.
    """

    @abstractmethod
    def use_mapped(self, memory: MappedMemory) -> None:
        """Put long-lived state into this memory. Called once, on a new operator, if its spec has ``maps_state``."""


class SpillingOperator(StatefulOperator):
    """A stateful operator that can keep rows which are not in use on disk, in a local store
    (``headrace.interfaces.local_store``).

    Its output and its stored state do not depend on which rows are in memory. Rows that were written by the last
    ``delta`` or ``snapshot`` may leave memory only after ``settle``, because the local store must only have rows of a
    finished checkpoint.
    """

    @abstractmethod
    def spill_to(self, local: LocalTable) -> None:
        """Use this part of a local store. Called once, on a new operator."""

    @abstractmethod
    def local_layout(self) -> str:
        """Return the layout of rows in the local store. Rows of another layout are not used."""

    @abstractmethod
    def begin_anew(self, definition: str) -> None:
        """Remove the rows of the local store, because they cannot be used. After that, all versions are applied."""

    @abstractmethod
    def go_on(self, newest: Epoch) -> None:
        """Use the rows of the local store. After that, the versions that it lacks, or has only in part, are applied, up
        to this one.
        """

    @abstractmethod
    def restored(self, epoch: Epoch | None) -> None:
        """Called when all versions were applied. ``epoch``: the last version of the chain; None if there is none."""

    @abstractmethod
    def settle(self, epoch: Epoch | None) -> None:
        """Called when the checkpoint with the last delta or snapshot is stored. ``epoch``: the last version of the
        chain.
        """

    @property
    @abstractmethod
    def rolled(self) -> int:
        """How far deltas have passed through the range of hashes. Whenever it has grown by 2 ** 64, deltas have
        contained all rows once more.
        """

    @property
    @abstractmethod
    def wants_checkpoint(self) -> bool:
        """Whether the operator needs a checkpoint now, because too many rows have changed since the last one."""


class Combiner(ABC):
    """Combines rows before they are sent to the shards of a stateful operator, so that fewer are sent.

    A backend may call it, on the side that sends, for some parts of a queue's rows and not for others. The operator
    must give the same rows in the same order whichever rows were combined, and only its main output.
    """

    #: Whether the order of the operator's rows is the same as without combining. If not, the order is another one, but
    #: always the same. Then a runtime must combine on every path, also when it repeats input, or never.
    keeps_order: bool = False

    @abstractmethod
    def combine(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return combined rows that replace the rows of a frame. They have the column ``COMBINED``.

        ``frame`` holds rows of one queue in their order; the column ``WATERMARK``, if present, is the queue's own. A
        row that is not combined has NULL in ``COMBINED``. A row that replaces others has their keys, the position
        (offset and index) and the watermark of the first of them, and their number in ``COMBINED``. Rows are ordered by
        position.
        """


class PartedOperator(StatefulOperator):
    """A stateful operator whose state is stored in parts, by ranges of key hashes. It can work while parts are still
    being loaded.

    Its output must be the same whether all parts are loaded or not. So before it looks up keys, it calls
    ``need`` of its ``Restore`` with their hashes (``headrace.flow.key_hashes``). It calls ``need_all`` before it does
    anything that needs all keys.
    """

    @property
    def restores_behind(self) -> bool:
        """Whether this operator can work while parts are loaded. With some options an operator needs all keys at any
        time.
        """
        return True

    @abstractmethod
    def rows_to_store(self, *, whole: bool) -> int:
        """Return how many rows ``state_in_parts`` would store. The caller derives the number of parts from it."""

    @abstractmethod
    def state_in_parts(self, bits: int, *, whole: bool) -> tuple[bytes, Sequence[bytes]]:
        """Return the state of ``snapshot`` (``whole``) or ``delta``: the part that belongs to no key, and 2 ** bits
        parts (``b""``: empty).
        """

    @abstractmethod
    def apply_parts(self, common: bytes, parts: Sequence[bytes]) -> None:
        """Load a whole version that ``state_in_parts`` returned, as ``apply`` does."""

    @abstractmethod
    def begin_restore(self, commons: Sequence[bytes], rows: int, restore: Restore) -> None:
        """Start a new operator from stored versions, with their parts that belong to no key. ``put_parts`` then loads
        about ``rows`` rows.
        """

    @abstractmethod
    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: NDArray[np.bool_]) -> None:
        """Load parts, each with the number of its version in the order of versions. From now on these pages are loaded.

        ``pages`` has a flag for each of the 2 ** ``restore.bits`` ranges of hashes. A part of a version with fewer
        parts may also contain rows of other pages. The operator must keep them until their pages are loaded, because no
        part is given twice.
        """

    @abstractmethod
    def end_restore(self) -> None:
        """All pages are loaded: ``need`` is not called any more."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Describes a stream whose rows change earlier results. Such rows have the ``CHANGE`` column.

    ``key``: the columns that identify a result row, or None if only the whole row identifies it.
    """

    key: tuple[str, ...] | None
    #: False: updates come without their old rows, and of deleted rows only the key is certain (``SourceChanges``). Only
    #: operators that say so (``takes_upserts``) get such rows: all others are behind the verb ``normalize_changes``.
    before_images: bool = True


@dataclass(frozen=True, slots=True)
class Derivation:
    """What an operator does to its rows, in a normal form. It is part of the definitions of the states after it.

    In the texts, names of columns are in double quotes. Texts with the same meaning are equal. ``columns``:
    the expression of each column, or None if it is not known. ``conditions``: conditions that are true for every row of
    the output. ``step``: a text for everything else that the operator does.
    """

    columns: Mapping[str, str] | None
    conditions: Sequence[str] = ()
    step: str | None = None


class OperatorSpec(ABC):
    """An immutable description of an operator, made by a verb of the DSL and checked when the job is built.

    It travels in the plan to every process that runs a part of it, so it must survive ``cloudpickle``.
    """

    #: The verb, as the plan shows it.
    name: ClassVar[str] = ""
    #: Names of the outputs; ``""`` is the main one. Only operators such as ``split`` have others.
    outputs: Sequence[str] = ("",)
    #: Header fields that the operator reads from its rows' header columns, of ``metadata``'s names ("time" for
    #: ``__hr_time``). Sources may leave out fields that no operator and no ``metadata`` uses.
    header_fields: frozenset[str] = frozenset()
    #: Whether it reads only the columns of ``required_columns(())`` and passes all others on unchanged. Then its input
    #: may lack fields of structs that no later node reads.
    keeps_columns: ClassVar[bool] = False
    #: Whether the operator has rules that ``handle.update_rules`` can replace while the job runs. Then it implements
    #: ``replace_rules``.
    replaces_rules: ClassVar[bool] = False
    #: Whether the spec takes the user functions of its job, as the option ``functions`` (a FunctionCatalog).
    takes_functions: ClassVar[bool] = False
    #: Whether it can work on changes without old rows (``Changes.before_images`` is False): it treats each row alone
    #: and drops none.
    takes_upserts: ClassVar[bool] = False
    #: For operators that make watermarks: how long a queue may be silent before watermarks no longer wait for it. None:
    #: no limit.
    idle_timeout_us: int | None = None

    #: Whether the verb appends several operators. Then ``stream.<name>(…)`` calls ``of_stream``.
    is_composed: ClassVar[bool] = False

    @abstractmethod
    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        """Return the columns after the operator; None if they are known only from the rows themselves.

        Called when the job is built. Raises JobError (ExpressionError, …) if the operator does not fit its input.
        """

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        """Return the input columns that the operator needs to compute the ``wanted`` output columns (None: all of
        them).

        Sources decode only what the job needs. The default asks for everything.
        """
        return None

    @property
    def event_time(self) -> str | None:
        """The column from whose times the operator makes watermarks; None, the default: it makes none."""
        return None

    @classmethod
    def of_streams(cls, *streams: Any, **options: Any) -> Stream:
        """Return the stream that a verb makes from two streams. ``left.join(right, on, …)`` calls it.

        Its arguments are the two streams and the arguments of the verb. The default raises an error: the verb has one
        input.
        """
        raise PlanError(f"{cls.name}() takes one stream")

    @classmethod
    def of_stream(cls, stream: Stream, *arguments: Any, **options: Any) -> Stream:
        """Return the stream with all operators of the verb, if ``is_composed`` is true: for a verb that divides rows by
        a key itself.

        Called instead of the constructor, with the arguments of the verb. Raises JobError for wrong arguments.
        """
        raise NotImplementedError(f"{cls.__name__} declares that it is composed, but has no method of_stream()")

    @abstractmethod
    def open(self, schema: Schema | None) -> Operator:
        """Return a running operator for input of that schema. Called in the process that runs it, once per lane."""

    def decide(self, schema: Schema, queue: Queue, first: int, last: int) -> None:
        """Decide what depends on the order of a queue's records, for the records with the offsets ``first`` to
        ``last``.

        If other processes take the batches of a queue through the operators, the process that reads the queue calls it,
        in the order of reading. So the batches need not be processed in that order. For example, replaceable rules
        decide here from which record on new rules count. ``schema``: the columns of the operator's input. The default
        decides nothing.
        """

    def leave_decisions(self) -> None:
        """Learn that ``decide`` is called on another copy of the spec. Called once in each process that gets batches
        from another one.
        """

    def changes(self, before: Changes | None) -> Changes | None:
        """Return how the rows after the operator change earlier results, given the changes before it; None: rows are
        only added.

        The default is for operators that process each row alone: changes are passed on, and so is their key if all its
        columns are still there. Raises PlanError for changes that the operator does not accept.
        """
        return before

    def describe(self) -> str:
        """Return the arguments as text for people, as plans show them."""
        return ""

    def replace_rules(self, rules: Any, schema: Schema, who: str | None = None) -> Any:
        """Replace the rules of the running job; return what ``handle.update_rules`` returns.

        Called if ``replaces_rules`` is true, in the process that started the job, on the spec in its plan.
        ``schema``: the columns of the input. The spec itself brings the rules to the processes that run the operator.
        Raises JobError when no rule can be used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} declares that its rules can be replaced, but has no method replace_rules()"
        )

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        """Return a normal form of what the operator does to rows with these columns, for an output.

        If the derivations before a stateful operator have changed, the job does not use the state of that operator,
        unless the user allows it (``allow_changed_input``). By default an operator has changed if ``describe``
        returns another text.
        """
        described = self.describe()
        same = {name: _quoted(name) for name in schema} if self.keeps_columns and schema is not None else None
        return Derivation(same, step=f"{self.name}({described})" + (f" {output}" if output else ""))


class StatefulSpec(OperatorSpec):
    """A spec of operators with state. It comes after a shuffle, and ``open`` returns a StatefulOperator."""

    #: Whether ``adapted`` can bring a state to other columns and held values.
    adapts_state: ClassVar[bool] = False
    #: Whether ``open`` returns a MappedOperator: where the state cannot leave memory row by row, it can lie in mapped
    #: files.
    maps_state: bool = False

    @property
    def tick_seconds(self) -> float | None:
        """How often a running operator needs a ``Tick`` while there is no input; None: it needs none.

        Each entry begins with a ``Tick`` for all operators. An operator that gives results, or removes state, when
        time has passed also needs ticks without input. Otherwise its results come only with the next row. Backends
        ask the plan, and send a tick to all shards at least that often while a job runs without end.
        """
        return None

    @abstractmethod
    def open(self, schema: Schema | None) -> StatefulOperator: ...

    def stays_in_memory(self, schema: Schema | None) -> str | None:
        """Return why the operator's state cannot leave memory row by row; None: ``open`` returns a SpillingOperator.

        A backend calls it for a job with a limit for the memory of its state (``state_memory``). It refuses a verb with
        such a reason, unless the spec has ``maps_state``.
        """
        return f"{self.name} keeps all of its state in memory"

    def combiner(self, schema: Schema | None) -> Combiner | None:
        """Return a combiner for rows before they are sent to the operator; None (the default): rows are not combined.

        Called in each process that sends rows, if no other operator reads the rows of the shuffle and only the
        operator's main output is used. Then every batch of the operator has the column ``COMBINED``.
        """
        return None

    def key_columns(self) -> Sequence[str]:
        """Return the key columns: all rows with equal values in them must reach the same shard. Empty: the operator
        does not know them.

        The default is the attribute ``keys``, which the spec of a verb of ``key_by(…)`` has.
        """
        keys = getattr(self, "keys", ())
        return keys if isinstance(keys, tuple) else ()

    def definition(self, schema: Schema | None) -> StateDefinition:
        """Return the definition of the operator's state for these columns, in a normal form: see ``StateDefinition``.

        It is stored with the state and compared when the job starts again. The state is used only if the definitions
        fit. Called when the plan is built, after ``changes``. The default contains all columns and the text of
        ``describe``, so every change of them raises an error. Return a definition of your own that contains only what
        matters.
        """
        from headrace.interfaces.state_definition import StateDefinition, kept

        columns = {name: kept(name, kind) for name, kind in (schema or {}).items()}
        return StateDefinition(self.name, {"arguments": self.describe()}, columns=columns)

    def adapted(
        self, stored: StateDefinition, now: StateDefinition, schema: Schema | None, state: bytes, *, part: bool = False
    ) -> bytes:
        """Convert a state that an operator with another definition has stored to this definition, over these columns.

        ``state`` is a result of ``delta`` or ``snapshot``, or with ``part`` one of the ranges of ``state_in_parts``.
        Called if ``adapts_state`` is true and the definitions differ only in ``held`` and in the types and places of
        ``columns``, where types may only be wider than before. New held values may be set to anything, because the job
        continues only if no row would need them. Raises CheckpointError.
        """
        raise NotImplementedError(f"{type(self).__name__} declares that it adapts states, but has no method adapted()")


def _quoted(name: str) -> str:
    from headrace.interfaces.state_definition import quoted

    return quoted(name)


def renumber(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the rows of each record again from 0, in their order.

    For operators that make several rows from one. Rows must be ordered by offset, and all rows of a record must be
    there.
    """
    import numpy as np
    import polars as pl

    from headrace.flow.messages import INDEX, OFFSET

    count = frame.height
    if count == 0:
        return frame
    offsets = frame[OFFSET].to_numpy()
    places = np.arange(count, dtype=np.int64)
    begins = np.empty(count, dtype=bool)
    begins[0] = True
    np.not_equal(offsets[1:], offsets[:-1], out=begins[1:])
    first_of_record = np.maximum.accumulate(np.where(begins, places, 0))
    return frame.with_columns(pl.Series(INDEX, (places - first_of_record).astype(np.int32)))
