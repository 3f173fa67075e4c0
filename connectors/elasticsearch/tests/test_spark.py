"""Bounded jobs on Spark: an index into another one, and what is new in the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from elasticsearch_world import Cluster


@pytest.mark.spark
def test_index_to_index(cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.create("source", number_of_shards=2)
    cluster.add(source, [{"id": n, "name": f"name {n}", "at": "2024-02-29T08:00:00Z"} for n in range(500)])
    job = (
        hr.stream("test", "spark")
        .from_elasticsearch(
            **cluster.options(index=source, slices=2),
            format="json",
            schema={"id": "int64", "name": "string", "at": "timestamp"},
        )
        .where("id % 2 = 0")
        .with_columns(name="upper(name)")
        .to_elasticsearch(**cluster.options(index=cluster.name("copy-%Y")), index_time="at", id="id", create_index=True)
    )
    options: dict[str, Any] = {
        "checkpoint": str(tmp_path / "checkpoint"), "show_progress": False, "master": "local[2]"
    }  # fmt: skip
    report = job.run("spark", **options)
    assert report.dead_letters == 0
    copy = cluster.name("copy-2024")
    wanted = [(n, f"NAME {n}") for n in range(0, 500, 2)]
    assert sorted((row["id"], row["name"]) for row in cluster.documents(copy)) == wanted
    cluster.add(source, [{"id": 500, "name": "late", "at": "2024-02-29T08:00:00Z"}])
    job.run("spark", **options)
    found = cluster.hits(copy)
    assert sorted((hit["_source"]["id"], hit["_source"]["name"]) for hit in found) == [*wanted, (500, "LATE")]
    assert {hit["_version"] for hit in found} == {1}  # the second run has read the new document alone
