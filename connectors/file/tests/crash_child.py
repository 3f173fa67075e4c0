"""Runs in a process of its own: forks writers that are killed, at a chosen system call or when told to.

Commands come as JSON lines: {"directory", "divided": whether into partitions, "overwrites": whether the partition half=1 is replaced,
"rows", "batch", "fsync", "die_at": number of the call or null}; for each the exit status of the fork is answered. A fork is quick, so
that many deaths can be tried.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.flow.messages import Position, Queue
from headrace.interfaces.output_definition import OutputDefinition
from headrace.runtime.sink_writer import SinkWriter
from sink_world import make_sink, rows

#: The system calls by which the sink changes something outside.
_CALLS = ("open", "write", "pwrite", "fsync", "rename", "unlink", "close", "ftruncate", "mkdir", "rmdir")


def die_at(count: int) -> None:
    """Let the process be killed right before the ``count``-th of the calls that it makes from now on."""
    left = [count]

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return made

    for name in _CALLS:
        setattr(os, name, dying(getattr(os, name)))


def write(command: dict[str, Any]) -> None:
    """Write all rows of three queues through a writer, as a job does that was restarted from the beginning."""
    divided, overwrites = command["divided"], command["overwrites"]
    options: dict[str, Any] = {"partition_by": ["half"]} if divided else {}
    if overwrites:
        options = {"partition": {"half": "1"}, "writer": "overwriting"}
    if command["die_at"] and overwrites:
        die_at(command["die_at"])
    sink = make_sink(Path(command["directory"]), fsync=command["fsync"], retry_backoff="1 ms", **options)
    if overwrites:
        sink.adopt(OutputDefinition({}, "overwriting", replace=True))
    writer = SinkWriter(sink, "file", on_dead_letters=_refuse, auto_flush=False)
    if command["die_at"] and not overwrites:
        die_at(command["die_at"])
    for first in range(0, command["rows"], command["batch"]):
        for queue in ("over",) if overwrites else ("q0", "q1", "q2"):
            stored = sink.last_offset(Queue(queue)) or Position(-1)
            if first + command["batch"] - 1 > stored.offset:
                writer.write(rows(queue, first, min(command["batch"], command["rows"] - first), divided=divided))
        writer.flush()
    writer.close()


def _refuse(bad: object) -> None:
    raise AssertionError(f"refused: {bad}")


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                write(json.loads(line))
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(3)
            os._exit(0)
        print(wait(child, json.loads(line)["kill_after_ms"]), flush=True)


def wait(child: int, kill_after_ms: float | None) -> int:
    """Wait until the fork has ended, at most so long before it is killed; return its status, negative for a signal."""
    if kill_after_ms is not None:
        threading.Event().wait(kill_after_ms / 1000)
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)  # not waited for yet: the number is still its own
            _, status = os.waitpid(child, 0)
    else:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
