"""A worker process: takes raw batches through the lanes of a plan, one after the other, until the engine closes the connection.

Started by ``lane_workers`` as ``python -m headrace_light.workers.process CONNECTION SLOT …``, with descriptors as arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection


def main(arguments: list[str]) -> int:
    """Serve one engine. Returns when it is gone."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of a terminal; the engine decides when to end
    connection, *slots = map(int, arguments)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # there is a worker for each core
    channel = Connection(connection)
    try:
        from headrace_light.workers.serving import Serving

        Serving(channel, slots).run()
    except (EOFError, ConnectionError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
