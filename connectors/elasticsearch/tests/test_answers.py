"""What the test server's Elasticsearch cannot do, by recorded answers: access control, overload, gateways in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from elasticsearch_world import ID, writer_of
from headrace.flow.messages import Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, JobFailedError, RetriableError
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)
from scripted_server import Answer, ScriptedServer, items, scripted

from tests.sink_tests import insert, numbers, text_of

QUICK = {"retry_backoff": "1 ms", "retry_backoff_max": "2 ms", "retry_timeout": "30 s"}
BUSY = {
    "status": 429,
    "error": {"type": "es_rejected_execution_exception", "reason": "rejected execution of coordinating operation"},
}
UNAVAILABLE = {
    "status": 503,
    "error": {"type": "unavailable_shards_exception", "reason": "[t][0] primary shard is not active"},
}
CONFLICT = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "[1]: version conflict"}}
DENIED = {
    "type": "security_exception",
    "reason": "action [indices:data/write/bulk[s]] is unauthorized for user [etl] with effective roles [reader] on"
    " indices [t], this action is granted by the index privileges [create_doc,create,delete,index,write,all]",
}


def sink_on(server: ScriptedServer, **options: Any) -> ElasticsearchSink:
    given = {"url": server.url, "index": "t", **QUICK, **options}
    sink = ElasticsearchSink(ElasticsearchSinkSettings.of(given, plugin="elasticsearch"))
    sink.check(Schema.of(ID))
    _opened.append(sink)
    return sink


_opened: list[ElasticsearchSink] = []


@pytest.fixture(autouse=True)
def _close_sinks() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def sent_ids(body: bytes) -> list[int]:
    return [json.loads(line)["id"] for line in body.splitlines()[1::2]]


class TestRetries:
    def test_only_rows_that_were_not_taken_are_sent_again(self) -> None:
        answers = [items(201, BUSY, 201, UNAVAILABLE), items(BUSY, 201), items(201)]
        with scripted({"POST /t/_bulk": answers}) as server:
            sink = sink_on(server)
            writer = writer_of(sink)
            writer.write(numbers("q", 0, 4))
            writer.close()
            assert [sent_ids(body) for body in server.asked("POST /t/_bulk")] == [[0, 1, 2, 3], [1, 3], [1]]
            assert (writer.counts.written, writer.counts.retries) == (4, 2)

    def test_rows_that_are_refused_are_not_sent_again_either(self) -> None:
        bad = {"status": 400, "error": {"type": "document_parsing_exception", "reason": "no"}}
        answers = [items(201, bad, BUSY, bad), items(bad)]
        refused: list[Batch] = []
        with scripted({"POST /t/_bulk": answers}) as server:
            writer = writer_of(sink_on(server), refused)
            writer.write(numbers("q", 0, 4))
            writer.close()
            assert [sent_ids(body) for body in server.asked("POST /t/_bulk")] == [[0, 1, 2, 3], [2]]
        assert [offset for made in refused for offset in made.frame["offset"]] == [1, 2, 3]

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_request_as_a_whole(self, status: int) -> None:
        away: Answer = (status, b"<html>the gateway has nobody to ask</html>")
        with scripted({"POST /t/_bulk": [away, away, items(201, 201)]}) as server:
            writer = writer_of(sink_on(server))
            writer.write(numbers("q", 0, 2))
            writer.close()
            assert writer.counts.retries == 2

    def test_a_server_that_stays_busy_fails_the_job(self) -> None:
        with scripted({"POST /t/_bulk": items(BUSY)}) as server:
            writer = writer_of(sink_on(server, retry_timeout="20 ms"))
            writer.write(numbers("q", 0, 1))
            text = text_of(JobFailedError, writer.flush)
            writer.close(flush=False)
        assert "rejected execution of coordinating operation (status 429, es_rejected_execution_exception)" in text

    def test_conflicts_are_replays_only_where_versions_are_given(self) -> None:
        with scripted({"POST /t/_bulk": items(CONFLICT)}) as server:
            insert(sink_on(server, id="id", version="offset"), numbers("q", 0, 1))
            assert "version conflict" in text_of(RetriableError, lambda: insert(sink_on(server), numbers("q", 0, 1)))
        with scripted({"POST /t/_bulk": items(CONFLICT, action="create")}) as server:
            insert(sink_on(server, mode="create"), numbers("q", 0, 1))


class TestSizes:
    def test_what_is_too_large_is_sent_in_parts(self) -> None:
        """The server takes two rows a request; one row is too large by itself."""
        large = (413, b"")
        with scripted() as server:
            sizes: list[list[int]] = []

            def take(asked: str, headers: dict[str, str], body: bytes) -> Answer:
                ids = sent_ids(body)
                sizes.append(ids)
                return large if len(ids) > 2 or 5 in ids else items(*[201] * len(ids))

            server.take = take  # type: ignore[method-assign]
            refused: list[Batch] = []
            writer = writer_of(sink_on(server), refused)
            writer.write(numbers("q", 0, 8))
            writer.close()
        assert [made.frame["offset"][0] for made in refused] == [5]
        assert "more than the server takes" in refused[0].frame["reason"][0]
        stored = [ids for ids in sizes if len(ids) <= 2 and 5 not in ids]
        assert sorted(id for ids in stored for id in ids) == [0, 1, 2, 3, 4, 6, 7]


class TestAccessControl:
    def test_asked_before_the_start(self) -> None:
        answer = {"username": "etl", "has_all_requested": False, "cluster": {}, "index": {"t": {"index": False}}}
        with scripted({"POST /_security/user/_has_privileges": (200, answer)}) as server:
            sink = sink_on(server, user="etl", password="secret")
            text = text_of(JobError, lambda: sink.prepare(Schema.of(ID)))
            [asked] = server.asked("POST /_security/user/_has_privileges")
        assert json.loads(asked) == {"index": [{"names": ["t"], "privileges": ["index"]}]}
        assert text == (
            f"Elasticsearch at {server.url}, index 't': user 'etl' may not write it [plugin 'elasticsearch', option 'user']"
            "\n  hint: grant the index privilege 'index', see docs/connectors/elasticsearch.md"
        )

    def test_who_may_write_but_not_look(self) -> None:
        """A user with no other right than to write is not kept from it by the checks before the start."""
        denied = (403, {"error": DENIED, "status": 403})
        answers: dict[str, Answer | list[Answer]] = {
            "POST /_security/user/_has_privileges": (200, {"username": "etl", "has_all_requested": True}),
            "GET /t/_mapping": denied,
            "GET /_ingest/pipeline/p": denied,
            "POST /t/_bulk": items(201),
        }
        with scripted(answers) as server:
            sink = sink_on(server, pipeline="p", api_key="encoded")
            sink.prepare(Schema.of(ID))
            insert(sink, numbers("q", 0, 1))
            sink.close()
            assert {headers["authorization"] for _, headers, _ in server.requests} == {"ApiKey encoded"}

    def test_rights_for_names_by_time(self) -> None:
        with scripted({"POST /_security/user/_has_privileges": (200, {"has_all_requested": True})}) as server:
            options = {"url": server.url, "index": "t-%Y", "index_time": "at", "mode": "create"}
            sink = ElasticsearchSink(ElasticsearchSinkSettings.of(options))
            sink.prepare(Schema.of({"at": "timestamp"}))
            [asked] = server.asked("POST /_security/user/_has_privileges")
        assert json.loads(asked) == {"index": [{"names": ["t-*"], "privileges": ["create_doc"]}]}

    @pytest.mark.parametrize("whole", [True, False])
    def test_taken_away_in_mid_run(self, whole: bool) -> None:
        answer = (403, {"error": DENIED, "status": 403}) if whole else items({"status": 403, "error": DENIED})
        with scripted({"POST /t/_bulk": answer}) as server:
            text = text_of(JobError, lambda: insert(sink_on(server, user="etl", password="x"), numbers("q", 0, 1)))
        assert "is unauthorized for user [etl]" in text
        assert "option 'user'" in text
        assert "grant it what it needs" in text

    def test_a_wrong_password(self) -> None:
        reason = "unable to authenticate user [etl] for REST request [/]"
        with scripted({"GET /": (401, {"error": {"type": "security_exception", "reason": reason}})}) as server:
            text = text_of(JobError, lambda: sink_on(server, user="etl", password="x").prepare(None))
        assert reason in text
        assert "check user and password, or the API key" in text


class TestStrangers:
    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ((200, b"<html>welcome</html>"), "cannot be read"),
            ((200, {"errors": True, "items": []}), "0 items for 1 rows"),
            ((200, {"took": 3}), "cannot be read"),
        ],
    )
    def test_an_answer_that_is_none(self, answer: Answer, said: str) -> None:
        with scripted({"POST /t/_bulk": answer}) as server:
            text = text_of(JobError, lambda: insert(sink_on(server), numbers("q", 0, 1)))
        assert said in text
        assert "that of an Elasticsearch server" in text

    def test_a_start_at_a_web_page(self) -> None:
        with scripted({"GET /": (200, b"<html>welcome</html>")}) as server:
            assert "not JSON" in text_of(JobError, lambda: sink_on(server).prepare(None))

    def test_a_path_in_the_address(self) -> None:
        with scripted({"POST /search/t/_bulk": items(201)}) as server:
            insert(sink_on(server, url=f"{server.url}/search/"), numbers("q", 0, 1))
            assert len(server.requests) == 1


class TestErrorsOfRows:
    @pytest.mark.parametrize(
        ("status", "error", "kind", "said"),
        [
            (400, {"type": "illegal_argument_exception", "reason": "pipeline with id [p] does not exist"}, JobError,
             "option 'pipeline'"),
            (400, {"type": "routing_missing_exception", "reason": "routing is required"}, JobError, "option 'routing'"),
            (404, {"type": "index_not_found_exception", "reason": "no such index [t] and [action.auto_create_index] is"
             " [false]", "index": "t"}, JobError, "create it, or let the server do so"),
            (403, {"type": "cluster_block_exception", "reason": "blocked by: [FORBIDDEN/5/index read-only (api)];"},
             JobError, "remove its block"),
            (429, {"type": "cluster_block_exception", "reason": "disk usage exceeded flood-stage watermark"},
             RetriableError, "flood-stage"),
            (400, {"type": "illegal_argument_exception", "reason": "mapper [a] cannot be changed from type [long] to"
             " [text]"}, DataError, "cannot be changed"),
            (400, {"type": "document_parsing_exception", "reason": "failed to parse",
                   "caused_by": {"type": "x", "reason": "the cause"}}, DataError, "failed to parse: the cause"),
            (418, {"type": "nobody_knows", "reason": "tea"}, JobError, "tea"),
        ],
    )  # fmt: skip
    def test_who_is_to_blame(self, status: int, error: dict[str, Any], kind: type[Exception], said: str) -> None:
        with scripted({"POST /t/_bulk": items({"status": status, "error": error})}) as server:
            assert said in text_of(kind, lambda: insert(sink_on(server), numbers("q", 0, 1)))

    def test_what_stops_the_job_comes_before_what_passes(self) -> None:
        gone = {"status": 404, "error": {"type": "index_not_found_exception", "reason": "no such index"}}
        with scripted({"POST /t/_bulk": items(BUSY, gone, 201)}) as server:
            assert "no such index" in text_of(JobError, lambda: insert(sink_on(server), numbers("q", 0, 3)))


class TestSource:
    SETTINGS = (200, {"t": {"settings": {"index.number_of_shards": "1"}}})

    def source(self, server: ScriptedServer, **options: Any) -> ElasticsearchSource:
        given = {"url": server.url, "index": "t", **options}
        return ElasticsearchSource(ElasticsearchSourceSettings.of(given, plugin="elasticsearch"))

    def stats(self, *copies: dict[str, Any]) -> Answer:
        return 200, {"indices": {"t": {"uuid": "u1", "shards": {"0": list(copies)}}}}

    @pytest.mark.parametrize("what", ["GET /t/_settings/index.number_of_shards", "POST /t/_search", "GET /t/_mapping"])
    def test_no_permission_to_look(self, what: str) -> None:
        answers: dict[str, Answer | list[Answer]] = {
            "GET /t/_settings/index.number_of_shards": self.SETTINGS,
            "POST /t/_search": (200, {"hits": {"hits": []}}),
            what: (403, {"error": DENIED, "status": 403}),
        }
        with scripted(answers) as server:
            source = self.source(server, user="etl", password="x")
            text = text_of(JobError, source.queues)
            source.close()
        assert "index 't': action [" in text
        assert "option 'user'" in text

    @pytest.mark.parametrize(
        ("copies", "expected"),
        [
            ([{"routing": {"primary": False}, "seq_no": {"global_checkpoint": 3}}], RetriableError),
            ([{"routing": {"primary": True}}], RetriableError),
            ([], RetriableError),
        ],
    )
    def test_a_shard_without_primary_passes(self, copies: list[dict[str, Any]], expected: type[Exception]) -> None:
        from headrace.interfaces.source import EARLIEST

        with scripted({"GET /t/_stats/indexing": self.stats(*copies)}) as server:
            source = self.source(server)
            assert "has no primary copy at the moment" in text_of(expected, lambda: source.open(Queue("t/0"), EARLIEST))
            source.close()

    def test_the_number_of_what_is_done_is_that_of_the_primary(self) -> None:
        from headrace.interfaces.source import EARLIEST

        copies = [
            {"routing": {"primary": False}, "seq_no": {"global_checkpoint": 3}},
            {"routing": {"primary": True}, "seq_no": {"global_checkpoint": 7}},
        ]
        with scripted({"GET /t/_stats/indexing": self.stats(*copies)}) as server:
            source = self.source(server)
            assert source.open(Queue("t/0"), EARLIEST).latest == 8
            source.close()

    def reading(
        self, page: Answer | list[Answer], check: Callable[[Any, ScriptedServer], None], **options: Any
    ) -> None:
        from headrace.interfaces.source import EARLIEST

        answers: dict[str, Answer | list[Answer]] = {
            "GET /t/_stats/indexing": self.stats({"routing": {"primary": True}, "seq_no": {"global_checkpoint": 7}}),
            "POST /t/_refresh": (200, {}),
            "POST /t/_pit": (200, {"id": "pit-1"}),
            "POST /_search": page,
            "DELETE /_pit": (200, {"succeeded": True}),
        }
        with scripted(answers) as server:
            source = self.source(server, **options)
            reader = source.open(Queue("t/0"), EARLIEST)
            check(reader, server)
            reader.close()
            source.close()

    def test_a_page_of_which_something_is_missing_is_asked_for_again(self) -> None:
        from datetime import timedelta

        def check(reader: Any, server: ScriptedServer) -> None:
            for _ in range(2):
                assert "ended before all shards had answered" in text_of(
                    RetriableError, lambda: reader.poll(10, timedelta(0))
                )
            raw = reader.poll(10, timedelta(0))
            assert list(raw.bodies) == [b'{"a": 1}']
            assert reader.position.offset == 8

        hit = {"_id": "x", "sort": [5, 0], "_source": {"a": 1}}
        pages: list[Answer] = [
            (200, {"timed_out": True, "_shards": {"failed": 0}, "hits": {"hits": [hit]}}),
            (200, {"timed_out": False, "_shards": {"failed": 1}, "hits": {"hits": []}}),
            (200, {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": [hit]}}),
        ]
        self.reading(pages, check)

    def test_an_index_that_does_not_keep_the_numbers(self) -> None:
        from datetime import timedelta

        def check(reader: Any, server: ScriptedServer) -> None:
            assert "does not store sequence numbers" in text_of(JobError, lambda: reader.poll(10, timedelta(0)))

        self.reading((200, {"hits": {"hits": [{"_id": "x", "sort": [2**63 - 1, 0], "_source": {}}]}}), check)

    def test_who_may_only_read_does_not_refresh(self) -> None:
        from datetime import timedelta

        def check(reader: Any, server: ScriptedServer) -> None:
            assert reader.poll(10, timedelta(0)) is None
            assert server.asked("POST /t/_refresh") == []

        self.reading((200, {"hits": {"hits": []}}), check, refresh=False)
