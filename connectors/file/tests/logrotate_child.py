"""Runs in a process of its own, which the test kills: copies the lines of a log to files, exactly once, until it is killed."""

from __future__ import annotations

import sys

import headrace as hr


def main(log: str, out: str, state: str) -> None:
    job = (
        hr.stream("test", "logrotate")
        .from_file(log, format="raw", rotate_wait="1 s", poll_interval="10 ms", last_line="wait")
        .to_file(out, format="raw", flush_interval="20 ms", fsync=False)
    )
    handle = job.start("light", checkpoint=state, checkpoint_interval="50 ms", discovery_interval="50 ms")
    print("started", flush=True)
    handle.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
