"""examples/file_to_elasticsearch.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elasticsearch
import pytest

from tests.examples.run import run_example
from tests.servers.elasticsearch import ElasticsearchServer


@pytest.fixture
def client(elasticsearch_server: ElasticsearchServer) -> Iterator[elasticsearch.Elasticsearch]:
    with elasticsearch.Elasticsearch(elasticsearch_server.url, request_timeout=60) as made:
        yield made


def event(number: int) -> dict[str, Any]:
    return {
        "at": f"2024-05-{1 + number % 3:02}T10:00:00Z",
        "host": f"Web-{number % 5}",
        "source_ip": "nowhere" if number == 77 else f"10.0.0.{number % 250}",
        "status": (200, 404, 503)[number % 3],
        "message": f"request {number} failed",
    }


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_file_to_elasticsearch(
    backend: str,
    elasticsearch_server: ElasticsearchServer,
    client: elasticsearch.Elasticsearch,
    index_name: str,
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for file in range(2):
        lines = [json.dumps(event(number)) for number in range(file, 600, 2)]
        (logs / f"{file}.ndjson").write_text("\n".join(lines) + "\n")
    with open(logs / "0.ndjson", "a") as first:
        first.write("no JSON\n")
    arguments: dict[str, object] = {
        "path": f"{logs}/*.ndjson", "url": elasticsearch_server.url, "index": index_name
    }  # fmt: skip
    run_example("file_to_elasticsearch.py", backend, tmp_path, arguments, {})

    def found(index: str) -> list[dict[str, Any]]:
        client.indices.refresh(index=index)
        hits = client.search(index=index, size=1000)["hits"]["hits"]
        return [{**hit["_source"], "_index": hit["_index"]} for hit in hits]

    wanted = {number for number in range(600) if number % 3 and number != 77}
    stored = found(f"{index_name}-2024*")
    assert sorted(int(row["message"].split()[1]) for row in stored) == sorted(wanted)
    for row in stored:
        number = int(row["message"].split()[1])
        assert row["_index"] == f"{index_name}-2024.05.{1 + number % 3:02}"
        assert (row["host"], row["severity"]) == (f"web-{number % 5}", "warning" if number % 3 == 1 else "error")
    refused = {(row["origin"], row["error"]) for row in found(f"{index_name}-refused")}
    assert refused == {("file", "DecodeError"), ("to_elasticsearch", "DataError")}
    counted = client.count(index=f"{index_name}-2024*", query={"term": {"source_ip": "10.0.0.0/24"}})["count"]
    assert counted == len(wanted)  # the addresses are stored as such

    with open(logs / "1.ndjson", "a") as second:
        second.write(json.dumps(event(601)) + "\n")
    run_example("file_to_elasticsearch.py", backend, tmp_path, arguments, {})
    assert len(found(f"{index_name}-2024*")) == len(wanted) + 1
    assert len(found(f"{index_name}-refused")) == 2

    client.indices.delete(index=f"{index_name}*")
    client.options(ignore_status=404).indices.delete_index_template(name=f"headrace-{index_name}*")
