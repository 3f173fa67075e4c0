"""Whether instances of a job can share its keyed stages, and the topics and state stores for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.foundation.errors import CheckpointError, JobError, OptionError, PlanError
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.registry import default_registry
from headrace.interfaces.source import GroupSource
from headrace.interfaces.state_store import StateStore
from headrace.interfaces.topics import Topics
from headrace.plan.graph import Plan

from headrace_light.settings import LightSettings
from headrace_light.shared.topic_state import TopicStateStore
from headrace_light.state_directory import NoStateStore

#: Gives, for the id of a shard's queue, the version of its state that must exist, or None.
Known = Callable[[str], int | None]


@dataclass(frozen=True)
class Elasticity:
    """What the instances of a job use together.

    ``store`` makes the state store of a shuffle from the checkpoint directory, a name, the number of shards, and a function
    that gives the version of a shard that must exist. ``state_moves``: the stores are shared by all instances; else a shard
    that moves begins without state. ``quick_start``: a shard begins before its state is loaded, if store and verbs support it.
    """

    topics: Topics
    store: Callable[[Path | None, str, int, Known], StateStore]
    state_moves: bool
    quick_start: bool = False


def elasticity_of(
    plan: Plan, options: RunOptions, settings: LightSettings, named_store: Callable[[Path], StateStore]
) -> Elasticity:
    """Return how instances of a job share its keyed stages. Raises JobError when they cannot.

    ``named_store`` makes the state store that the options name, below a directory.
    """
    if options.until == "end":
        raise OptionError(
            "instances that share a job run until they are stopped: none of them knows when all input has been read",
            job=plan.job_name,
            option="reliability",
            hint="start the job with until=None, or leave reliability out and run it in one process",
        )
    if options.sinks_ahead != "refuse":
        raise OptionError(
            "instances that share shards number results by positions in the topics of shuffles: this option cannot be used",
            job=plan.job_name,
            option="sinks_ahead",
            hint="leave the option out; if a sink has rows that the topics do not have, the error says what you can do",
        )
    if options.from_savepoint is not None:
        raise savepoints_refused(plan.job_name)
    topics = _topics_of(plan)
    high = settings.reliability == "high"
    if not high or settings.state_store not in (None, "topic"):
        if high:
            _check_is_shared(plan, settings.state_store or "")
        return Elasticity(
            topics, partial(_named, named_store, high), state_moves=high, quick_start=settings.quick_start
        )
    return Elasticity(topics, partial(_topic_store, topics), state_moves=True)


def savepoints_refused(job: str) -> JobError:
    """Return the refusal of savepoints where instances share shards."""
    return CheckpointError(
        "instances that share shards (reliability=…) cannot take savepoints or start from them: "
        "each instance has its own position in the topics, and there is no moment common to all instances",
        job=job,
        option="reliability",
        hint="their state is on the broker or in the state store, and they continue from there",
    )


def _topics_of(plan: Plan) -> Topics:
    for source_id, node in plan.sources.items():
        if not isinstance(node.source, GroupSource):
            raise PlanError(
                f"source {source_id!r} cannot be shared by several instances: each instance would read all of it",
                job=plan.job_name,
                plugin=source_id,
                hint="read it from Kafka or RocketMQ, or leave reliability out and run the job in one process",
            )
    for node in plan.sources.values():
        assert isinstance(node.source, GroupSource)
        topics = node.source.topics()
        if topics is not None:
            return topics
    raise PlanError(
        f"shuffles need a source with a broker, and the job has none: {', '.join(plan.sources)}",
        job=plan.job_name,
        hint="read the source with another driver, or leave reliability out and run the job in one process",
    )


def _check_is_shared(plan: Plan, name: str) -> None:
    if not default_registry().find("state store", name).shared:
        raise OptionError(
            f"state store {name!r} is on one machine: a shard that moves to another machine would not find its state",
            job=plan.job_name,
            option="state_store",
            hint="use 'topic' or 'mysql', or reliability='fast', which gives up the state of a shard that moves",
        )


def _named(
    named_store: Callable[[Path], StateStore],
    shared: bool,
    directory: Path | None,
    name: str,
    count: int,
    known: Known,
) -> StateStore:
    if directory is None and not shared:
        return NoStateStore()
    # A shared store is not on the job's machines, so it needs no directory.
    return named_store((directory or Path()) / name)


def _topic_store(topics: Topics, directory: Path | None, name: str, count: int, known: Known) -> StateStore:
    return TopicStateStore(topics, name, count, known)
