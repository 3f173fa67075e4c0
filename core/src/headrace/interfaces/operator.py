"""What an operator is: the part of a job between source and sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Batch, SystemMessage, Watermark
from headrace.foundation.errors import CheckpointError, PlanError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.flow.schema import Schema
    from headrace.interfaces.key_shares import KeyShare
    from headrace.interfaces.state_definition import StateDefinition
    from headrace.interfaces.state_parts import Restore
    from headrace.jobs.dsl import Stream


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rows an operator could not process: they go to the dead letters with the reason.

    ``frame`` holds the rows as they came in (with header columns), ``reasons`` one text per row.
    """

    frame: pl.DataFrame
    reasons: Sequence[str]
    errors: Sequence[str] = field(default_factory=tuple)


class Operator(ABC):
    """A running operator: one object per lane (per queue, or per shard behind a shuffle). Used by one thread.

    Output must be a function of input, in order: not of wall clock, batch borders or other queues.
    """

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        """Return what comes of the batch: batches of the same queue, rows still ordered by (offset, index).

        An operator that makes several rows from one numbers them anew (``renumber``). Rows that cannot be processed are
        returned as RejectedRows. A batch that makes it raise something else than headrace's own errors is tried again in
        halves, and rows that do so alone are rejected, unless it remembers anything: then the job stops. A Watermark goes on
        to the operators behind this one, after the rows.
        """

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        """Take a system message; return what it makes the operator give. It is passed on after that.

        A ``Watermark`` among that is passed on in place of the one that came: an earlier one, for what is still to be given.
        """
        return ()

    def close(self) -> None:
        """Called once when the lane ends. Never called when the process is killed."""


class StatefulOperator(Operator):
    """A running operator that remembers: one per shard, behind a shuffle.

    What it gives in an entry (see ``headrace.runtime.shard``) must be a function of what it was given, in order, so that an
    entry that is replayed from a restored state gives the same rows. Its batches hold user columns and, where they
    apply, ``CHANGE`` and ``WATERMARK``: offset and index are put on by the lane.
    """

    @abstractmethod
    def delta(self) -> bytes:
        """Return what has changed since the last ``delta``, ``snapshot`` or ``apply``; ``b""`` when nothing has.

        Called at checkpoints, between entries. What comes out later must not depend on when it is called.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the whole state. Deltas made later build on it."""

    @abstractmethod
    def apply(self, state: bytes) -> None:
        """Take a snapshot or a delta that an operator of the same spec made, in their order.

        Called on a fresh operator, or on one whose own ``delta`` was just taken: then with the deltas that another copy
        of it has made since.

        Raises CheckpointError when the bytes are of a newer format or damaged.
        """

    @abstractmethod
    def state_rows(self) -> int:
        """Return how many rows (keys, groups, waiting rows) the state holds now: for status."""

    def late_rows(self) -> int:
        """Return how many rows have come too late so far in this process."""
        return 0

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        """Return the state of one shard, made of the states of all shards before: for a start with another number of shards.

        ``states`` are what ``snapshot`` gave in the shards before, all at the same place in the input; each key is in one of
        them. ``share`` says whose rows are wanted. What is returned goes to ``apply`` of a fresh operator of the same spec.
        Called on an operator that is used for nothing else. Numbers that are counted per shard (an order of arrival) have to be
        counted anew; a time that shards have reached has to be the same in all, or one that is exact for each key.

        Raises CheckpointError when the states cannot be divided; the default does. The job can then start with as many shards
        as before only.
        """
        raise CheckpointError(
            f"{type(self).__name__} does not divide its state by key",
            hint="start with as many shards as before; its author makes it possible with StatefulOperator.share_of()",
        )


class PartedOperator(StatefulOperator):
    """A stateful operator whose state can be stored in parts, by ranges of key hashes, and come in behind while it works.

    What it gives while a part is missing must be what it gives when all is there. So before it looks for keys it calls
    ``need`` of the ``Restore`` that it was given, with their hashes (``headrace.flow.key_hashes``), and ``need_all`` before it does
    anything for which it has to know all keys.
    """

    @property
    def restores_behind(self) -> bool:
        """Whether this one does: with some options it may have to know all keys all the time."""
        return True

    @abstractmethod
    def rows_to_store(self, *, whole: bool) -> int:
        """Return how many rows ``state_in_parts`` would store: by it the number of parts is chosen."""

    @abstractmethod
    def state_in_parts(self, bits: int, *, whole: bool) -> tuple[bytes, Sequence[bytes]]:
        """Return what ``snapshot`` (``whole``) or ``delta`` does: what belongs to no key, and 2 ** bits parts (``b""``: nothing)."""

    @abstractmethod
    def apply_parts(self, common: bytes, parts: Sequence[bytes]) -> None:
        """Take all of a version that ``state_in_parts`` gave, as ``apply`` does."""

    @abstractmethod
    def begin_restore(self, commons: Sequence[bytes], rows: int, restore: Restore) -> None:
        """Begin, fresh, with stored versions: what belongs to no key is given, about so many rows come by ``put_parts``."""

    @abstractmethod
    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: NDArray[np.bool_]) -> None:
        """Take parts, each with the place of its version in the order of versions; from now on these pages are here.

        ``pages`` flags them, of the 2 ** ``restore.bits`` ranges of hashes. Rows of other pages, which a part of a
        version that is divided less may hold, are kept until their pages come: no part is given twice.
        """

    @abstractmethod
    def end_restore(self) -> None:
        """All pages are here: ``need`` is not called any more."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Says that the rows of a stream change results that were given before: they carry the ``CHANGE`` column.

    ``key``: the columns that name a result row, or None when only the whole row tells which one is meant.
    """

    key: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Derivation:
    """What an operator makes of its rows, in a normal form: for the definitions of states behind it.

    In the texts names of columns stand in double quotes; two texts are equal when they mean the same. ``columns``: what each
    column is made of, or None where that is not known. ``conditions``: what is true of every row that goes on. ``step``: what else
    the operator does.
    """

    columns: Mapping[str, str] | None
    conditions: Sequence[str] = ()
    step: str | None = None


class OperatorSpec(ABC):
    """What a verb of the DSL makes: an immutable description of an operator, checked when the job is built.

    It travels in the plan to every process that runs a part of it, so it must survive ``cloudpickle``.
    """

    #: The verb, as it stands in the plan.
    name: ClassVar[str] = ""
    #: Names of the outputs; ``""`` is the main one. Only operators such as ``split`` have others.
    outputs: Sequence[str] = ("",)
    #: Header fields that the operator reads from its rows' header columns, of ``metadata``'s names ("time" for
    #: ``__hr_time``). Sources may leave out those that neither an operator behind them nor ``metadata`` wants.
    header_fields: frozenset[str] = frozenset()
    #: Whether it reads only the columns that ``required_columns(())`` gives and lets all others through as they are: then
    #: fields of structs that nothing behind it reads may be missing in what it is given.
    keeps_columns: ClassVar[bool] = False
    #: Whether the operator works by rules that ``handle.update_rules`` can replace while the job runs: then it has ``replace_rules``.
    replaces_rules: ClassVar[bool] = False
    #: Whether the spec takes the user functions of its job, as the option ``functions`` (a FunctionCatalog).
    takes_functions: ClassVar[bool] = False
    #: How long a queue may be silent before watermarks do not wait for it: of operators that give event time. None: for ever.
    idle_timeout_us: int | None = None

    @abstractmethod
    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        """Return the columns after the operator; None when they are known only from the rows themselves.

        Called when the job is built. Raises JobError (ExpressionError, …) when the operator does not fit its input.
        """

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        """Return the input columns needed so that ``wanted`` output columns come out right (None: all of them).

        Sources decode only what the job needs. The default asks for everything.
        """
        return None

    @classmethod
    def of_streams(cls, *streams: Any, **options: Any) -> Stream:
        """Return the stream that a verb of two streams makes of them: what ``left.join(right, on, …)`` calls.

        Its arguments are the two streams and what the verb takes. The default says that the verb has one input.
        """
        raise PlanError(f"{cls.name}() takes one stream")

    @abstractmethod
    def open(self, schema: Schema | None) -> Operator:
        """Return a running operator for input of that schema. Called in the process that runs it, once per lane."""

    def changes(self, before: Changes | None) -> Changes | None:
        """Return whether the rows after the operator change results, given what comes in; None: they only add.

        The default suits operators that look at each row by itself: what comes in goes on, and its key too if all its
        columns are still there. Raises PlanError for changes that the operator cannot take.
        """
        return before

    def describe(self) -> str:
        """Return the arguments as a person would read them in a plan."""
        return ""

    def replace_rules(self, rules: Any, schema: Schema, who: str | None = None) -> Any:
        """Give the running job other rules; return what ``handle.update_rules`` returns.

        Called where ``replaces_rules`` is true, in the process that started the job, on the spec of its plan. ``schema``: the columns
        of the input. The spec itself brings the rules to the processes that run the operator. Raises JobError when no rule can be
        used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} says that its rules can be replaced, and has no replace_rules()"
        )

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        """Return what the operator makes of rows with these columns, for an output.

        A job whose derivations before a stateful operator have changed does not go on over the state of that operator unless
        whoever starts it says so. The default says that the operator is another one when ``describe`` gives another text.
        """
        described = self.describe()
        same = {name: _quoted(name) for name in schema} if self.keeps_columns and schema is not None else None
        return Derivation(same, step=f"{self.name}({described})" + (f" {output}" if output else ""))


class StatefulSpec(OperatorSpec):
    """A spec whose operators remember: it stands behind a shuffle, and ``open`` gives a StatefulOperator."""

    #: Whether ``adapted`` can bring a state to other columns and held values.
    adapts_state: ClassVar[bool] = False

    @property
    def tick_seconds(self) -> float | None:
        """How often a running operator must be told of the clock while nothing comes; None: it need not be told.

        Each entry begins with a ``Tick`` for all operators. An operator that gives results or forgets when time has passed
        needs ticks without input too: without them its results stay away until the next row comes. Backends ask the plan,
        and send a tick to all shards at least that often while the job runs without end.
        """
        return None

    @abstractmethod
    def open(self, schema: Schema | None) -> StatefulOperator: ...

    def definition(self, schema: Schema | None) -> StateDefinition:
        """Return what the state of an operator over these columns is of, in a normal form: see ``StateDefinition``.

        It is stored with the state, and compared when the job starts again: a state goes on only under a definition that fits.
        Called when the plan is built, after ``changes``. The default takes all columns and what ``describe`` gives, so every
        change of them is refused: give one of your own that tells what matters.
        """
        from headrace.interfaces.state_definition import StateDefinition, kept

        columns = {name: kept(name, kind) for name, kind in (schema or {}).items()}
        return StateDefinition(self.name, {"arguments": self.describe()}, columns=columns)

    def adapted(
        self, stored: StateDefinition, now: StateDefinition, schema: Schema | None, state: bytes, *, part: bool = False
    ) -> bytes:
        """Return what an operator of another definition stored as one of this definition, over these columns, would have.

        ``state`` is what ``delta`` or ``snapshot`` gave, or with ``part`` one of the ranges of ``state_in_parts``. Called where
        ``adapts_state`` is true, for definitions that differ in the types and places of ``columns`` and in ``held`` only: types are
        wider now. Values that are new may be anything: the job does not go on when rows have them. Raises CheckpointError.
        """
        raise NotImplementedError(f"{type(self).__name__} says that it adapts states, and has no adapted()")


def _quoted(name: str) -> str:
    from headrace.interfaces.state_definition import quoted

    return quoted(name)


def renumber(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the rows of each record anew from 0, in the order in which they stand.

    For operators that make several rows from one. Rows must be ordered by offset and a record's rows be complete.
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
