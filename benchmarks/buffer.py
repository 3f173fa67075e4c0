"""How many records a buffer on local disk takes and gives: ``python -m benchmarks.buffer [records]``.

Records of 200 bytes. One thread appends batches, each durable before the next; then 1, 8 and 64 threads append one record at a time, each
waiting until it is durable, as senders do that wait for an answer. The disk is that of the temporary directory.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headrace_buffer import RecordLog

RECORD = b"x" * 200


def measured(what: str, records: int, run: Callable[[], None]) -> None:
    """Print the records a second of a run, by the clock and by the processor."""
    begin, cpu = time.perf_counter(), time.process_time()
    run()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(
        f"{what:<48} {records / seconds:>12,.0f} records/s {records / cpu:>12,.0f} records per CPU second", flush=True
    )


def append_batches(log: RecordLog, records: int, batch: int) -> None:
    for _ in range(records // batch):
        log.append([RECORD] * batch)


def append_from(log: RecordLog, threads: int, records: int) -> None:
    running = [threading.Thread(target=append_batches, args=(log, records // threads, 1)) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def read_all(log: RecordLog) -> None:
    offset = log.earliest
    while (found := log.read(offset, 20_000)) is not None:
        offset = found.end


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with tempfile.TemporaryDirectory() as directory:
        for batch in (100, 1_000, 10_000):
            with RecordLog(Path(directory, f"batches-{batch}"), quota_bytes=4 * 1024**3) as log:
                measured(f"append {batch:,} at once", records, partial(append_batches, log, records, batch))
                if batch == 10_000:
                    measured("read", records, partial(read_all, log))
        for threads in (1, 8, 64):
            count = max(64, records // 200) // threads * threads
            with RecordLog(Path(directory, f"threads-{threads}"), quota_bytes=4 * 1024**3) as log:
                measured(f"append one at a time, {threads} threads", count, partial(append_from, log, threads, count))


if __name__ == "__main__":
    main()
