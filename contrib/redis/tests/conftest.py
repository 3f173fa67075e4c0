"""Makes the helpers of these tests importable; a client of the server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.redis import RedisServer

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    made = redis_server.client()
    yield made
    made.close()
