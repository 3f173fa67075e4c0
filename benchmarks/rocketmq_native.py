"""What rocketmq-client-python's push consumer is given in a second; run by rocketmq_connector, with LD_LIBRARY_PATH set.

    python -m benchmarks.rocketmq_native NAME_SERVER TOPIC GROUP COUNT THREADS

The callback takes what headrace's source gives of each message: body, offset and time. Time counts from the first message on.
It ends without a shutdown, which would wait.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import ConsumeStatus, PushConsumer


def main(name_server: str, topic: str, group: str, count: int, threads: int) -> None:
    lock, done = threading.Lock(), threading.Event()
    taken: list[tuple[bytes, int, int]] = []
    begun = cpu_begun = 0.0

    def receive(message: Any) -> Any:
        nonlocal begun, cpu_begun
        found = (message.body, message.queue_offset, message.store_timestamp)
        with lock:
            if not taken:
                begun, cpu_begun = time.perf_counter(), time.process_time()
            taken.append(found)
            if len(taken) == count:
                done.set()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(group)
    consumer.set_name_server_address(name_server)
    consumer.set_instance_name(group)
    if threads:
        consumer.set_thread_count(threads)
    consumer.subscribe(topic, receive)
    consumer.start()
    if not done.wait(300):
        raise TimeoutError(f"{len(taken)} of {count} messages came")
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
