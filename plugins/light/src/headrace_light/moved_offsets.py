"""Moves a stopped job to other offsets: what can be changed in a checkpoint without its state or its sources being wrong then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import CheckpointError, did_you_mean
from headrace.interfaces.source import GroupSource
from headrace.plan.graph import Plan

from headrace_light.checkpoint_directory import CheckpointDirectory, StoredCheckpoint, job_of


@contextmanager
def opened(checkpoint: str) -> Iterator[tuple[CheckpointDirectory, StoredCheckpoint]]:
    """Lock the checkpoint of a stopped job and read it. Raises CheckpointError if there is none, or if a job runs with it."""
    job = job_of(checkpoint)
    if job is None:
        raise CheckpointError(
            f"{os.fspath(Path(checkpoint))!r} is not a checkpoint of a job that has started",
            option="checkpoint",
            hint="a job without a checkpoint starts at the position that its sources name (start=…)",
        )
    directory = CheckpointDirectory(checkpoint, job)
    stored = directory.open()
    try:
        yield directory, stored
    finally:
        directory.close()


def moved_checkpoint(
    plan: Plan, stored: StoredCheckpoint, offsets: Mapping[str, int], *, has_begun: bool
) -> StoredCheckpoint:
    """Return the checkpoint with other offsets, by ``source/queue``. Raises CheckpointError where this would not be right."""
    if stored.sequence is not None or has_begun:
        raise CheckpointError(
            "the job has keyed state, which fits only the offsets at which it was stored",
            option="offsets",
            hint="start from a savepoint of the wanted time, or reset the job: it then starts from the beginning, without state",
        )
    known = {queue.id: queue for queue in stored.positions}
    positions = dict(stored.positions)
    for name, offset in offsets.items():
        if name not in known:
            raise CheckpointError(
                f"the checkpoint has no queue {name!r}",
                option="offsets",
                hint=did_you_mean(name, known, known="queues"),
            )
        if offset < 0:
            raise CheckpointError(f"{offset} is not an offset", queue=name, option="offsets")
        source = plan.sources.get(known[name].source)
        if source is not None and isinstance(source.source, GroupSource):
            raise CheckpointError(
                "the broker stores the offsets of the job's group, and the job uses those instead of the checkpoint's",
                queue=name,
                option="offsets",
                hint="stop the job, and set them with the broker's own tool",
            )
        if stored.positions[known[name]].hint:
            raise CheckpointError(
                "the source of this queue needs more than an offset to continue (for example, a file needs the position in bytes)",
                queue=name,
                option="offsets",
                hint="reset the job: it then starts at the position that its source names (start=…)",
            )
        positions[known[name]] = ReadPosition(offset)
    return replace(stored, id=stored.id + 1, positions=positions)
