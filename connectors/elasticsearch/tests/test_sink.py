"""The sink on the real server: what it checks and makes before the start, what it does with rows, good and bad."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import headrace as hr
import polars as pl
import pytest
from elasticsearch_world import ID, Cluster, Relay, writer_of
from headrace.flow.messages import CHANGE, Batch, ChangeKind, Queue
from headrace.foundation.errors import DataError, JobError
from headrace.testing import MemorySource

from tests.sink_tests import batch, insert, numbers, text_of

TWO = {"id": "int64", "name": "string"}
DAY = dt.datetime(2024, 2, 29, 8, tzinfo=dt.UTC)


@pytest.fixture
def relay(cluster: Cluster) -> Iterator[Relay]:
    made = Relay(cluster.host, cluster.port)
    yield made
    made.cut()


class TestBeforeTheStart:
    def test_missing_index_names_the_nearest(self, cluster: Cluster) -> None:
        cluster.create("events")
        text = text_of(JobError, lambda: cluster.sink(ID, index=cluster.name("event")))
        assert text == (
            f"Elasticsearch at {cluster.url}: there is no index, alias or data stream '{cluster.name('event')}' that the"
            " user can see [plugin 'elasticsearch', option 'index']\n"
            f"  hint: did you mean '{cluster.name('events')}'?; create_index=True creates it"
        )

    def test_missing_index_for_which_there_is_a_template(self, cluster: Cluster) -> None:
        """It says how the server is to make the index, so that is left to it."""
        template = {"mappings": {"properties": {"id": {"type": "keyword"}}}}
        name = cluster.name("by-template")
        cluster.client.indices.put_index_template(
            name=f"headrace-{name}", index_patterns=[f"{name}*"], template=template, priority=7
        )
        sink = cluster.sink(ID, index=name)
        insert(sink, numbers("q", 0, 2))
        sink.close()
        assert cluster.mapping(name) == {"id": {"type": "keyword"}}

    def test_created_with_mappings_of_the_columns(self, cluster: Cluster) -> None:
        columns = {
            "b": "boolean", "n": "int32", "f": "float32", "d": "decimal(12, 2)", "at": "timestamp", "s": "string",
            "x": "binary", "j": "json", "l": "array<int64>", "o": "struct<a: date, b: string>", "t": "time",
        }  # fmt: skip
        options: dict[str, Any] = {
            "create_index": True,
            "mappings": {"s": "text", "t": {"type": "date", "format": "HH"}},
        }
        cluster.sink(columns, index_settings={"number_of_shards": 2}, **options, exclude=["n"]).close()
        keyword = {"type": "keyword", "ignore_above": 8191}
        assert cluster.mapping() == {
            "b": {"type": "boolean"}, "f": {"type": "float"}, "d": {"type": "double"}, "at": {"type": "date"},
            "s": {"type": "text"}, "x": {"type": "binary"}, "j": {"type": "object", "enabled": False},
            "l": {"type": "long"}, "o": {"properties": {"a": {"type": "date"}, "b": keyword}},
            "t": {"type": "date", "format": "HH"},
        }  # fmt: skip
        found = cluster.client.indices.get_settings(index=cluster.name())[cluster.name()]["settings"]
        assert found["index"]["number_of_shards"] == "2"
        cluster.sink(columns, **options).close()  # a second start leaves it alone
        assert cluster.mapping()["s"] == {"type": "text"}

    def test_what_cannot_be_created_says_why(self, cluster: Cluster) -> None:
        options: dict[str, Any] = {"create_index": True, "mappings": {"id": "no-such-type"}}
        text = text_of(JobError, lambda: cluster.sink(ID, **options))
        assert "The mapper type [no-such-type]" in text
        assert "option 'mappings'" in text

    def test_types_that_do_not_fit_the_mapping(self, cluster: Cluster) -> None:
        cluster.create(properties={"id": {"type": "boolean"}, "name": {"properties": {"first": {"type": "keyword"}}}})
        text = text_of(JobError, lambda: cluster.sink(ID))
        assert f"index '{cluster.name()}', field 'id': int64 values do not fit a field of type 'boolean'" in text
        assert "CAST the column" in text
        text = text_of(JobError, lambda: cluster.sink({"name": "string"}))
        assert "field 'name': string values do not fit a field of type 'object'" in text
        cluster.sink({"name.first": "string", "other": "int64"}).close()

    def test_a_strict_mapping(self, cluster: Cluster) -> None:
        cluster.client.indices.create(
            index=cluster.name(), mappings={"dynamic": "strict", "properties": {"number": {"type": "long"}}}
        )
        text = text_of(JobError, lambda: cluster.sink({"numbr": "int64"}))
        assert "refuses the field 'numbr': its mapping is strict" in text
        assert "did you mean 'number'?" in text

    def test_a_pipeline_that_is_not_there(self, cluster: Cluster) -> None:
        cluster.create()
        text = text_of(JobError, lambda: cluster.sink(ID, pipeline="nothing"))
        assert "there is no ingest pipeline 'nothing'" in text

    def test_a_data_stream_that_is_none_and_an_index_that_is_one(self, cluster: Cluster) -> None:
        cluster.create("index")
        columns = {"@timestamp": "timestamp"}
        text = text_of(JobError, lambda: cluster.sink(columns, index=cluster.name("index"), data_stream=True))
        assert "is not a data stream" in text
        options: dict[str, Any] = {"index": cluster.name("stream"), "data_stream": True, "create_index": True}
        sink = cluster.sink(columns, **options)
        insert(sink, batch("q", [{"@timestamp": DAY}], columns))
        sink.close()
        text = text_of(JobError, lambda: cluster.sink(columns, index=cluster.name("stream")))
        assert "is a data stream" in text
        assert "hint: write data_stream=True" in text

    def test_a_template_for_indices_by_time_is_made_once(self, cluster: Cluster) -> None:
        options: dict[str, Any] = {"index": cluster.name("%Y"), "index_time": "at", "create_index": True}
        cluster.sink({"at": "timestamp"}, **options).close()
        name = f"headrace-{cluster.name()}"
        found = cluster.client.indices.get_index_template(name=name)["index_templates"][0]["index_template"]
        assert found["index_patterns"] == [cluster.name("*")]
        assert found["template"]["mappings"] == {"properties": {"at": {"type": "date"}}}
        cluster.sink({"at": "timestamp", "more": "int64"}, **options).close()
        again = cluster.client.indices.get_index_template(name=name)["index_templates"][0]["index_template"]
        assert again == found


class TestIndices:
    COLUMNS = {"id": "int64", "tenant": "string", "at": "timestamp"}

    def test_by_time_and_column(self, cluster: Cluster) -> None:
        index = cluster.name("{tenant}-%Y.%m")
        options: dict[str, Any] = {"index": index, "index_time": "at", "exclude": ["tenant"]}
        rows = [{"id": n, "tenant": "ab"[n % 2], "at": DAY + dt.timedelta(days=n % 3)} for n in range(12)]
        sink = cluster.sink(self.COLUMNS, create_index=True, **options)
        writer = writer_of(sink)
        writer.write(batch("q", rows, self.COLUMNS))
        writer.close()
        places = {hit["_source"]["id"]: hit["_index"] for hit in cluster.hits()}
        months = ["2024.02", "2024.03", "2024.03"]
        assert places == {n: cluster.name(f"{'ab'[n % 2]}-{months[n % 3]}") for n in range(12)}
        assert cluster.mapping(cluster.name("a-2024.02"))["id"] == {"type": "long"}
        assert "tenant" not in cluster.documents()[0]

    def test_rows_that_lead_to_no_index(self, cluster: Cluster, relay: Relay) -> None:
        """One whose name nobody can have, and ones without time or tenant: they are dead letters, in one request."""
        tenants = ["a", "B", None, "c", "d"]
        rows = [{"id": n, "tenant": tenant, "at": None if n == 4 else DAY} for n, tenant in enumerate(tenants)]
        refused: list[Batch] = []
        index = cluster.name("{tenant}-%Y")
        options: dict[str, Any] = {"index": index, "index_time": "at", "url": relay.url}
        writer = writer_of(cluster.sink(self.COLUMNS, **options), refused)
        writer.write(batch("q", rows, self.COLUMNS))
        writer.close()
        reasons = {row["offset"]: row["reason"] for made in refused for row in made.frame.to_dicts()}
        assert sorted(reasons) == [1, 2, 4]
        assert "must be lowercase" in reasons[1]
        assert "a value in the name of its index is NULL" in reasons[2]
        assert cluster.ids() == [0, 3]
        assert relay.heard[b"/_bulk"] == 1

    def test_routing(self, cluster: Cluster) -> None:
        cluster.create(number_of_shards=3)
        sink = cluster.sink(TWO, routing="name", id="id")
        insert(sink, batch("q", [{"id": n, "name": f"r{n % 2}"} for n in range(20)], TWO))
        sink.close()
        assert {(hit["_routing"], int(hit["_id"]) % 2) for hit in cluster.hits()} == {("r0", 0), ("r1", 1)}


class TestIds:
    def test_the_place_of_a_row(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(ID)
        insert(sink, numbers("logs/a b.ndjson", 5, 2))
        sink.close()
        assert sorted(hit["_id"] for hit in cluster.hits()) == [f"test.job.sink:logs/a b.ndjson:{n}:0" for n in (5, 6)]

    def test_of_rows_with_one_id_the_last_one_counts(self, cluster: Cluster) -> None:
        """Also when requests of one batch overtake each other."""
        cluster.create()
        sink = cluster.sink(TWO, id="id", request_rows=1, parallel_requests=8)
        writer = writer_of(sink)
        writer.write(batch("q", [{"id": n % 3, "name": f"v{n}"} for n in range(60)], TWO))
        writer.close()
        assert sorted((row["id"], row["name"]) for row in cluster.documents()) == [(0, "v57"), (1, "v58"), (2, "v59")]
        assert writer.counts.written == 60

    def test_of_rows_with_one_id_the_first_one_is_kept(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(TWO, id="id", mode="create")
        for part in (0, 30):
            insert(sink, batch("q", [{"id": n % 3, "name": f"v{n}"} for n in range(part, part + 30)], TWO, part))
        sink.close()
        assert sorted((row["id"], row["name"]) for row in cluster.documents()) == [(0, "v0"), (1, "v1"), (2, "v2")]

    def test_a_bad_row_does_not_hide_the_one_before_it(self, cluster: Cluster, relay: Relay) -> None:
        cluster.create(properties={"name": {"type": "ip"}})
        refused: list[Batch] = []
        sink = cluster.sink(TWO, id="id", url=relay.url)
        writer = writer_of(sink, refused)
        names = ["1.1.1.1", "2.2.2.2", "bad", "worse", "3.3.3.3"]
        ids = [1, 1, 1, 1, 2]
        writer.write(batch("q", [{"id": id, "name": name} for id, name in zip(ids, names, strict=True)], TWO))
        writer.close()
        assert sorted((row["id"], row["name"]) for row in cluster.documents()) == [(1, "2.2.2.2"), (2, "3.3.3.3")]
        assert sorted(offset for made in refused for offset in made.frame["offset"]) == [2, 3]
        assert relay.heard[b"/_bulk"] == 3  # the last of each id, then the one before it, twice

    def test_versions_by_offset(self, cluster: Cluster) -> None:
        """A process that has lost its queue, and a replay, do not bring back what was replaced."""
        cluster.create()
        options: dict[str, Any] = {"id": "name", "version": "offset"}
        zombie, heir = cluster.sink(TWO, **options), cluster.sink(TWO, **options)
        rows = [{"id": n, "name": f"key {n % 2}"} for n in range(10)]
        insert(zombie, batch("q", rows[:4], TWO))
        insert(heir, batch("q", rows, TWO))
        insert(zombie, batch("q", rows[4:6], TWO, 4))
        zombie.close()
        heir.close()
        assert {hit["_id"]: (hit["_source"]["id"], hit["_version"]) for hit in cluster.hits()} == {
            "key 0": (8, 8), "key 1": (9, 9),
        }  # fmt: skip

    def test_versions_by_column(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(TWO, id="name", version="id")
        for first, values in enumerate(([5, 3], [4, 9])):
            insert(sink, batch("q", [{"id": n, "name": "key"} for n in values[:1]], TWO, 2 * first))
            insert(sink, batch("q", [{"id": n, "name": "key"} for n in values[1:]], TWO, 2 * first + 1))
        sink.close()
        assert [hit["_version"] for hit in cluster.hits()] == [9]


class TestBadRows:
    def test_many_bad_rows_cost_one_request(self, cluster: Cluster, relay: Relay) -> None:
        """The server says which rows it refuses: they are dead letters with its reason, and nothing is sent again."""
        cluster.create(properties={"name": {"type": "ip"}})
        bad = {n for n in range(1000) if n % 29 == 3 or 500 <= n < 520}
        rows = [{"id": n, "name": "nowhere" if n in bad else "10.0.0.1"} for n in range(1000)]
        refused: list[Batch] = []
        writer = writer_of(cluster.sink(TWO, url=relay.url), refused)
        writer.write(batch("q", rows, TWO))
        writer.close()
        letters = [row for made in refused for row in made.frame.to_dicts()]
        assert [letter["offset"] for letter in letters] == sorted(bad)
        assert letters[0]["reason"] == (
            "[1:16] failed to parse field [name] of type [ip] in document with id 'test.job.sink:q:3:0'. Preview of"
            " field's value: 'nowhere': 'nowhere' is not an IP string literal. (status 400, document_parsing_exception)"
        )
        assert json.loads(letters[0]["row"]) == {"id": 3, "name": "nowhere"}
        assert cluster.ids() == [n for n in range(1000) if n not in bad]
        assert (writer.counts.dead_letters, relay.heard[b"/_bulk"]) == (len(bad), 1)

    def test_rows_without_a_form_as_json(self, cluster: Cluster) -> None:
        """These are found by halving, before anything is sent."""
        cluster.create()
        columns = {"id": "int64", "j": "json"}
        rows = [{"id": n, "j": "{cut" if n == 5 else '{"a": 1}'} for n in range(20)]
        refused: list[Batch] = []
        writer = writer_of(cluster.sink(columns), refused)
        writer.write(batch("q", rows, columns))
        writer.close()
        assert [made.frame["offset"].to_list() for made in refused] == [[5]]
        assert cluster.ids() == [n for n in range(20) if n != 5]

    def test_a_closed_index_stops_the_job(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(ID)
        cluster.client.indices.close(index=cluster.name())
        text = text_of(JobError, lambda: insert(sink, numbers("q", 0, 3)))
        sink.close()
        assert "open the index" in text

    def test_an_index_that_takes_no_writes_stops_the_job(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(ID)
        cluster.client.indices.add_block(index=cluster.name(), block="write")
        text = text_of(JobError, lambda: insert(sink, numbers("q", 0, 3)))
        sink.close()
        assert "FORBIDDEN/8/index write (api)" in text
        assert "remove its block" in text

    def test_a_data_stream_that_was_not_declared_stops_the_job(self, cluster: Cluster) -> None:
        columns = {"@timestamp": "timestamp"}
        options: dict[str, Any] = {"index": cluster.name("stream"), "data_stream": True, "create_index": True}
        made = batch("q", [{"@timestamp": DAY}], columns)
        stream = cluster.sink(columns, **options)
        insert(stream, made)
        stream.close()
        other = cluster.sink(columns, index=cluster.name("stream"), prepare=False)
        text = text_of(JobError, lambda: insert(other, made))
        other.close()
        assert "data_stream=True" in text

    def test_one_bad_row_alone_says_why(self, cluster: Cluster) -> None:
        cluster.create(properties={"name": {"type": "ip"}})
        sink = cluster.sink(TWO)
        rows = batch("q", [{"id": n, "name": "x"} for n in range(3)], TWO)
        assert "(and 2 more of 3 rows)" in text_of(DataError, lambda: insert(sink, rows))
        sink.queue_removed(Queue("q"))
        sink.close()


class TestChanges:
    def test_updates_and_deletes(self, cluster: Cluster) -> None:
        """Rows that change earlier ones do so by id, in their order, also when they come again."""
        cluster.create()
        kinds = ChangeKind
        changes: list[tuple[int, str, int]] = [
            (1, "a", kinds.INSERT), (2, "b", kinds.INSERT), (3, "c", kinds.INSERT),
            (1, "a", kinds.UPDATE_BEFORE), (1, "A", kinds.UPDATE_AFTER), (2, "b", kinds.DELETE),
            (9, "never there", kinds.DELETE), (3, "c", kinds.DELETE), (3, "C", kinds.INSERT),
            # The new half of an update need not come: a WHERE behind it may have left it out.
            (4, "d", kinds.INSERT), (4, "d", kinds.UPDATE_BEFORE),
        ]  # fmt: skip

        def part(begin: int, end: int) -> Batch:
            taken = changes[begin:end]
            kind = pl.Series([kind for *_, kind in taken], dtype=pl.Int8)
            rows = [{"id": id, "name": name} for id, name, _ in taken]
            return batch("q", rows, TWO, begin, **{CHANGE: kind})

        expected = {"1": "A", "3": "C"}
        variants: list[dict[str, Any]] = [{}, {"version": "offset"}]
        for options in variants:
            for cuts in ((0, 11), (0, 2, 5, 9, 11), (0, 10, 11), tuple(range(12))):
                sink = cluster.sink(TWO, id="id", **options)
                for _ in range(2):
                    for begin, end in itertools.pairwise(cuts):
                        insert(sink, part(begin, end))
                sink.close()
                assert {hit["_id"]: hit["_source"]["name"] for hit in cluster.hits()} == expected, (options, cuts)

    def test_a_document_that_moves_leaves_its_index(self, cluster: Cluster) -> None:
        sink = cluster.sink(TWO, index=cluster.name("{name}"), id="id", create_index=True)
        for kind, name, at in ((0, "a", 0), (ChangeKind.UPDATE_BEFORE, "a", 1), (ChangeKind.UPDATE_AFTER, "b", 2)):
            kinds = {CHANGE: pl.Series([kind], dtype=pl.Int8)}
            insert(sink, batch("q", [{"id": 1, "name": name}], TWO, at, **kinds))
        sink.close()
        assert [hit["_index"] for hit in cluster.hits()] == [cluster.name("b")]


class TestRequests:
    def test_a_batch_is_cut(self, cluster: Cluster, relay: Relay) -> None:
        cluster.create()
        sink = cluster.sink(ID, url=relay.url, request_rows=30)
        insert(sink, numbers("q", 0, 100))
        sink.close()
        assert relay.heard[b"/_bulk"] == 4
        sink = cluster.sink(ID, url=relay.url, request_bytes=1000)
        insert(sink, numbers("q", 100, 100))
        sink.close()
        assert cluster.ids() == list(range(200))
        assert relay.heard[b"/_bulk"] > 8

    def test_rows_that_searches_see_at_once(self, cluster: Cluster) -> None:
        cluster.create(refresh_interval="-1")
        sink = cluster.sink(ID, refresh="true")
        insert(sink, numbers("q", 0, 5))
        sink.close()
        assert cluster.client.count(index=cluster.name())["count"] == 5

    def test_compressed(self, cluster: Cluster, relay: Relay) -> None:
        cluster.create()
        relay.heard[b"content-encoding: gzip"] = 0
        sink = cluster.sink(ID, url=relay.url, compress=True)
        insert(sink, numbers("q", 0, 500))
        sink.close()
        assert relay.heard[b"content-encoding: gzip"] >= 1
        assert cluster.ids() == list(range(500))

    def test_several_addresses_of_which_one_is_dead(self, cluster: Cluster) -> None:
        cluster.create()
        sink = cluster.sink(ID, url=["http://127.0.0.1:1", cluster.url])
        for first in range(0, 50, 10):
            insert(sink, numbers("q", first, 10))
        sink.close()
        assert cluster.ids() == list(range(50))


def test_rows_of_unknown_columns_by_a_whole_job(cluster: Cluster) -> None:
    source = MemorySource({"q": [b'{"id": %d}' % n for n in range(10)]})
    refused: list[Mapping[str, Any]] = []

    def shape(row: dict[str, Any]) -> dict[str, Any]:
        at = None if row["id"] == 4 else DAY + dt.timedelta(days=row["id"])
        return {"id": row["id"], "at": at, **({"even": True} if row["id"] % 2 == 0 else {})}

    def keep(row: dict[str, Any]) -> dict[str, Any]:
        refused.append(row)
        return row

    (
        hr.stream("test", "dynamic")
        .from_(source, format="json", schema=ID)
        .map(shape)
        .dead_letters(lambda bad: bad.map(keep).to_print())
        .to_elasticsearch(**cluster.options(index=cluster.name("%Y.%m.%d"), index_time="at", id="id"))
        .run("light", until="end", show_progress=False)
    )
    assert cluster.ids() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [row["offset"] for row in refused] == [4]
    [seventh] = cluster.documents(cluster.name("2024.03.07"))
    assert seventh == {"id": 7, "at": "2024-03-07T08:00:00.000000Z"}
