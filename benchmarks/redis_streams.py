"""How fast streams of Redis are read and written.

eval $(python -m tests.servers up redis) && python -m benchmarks.redis_streams
"""

from __future__ import annotations

import os
import time
from typing import Any

import headrace as hr
from headrace.testing import MemorySink

from tests.servers.redis import RedisServer

RECORDS = 200_000


def main() -> None:
    server = RedisServer.from_variable(os.environ[RedisServer.variable])
    client = server.client()
    client.delete("measured:in", "measured:out", "headrace:measure.copy.to_redis:measured:out")
    body = b'{"user": "user-1234", "address": "192.0.2.17", "outcome": "failure", "attempts": 3}'
    for _ in range(RECORDS // 10_000):
        pipeline = client.pipeline(transaction=False)
        for _ in range(10_000):
            pipeline.xadd("measured:in", {b"data": body})
        pipeline.execute()
    schema = {"user": "string", "address": "string", "outcome": "string", "attempts": "int64"}
    place: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    stream = hr.stream("measure", "copy").from_redis("measured:in", **place, format="json", schema=schema)
    for what, job in (
        ("read", stream.to(MemorySink())),
        ("read and written", stream.to_redis("measured:out", **place)),
    ):
        begun, processor = time.monotonic(), time.process_time()
        job.run("light", show_progress=False)
        print(
            f"{what}: {RECORDS / (time.monotonic() - begun):,.0f} records/s, "
            f"{(time.process_time() - processor) / RECORDS * 1e6:.1f} us of processor time each"
        )
    client.delete("measured:in", "measured:out")
    client.close()


if __name__ == "__main__":
    main()
