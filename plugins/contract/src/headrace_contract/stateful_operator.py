"""The contract of operators with state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
import pytest
from headrace.flow.messages import (
    CHANGE,
    INDEX,
    OFFSET,
    WATERMARK,
    Batch,
    ChangeKind,
    Checkpoint,
    EndOfInput,
    Queue,
    SystemMessage,
    Tick,
    Watermark,
)
from headrace.flow.schema import Schema
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import Changes, PartedOperator, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_parts import Restore, pack_parts
from headrace.runtime.shuffle import by_shard

from headrace_contract.contract import Contract, expect, shortened, violated
from headrace_contract.pickling import through_pickle
from headrace_contract.processes import elsewhere
from headrace_contract.values import mixed_rows

QUEUE = Queue("0", "contract")
_ROWS = 150
_SECOND_US = 1_000_000
_START_US = 1_700_000_000 * _SECOND_US
Given = list[tuple[str, str]]


class StatefulOperatorContract(Contract):
    """What every operator with state must do. An author gives ``make_spec`` and ``schema``.

    class TestMyOperator(StatefulOperatorContract):
        schema = {"user": "string", "ms": "int64"}

        def make_spec(self):
            return SlowestSoFar(keys=("user",), value="ms")
    """

    #: The columns of the input.
    schema: ClassVar[Mapping[str, Any]]
    #: What the rows of the input say of changes; None: they are only added. Then ``make_kinds`` gives their kinds.
    input_changes: ClassVar[Changes | None] = None

    def make_spec(self) -> StatefulSpec:
        """Return the operator's spec, as a verb of the DSL makes it."""
        raise NotImplementedError

    def make_keys(self) -> Sequence[str]:
        """Return the columns that divide rows among shards, as in ``key_by``. Default: the spec's ``keys``, if it has them."""
        return tuple(self.make_spec().key_columns())

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Return rows of ``schema``. Override it so that keys are repeated and results change."""
        return mixed_rows(Schema.of(self.schema), first, count)

    def make_kinds(self, first: int, count: int) -> Sequence[int]:
        """Return the ``ChangeKind`` of each row of ``make_rows``, where ``input_changes`` is given. Default: all insert."""
        return [ChangeKind.INSERT] * count

    # ------------------------------------------------------------------------------------------ the checks use

    def input(self) -> pl.DataFrame:
        """Return the whole input with header: one row per record, each with a watermark one second after the one before."""
        user = pl.DataFrame(self.make_rows(0, _ROWS), schema=dict(Schema.of(self.schema)), orient="row")
        header = pl.DataFrame(
            [
                pl.Series(OFFSET, range(1, _ROWS + 1), dtype=pl.Int64),
                pl.Series(INDEX, [0] * _ROWS, dtype=pl.Int32),
                pl.Series(WATERMARK, [_START_US + (n - 10) * _SECOND_US for n in range(_ROWS)], dtype=pl.Int64),
            ]
        )
        if self.input_changes is not None:
            header = header.with_columns(pl.Series(CHANGE, self.make_kinds(0, _ROWS), dtype=pl.Int8))
        return pl.concat([header, user], how="horizontal")

    def open(self, spec: StatefulSpec | None = None) -> StatefulOperator:
        """Return a running operator, opened as in the lane of a shard."""
        return (spec or self.make_spec()).open(Schema.of(self.schema))

    def feed(self, operator: StatefulOperator, frame: pl.DataFrame) -> Given:
        """Give an operator one entry: a tick of the clock, the rows, and the watermark after them. Return its rows."""
        last = int(frame[WATERMARK][-1])
        given = texts(operator.on_system(Tick(last + 60 * _SECOND_US)))
        given += texts(operator.process(Batch(QUEUE, frame)))
        return given + texts(operator.on_system(Watermark(QUEUE, last)))

    def run(self, operator: StatefulOperator, parts: Iterable[pl.DataFrame]) -> Given:
        """Give an operator entries and the end of input; return its rows."""
        given: Given = []
        for part in parts:
            given += self.feed(operator, part)
        return given + texts(operator.on_system(EndOfInput()))

    def parts(self, rows: int) -> Sequence[pl.DataFrame]:
        """Return the input in entries of ``rows`` rows."""
        return list(self.input().iter_slices(rows))

    # ------------------------------------------------------------------------------------------------- checks

    def test_says_what_its_state_is_of(self) -> None:
        """The definition of the state is made of JSON values, and two operators of the same job have the same one.

        If the definition is different each time (it has an address in memory, a time, a set without order), a job cannot continue
        with its own state. Steps: make two specs, and a copy of a spec through pickle, as in another process. Passes when all give
        equal definitions of JSON values.
        """
        schema = Schema.of(self.schema)
        texts = set()
        for spec in (self.make_spec(), self.make_spec(), through_pickle(self.make_spec(), what="the spec")):
            spec.output_schema(schema)
            given = spec.definition(schema).to_json()
            try:
                texts.add(json.dumps(given, sort_keys=True))
            except (TypeError, ValueError) as error:
                violated(
                    expected="definition() has only JSON values", found=f"{error} in {given!r:.300}",
                    mend="use texts, numbers, booleans, lists and dicts",
                )  # fmt: skip
        expect(
            len(texts) == 1, expected="one spec always has the same definition", found=shortened(" / ".join(sorted(texts))),
            mend="override definition(): include what matters, and leave out everything that differs between processes",
        )  # fmt: skip

    def test_results_do_not_depend_on_batch_cuts(self) -> None:
        """The same input gives the same results, however it is divided into batches, because batches can end anywhere.

        Steps: run 150 rows at once, and in entries of 1, 7 and 50; apply the changes to get the final rows. Passes when every
        run has the same final rows.
        """
        whole = table(self.run(self.open(), self.parts(_ROWS)))
        expect(
            whole,
            expected="an operator that gives rows for 150 rows and the end of input",
            found="no rows",
            mend="override make_rows() so that the operator gives rows",
        )
        for rows in (1, 7, 50):
            found = table(self.run(self.open(), self.parts(rows)))
            expect(
                found == whole,
                expected=f"the same results in entries of {rows} rows: {shortened(whole - found)}",
                found=shortened(found - whole),
                mend="decide for each row, by the watermark column of the row; do not use the batch as a whole",
            )

    def test_the_same_entries_give_the_same_rows_in_the_same_order(self) -> None:
        """After a crash entries are processed again, and sinks drop duplicates by the position of a row in its entry.

        Steps: run 150 rows in entries of 7, twice, and in another process with another hash seed. Passes when all three
        give the same rows in the same order.
        """
        parts, schema = self.parts(7), Schema.of(self.schema)
        first = self.run(self.open(), parts)
        again = self.run(self.open(), parts)
        spec = self.make_spec()

        def there() -> Given:
            return run_alone(spec, schema, parts)

        other = elsewhere(there, importable=[type(self)], patience_seconds=self.patience.total_seconds() * 4)
        for found, where in ((again, "the second time"), (other, "in another process")):
            expect(
                found == first,
                expected="the same rows in the same order",
                found=f"{where} other rows, first at {first_difference(first, found)}",
                mend="do not use hashes of Python, the clock or random numbers; sort the elements of a set",
            )

    def test_a_restored_operator_goes_on_as_the_original(self) -> None:
        """A checkpoint is restored in another process, and the rows after it must be the same.

        Steps: run entries of 7; after several of them, load the deltas so far (or a snapshot and the deltas after it) into a
        new operator, and give both the rest. Passes when both give the same rows in the same order.
        """
        parts = self.parts(7)
        for stop in (1, len(parts) // 3, len(parts) // 2, len(parts) - 1):
            for whole in (False, True):
                original = self.open()
                saved: list[bytes] = []
                for number, part in enumerate(parts[:stop]):
                    self.feed(original, part)
                    saved.append(original.snapshot() if whole and number == stop // 2 else original.delta())
                restored = self.open(through_pickle(self.make_spec(), what="the spec"))
                begin = stop // 2 if whole else 0
                for state in saved[begin:]:
                    if state:
                        restored.apply(state)
                wanted, found = self.run(original, parts[stop:]), self.run(restored, parts[stop:])
                expect(
                    found == wanted,
                    expected=f"after {stop} entries, restored from {'a snapshot and ' if whole else ''}deltas, the same rows",
                    found=f"other rows, first at {first_difference(wanted, found)}",
                    mend="put everything that later rows depend on into delta() and snapshot()",
                )

    def test_an_operator_restored_behind_goes_on_as_the_original(self) -> None:
        """With quick start an operator (a PartedOperator) works before all of its state is loaded; its rows must be the same.

        Steps: run entries of 7, and store a snapshot in 8 parts and deltas in 1, 2 and 4 parts; a new operator starts without
        these parts and gets the remaining entries. Parts are loaded between entries, or only when the operator requests them.
        Passes when it gives the same rows in the same order as the original.
        """
        first = self.open()
        if not isinstance(first, PartedOperator) or not first.restores_behind:
            pytest.skip("not checked: the operator does not take part in quick start (PartedOperator)")
        entries = self.parts(7)
        for stop in (1, len(entries) // 2, len(entries) - 1):
            for steps in (0, 1):
                original = self.open()
                assert isinstance(original, PartedOperator)
                stored: list[tuple[bytes, list[bytes]]] = []
                for number, entry in enumerate(entries[:stop]):
                    self.feed(original, entry)
                    whole, bits = number == 0, 3 if number == 0 else number % 3
                    common, parts = original.state_in_parts(bits, whole=whole)
                    stored.append((common, pack_parts({}, [{"": part} for part in parts])))
                wanted = self.run(original, entries[stop:])
                restored, restore = self._beginning(stored, original.state_rows())
                found: Given = []
                for entry in entries[stop:]:
                    found += self.feed(restored, entry)
                    for _ in range(steps):
                        restore.step()
                found += texts(restored.on_system(EndOfInput()))
                expect(
                    found == wanted,
                    expected=f"after {stop} entries, the same rows from an operator that is restored while it works",
                    found=f"other rows, first at {first_difference(wanted, found)}",
                    mend="call need() of the Restore with the hashes of keys before you look them up, and need_all() before you "
                    "use all keys; if several versions have a key, the newest version counts",
                )

    def _beginning(self, stored: Sequence[tuple[bytes, list[bytes]]], rows: int) -> tuple[PartedOperator, Restore]:
        """Return an operator that starts with stored versions, and the Restore that loads their parts."""
        operator = self.open(through_pickle(self.make_spec(), what="the spec"))
        assert isinstance(operator, PartedOperator)

        def fetch(wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
            for number, ranges in wanted.items():
                for place in (place for each in ranges for place in each):
                    yield number, place, stored[number][1][place]

        versions = [(number, (len(parts) - 1).bit_length() - 1) for number, (_, parts) in enumerate(stored)]
        # With so many rows each step loads one page.
        restore = Restore(versions, 10**9, fetch, {"": operator})
        operator.begin_restore([common for common, _ in stored], rows, restore)
        return operator, restore

    def test_state_is_divided_by_key(self) -> None:
        """A job that starts from a savepoint may have another number of shards: then the state is divided by key.

        Steps: run entries of 7 over 3 shards, each with the rows of its keys; after several of them, divide their snapshots among 2
        and among 4 new shards with ``share_of``, and give these the rest. Passes when all shards together have the same final rows as
        a single shard. Skipped if ``share_of`` raises CheckpointError, as the default does: then the job must keep its number of shards.
        """
        keys = tuple(self.make_keys())
        if not keys:
            pytest.skip("not checked: the keys are not known; return them from make_keys()")
        parts = self.parts(7)
        whole = table(self.run(self.open(), parts))
        for stop in (1, len(parts) // 2, len(parts) - 1):
            for count in (2, 4):
                before, given = self._run_shards([self.open() for _ in range(3)], parts[:stop], keys)
                states = [operator.snapshot() for operator in before]
                after = []
                for number in range(count):
                    operator = self.open(through_pickle(self.make_spec(), what="the spec"))
                    try:
                        operator.apply(self.open().share_of(states, KeyShare(number, count, (keys,))))
                    except CheckpointError as error:
                        pytest.skip(f"not checked: the operator does not divide its state: {error.message}")
                    after.append(operator)
                _, rest = self._run_shards(after, parts[stop:], keys)
                given += rest + [each for operator in after for each in texts(operator.on_system(EndOfInput()))]
                found = table(given)
                expect(
                    found == whole,
                    expected=f"after {stop} entries, divided among {count} shards: {shortened(whole - found)}",
                    found=shortened(found - whole),
                    mend="take the rows of share.holds(…) from each state, and state without a key from all states; number again "
                    "what is numbered per shard",
                )

    def _run_shards(
        self, operators: Sequence[StatefulOperator], parts: Sequence[pl.DataFrame], keys: Sequence[str]
    ) -> tuple[Sequence[StatefulOperator], Given]:
        """Give the rows of each entry to the shards of their keys, and its tick and watermark to all shards."""
        given: Given = []
        for part in parts:
            own = dict(by_shard(part, keys, len(operators)))
            last = int(part[WATERMARK][-1])
            for number, operator in enumerate(operators):
                given += texts(operator.on_system(Tick(last + 60 * _SECOND_US)))
                if number in own:
                    given += texts(operator.process(Batch(QUEUE, own[number])))
                given += texts(operator.on_system(Watermark(QUEUE, last)))
        return operators, given

    def test_saving_changes_nothing(self) -> None:
        """Checkpoints come at any time, and results must not depend on this time.

        Steps: run entries of 7 with ``delta`` or ``snapshot`` and ``Checkpoint`` after each, and without. Passes when
        both give the same rows, and a ``delta`` right after that is empty.
        """
        parts = self.parts(7)
        plain, saving = self.open(), self.open()
        wanted, found = self.run(plain, parts), Given()
        for number, part in enumerate(parts):
            found += self.feed(saving, part)
            (saving.snapshot if number % 3 == 2 else saving.delta)()
            found += texts(saving.on_system(Checkpoint(number)))
            again = saving.delta()
            expect(
                again == b"",
                expected="an empty delta, because there was no input since the last one",
                found=f"{len(again)} bytes",
                mend="return b'' from delta() if nothing has changed",
            )
        found += texts(saving.on_system(EndOfInput()))
        expect(
            found == wanted,
            expected="the same rows with and without saving",
            found=f"other rows, first at {first_difference(wanted, found)}",
            mend="delta() and snapshot() read the state; they must not change later results",
        )

    def test_rows_have_no_place_of_their_own(self) -> None:
        """The lane sets the positions of results. The operator gives user columns, and the kind of change if results change.

        Steps: run 150 rows and look at the columns. Passes when they are those of ``output_schema``, without header columns
        other than the kind of change and the watermark, and the kind of change is there exactly if ``changes`` declares it.
        """
        spec, schema = self.make_spec(), Schema.of(self.schema)
        operator = spec.open(schema)
        results = list(operator.process(Batch(QUEUE, self.input()))) + list(operator.on_system(EndOfInput()))
        changes = spec.changes(self.input_changes) is not None
        for result in results:
            if not isinstance(result, Batch) or not result.frame.height:
                continue
            declared = spec.output_schema(schema, result.output)
            found = {name: kind for name, kind in result.frame.schema.items() if name not in (CHANGE, WATERMARK)}
            if result.output == "late":  # late rows are unchanged rows of the input
                found = {name: kind for name, kind in found.items() if name in (declared or ())}
            expect(
                declared is not None and found == dict(declared),
                expected=f"columns {dict(declared or {})}",
                found=f"{found}",
                mend="give the columns that output_schema() declares, with those types",
            )
            expect(
                (CHANGE in result.frame.columns) == changes or result.output == "late",
                expected="the column of the change kind" if changes else "no column of the change kind",
                found=f"{result.frame.columns}",
                mend="changes() must say whether the rows have a change kind",
            )

    def test_who_goes_by_the_clock_says_so(self) -> None:
        """Without input, backends send ticks of the clock only if the spec has ``tick_seconds``: else results wait for a row.

        Steps: run 75 rows; then send a tick 1,000 days later, without rows. Passes when the operator gives no row and the
        number of its state rows stays the same, unless ``tick_seconds`` of the spec is a number.
        """
        spec = self.make_spec()
        operator = self.open(spec)
        self.feed(operator, self.input().head(75))
        before = operator.state_rows()
        given = texts(operator.on_system(Tick(_START_US + 86_400_000 * _SECOND_US)))
        after = operator.state_rows()
        expect(
            spec.tick_seconds is not None or (not given and after == before),
            expected="nothing happens when only time passes, or tick_seconds says how often the operator needs a tick",
            found=f"{len(given)} rows were given, and the state went from {before} rows to {after}",
            mend="let tick_seconds of the spec return how often the operator needs a tick of the clock",
        )

    def test_state_rows_are_counted(self) -> None:
        """``state_rows`` gives the size of the state, which users monitor.

        Steps: ask a new operator, and again after 75 rows. Passes when it is 0 at first, and not negative later.
        """
        operator = self.open()
        empty = operator.state_rows()
        self.feed(operator, self.input().head(75))
        expect(
            empty == 0 and operator.state_rows() >= 0,
            expected="0 state rows in a new operator, and no negative number later",
            found=f"{empty}, then {operator.state_rows()}",
            mend="return the number of keys, groups or waiting rows",
        )


def run_alone(spec: StatefulSpec, schema: Schema, parts: Sequence[pl.DataFrame]) -> Given:
    """Run entries and the end of input through a new operator. It needs no contract object, so any process can call it."""
    operator = spec.open(schema)
    given: Given = []
    for part in parts:
        last = int(part[WATERMARK][-1])
        messages: list[SystemMessage] = [Tick(last + 60 * _SECOND_US)]
        given += texts(operator.on_system(messages[0]))
        given += texts(operator.process(Batch(QUEUE, part)))
        given += texts(operator.on_system(Watermark(QUEUE, last)))
    return given + texts(operator.on_system(EndOfInput()))


def texts(results: Iterable[Batch | RejectedRows | Watermark]) -> Given:
    """Return the rows that an operator gave, each as (output, text). Fails the check for other results."""
    given: Given = []
    for result in results:
        if isinstance(result, Batch):
            frame = result.frame.drop(OFFSET, INDEX, WATERMARK, strict=False)
            given += [(result.output, repr(row)) for row in frame.iter_rows(named=True)]
        elif isinstance(result, RejectedRows):
            given += [("rejected", repr(row)) for row in zip(result.frame[OFFSET], result.reasons, strict=True)]
        elif not isinstance(result, Watermark):
            violated(
                expected="Batch, RejectedRows or Watermark",
                found=shortened(result),
                mend="return batch.with_frame(frame)",
            )
    return given


def table(given: Given) -> Counter[tuple[str, str]]:
    """Return the final rows, after all changes were applied, with their counts."""
    rows: Counter[tuple[str, str]] = Counter()
    for output, text in given:
        for kind, sign in ((0, 1), (1, -1), (2, 1), (3, -1)):
            marked = f"{CHANGE!r}: {kind}"
            if marked in text:
                rows[output, text.replace(marked, f"{CHANGE!r}: …")] += sign
                break
        else:
            rows[output, text] += 1
    return Counter({row: count for row, count in rows.items() if count})


def first_difference(one: Given, other: Given) -> str:
    """Return the first difference between two runs, as a text for a message."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return f"row {place}: {shortened(mine)} and {shortened(theirs)}"
    return f"row {min(len(one), len(other))}: one run has {len(one)} rows, the other {len(other)}"
