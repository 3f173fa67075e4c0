"""examples/redis_logins.py, against a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.run import run_example
from tests.servers.redis import RedisServer


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_redis_logins(
    backend: str, tmp_path: Path, redis_server: RedisServer, fresh_name: Callable[[str], str]
) -> None:
    name, client = fresh_name("logins"), redis_server.client()
    for number, outcome in enumerate(("failure", "success", "failure")):
        body = json.dumps({"user": f"u{number}", "outcome": outcome})
        client.xadd(f"{name}:{number % 2}", {"data": body})
    arguments: dict[str, object] = {
        "host": redis_server.host, "port": redis_server.port, "user": redis_server.user, "streams": f"{name}:*", "out": f"{name}-out",
    }  # fmt: skip
    for _ in range(2):
        run_example("redis_logins.py", backend, tmp_path, arguments, {"REDIS_PASSWORD": redis_server.password})
    rows = [json.loads(fields[b"data"]) for _, fields in client.xrange(f"{name}-out")]
    assert [row["user"] for row in sorted(rows, key=str)] == ["u0", "u2"]
    client.close()
