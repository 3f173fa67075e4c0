"""The start of a job from a savepoint: checks the definitions, divides the state, and finds sinks that are ahead of it.

Both backends use it. They differ only in how they store the result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.foundation.errors import CheckpointError, did_you_mean
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.sink import IdempotentSink, Sink
from headrace.plan.graph import Plan, SinkNode
from headrace.plan.state_check import check_definitions
from headrace.runtime.savepoints import Savepoint, operators_of
from headrace.runtime.shard_states import StageStates
from headrace.runtime.sinks_ahead import KnownRows, known_rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavepointStart:
    """A plan that is to begin at a savepoint. ``of`` checks that it can."""

    savepoint: Savepoint
    plan: Plan
    #: Ids of operators whose state is not used.
    dropped: frozenset[str]
    #: What happens if a sink has rows from after the savepoint: "refuse" the start, or "write" these rows again.
    sinks_ahead: str

    @classmethod
    def of(cls, plan: Plan, options: RunOptions) -> SavepointStart | None:
        """Read the savepoint that the options name; None if they name none. Raises CheckpointError when the job does not fit it."""
        if options.from_savepoint is None:
            return None
        savepoint = Savepoint.read(options.from_savepoint)
        start = cls(savepoint, plan, frozenset(options.drop_state), options.sinks_ahead)
        start._check_sources()
        start._check_stages()
        start._check_definitions()
        return start

    def tell(self, shards: Mapping[str, int]) -> None:
        """Log the savepoint at which the job starts, and the changes of the job."""
        savepoint, job = self.savepoint, self.plan.job_name
        changes = [] if savepoint.job == job else [f"it was {savepoint.job}"]
        changes += [
            f"{name} has {count} shards, not {savepoint.place.shards[name]}"
            for name, count in shards.items()
            if savepoint.place.shards.get(name, count) != count
        ]
        changes += [f"the state of {name} is dropped" for name in sorted(self.dropped)]
        logger.warning(
            "job %s begins at the savepoint %s%s", job, savepoint.path, "".join(f"; {each}" for each in changes)
        )
        if not savepoint.place.stopped and savepoint.job != job:
            logger.warning(
                "job %s: %s continued after the savepoint was taken; if both write to the same target, it has the rows since then from "
                "both",
                job,
                savepoint.job,
            )

    def states(self, shards: Mapping[str, int]) -> Iterator[tuple[str, int, bytes]]:
        """Yield (shuffle, shard, state) for all shards of the new start. Raises CheckpointError if state cannot be
        divided in this way.
        """
        before = self.savepoint.place.shards
        changed = {name: count for name, count in shards.items() if before.get(name, count) != count}
        for name, count in shards.items():
            if name in before:
                stage = StageStates(self.plan, name)
                made = stage.divided(self.savepoint.states(name), count, upstream=changed, dropped=self.dropped)
                for number, state in enumerate(made):
                    yield name, number, state

    def sequence_before(self, sinks: Mapping[str, Sink], shards: Mapping[str, int], now_us: int) -> int:
        """Return the number after which new entries are numbered: no sink knows a greater one.

        ``sinks`` by node id, opened; They are asked for their position of each shard, and forget that they were asked.
        Raises CheckpointError when one is ahead of the savepoint, or may be, unless that was accepted.
        """
        place = self.savepoint.place
        greatest = max(now_us, place.sequence or 0)
        asked = {name: range(max(count, place.shards.get(name, 0))) for name, count in shards.items()}
        for each in known_rows(self.plan, sinks, asked):
            greatest = max(greatest, each.entry)
            self._check_behind(each)
        for sink_id, sink in sinks.items():
            is_keyed = any(self._feeds(name, sink_id) for name in shards)
            if is_keyed and isinstance(sink, IdempotentSink) and sink.changes is None and not place.stopped:
                self._check_may_be_ahead(sink_id)
        return greatest

    # ---------------------------------------------------------------------------------------------------- checks

    def _check_sources(self) -> None:
        present = {name: type(node.source).__name__ for name, node in self.plan.sources.items()}
        for name, kind in self.savepoint.sources.items():
            if name not in present:
                raise self._error(
                    f"the savepoint knows a source {name!r}, which the job does not have",
                    did_you_mean(name, present, known="sources of the job")
                    + f"; name the source as before (name={name!r})",
                )
            if present[name] != kind:
                raise self._error(
                    f"source {name!r} was a {kind} when the savepoint was taken and is now a {present[name]}",
                    "positions of one kind of source cannot be used by another",
                )

    def _check_stages(self) -> None:
        before, now = self.savepoint.operators, operators_of(self.plan)
        unknown = sorted(self.dropped - {*before, *now})
        if unknown:
            raise CheckpointError(
                f"there is no verb with state {unknown[0]!r}",
                job=self.plan.job_name,
                option="drop_state",
                hint=did_you_mean(unknown[0], {*before, *now}, known="verbs with state"),
            )
        for name in sorted(set(before) - set(now) - self.dropped):
            raise self._error(
                f"the savepoint has a state of {name!r} ({before[name].verb}), which the job does not have",
                f"start the job as it was, or leave that state out: drop_state={name!r}",
            )
        for name in sorted(set(now) - set(before) - self.dropped):
            raise self._error(
                f"the savepoint has no state of {name!r} ({now[name]['verb']})",
                f"to start it with empty state, drop_state={name!r}",
            )
        for name, keys in self.savepoint.keys.items():
            node = self.plan.shuffles.get(name)
            if node is not None and tuple(node.keys) != keys and not self._all_dropped(name):
                raise self._error(
                    f"rows were divided by {_shown(keys)} at {name!r}, and are now divided by {_shown(node.keys)}",
                    "state that is divided by another key cannot be used: start from the beginning, or leave that state out with "
                    "drop_state",
                )

    def _check_definitions(self) -> None:
        now = self.plan.state_definitions
        stored = {name: each for name, each in self.savepoint.definitions.items() if name not in self.dropped}
        stored |= {name: now[name] for name in self.dropped if name in now}
        check_definitions(self.plan, stored, place=f"the savepoint {self.savepoint.path}")

    def _all_dropped(self, shuffle: str) -> bool:
        names = {name for name, each in self.savepoint.operators.items() if each.shuffle == shuffle}
        return names <= self.dropped

    def _check_behind(self, found: KnownRows) -> None:
        if found.entry <= (self.savepoint.place.sequence or 0) or self.sinks_ahead == "write":
            return
        raise self._error(
            f"sink {found.sink_id!r} has rows of shard {found.queue} that came after the savepoint: the job went on after it was taken",
            "start from the job's checkpoint or from a later savepoint; or empty the target of the sink; or accept that rows since the "
            "savepoint are written twice: sinks_ahead='write'",
            found.queue.id,
        )

    def _check_may_be_ahead(self, sink_id: str) -> None:
        if self.sinks_ahead == "write" or self.savepoint.job != self.plan.job_name:
            return
        raise self._error(
            f"the job went on after the savepoint was taken, and sink {sink_id!r} cannot be asked whether it has rows since",
            "start from the job's checkpoint, or take a savepoint that stops the job; or accept that rows since the savepoint are written "
            "twice, with other ids: sinks_ahead='write'",
        )

    def _feeds(self, shuffle: str, sink_id: str) -> bool:
        return isinstance(self.plan.stage(self.plan.nodes[shuffle]).get(sink_id), SinkNode)

    def _error(self, message: str, hint: str, queue: str | None = None) -> CheckpointError:
        return CheckpointError(message, job=self.plan.job_name, option="from_savepoint", hint=hint, queue=queue)


def _shown(keys: tuple[tuple[str, ...], ...]) -> str:
    return " and ".join(", ".join(side) or "nothing" for side in keys)
