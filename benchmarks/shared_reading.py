"""What it costs that several jobs of one process read one topic, each by itself and together: CPU seconds.

    python -m benchmarks.shared_reading [RECORDS] [JOBS] [memory|rocketmq]   # "100000" "8": a JSON line each for reading alone and together

Security events of about 650 bytes (``demo/security_events.py``) are in a queue in memory, so that nothing of a broker or its client is
counted; or in a topic of RocketMQ (``HEADRACE_TEST_ROCKETMQ=host:port``, or a server that is started for it), and the client is. Each job
reads other columns, filters and counts what is left. Alone and together take turns; a first run warms up.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

COLUMNS = {
    "host": "string", "user": "string", "cmdline": "string", "ts": "timestamp", "exit_code": "int64", "host_ip": "string",
    "process": "string",
}  # fmt: skip
CONDITIONS = (
    "exit_code > 0 AND user <> 'root'", "lower(cmdline) LIKE '%curl%'", "process = 'curl' AND host LIKE 'web%'", "host_ip LIKE '10.1.%'",
)  # fmt: skip
#: Makes the source of a team.
Sources = Callable[[str], Any]


def run(sources: Sources, records: int, jobs: int, *, together: bool) -> dict[str, Any]:
    """Let jobs read all records; return what that took."""
    import headrace as hr
    from headrace.testing import MemorySink

    sinks, handles = [], []
    begun = time.process_time()
    for number in range(jobs):
        sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=100)))
        stream = hr.stream("teams", f"team-{number}", bad_records="stop")
        events = stream.from_(sources(f"team-{number}-{secrets.token_hex(4)}"), format="json", schema=COLUMNS)
        made = events.where(CONDITIONS[number % len(CONDITIONS)]).select("host", "ts").to(sink)
        handles.append(made.start("light", until="end", shared_reading=together, show_progress=False))
        sinks.append(sink)
    for handle in handles:
        assert handle.wait().records_read == records
    return {
        "together": together, "jobs": jobs, "records": records, "cpu_s": round(time.process_time() - begun, 2),
        "rows": sum(len(sink.rows) for sink in sinks),
    }  # fmt: skip


@contextmanager
def in_memory() -> Iterator[Callable[[Sequence[bytes]], Sources]]:
    """Give what puts bodies into a topic in memory."""
    from headrace_contract.memory_topics import MemoryBroker, MemoryTopicSettings, MemoryTopicSource

    brokers = []

    def filled(bodies: Sequence[bytes]) -> Sources:
        brokers.append(broker := MemoryBroker())
        broker.add_queue("events")
        broker.append("events", 0, bodies)
        return lambda group: MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group=group))

    yield filled


@contextmanager
def in_rocketmq() -> Iterator[Callable[[Sequence[bytes]], Sources]]:
    """Give what puts bodies into a topic of RocketMQ with one queue."""
    from headrace_rocketmq import Client, Message
    from headrace_rocketmq.settings import RocketMQSourceSettings
    from headrace_rocketmq.source import RocketMQSource

    from benchmarks.rocketmq_connector import rocketmq_server

    with rocketmq_server() as server, Client(server.name_server) as client:

        def filled(bodies: Sequence[bytes]) -> Sources:
            topic = f"shared-{secrets.token_hex(4)}"
            (queue,) = client.create_topic(topic, 1)
            for begin in range(0, len(bodies), 2_000):
                client.send_many(topic, [Message(body) for body in bodies[begin : begin + 2_000]], queue=queue)

            def source(team: str) -> RocketMQSource:
                given = {"topic": topic, "name_servers": server.name_server, "group": f"{topic}-{team}"}
                return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))

            return source

        yield filled


def main() -> None:
    from demo.security_events import events

    given = (*sys.argv[1:], *("100000", "8", "memory")[len(sys.argv) - 1 :])
    records, jobs = int(given[0]), int(given[1])
    bodies = [json.dumps(event).encode() for event in events(records)]
    with {"memory": in_memory, "rocketmq": in_rocketmq}[given[2]]() as filled:
        few = bodies[:5_000]
        run(filled(few), len(few), jobs, together=True)
        sources = filled(bodies)
        for _ in range(2):
            for together in (False, True):
                print(json.dumps({"from": given[2], **run(sources, records, jobs, together=together)}), flush=True)


if __name__ == "__main__":
    main()
