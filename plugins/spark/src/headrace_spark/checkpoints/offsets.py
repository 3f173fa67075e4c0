"""The offsets of a job as Spark keeps them: one JSON object for all queues of all sources."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.checksums import checksum_of
from headrace.foundation.errors import CheckpointError

if TYPE_CHECKING:
    from headrace.plan.graph import Plan

logger = logging.getLogger(__name__)
FORMAT_VERSION = 2
_KEYS = frozenset({"format", "job", "plan", "sources", "gone", "broken", "keyed", "checkpoint", "number", "checksum"})
#: Positions kept of queues that have gone, for the case that they come back. The oldest are forgotten first.
GONE_MAX = 1_000


@dataclass(frozen=True)
class JobIdentity:
    """What identifies the job of offsets: its name, the shape of its plan, and the class of each source."""

    job: str
    fingerprint: str
    #: By node id. Positions mean nothing to another kind of source.
    sources: Mapping[str, str]
    #: A random id of the checkpoint; None: not known, or an older version of headrace began it.
    checkpoint: str | None = None

    @classmethod
    def of(cls, plan: Plan) -> JobIdentity:
        """Return the identity of a plan."""
        kinds = {source_id: type(node.source).__name__ for source_id, node in plan.sources.items()}
        return cls(plan.job_name, plan.fingerprint(), kinds)


@dataclass(frozen=True)
class KeyedMarks:
    """What the micro-batches of a job with keyed stages get besides its queues; the same when they are run again."""

    #: Shards per shuffle, and the shuffles by level: both are fixed for as long as there is state.
    shards: int
    levels: tuple[tuple[str, ...], ...]
    #: What is added to a micro-batch's number, so that in the sinks its results come after those of an earlier job.
    base: int
    #: When the micro-batch was planned, microseconds since the Unix epoch; never falls.
    time_us: int
    #: Queues that are not waited for.
    idle: tuple[Queue, ...] = ()
    #: How many bounded runs have reached their end.
    ends: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; ``from_json`` reads it."""
        return {
            "shards": self.shards,
            "levels": [list(names) for names in self.levels],
            "base": self.base,
            "time_us": self.time_us,
            "idle": [[queue.source, queue.name] for queue in self.idle],
            "ends": self.ends,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KeyedMarks:
        idle = tuple(Queue(name, source) for source, name in value["idle"])
        levels = tuple(tuple(names) for names in value["levels"])
        return cls(int(value["shards"]), levels, int(value["base"]), int(value["time_us"]), idle, int(value["ends"]))


@dataclass(frozen=True)
class JobOffsets:
    """How far a job is: the next position of each queue, and the job and plan to which the positions belong."""

    job: str
    plan: str
    #: The class of each source that was asked for its queues, by node id: positions mean nothing to another kind.
    sources: Mapping[str, str]
    queues: Mapping[Queue, ReadPosition] = field(default_factory=dict)
    gone: Mapping[Queue, ReadPosition] = field(default_factory=dict)
    #: Queues that were set aside because they cannot be read as they are, and why. Their positions stay where they are.
    broken: Mapping[Queue, str] = field(default_factory=dict)
    #: None before the first micro-batch, and in jobs without keyed stages.
    keyed: KeyedMarks | None = None
    #: The checkpoint that they are of, and how many micro-batches came before; None where an older version of headrace began it.
    checkpoint: str | None = None
    number: int | None = None

    @classmethod
    def unknown(cls, identity: JobIdentity) -> JobOffsets:
        """Return the offsets of a job that has not looked at its sources yet."""
        return cls(identity.job, identity.fingerprint, {}).begun_in(identity.checkpoint)

    def begun_in(self, checkpoint: str | None) -> JobOffsets:
        """Return where a checkpoint begins, before its first micro-batch."""
        return replace(self, checkpoint=checkpoint, number=None if checkpoint is None else 0)

    def leads_on_from(self, start: JobOffsets) -> bool:
        """Return whether one micro-batch leads here from ``start``, as far as that is known."""
        if self.number is None or start.number is None:
            return True
        return (self.checkpoint, self.number) == (start.checkpoint, start.number + 1)

    def records_from(self, start: JobOffsets) -> int:
        """Return how many records lie between ``start`` and here, over all queues; those of a queue that is new do not count."""
        return sum(at.offset - start.queues[queue].offset for queue, at in self.queues.items() if queue in start.queues)

    @classmethod
    def of(
        cls,
        identity: JobIdentity,
        queues: Mapping[Queue, ReadPosition],
        gone: Mapping[Queue, ReadPosition] | None = None,
        broken: Mapping[Queue, str] | None = None,
    ) -> JobOffsets:
        """Return offsets of a job that has looked at its sources."""
        kept = dict(list((gone or {}).items())[-GONE_MAX:])
        aside = dict(sorted((broken or {}).items()))
        return cls(identity.job, identity.fingerprint, identity.sources, dict(sorted(queues.items())), kept, aside)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, equal for equal offsets; ``from_json`` reads it."""
        value = {
            "format": 1 if self.keyed is None else FORMAT_VERSION,
            "job": self.job,
            "plan": self.plan,
            "sources": {
                source_id: {"kind": kind, "queues": _of_source(self.queues, source_id)}
                for source_id, kind in self.sources.items()
            },
            "gone": [
                {"source": queue.source, "queue": queue.name, **position.to_json()}
                for queue, position in self.gone.items()
            ],
            **({"broken": [[q.source, q.name, why] for q, why in self.broken.items()]} if self.broken else {}),
            **({} if self.keyed is None else {"keyed": self.keyed.to_json()}),
            **({} if self.checkpoint is None else {"checkpoint": self.checkpoint, "number": self.number}),
        }
        return {**value, "checksum": checksum_of(value)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JobOffsets:
        """Read what ``to_json`` gave. Raises CheckpointError when it is something else."""
        try:
            unknown = set(value) - _KEYS
            # An older version of headrace has written no checksum, and neither an id nor a number.
            whole = "checksum" not in value and not {"checkpoint", "number"} & set(value)
            if unknown or not (whole or value["checksum"] == checksum_of(value)):
                raise ValueError(f"unknown parts {sorted(unknown)}" if unknown else "their checksum does not match")
            version = int(value["format"])
            if version > FORMAT_VERSION:
                raise CheckpointError(
                    f"the checkpoint was written by a newer version of headrace (format {version})",
                    job=value.get("job"),
                    hint="run the job with that version, or with another checkpoint directory",
                )
            queues = {
                Queue(name, source_id): ReadPosition.from_json(position)
                for source_id, entry in value["sources"].items()
                for name, position in entry["queues"].items()
            }
            gone = {Queue(e["queue"], e["source"]): ReadPosition.from_json(e) for e in value["gone"]}
            kinds = {source_id: entry["kind"] for source_id, entry in value["sources"].items()}
            keyed = KeyedMarks.from_json(value["keyed"]) if "keyed" in value else None
            broken = {Queue(name, source): str(why) for source, name, why in value.get("broken", ())}
            checkpoint, number = value.get("checkpoint"), value.get("number")
            return cls(value["job"], value["plan"], kinds, queues, gone, broken, keyed, checkpoint, number)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"the offsets in the checkpoint are damaged, or were not written by headrace: {error!r}",
                hint="restore a copy of the checkpoint, or start from the beginning with another checkpoint directory",
            ) from error

    def check_belongs_to(self, identity: JobIdentity) -> None:
        """Check that a job can continue from these offsets; warn when its plan has changed since they were written.

        Sources are matched by node id. The same job may change none to another kind, and ``lost_sources`` says whether it may lose
        one. New sources, and operators or sinks that have changed, are taken as they are: what was read before is not processed
        again. Raises CheckpointError.
        """
        if self.job != identity.job:
            raise CheckpointError(
                f"the checkpoint belongs to the job {self.job!r}",
                job=identity.job,
                option="checkpoint",
                hint="give each job a checkpoint directory of its own",
            )
        if None not in (self.checkpoint, identity.checkpoint) and self.checkpoint != identity.checkpoint:
            raise CheckpointError(
                "the offsets and the other files in the directory belong to different checkpoints",
                job=self.job,
                option="checkpoint",
                hint="restore the whole checkpoint directory from one copy, or start from the beginning with another checkpoint directory",
            )
        for source_id, kind in self.sources.items():
            present = identity.sources.get(source_id)
            if present not in (None, kind):
                raise CheckpointError(
                    f"source {source_id!r} was a {kind} when the checkpoint was written and is now a {present}",
                    job=self.job,
                    option="checkpoint",
                    hint="give the new source another name, or start from the beginning with another checkpoint directory",
                )
        if self.plan != identity.fingerprint:
            logger.warning(
                "job %s: the plan has changed since the checkpoint was written; it continues at its stored positions, and records that "
                "were read before are not processed again",
                self.job,
            )


def _of_source(queues: Mapping[Queue, ReadPosition], source_id: str) -> dict[str, Any]:
    return {queue.name: position.to_json() for queue, position in queues.items() if queue.source == source_id}
