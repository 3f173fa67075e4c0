"""The windows of benchmarks.peers in Quix Streams, from Kafka to Kafka. Runs in an environment of its own.

    python quix_job.py SERVERS TOPIC GROUP STATE_DIRECTORY

Messages have their key already, so that nothing is repartitioned. Windows close for a whole partition, as its docs advise for
keys that come seldom. Positions are committed and state is sent to its changelog topic every five seconds (the default). The
topic ends with an event far ahead, which closes all windows. The run ends when nothing has come for ten seconds.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc"
from __future__ import annotations

import json
import logging
import sys
import time
from datetime import datetime
from typing import Any

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum


def main(servers: str, topic: str, group: str, state: str) -> dict[str, Any]:
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state,
        loglevel=logging.ERROR,
    )
    source = app.topic(
        topic,
        value_deserializer="json",
        timestamp_extractor=lambda value, *_: int(datetime.fromisoformat(value["ts"]).timestamp() * 1000),
    )
    sums = (
        app.dataframe(source)
        .tumbling_window(10_000, grace_ms=5_000)
        .agg(n=Count(), s=Sum("v"))
        .final(closing_strategy="partition")
    )
    rows = [0]

    def count(_value: Any) -> None:
        rows[0] += 1

    sums.update(count).to_topic(app.topic(f"{topic}-{group}-out", value_serializer="json"))
    begun, begun_cpu = time.perf_counter(), time.process_time()
    app.run(timeout=10)
    # The ten seconds of waiting at the end do not count.
    return {
        "seconds": time.perf_counter() - begun - 10, "cpu_seconds": time.process_time() - begun_cpu, "rows": rows[0],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
