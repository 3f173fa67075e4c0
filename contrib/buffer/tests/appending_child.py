"""A process that appends from several threads until it is killed, and says which records are durable."""

from __future__ import annotations

import os
import sys
import threading

from headrace_buffer import RecordLog


def main(directory: str, quota_bytes: int) -> None:
    log = RecordLog(directory, quota_bytes=quota_bytes, when_full="drop_oldest")
    say = threading.Lock()

    def append(thread: int) -> None:
        number = 0
        while True:
            bodies = [b"%d %d %d " % (os.getpid(), thread, number + i) + b"x" * (number * 37 % 900) for i in range(3)]
            appended = log.append(bodies)
            number += 3
            with say:
                os.write(1, b"%d %d %d\n" % (appended.first, thread, number))
            if number % 300 == 0:
                log.trim(max(log.earliest, appended.first - 500))

    for thread in range(3):
        threading.Thread(target=append, args=(thread,)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
