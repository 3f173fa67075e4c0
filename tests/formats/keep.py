"""Makes the kept checkpoints of a release: ``python -m tests.formats.keep 0.2``, with the code of that release.

A kept checkpoint is a job that was stopped in the middle: its input so far, what it has written, and its checkpoint. The
archives are never made anew: later code has to read them as they are.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.interfaces.backend import JobHandle

from tests.conformance.stateful_inputs import clicks, orders
from tests.eventually import eventually
from tests.formats.jobs import VERBS, job

KEPT = Path(__file__).parent / "kept"
#: How many records of each input are there in all, and how many of them the stopped job has read.
CLICKS, ORDERS = (240, 130), (120, 65)
OPTIONS: dict[str, dict[str, Any]] = {
    "light": {"shards": 2, "max_batch_records": 30, "checkpoint_interval": "0.2 s"},
    "spark": {"shards": 2, "max_micro_batch_records": 120, "master": "local[2]"},
}
_SECONDS_MAX = 300.0


def lay_out(directory: Path, *, clicks_count: int, orders_count: int) -> None:
    """Write the input with so many records of each."""
    (directory / "in").mkdir(exist_ok=True)
    for name, lines, count in (
        ("clicks", clicks(CLICKS[0], 1), clicks_count),
        ("orders", orders(ORDERS[0], 7), orders_count),
    ):
        (directory / "in" / f"{name}.ndjson").write_text("".join(f"{line}\n" for line in lines[:count]))


@contextmanager
def within(directory: Path) -> Iterator[None]:
    """Make a directory the working directory for a while: the jobs read and write below it."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def wait_for_records(handle: JobHandle, count: int) -> None:
    """Wait until a job has read so many records and has nothing to read."""
    eventually(
        lambda: handle.status().records_read >= count,
        f"{count} records are read, but",
        shown=lambda: handle.status().records_read,
        seconds=_SECONDS_MAX,
    )


def stop_in_the_middle(directory: Path, kind: str) -> None:
    """Run the job of every verb over the first part of its input, and stop it: with a checkpoint, or with a savepoint."""
    lay_out(directory, clicks_count=CLICKS[1], orders_count=ORDERS[1])
    saves = kind == "savepoint"
    backend = "light" if saves else kind
    kept: dict[str, Any] = {} if saves else {"checkpoint": "checkpoint"}
    with within(directory):
        handle = job(*VERBS).start(backend, **kept, **OPTIONS[backend])
        wait_for_records(handle, CLICKS[1] + ORDERS[1])
        handle.stop(savepoint="savepoint" if saves else None)
        handle.wait()


def main(version: str) -> None:
    KEPT.mkdir(exist_ok=True)
    for kind in (*OPTIONS, "savepoint"):
        archive = KEPT / f"{version}-{kind}.tar.xz"
        if archive.exists():
            print(archive, "is there already: what was released stays as it is")
            continue
        with tempfile.TemporaryDirectory() as place:
            stop_in_the_middle(Path(place), kind)
            with tarfile.open(archive, "w:xz") as file:
                file.add(place, arcname=".", filter=_plain)
        print(archive, archive.stat().st_size)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is of this machine and user."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith(("/lock", ".lock", ".crc")) else member


if __name__ == "__main__":
    main(*sys.argv[1:])
