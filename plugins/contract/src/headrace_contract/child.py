"""The child process of the checks: ``python -m headrace_contract.child TASK [RESULT]``.

``crash`` has the tasks during which the process is killed or stopped, ``processes`` calls functions and needs their results.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace_contract.handled_errors import own_folders
from headrace_contract.tasks import Moment, ReadTask, WriteTask


def main() -> None:
    """Run the task of the file named on the command line. The file was written by this suite in the same test."""
    with open(sys.argv[1], "rb") as file:
        preamble = pickle.load(file)  # noqa: S301 - our own file
        sys.path[:] = preamble["path"]
        for name, path in preamble["modules"].items():
            _load_module(name, path)
        task = pickle.load(file)  # noqa: S301 - our own file
    if isinstance(task, WriteTask):
        _write(task)
    elif isinstance(task, ReadTask):
        _read(task)
    else:
        result = task()
        Path(sys.argv[2]).write_bytes(pickle.dumps(result))


def _load_module(name: str, path: str) -> None:
    """Load a module under its name in the parent process. It cannot be imported by that name (pytest's importlib mode)."""
    parent = name.rpartition(".")[0]
    while parent:
        if parent not in sys.modules:
            package = types.ModuleType(parent)
            package.__path__ = []
            sys.modules[parent] = package
        parent = parent.rpartition(".")[0]
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _write(task: WriteTask) -> None:
    from headrace.flow.messages import Batch, Checkpoint
    from headrace.runtime.sink_writer import SinkWriter

    def refuse(batch: Batch) -> None:
        raise SystemExit(f"the sink refuses a row: {batch.frame.row(0, named=True)['reason']}")

    if task.moment is not None:
        _Striker(task.moment).watch(task.sink)
    writer = SinkWriter(task.sink, "contract", on_dead_letters=refuse, auto_flush=False)
    for number, batch in enumerate(task.batches, 1):
        writer.write(batch)
        writer.flush()
        if number in task.checkpoints:
            writer.on_system(Checkpoint(number))
            if task.kill_after_checkpoint == number:
                _strike("kill")
    writer.close()


class _Striker:
    """Kills or stops this process at a given moment of a sink's work."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._inserts = 0
        self._lines = 0
        self._lines_before = 0
        self._folders: tuple[str, ...] = ()

    def watch(self, sink: Any) -> None:
        """Wrap ``batch_insert`` of the sink's class. Nothing else in this process uses the class."""
        self._folders = own_folders(type(sink))
        insert = type(sink).batch_insert

        def watched(own: Any, batch: Any) -> None:
            self._around(lambda: insert(own, batch))

        type(sink).batch_insert = watched

    def _around(self, insert: Callable[[], None]) -> None:
        moment = self._moment
        self._inserts += 1
        self._lines_before, self._lines = self._lines, 0
        now = self._inserts == moment.insert
        if now and moment.place == "before":
            _strike(moment.action)
            now = False
        if moment.place == "inside" and self._inserts >= moment.insert - 1:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        try:
            insert()
        finally:
            sys.settrace(None)
            threading.settrace(None)
        if now:  # place "after", or an insert that ran fewer lines than the one before
            _strike(moment.action)

    def _trace(self, frame: types.FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        if event == "line":
            self._lines += 1
            limit = max(1, round(self._lines_before * self._moment.fraction))
            if self._inserts == self._moment.insert and self._lines >= limit:
                _strike(self._moment.action)
        return self._trace


def _strike(action: str) -> None:
    sys.settrace(None)
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


def _read(task: ReadTask) -> None:
    from headrace.interfaces.source import EARLIEST

    source = task.source
    queue = next(q for q in source.queues() if q.name == task.queue_name)
    if task.position is not None:
        source.restore({queue: task.position})
    reader = source.open(queue, task.position if task.position is not None else EARLIEST)
    given = 0
    deadline = time.monotonic() + task.patience_seconds
    with Path(task.journal).open("a") as journal:
        while given < task.batches:
            raw = reader.poll(task.batch_records, timedelta(milliseconds=100))
            if raw is None or not len(raw):
                if time.monotonic() > deadline:
                    raise SystemExit(f"no records came after {given} of {task.batches} batches")
                continue
            given += 1
            line = {"offsets": raw.offsets.tolist(), "next": raw.next_position.to_json()}
            journal.write(json.dumps(line) + "\n")
            journal.flush()
        _strike("kill")


if __name__ == "__main__":
    main()
