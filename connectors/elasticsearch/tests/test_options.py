"""What is refused when the job is built, before any server is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError, OptionError, RetriableError
from headrace.interfaces.operator import Changes
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)

from tests.sink_tests import text_of

COLUMNS = {"id": "int64", "tenant": "string", "at": "timestamp", "day": "date", "size": "float64"}


def settings(**options: Any) -> ElasticsearchSinkSettings:
    return ElasticsearchSinkSettings.of({"index": "t", **options}, plugin="elasticsearch")


def check(columns: Mapping[str, Any] = COLUMNS, **options: Any) -> None:
    ElasticsearchSink(settings(**options)).check(Schema.of(columns))


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        ({"url": "search:9200"}, "url", "not an address such as"),
        ({"url": ["http://a:1", "ftp://b"]}, "url", "'ftp://b' is not an address"),
        ({"url": "http://a:port"}, "url", "is not an address"),
        ({"url": "http://a", "ssl_ca": "ca.pem"}, "ssl_ca", "not an address with TLS"),
        ({"url": "http://a:1", "user": "u", "password": "p"}, "url", "the login would be sent unencrypted"),
        (
            {"url": ["https://a", "http://10.0.0.1"], "api_key": "k"},
            "url",
            "the login would be sent unencrypted",
        ),
        ({"url": "https://a/?api_key=sesame"}, "url", "which may hold a secret and would be shown"),
        ({"url": "https://a", "ssl_key": "k.pem"}, "ssl_key", "together with ssl_certificate"),
        ({"url": "https://a", "ssl_fingerprint": "ab:cd"}, "ssl_fingerprint", "64 hexadecimal digits"),
        (
            {"url": "https://a", "ssl_fingerprint": "ab" * 32, "ssl_ca": "x"},
            "ssl_fingerprint",
            "only the fingerprint is checked",
        ),
        ({"api_key": "k", "user": "u", "password": "p"}, "api_key", "cannot be combined with user and password"),
        ({"user": "u"}, "password", "give both user and password"),
        ({"password": "p"}, "user", "give both user and password"),
        ({"index": " "}, "index", "the name is an empty text"),
        ({"index": "t-%Y"}, "index_time", "no option names the column with the time"),
        ({"index_time": "at"}, "index_time", "has no effect"),
        (
            {"index": "t-{tenant}", "data_stream": True},
            "index",
            "the name of a data stream cannot contain a date pattern",
        ),
        ({"version": "offset"}, "version", "no id is given"),
        ({"version": "offset", "id": "id", "mode": "create"}, "version", "never replaced"),
        ({"mappings": {"id": "keyword"}}, "mappings", "only together with create_index"),
        ({"index_settings": {}}, "index_settings", "only together with create_index"),
        ({"request_rows": 0}, "request_rows", "unusable value"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], option: str, said: str) -> None:
    text = text_of(OptionError, lambda: settings(**options))
    assert said in text
    assert f"[plugin 'elasticsearch', option '{option}']" in text


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    text = text_of(OptionError, lambda: settings(url="https://user:hush@search:9200"))
    assert "hush" not in text
    assert "give them as user='...', password=" in text


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        ({"id": "name"}, "id", "unknown column 'name'"),
        ({"id": "{tenant}-{order}"}, "id", "unknown column 'order'"),
        ({"id": "size"}, "id", "column 'size' is float64, not text or an integer"),
        ({"routing": "tenat"}, "routing", "did you mean 'tenant'?"),
        ({"index": "t-{tenat}"}, "index", "did you mean 'tenant'?"),
        ({"index": "t-%Y", "index_time": "id"}, "index_time", "column 'id' is int64, not a timestamp or date"),
        ({"id": "id", "version": "tenant"}, "version", "column 'tenant' is string, not an integer"),
        ({"exclude": ["tenat"]}, "exclude", "did you mean 'tenant'?"),
        ({"mappings": {"tenat": "text"}, "create_index": True}, "mappings", "did you mean 'tenant'?"),
        ({"index": "Alerts"}, "index", "'Alerts' cannot be the name of an index"),
        ({"index": "_alerts"}, "index", "cannot be the name"),
        ({"index": "a b"}, "index", "cannot be the name"),
        ({"index": "T-{tenant}"}, "index", "cannot be the name"),
        ({"index": "t-%B", "index_time": "at"}, "index", "'t-February' cannot be the name"),
        ({"index": "t-%J", "index_time": "at"}, "index", "% signs without meaning"),
        ({"index": "{tenant}-x", "create_index": True}, "index", "would apply to all indices"),
        ({"data_stream": True}, "index_time", "has no such column"),
    ],
)
def test_options_that_do_not_fit_the_columns(options: dict[str, Any], option: str, said: str) -> None:
    text = text_of(JobError, lambda: check(**options))
    assert said in text
    assert f"option '{option}'" in text


@pytest.mark.parametrize("name", ["_id", "_source", "a..b", ".a", "a."])
def test_columns_that_no_field_can_be_named_after(name: str) -> None:
    assert repr(name) in text_of(JobError, lambda: check({"x": "int64", name: "string"}))
    check({"x": "int64", name: "string"}, exclude=[name])


@pytest.mark.parametrize(
    "options",
    [
        {"index": "t-%Y.%m.%d-{tenant}", "index_time": "at"},
        {"index": "t-%G-w%V", "index_time": "day", "id": "{tenant}-{id}", "version": "id", "routing": "tenant"},
        {"data_stream": True, "index_time": "at"},
        {"index": "100%%-{tenant}", "index_time": "at"},
    ],
)
def test_options_that_fit(options: dict[str, Any]) -> None:
    check(**options)


class TestChanges:
    def prepare(self, key: tuple[str, ...] | None, **options: Any) -> None:
        sink = ElasticsearchSink(settings(**options))
        sink.changes = Changes(key)
        sink.prepare(Schema.of(COLUMNS))

    def test_what_is_taken(self) -> None:
        assert ElasticsearchSink(settings()).accepts == "upsert"
        assert ElasticsearchSink(settings(mode="create")).accepts == "append"
        assert ElasticsearchSink(settings(data_stream=True)).accepts == "append"

    def test_an_id_is_needed(self) -> None:
        assert "hint: id='tenant'" in text_of(JobError, lambda: self.prepare(("tenant",)))
        assert "hint: id='{tenant}-{day}'" in text_of(JobError, lambda: self.prepare(("tenant", "day")))

    def test_the_id_tells_rows_apart(self) -> None:
        text = text_of(JobError, lambda: self.prepare(("tenant", "day"), id="tenant"))
        assert "rows that differ in 'day' alone would have the same id" in text
        # Far enough to ask for the server, which is not there.
        nobody = "http://127.0.0.1:1"
        text_of(RetriableError, lambda: self.prepare(("tenant", "day"), id="{day}/{tenant}", url=nobody))


class TestSource:
    def source(self, **options: Any) -> ElasticsearchSource:
        return ElasticsearchSource(ElasticsearchSourceSettings.of({"index": "t", **options}, plugin="elasticsearch"))

    def test_documents_need_a_format(self) -> None:
        pipe = hr.stream("test", "job")
        text = text_of(OptionError, lambda: pipe.from_elasticsearch("t", schema={"id": "int64"}))
        assert "documents need a format" in text
        assert "add format='json'" in text

    def test_a_checkpoint_of_another_number_of_slices(self) -> None:
        positions = {Queue("t/0/1of4"): ReadPosition(3)}
        text = text_of(JobError, lambda: self.source(slices=2).restore(positions))
        assert "another number of slices than 2" in text
        assert "set slices=4 as before" in text
        self.source(slices=4).restore(positions)
        self.source().restore({Queue("t/0"): ReadPosition(3)})

    def test_no_start_by_time(self) -> None:
        import datetime as dt

        start = hr.StartAt(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        assert "no order by time" in text_of(JobError, lambda: self.source().open(Queue("t/0"), start))

    def test_an_empty_name(self) -> None:
        assert "the name is an empty text" in text_of(OptionError, lambda: self.source(index=""))
