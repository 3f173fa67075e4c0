"""Jobs with every kind of state, stopped and killed in the middle of their input, for the tests of damage."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace as hr

from tests.conformance.case import outputs
from tests.conformance.damaging import Files, files_in, put_back
from tests.conformance.stateful_cases import (
    changes_of_changes,
    distinct,
    join_within,
    join_without_bound,
    late_rows,
    window_on_window,
    with_state,
)
from tests.conformance.stateful_grid import joins
from tests.conformance.stateful_inputs import SCHEMA, clicks, orders
from tests.formats.jobs import KEYED, WINDOWED

Outputs = Mapping[str, Counter[str]]
_NO_CHECKPOINTS = {"checkpoint_interval": "1 h", "discovery_interval": "300 ms"}
DIRECTORIES = ("state", "out", "kept")


@dataclass(frozen=True)
class DamagedJob:
    """A job whose state is to be damaged. ``build`` is as that of a ``Case``; ``savepoint``: it begins at one."""

    name: str
    build: Callable[[Path], hr.Job]
    options: Mapping[str, Any] = field(default_factory=dict)
    savepoint: bool = False


@dataclass(frozen=True)
class Stopped:
    """Files of a job in the middle of its input, those of other checkpoints of it, and what it comes to."""

    job: DamagedJob
    files: Files
    others: tuple[Files, ...]
    wanted: Outputs
    start: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """What is damaged: all that the job, its dead letters and its sinks remember, and no finished part of an output."""
        return [
            name
            for name in self.files
            if name.startswith("kept/") or (name.startswith(("state", "out")) and not _is_part(name))
        ]

    def put_back(self) -> None:
        put_back(self.files, *DIRECTORIES)


def _is_part(name: str) -> bool:
    path = Path(name)
    return path.name.startswith("part-") and "_headrace" not in path.parts


def _of(*names: str) -> Callable[[Path], hr.Job]:
    """Return what builds a job of several verbs over one input, some of whose records are bad. None of them asks the clock."""

    def build(directory: Path) -> hr.Job:
        pipe = hr.stream("damage", "many")
        events = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
        timed = events.watermark("ts", delay="4 s")
        verbs = {name: (KEYED[name], events) if name in KEYED else (WINDOWED[name], timed) for name in names}
        made: list[hr.Job] = [
            verb(stream).to_file(f"{directory}/out/table-{name}", changes="column", name=name)
            for name, (verb, stream) in verbs.items()
        ]
        return made[0].also(*made[1:])

    return build


_MANY = ("session", "window-top-n", "over", "match", "top-n", "distinct")
JOBS = [
    DamagedJob("many", _of(*_MANY)),
    DamagedJob("changes", changes_of_changes),
    DamagedJob("rocksdb", _of(*_MANY), {"state_store": "rocksdb"}),
    DamagedJob("joins", join_without_bound),
    DamagedJob("savepoint", _of(*_MANY), savepoint=True),
    DamagedJob("windows", _of("tumbling", "sliding", "keyless", "twice", "window-reduce")),
    # One queue: of several, who is late and which row is the third of its key depend on the order in which they are read, and
    # entries of the order log that are cut off before a result of them was written may be read in another order.
    DamagedJob("late", lambda directory: late_rows(directory, "clicks.ndjson")),
    DamagedJob("joins-within", join_within),
    DamagedJob("joins-window", lambda directory: joins(directory, kind="window")),
    DamagedJob("twice", window_on_window),
    DamagedJob("distinct", distinct),
    DamagedJob("functions", lambda directory: with_state(directory, "clicks.ndjson")),
]


def _lines() -> Mapping[str, Sequence[str]]:
    damaged = clicks(240, 1)
    for place in (20, 100, 130, 200):
        damaged[place] = damaged[place][:-7]  # bad records: their positions are state too
    lines = {"clicks.ndjson": damaged, "orders.ndjson": orders(90, 7)}
    return lines | {f"clicks-{n}.ndjson": clicks(90, n, first=n * 1000) for n in range(2)}


def append(part: int, of: int) -> None:
    """Append a part of each input file, of so many equal ones."""
    Path("in").mkdir(exist_ok=True)
    for name, lines in _lines().items():
        size = len(lines) // of
        with open(Path("in", name), "a") as file:
            file.writelines(line + "\n" for line in lines[part * size : (part + 1) * size])


def made() -> Outputs:
    """Return what is written, dead letters included."""
    found = outputs(Path("."))
    letters = [
        json.loads(line) for path in Path("state/dead-letters").glob("part-*") for line in path.read_text().splitlines()
    ]
    return {**found, "dead letters": Counter(f"{each['queue']} {each['offset']} {each['error']}" for each in letters)}


def _settled(handle: Any) -> None:
    """Wait until a job has read and written what is there: nothing changes for a while."""
    before: Files | None = None
    deadline = time.monotonic() + 120
    while before != (now := files_in("state", "out")) or not _all_read(handle):
        assert time.monotonic() < deadline, f"the job never comes to rest: {handle.status()}"
        before = now
        threading.Event().wait(1.2)


def _all_read(handle: Any) -> bool:
    queues = handle.status().queues
    return bool(queues) and all(queue.latest is not None and queue.offset >= queue.latest for queue in queues)


def stopped(job: DamagedJob, backend: str, **start: Any) -> Stopped:
    """Bring a job into the middle of its input in the working directory: stopped once, then killed."""
    build, options = job.build, {**job.options, **start}
    run = {**options, "checkpoint": "state", "show_progress": False}
    append(0, 2)  # another checkpoint of the same job, over other records
    handle = build(Path(".")).start(backend, **run, **_NO_CHECKPOINTS)
    _settled(handle)
    handle.stop(savepoint="kept" if job.savepoint else None)
    foreign = files_in(*DIRECTORIES)
    for name in ("state", "out", "in", "kept"):
        shutil.rmtree(name, ignore_errors=True)
    append(0, 3)
    handle = build(Path(".")).start(backend, **run, **_NO_CHECKPOINTS)
    _settled(handle)
    handle.stop(savepoint="kept" if job.savepoint else None)
    older = files_in(*DIRECTORIES)
    append(1, 3)
    if job.savepoint:
        shutil.rmtree("state")
        files, run = files_in(*DIRECTORIES), {**run, "from_savepoint": "kept"}
    else:
        handle = build(Path(".")).start(backend, **run, **_NO_CHECKPOINTS)
        _settled(handle)
        files = files_in(*DIRECTORIES)
        handle.stop()
    append(2, 3)
    put_back(files, *DIRECTORIES)
    build(Path(".")).run(backend, **run)
    return Stopped(job, files, (foreign, older), made(), run)
