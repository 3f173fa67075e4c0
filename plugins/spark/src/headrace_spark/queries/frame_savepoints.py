"""Savepoints of jobs over streaming DataFrames: beside the state, what Spark's checkpoint says of the DataFrames at that moment.

How far a DataFrame was read only its source in Spark can say, so a savepoint has the files of Spark's checkpoint as they are: the
offsets of one micro-batch, and what sources note for themselves. The job that starts from it has them as the offsets of a
micro-batch 0 that is completed, and continues with micro-batch 1.

    PATH/spark/offsets         offsets/<n> of Spark's checkpoint
    PATH/spark/commits         commits/<n>
    PATH/spark/sources/…       what sources keep below sources/
    PATH/spark/frames.json     the sources in the order in which Spark stores their offsets
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.flow.messages import Queue
from headrace.foundation.errors import CheckpointError
from headrace.plan.graph import Plan
from headrace.runtime.savepoint_start import SavepointStart
from headrace.runtime.savepoints import SavepointWriter
from headrace.runtime.shard_states import StageStates

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
from headrace_spark.checkpoints.offsets import JobIdentity
from headrace_spark.queries.savepoint_offsets import offsets_at
from headrace_spark.shards.topology import Address
from headrace_spark.transit.payload import KeyedPlan

_PREFIX = "spark/"
_ORDER = "spark/frames.json"
#: The micro-batch that a savepoint is for the job that starts from it.
_BATCH_ID = 0


def add_spark_files(
    checkpoint: SparkCheckpoint, batch_id: int, writer: SavepointWriter, sources: Sequence[str]
) -> None:
    """Add Spark's positions of the DataFrames after a micro-batch to a savepoint. Raises CheckpointError."""
    offsets = checkpoint.spark_file(f"offsets/{batch_id}")
    writer.add_file(f"{_PREFIX}offsets", offsets)
    writer.add_file(f"{_PREFIX}commits", checkpoint.spark_file(f"commits/{batch_id}"))
    for number, line in enumerate(offsets.decode().splitlines()[2:]):
        for name in _of_source(checkpoint.names_below(f"sources/{number}"), line):
            path = f"sources/{number}/{name}"
            writer.add_file(f"{_PREFIX}{path}", checkpoint.spark_file(path))
    writer.add_file(_ORDER, json.dumps(list(sources)).encode())


def _of_source(names: Sequence[str], offset: str) -> Iterator[str]:
    """Yield the files that a source had when it came to an offset.

    The source of files numbers the files that it has seen, and notes them before the micro-batch is planned: later
    notes would be taken for files that were read.
    """
    try:
        last = int(json.loads(offset)["logOffset"])
    except (ValueError, KeyError, TypeError):
        yield from names
        return
    for name in names:
        number = name.removesuffix(".compact")
        if not number.isdigit() or int(number) <= last:
            yield name


@dataclass(frozen=True)
class FrameSavepoint:
    """A savepoint at which a job over DataFrames begins."""

    start: SavepointStart
    sources: Sequence[str]

    @classmethod
    def of(cls, start: SavepointStart, sources: Sequence[str]) -> FrameSavepoint:
        """Check that a savepoint is of such a job, with the same sources. Raises CheckpointError."""
        job = start.plan.job_name
        if _ORDER not in start.savepoint.files:
            raise CheckpointError(
                f"the savepoint {start.savepoint.path} was taken from a job without DataFrames, so it has no positions for them",
                job=job,
                option="from_savepoint",
            )
        before = json.loads(start.savepoint.file(_ORDER))
        if before != list(sources):
            raise CheckpointError(
                f"the savepoint is of a job that read {', '.join(before)}, and now reads {', '.join(sources)}: Spark identifies "
                "DataFrames only by their order",
                job=job,
                option="from_savepoint",
                hint="read the same DataFrames in the same order, with the same names (name=…)",
            )
        new = sorted(set(start.plan.shuffles) - start.savepoint.place.shards.keys())
        if new:
            raise CheckpointError(
                f"the job has a keyed stage {new[0]!r} that the savepoint does not have",
                job=job,
                option="from_savepoint",
                hint="a job over DataFrames must keep its keyed stages: start the changed job from the beginning",
            )
        return cls(start, sources)

    def begin(self, checkpoint: SparkCheckpoint, keyed: KeyedPlan | None, identity: JobIdentity, sequence: int) -> None:
        """Write state and offsets into an empty checkpoint, as those of a micro-batch that is completed.

        ``sequence``: the number to which micro-batch numbers are added. After a crash in this function it can be called again.
        """
        start, savepoint = self.start, self.start.savepoint
        shards = {} if keyed is None else dict.fromkeys(start.plan.shuffles, keyed.shards)
        start.tell(shards)
        query_id = str(uuid.uuid4())
        known: set[Queue] = set()
        if keyed is not None:
            of_query = replace(keyed, state_uri=f"{keyed.state_uri}/{query_id}", checkpoint=query_id)
            for shuffle, number, state in start.states(shards):
                of_query.chain(Address(shuffle, number)).begin_at(_BATCH_ID, state)
                known |= {
                    Queue(each[0], each[1]) for each in StageStates(start.plan, shuffle).unpacked(state)["upstreams"]
                }
        at = offsets_at(start, keyed, identity, sequence, int(time.time() * 1_000_000), known)
        lines = savepoint.file(f"{_PREFIX}offsets").decode().splitlines()
        lines[2] = json.dumps(at.to_json())
        for name in savepoint.files:
            if name.startswith(f"{_PREFIX}sources/"):
                checkpoint.put_spark_file(name.removeprefix(_PREFIX), savepoint.file(name))
        checkpoint.put_spark_file(f"offsets/{_BATCH_ID}", "\n".join(lines).encode())
        checkpoint.put_spark_file(f"commits/{_BATCH_ID}", savepoint.file(f"{_PREFIX}commits"))
        checkpoint.put_spark_file("metadata", json.dumps({"id": query_id}).encode())


def sources_in_order(about: Mapping[str, Any] | None, plan: Plan) -> Sequence[str]:
    """Return the sources of a job as its checkpoint has them."""
    assert about is not None, f"{plan.job_name} runs, so its checkpoint was begun"
    names: Sequence[str] = about["sources"]
    return names
