"""What it costs that several jobs of one process read one topic, each by itself and together: CPU seconds.

    python -m benchmarks.shared_reading [RECORDS] [JOBS]     # "100000" "8": a JSON line each for reading alone and together

Security events of about 650 bytes (``demo/security_events.py``) are in a queue in memory, so that nothing of a broker or its client is
counted. Each job reads other columns, filters and counts what is left. Alone and together take turns; a first run warms up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

COLUMNS = {
    "host": "string", "user": "string", "cmdline": "string", "ts": "timestamp", "exit_code": "int64", "host_ip": "string",
    "process": "string",
}  # fmt: skip
CONDITIONS = (
    "exit_code > 0 AND user <> 'root'", "lower(cmdline) LIKE '%curl%'", "process = 'curl' AND host LIKE 'web%'", "host_ip LIKE '10.1.%'",
)  # fmt: skip


def run(bodies: Sequence[bytes], jobs: int, *, together: bool) -> dict[str, Any]:
    """Let jobs read all records; return what that took."""
    import headrace as hr
    from headrace.testing import MemorySink
    from headrace_contract.memory_topics import MemoryBroker, MemoryTopicSettings, MemoryTopicSource

    broker = MemoryBroker()
    broker.add_queue("events")
    broker.append("events", 0, bodies)
    sinks, handles = [], []
    begun = time.process_time()
    for number in range(jobs):
        source = MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group=f"team-{number}"))
        sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=100)))
        stream = hr.stream("teams", f"team-{number}", bad_records="stop").from_(source, format="json", schema=COLUMNS)
        made = stream.where(CONDITIONS[number % len(CONDITIONS)]).select("host", "ts").to(sink)
        handles.append(made.start("light", until="end", shared_reading=together, show_progress=False))
        sinks.append(sink)
    for handle in handles:
        assert handle.wait().records_read == len(bodies)
    return {
        "together": together, "jobs": jobs, "records": len(bodies), "cpu_s": round(time.process_time() - begun, 2),
        "rows": sum(len(sink.rows) for sink in sinks),
    }  # fmt: skip


def main() -> None:
    from demo.security_events import events

    records, jobs = (int(each) for each in (*sys.argv[1:], "100000", "8")[:2])
    bodies = [json.dumps(event).encode() for event in events(records)]
    run(bodies[:5_000], jobs, together=True)
    for _ in range(2):
        for together in (False, True):
            print(json.dumps(run(bodies, jobs, together=together)), flush=True)


if __name__ == "__main__":
    main()
