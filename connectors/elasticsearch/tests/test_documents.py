"""Rows as lines of a bulk request."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, ROW, ChangeKind, Queue
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError
from headrace.interfaces.sink import SinkBatch
from headrace_elasticsearch.documents import ID_BYTES_MAX, DocumentMaker, Documents, row_ids
from headrace_elasticsearch.settings import ElasticsearchSinkSettings

from tests.sink_tests import batch, text_of

COLUMNS = {"id": "int64", "tenant": "string", "at": "timestamp"}
MORNING = dt.datetime(2024, 2, 29, 8, tzinfo=dt.UTC)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "tenant": "a", "at": MORNING},
    {"id": 2, "tenant": 'b"\\', "at": MORNING + dt.timedelta(days=1)},
    {"id": None, "tenant": None, "at": None},
]


def sink_batch(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Any], first: int = 7, **header: Any
) -> SinkBatch:
    made = batch("q", rows, columns, first, **header)
    return SinkBatch(made.queue, made.frame, None, "n.p.sink")


def make(
    rows: Sequence[Mapping[str, Any]] = ROWS, columns: Mapping[str, Any] = COLUMNS, header: Any = None, **options: Any
) -> Documents:
    settings = ElasticsearchSinkSettings.of({"index": "t", **options}, plugin="elasticsearch")
    return DocumentMaker(settings, Schema.of(columns)).make(sink_batch(rows, columns, **(header or {})))


def lines_of(documents: Documents) -> list[bytes]:
    """Return the lines of each row; none for rows that are not sent."""
    places = np.flatnonzero(documents.sendable)
    made = dict(zip(places.tolist(), documents.lines(places), strict=True))
    assert made == {place: documents.lines(np.array([place]))[0] for place in places.tolist()}
    return [made.get(place, b"") for place in range(len(documents.sendable))]


def actions(documents: Documents) -> list[Any]:
    """Return the first lines, decoded; None for rows that are not sent."""
    return [json.loads(lines.splitlines()[0]) if lines else None for lines in lines_of(documents)]


def bodies(documents: Documents) -> list[Any]:
    return [json.loads(lines.splitlines()[1]) for lines in lines_of(documents) if lines.count(b"\n") == 2]


def test_rows_are_known_by_their_place() -> None:
    made = make()
    assert actions(made) == [{"index": {"_id": f"n.p.sink:q:{offset}:0"}} for offset in (7, 8, 9)]
    assert bodies(made)[1] == {"id": 2, "tenant": 'b"\\', "at": "2024-03-01T08:00:00.000000Z"}
    assert made.identities is None
    assert all(lines.endswith(b"\n") for lines in lines_of(made))


def test_everything_that_a_column_can_decide() -> None:
    made = make(index="t-%Y.%m-{tenant}", index_time="at", id="x/{id}", routing="tenant", version="id")
    assert actions(made) == [
        {"index": {"_index": "t-2024.02-a", "_id": "x/1", "routing": "a", "version": 1, "version_type": "external_gte"}},
        {"index": {"_index": 't-2024.03-b"\\', "_id": "x/2", "routing": 'b"\\', "version": 2,
                   "version_type": "external_gte"}},
        None,
    ]  # fmt: skip
    assert made.refused == {2: "a value in the name of its index is NULL (option index)"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "id"}, "its id is NULL or empty (option id)"),
        ({"id": "{tenant}-x"}, "its id is NULL or empty (option id)"),
        ({"routing": "tenant"}, "its routing is NULL or empty (option routing)"),
        ({"id": "k{id}", "version": "id"}, "its id is NULL or empty (option id)"),
        ({"data_stream": True, "index_time": "at"}, "it has no time (option index_time)"),
        ({"index": "t-%Y", "index_time": "at"}, "a value in the name of its index is NULL (option index)"),
    ],
)
def test_a_row_that_lacks_what_is_needed_is_refused_alone(options: dict[str, Any], reason: str) -> None:
    made = make(**options)
    assert made.refused == {2: reason}
    assert [bool(lines) for lines in lines_of(made)] == [True, True, False]


def test_ids_that_are_too_long_or_empty_and_versions_that_are_none() -> None:
    columns = {"id": "string", "v": "int64"}
    values = [("é" * (ID_BYTES_MAX // 2), 1), ("é" * (ID_BYTES_MAX // 2) + "x", 1), ("", 1), ("a", -1), ("b", None)]
    made = make([{"id": id, "v": version} for id, version in values], columns, id="id", version="v")
    assert sorted(made.refused) == [1, 2, 3, 4]
    assert "longer than 512 bytes" in made.refused[1]
    assert "negative" in made.refused[3]


def test_ids_with_names_of_queues_that_are_too_long() -> None:
    """A hash takes the place of what is too long; it differs for each queue, and does not depend on the batch."""
    long = "/var/log/" + "x" * 600
    frame = batch("q", [{"id": n} for n in range(3)], {"id": "int64"}, 4).frame

    def ids(name: str, part: pl.DataFrame) -> Sequence[str]:
        return row_ids(SinkBatch(Queue(name), part, None, "n.p.sink"))

    whole = ids(long, frame)
    assert all(len(id.encode()) <= ID_BYTES_MAX for id in whole)
    assert [id.partition(":")[2] for id in whole] == ["4:0", "5:0", "6:0"]
    assert ids(long, frame[1:]) == whole[1:]
    assert set(ids(long + "y", frame)).isdisjoint(whole)
    assert ids("short", frame) == [f"n.p.sink:short:{offset}:0" for offset in (4, 5, 6)]


def test_columns_that_are_left_out() -> None:
    made = make(ROWS[:1], id="id", exclude=["id", "at"])
    assert bodies(made) == [{"tenant": "a"}]


def test_the_time_of_a_data_stream() -> None:
    made = make(ROWS[:1], data_stream=True, index_time="at", exclude=["at"])
    assert actions(made)[0] == {"create": {"_id": "n.p.sink:q:7:0"}}
    assert bodies(made) == [{"id": 1, "tenant": "a", "@timestamp": "2024-02-29T08:00:00.000000Z"}]
    own = make([{"@timestamp": MORNING}], {"@timestamp": "timestamp"}, data_stream=True)
    assert bodies(own) == [{"@timestamp": "2024-02-29T08:00:00.000000Z"}]


def test_indices_by_a_date_and_by_other_zones() -> None:
    made = make([{"d": dt.date(2024, 2, 29)}], {"d": "date"}, index="t-%Y.%m.%d-%H", index_time="d")
    assert actions(made)[0]["index"]["_index"] == "t-2024.02.29-00"
    zoned = pl.Datetime("us", "Asia/Tokyo")
    made = make([{"at": MORNING}], {"at": zoned}, index="t-%Y.%m.%d-%H", index_time="at")
    assert actions(made)[0]["index"]["_index"] == "t-2024.02.29-08"


def test_json_columns_become_the_values_that_they_say() -> None:
    made = make([{"id": 1, "j": '{"a": [1, 2.50]}'}], {"id": "int64", "j": "json"})
    assert b'"j":{"a":[1,2.50]}' in lines_of(made)[0]
    with pytest.raises(DataError, match="column 'j' must contain JSON text"):
        lines_of(make([{"id": 1, "j": "{cut"}], {"id": "int64", "j": "json"}))


class TestChanges:
    KINDS = (ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE)

    def made(self, **options: Any) -> Documents:
        rows = [{"id": number, "tenant": "a", "at": MORNING} for number in range(4)]
        return make(rows, header={CHANGE: pl.Series(self.KINDS, dtype=pl.Int8)}, **options)

    def test_each_kind(self) -> None:
        made = self.made(id="id", version="offset")
        version = [{"version": offset, "version_type": "external_gte"} for offset in range(7, 11)]
        assert actions(made) == [
            {"index": {"_id": "0", **version[0]}}, {"delete": {"_id": "1", **version[1]}}, {"index": {"_id": "2", **version[2]}},
            {"delete": {"_id": "3", **version[3]}},
        ]  # fmt: skip
        assert [lines.count(b"\n") for lines in lines_of(made)] == [2, 1, 2, 1]
        assert not made.refused
        assert CHANGE.encode() not in b"".join(lines_of(made))

    def test_what_they_need(self) -> None:
        assert "name that column: id='...'" in text_of(JobError, self.made)
        assert "option 'mode'" in text_of(JobError, lambda: self.made(id="id", mode="create"))


def test_rows_of_unknown_columns() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "at": MORNING, "flag": True, "more": {"x": [1, b"\x00"]}},
        {"id": "b", "at": dt.datetime(2023, 1, 1), "flag": False},
        {"id": 1.5, "at": MORNING, "flag": True},
        {"id": 4, "at": "yesterday", "flag": True},
        {},
    ]
    frame = pl.DataFrame(
        {OFFSET: range(5), INDEX: [0] * 5, ROW: pack_rows(rows)},
        schema={OFFSET: pl.Int64, INDEX: pl.Int32, ROW: pl.Binary},
    )
    options = {"index": "t-%Y", "index_time": "at", "id": "{id}-{flag}", "exclude": ["flag"]}
    settings = ElasticsearchSinkSettings.of(options, plugin="elasticsearch")
    made = DocumentMaker(settings, None).make(SinkBatch(Queue("q"), frame))
    assert actions(made)[:2] == [
        {"index": {"_index": "t-2024", "_id": "1-true"}},
        {"index": {"_index": "t-2023", "_id": "b-false"}},
    ]
    assert bodies(made)[0] == {"id": 1, "at": "2024-02-29T08:00:00.000000Z", "more": {"x": [1, "AA=="]}}
    assert sorted(made.refused) == [2, 3, 4]
