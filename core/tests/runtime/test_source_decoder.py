"""Records of sources whose rows change: their kinds, their positions, and what the plan knows of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, Batch, Bodies, ChangeKind, Queue, RawBatch
from headrace.flow.messages import ReadPosition as At
from headrace.foundation.errors import OptionError, PlanError
from headrace.runtime.source_decoder import SourceDecoder
from headrace.testing import MemorySink, MemorySource

ADD, UB, UA, D = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE
Rows = Sequence[tuple[int, int, str | None]]


class Changing(hr.Source):
    """A record is a list of (kind, id, v)."""

    def __init__(self, records: Sequence[Rows], changes: hr.SourceChanges | None) -> None:
        self.records = records
        self.said = changes

    def schema(self) -> hr.Schema:
        return hr.Schema.of({"id": "int64", "v": "string"})

    def changes(self) -> hr.SourceChanges | None:
        return self.said

    def queues(self) -> Collection[Queue]:
        return [Queue("q")]

    def open(self, queue: Queue, start: Any) -> hr.Reader:
        return Records(self.records, start.offset if isinstance(start, At) else 0)


class Records(hr.Reader):
    def __init__(self, records: Sequence[Rows], next: int) -> None:
        self.records, self.next = records, next

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        taken = self.records[self.next : self.next + max_records]
        first, self.next = self.next, self.next + len(taken)
        return raw_of(taken, first) if taken else None

    def seek(self, position: At) -> None:
        self.next = position.offset

    @property
    def position(self) -> At:
        return At(self.next)

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        return len(self.records)


def raw_of(records: Sequence[Rows], first: int = 0) -> RawBatch:
    rows = [row for record in records for row in record]
    offsets = np.repeat(np.arange(first, first + len(records)), [len(record) for record in records])
    frame = pl.DataFrame(rows, schema={CHANGE: pl.Int8, "id": pl.Int64, "v": pl.String}, orient="row")
    return RawBatch(offsets, At(first + len(records)), frame=frame)


def begin(source: hr.Source, **options: Any) -> hr.Stream:
    return hr.stream("test", "changes").from_(source, name="in", **options)


def decoded(stream: hr.Stream, raw: RawBatch, columns: Sequence[str] = ("id", "v")) -> Batch:
    node = stream.to(MemorySink()).plan().sources["in"]
    assert node.changes is not None
    batch, bad = SourceDecoder("in", node, columns).decode(Queue("q", "in"), raw)
    assert bad is None
    return batch


def test_rows_of_a_record_are_numbered() -> None:
    stream = begin(Changing([], hr.SourceChanges(("id",))))
    batch = decoded(stream, raw_of([[(ADD, 1, "a")], [(UB, 1, "a"), (UA, 1, "b")], [(D, 1, "b")]], first=7))
    assert batch.frame.select(OFFSET, INDEX, CHANGE, "id", "v").rows() == [
        (7, 0, ADD, 1, "a"),
        (8, 0, UB, 1, "a"),
        (8, 1, UA, 1, "b"),
        (9, 0, D, 1, "b"),
    ]


def test_a_frame_without_kinds_inserts() -> None:
    stream = begin(Changing([], hr.SourceChanges(("id",))))
    raw = RawBatch(np.array([3]), At(4), frame=pl.DataFrame({"id": [1], "v": ["a"]}))
    assert decoded(stream, raw).frame[CHANGE].to_list() == [ADD]


def test_columns_that_nobody_wants_are_left_out() -> None:
    stream = begin(Changing([], hr.SourceChanges()))
    batch = decoded(stream, raw_of([[(UB, 1, "a"), (UA, 1, "b")]]), columns=[])
    assert batch.frame.select(INDEX, CHANGE).rows() == [(0, UB), (1, UA)]
    assert not batch.user_frame().columns


def test_the_plan_knows_the_key_of_the_source_and_of_the_job() -> None:
    said = hr.SourceChanges(("id",))
    assert begin(Changing([], said)).changes == hr.Changes(("id",))
    assert begin(Changing([], said), key="v").changes == hr.Changes(("v",))
    assert begin(Changing([], hr.SourceChanges())).changes == hr.Changes(None)
    assert begin(Changing([], None)).changes is None


def test_changes_without_old_rows_are_normalized() -> None:
    stream = begin(Changing([], hr.SourceChanges(("id",), before_images=False)))
    assert stream.changes == hr.Changes(("id",))
    plan = stream.to(MemorySink()).plan()
    assert [getattr(getattr(node, "spec", None), "name", None) for node in plan.nodes.values()].count(
        "normalize_changes"
    ) == 1


def test_repeated_changes_are_normalized() -> None:
    job = begin(Changing([], hr.SourceChanges(("id",))), repeats=True).to(MemorySink())
    assert "normalize_changes" in job.plan().nodes


def test_a_source_that_needs_a_key_asks_for_one() -> None:
    with pytest.raises(OptionError, match="a key is needed: old rows do not come") as found:
        begin(Changing([], hr.SourceChanges(before_images=False)))
    assert found.value.option == "key"
    with pytest.raises(OptionError, match="a key is needed: changes may come more than once"):
        begin(Changing([], hr.SourceChanges()), repeats=True)
    with pytest.raises(OptionError, match="unknown column 'idd'"):
        begin(Changing([], hr.SourceChanges()), key=["idd"])


def test_old_rows_do_not_have_the_metadata_of_new_ones() -> None:
    said = hr.SourceChanges(("id",))
    assert "normalize_changes" not in begin(Changing([], said), metadata={"q": "queue"}).to(MemorySink()).plan().nodes
    job = begin(Changing([], said), metadata={"at": "offset"}).to(MemorySink())
    assert "normalize_changes" in job.plan().nodes
    with pytest.raises(OptionError, match="the metadata column 'at' is not known of old rows"):
        begin(Changing([], hr.SourceChanges()), metadata={"at": "offset"})


@pytest.mark.parametrize("options", [{"key": "id"}, {"repeats": True}])
def test_rows_that_are_only_added_have_no_key(options: Mapping[str, Any]) -> None:
    with pytest.raises(OptionError, match="only added") as found:
        begin(Changing([], None), **options)
    assert found.value.option == next(iter(options))


def test_verbs_that_need_old_rows_refuse_changes_without_them() -> None:
    raw = begin(Changing([], hr.SourceChanges(("id",), before_images=False)), normalize=False)
    assert raw.changes == hr.Changes(("id",), before_images=False)
    renamed = raw.with_columns(v="upper(v)").rename(id="number")
    assert renamed.changes == hr.Changes(("number",), before_images=False)
    for refused in (renamed.where("v = 'A'"), renamed.key_by("v").agg(n="count(*)"), renamed.union(renamed)):
        with pytest.raises(PlanError, match="needs the old and the new row of each change"):
            refused.to(MemorySink()).plan()
    whole = renamed.normalize_changes().where("v = 'A'")
    assert whole.changes == hr.Changes(("number",))


def test_normalizing_needs_changes() -> None:
    with pytest.raises(PlanError, match="only added"):
        begin(Changing([], None)).normalize_changes(["id"])
    with pytest.raises(PlanError, match="needs the key of the table"):
        begin(Changing([], hr.SourceChanges())).normalize_changes()


def test_a_sink_that_only_adds_refuses_a_source_of_changes() -> None:
    class Adds(MemorySink):
        accepts = "append"

    with pytest.raises(PlanError, match="can only add rows"):
        begin(Changing([], hr.SourceChanges(("id",)))).to(Adds()).plan()


class Twice(hr.Decoder):
    """A body "ab" gives two rows, "-" none, "?" is bad."""

    def decode(self, bodies: Bodies) -> hr.Decoded:
        texts = [body.decode() for body in bodies]
        rows = [row for row, text in enumerate(texts) for _ in (text if text not in ("-", "?") else "")]
        letters = [letter for text in texts if text not in ("-", "?") for letter in text]
        bad = [hr.BadBody(row, "a question") for row, text in enumerate(texts) if text == "?"]
        return hr.Decoded(pl.DataFrame({"letter": letters}), np.array(rows, dtype=np.int64), bad)


class Letters(hr.Codec):
    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        return Twice()

    def encoder(self, schema: hr.Schema | None) -> hr.Encoder:
        raise NotImplementedError


def test_a_body_may_give_several_rows_or_none() -> None:
    stream = begin(MemorySource(), format="raw", schema={"letter": "string"})
    node = replace(stream.to(MemorySink()).plan().sources["in"], codec=Letters())
    raw = RawBatch(np.array([5, 6, 8, 9]), At(10), bodies=Bodies.of([b"ab", b"-", b"?", b"c"]))
    batch, bad = SourceDecoder("in", node, ["letter"]).decode(Queue("q", "in"), raw)
    assert batch.frame.select(OFFSET, INDEX, "letter").rows() == [(5, 0, "a"), (5, 1, "b"), (9, 0, "c")]
    assert bad is not None
    assert bad.frame["offset"].to_list() == [8]


def test_every_row_of_a_record_is_kept_over_batches_and_restarts() -> None:
    records: list[Rows] = [[(ADD, n, "a")] if n % 3 else [(UB, n, "a"), (UA, n, "b"), (D, n, "b")] for n in range(100)]
    sink = MemorySink()
    begin(Changing(records, hr.SourceChanges(("id",)))).to(sink).run("light", max_batch_records=7)
    assert [(row["id"], row["v"]) for row in sink.rows] == [(id, v) for record in records for _, id, v in record]
