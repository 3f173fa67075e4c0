"""Makes the helpers of these tests importable, and gives the cluster as somebody else sees it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tests.servers.elasticsearch import ElasticsearchServer


@pytest.fixture
def cluster(elasticsearch_server: ElasticsearchServer, index_name: str) -> Iterator[object]:
    """The shared server, with names of indices that begin as nobody else's; they are removed after the test."""
    from elasticsearch_world import Cluster

    made = Cluster(elasticsearch_server.url, index_name)
    yield made
    made.close()
